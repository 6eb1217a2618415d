#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The forms of the library: which one `verbsctl run` chooses, what each does for Debian's programs, for programs that open
# libibverbs themselves, for plugins that see their own libraries first, for programs linked with -lverbsd, and where no
# rdma-core is installed.
# Inner shells have variables of their own; functions are called by name.
# shellcheck disable=SC2016,SC2317
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need ibv_rc_pingpong ibv_devinfo jq
here=$(cd "$(dirname "$0")" && pwd)
read -ra cc <<<"${CC:-cc}"
command -v "${cc[0]}" >/dev/null || tap_skip_all "no compiler"
cp "$here"/forms_* "$work/out"
cd "$work/out" || exit 99
out=$work/out/text
folder=$(readlink -f "$root/lib/verbsd")

# run STATUS NAME COMMAND...: passes if the command ends with that status. Output in $out.
run()
{
	local want=$1 name=$2 got
	shift 2
	(as_user "$@") >"$out" 2>&1 </dev/null
	got=$?
	if [ $got = "$want" ]; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "status $got, not $want: $*" "$(head -n 20 "$out")"
	fi
}

# says NAME TEXT: that is a line of the last output.
says()
{
	if grep -qxF -e "$2" "$out"; then
		tap_ok "$1"
	else
		tap_not_ok "$1" "no line is: $2" "$(head -n 20 "$out")"
	fi
}

daemon_start

# --- which form

environment=(sh -c 'echo "$LD_PRELOAD|$LD_LIBRARY_PATH"')
for form in preload soname both auto; do
	case $form in
	preload) want="$(readlink -f "$root/lib")/libverbsd.so.1|" ;;
	soname) want="|$folder" ;;
	*) want="$folder/libibverbs.so.1|$folder" ;;
	esac
	run 0 "--form $form" "$verbsctl" run --no-paths --form $form -- "${environment[@]}"
	says "is in the environment" "$want"
done
run 2 "--form with a wrong name" "$verbsctl" run --form frob -- true
run 2 "a library is named and a form that is none of its" env VERBSD_LIBRARY="$preload" "$verbsctl" run --form soname -- true
run 0 "a folder that is there stays" env LD_LIBRARY_PATH=/a:/b "$verbsctl" run --no-paths --form soname -- "${environment[@]}"
says "behind ours" "|$folder:/a:/b"
run 0 "once is enough" "$verbsctl" run --no-paths --form soname -- "$verbsctl" run --no-paths --form soname -- \
	"${environment[@]}"
says "for a run in a run" "|$folder"

# A libibverbs that is newer than everything we know: then its own versions have to be there.
echo 'IBVERBS_1.99 { *; };' >newer.map
mkdir newer
echo 'int ibv_new; int ibv_new = 1;' | "${cc[@]}" -shared -fPIC -x c - -o newer/libibverbs.so.1 \
	-Wl,-soname,libibverbs.so.1 -Wl,--version-script=newer.map
chmod -R go+rX newer
run 0 "with a newer libibverbs it is the preload" env LD_LIBRARY_PATH="$PWD/newer" "$verbsctl" run --no-paths -- \
	"${environment[@]}"
says "that libibverbs stays where it was" "$(readlink -f "$root/lib")/libverbsd.so.1|$PWD/newer"

# --- programs

build()
{
	local output=$1
	shift
	"${cc[@]}" -O1 -g -D_GNU_SOURCE -Wall -Werror -I"$root/include" -o "$output" "$@" || {
		echo "Bail out! $output does not build"
		exit 1
	}
}
build forms_open forms_open.c -ldl
build plugin.so -shared -fPIC forms_plugin.c -libverbs
build plugin_verbsd.so -shared -fPIC forms_plugin.c -L"$root/lib" -lverbsd
build forms_host -DHOST forms_plugin.c -ldl
build forms_linked forms_linked.c -L"$root/lib" -lverbsd -Wl,-rpath,"$root/lib" -ldl
chmod 755 forms_open plugin.so plugin_verbsd.so forms_host forms_linked
tap_empty "a program linked with -lverbsd needs no libibverbs" "$(readelf -dW forms_linked | grep 'NEEDED.*libibverbs')"

client()
{
	as_user "$verbsctl" run --no-paths --form "$form" -- "$@"
}

for form in preload soname both; do
	run_form=("$verbsctl" run --no-paths --form "$form" --)
	run 0 "$form: ibv_devices" "${run_form[@]}" ibv_devices
	run 0 "$form: ibv_devinfo -v" "${run_form[@]}" ibv_devinfo -v -d soft0
	for program in rc uc ud srq; do
		pair "$form: ibv_${program}_pingpong" "ibv_${program}_pingpong -p %P -c -g 0 -n 200" \
			"ibv_${program}_pingpong -p %P -c -g 0 -n 200 127.0.0.1"
	done
	if command -v ib_write_bw >/dev/null; then
		# It is linked with libmlx5 and libefa, which bind the interface to providers at their start.
		pair "$form: ib_write_bw" "ib_write_bw -p %P -n 50" "ib_write_bw -p %P -n 50 127.0.0.1"
	else
		tap_skip "$form: ib_write_bw" "perftest is not installed"
	fi

	# Out of a plain preload's reach, as the manual says.
	status=0
	[ $form != preload ] || status=3
	run $status "$form: a program that opens libibverbs" "${run_form[@]}" ./forms_open
	run $status "$form: a plugin that sees its own libraries first" "${run_form[@]}" ./forms_host ./plugin.so
	run 0 "$form: a program linked with -lverbsd" "${run_form[@]}" ./forms_linked
	if [ $form != preload ]; then
		run 0 "$form: it opens libibverbs, too" "${run_form[@]}" ./forms_linked linked
		run 0 "$form: and uses that first" "${run_form[@]}" ./forms_linked opened
		run 0 "$form: a plugin linked with -lverbsd" env LD_LIBRARY_PATH="$root/lib" "${run_form[@]}" \
			./forms_host ./plugin_verbsd.so
	fi
done
run 0 "a program linked with -lverbsd needs no verbsctl" ./forms_linked

# A session for each copy of the library would be two for that process.
mkfifo hold
chmod 666 hold
cat >count.c <<-'EOF'
	#include <verbsd.h>
	#include "forms_open.h"
	int main(void)
	{
	#define CALL(name, version) .name = name,
		static const struct calls linked = { CALLS(CALL) };
	#undef CALL
		struct calls opened;
		struct ibv_context *a, *b;
		if (calls_open(&opened))
			return 1;
		a = soft_open(&linked);
		b = soft_open(&opened);
		puts(a && b ? "open" : "not open");
		fflush(stdout);
		return getchar() == EOF;
	}
EOF
build count count.c -L"$root/lib" -lverbsd -Wl,-rpath,"$root/lib" -ldl
chmod 755 count
(as_user "$verbsctl" run --no-paths --form soname -- ./count <>hold >"$out" 2>&1) &
counted=$!
pids+=("$counted")
until_true 20 grep -q open "$out"
sessions=$("$verbsctl" --socket "$socket" clients --json | jq --argjson pid $counted '[.clients[] | select(.pid == $pid)] | length')
if [ "$sessions" = 1 ] && grep -qx open "$out"; then
	tap_ok "a process that has the library twice is one client"
else
	tap_not_ok "a process that has the library twice is one client" "$sessions sessions" "$(cat "$out")"
fi
echo >hold
wait $counted

# --- without rdma-core

# take FILE...: into the bare root, with the libraries that they need but libibverbs and what that needs.
bare=$work/bare
take()
{
	local file
	for file; do
		mkdir -p "$bare/$(dirname "$file")"
		cp -L "$file" "$bare/$file"
		ldd "$file" | grep -oE '/[^ ]+' | grep -vE 'libibverbs|libnl|libmlx|libefa|librdmacm' | while IFS= read -r library; do
			mkdir -p "$bare/$(dirname "$library")"
			cp -Ln "$library" "$bare/$library"
		done
	done
}
in_bare=()
if [ "$(id -u)" = 0 ]; then
	in_bare=(/usr/sbin/chroot --userspec=$nobody:$nobody "$bare")
elif unshare -Ur true 2>/dev/null; then
	in_bare=(unshare -Ur /usr/sbin/chroot "$bare")
fi
if [ ${#in_bare[@]} = 0 ]; then
	tap_skip "a system without rdma-core" "neither root nor a user namespace"
else
	programs=("$(command -v ibv_rc_pingpong)" "$(command -v ibv_devinfo)")
	take "${programs[@]}" "$verbsctl" "$PWD/forms_open"
	mkdir -p "$bare/run" "$bare/tmp" "$bare$(readlink -f "$root/lib")"
	chmod 1777 "$bare/tmp"
	cp -a "$(readlink -f "$root/lib")"/. "$bare$(readlink -f "$root/lib")"
	[ -e "$bare/lib64/ld-linux-x86-64.so.2" ] || cp -L --parents /lib64/ld-linux-x86-64.so.2 "$bare"
	ln "$socket" "$bare/run/verbsd.sock"
	# bare_run PROGRAM...: through verbsctl, which has no /bin/true there to try the library on.
	bare_run()
	{
		ulimit -l 64
		exec env -i PATH=/usr/bin:/bin VERBSD_SOCKET=/run/verbsd.sock "${in_bare[@]}" "$verbsctl" run -- "$@"
	}
	if (bare_run "${programs[1]}" -d soft0) >"$out" 2>&1 && grep -q 'PORT_ACTIVE' "$out"; then
		tap_ok "a system without rdma-core: ibv_devinfo"
	else
		tap_not_ok "a system without rdma-core: ibv_devinfo" "$(cat "$out")"
	fi
	if (bare_run "$PWD/forms_open") >"$out" 2>&1; then
		tap_ok "a system without rdma-core: a program that opens libibverbs"
	else
		tap_not_ok "a system without rdma-core: a program that opens libibverbs" "$(cat "$out")"
	fi
	client()
	{
		bare_run "${@:5}" # without timeout and its arguments
	}
	pair "a system without rdma-core: ibv_rc_pingpong" "${programs[0]} -p %P -c -n 200" "${programs[0]} -p %P -c -n 200 127.0.0.1"
fi

if until_true 20 daemon_empty; then
	tap_ok "the daemon has no object left"
else
	tap_not_ok "the daemon has no object left" "$("$verbsctl" --socket "$socket" list 2>&1)"
fi
if daemon_stop; then tap_ok "the daemon ends with status 0"; else tap_not_ok "the daemon ends with status 0"; fi
tap_done
