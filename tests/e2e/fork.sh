#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Fork: what ibv_fork_init(3) promises, which memory children have, and that they do nothing to their parents. Cases are named
# after the field reports D1 to D15.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
here=$(cd "$(dirname "$0")" && pwd)
# The unprivileged user may not be able to reach the build tree.
for program in fork fork_pages fork_children; do
	[ -x "$VERBSD_BUILD/tests/e2e/$program" ] || { echo "Bail out! no $program"; exit 1; }
	cp "$VERBSD_BUILD/tests/e2e/$program" "$work/out/$program"
	chmod 755 "$work/out/$program"
done
# Children end with copies of what their parents made.
export ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0"
unset RDMAV_FORK_SAFE IBV_FORK_SAFE RDMAV_HUGEPAGES_SAFE

# run_case NAME PROGRAM CASE [ROUNDS]: in a process of its own.
run_case()
{
	local name=$1 out status
	shift
	out=$( (client_for 200 "$work/out/$1" "${@:2}") 2>&1)
	status=$?
	case $status in
	0) tap_ok "$name" ;;
	77) tap_skip "$name" "$out" ;;
	*) tap_not_ok "$name" "status $status" "$out" "$(tail -n 5 "$work/daemon.log")" ;;
	esac
}

nothing_left()
{
	if until_true 20 daemon_empty; then
		tap_ok "$1"
	else
		tap_not_ok "$1" "$("$verbsctl" --socket "$socket" status)" "$("$verbsctl" --socket "$socket" list)"
	fi
}

# Huge pages for the time of this test, if there are none and it may ask for some.
huge=/proc/sys/vm/nr_hugepages
if [ "$(id -u)" = 0 ] && [ -w $huge ] && [ "$(cat $huge)" = 0 ] && echo 4 2>/dev/null >$huge; then
	trap 'echo 0 >$huge; cleanup' EXIT
fi

daemon_start
for name in $("$work/out/fork"); do
	case $name in
	*-asked | *real*) ;;
	*) run_case "${name//-/ }" fork "$name" ;;
	esac
done
run_case "d8 not asked" fork d8-not-asked
for name in RDMAV_FORK_SAFE IBV_FORK_SAFE; do
	export $name=1
	run_case "d8 asked by $name" fork d8-asked
	unset $name
done
for name in $("$work/out/fork_pages"); do
	case $name in
	d[67]-*)
		run_case "${name//-/ }" fork_pages "$name"
		export RDMAV_HUGEPAGES_SAFE=1
		run_case "${name//-/ }, with RDMAV_HUGEPAGES_SAFE" fork_pages "$name"
		unset RDMAV_HUGEPAGES_SAFE
		;;
	*) run_case "${name//-/ }" fork_pages "$name" ;;
	esac
done
nothing_left "nothing is left in the daemon"

rounds=1000
[ "${VERBSD_SANITIZER-}" = "" ] || rounds=100
[ -z "$full" ] || rounds=$((rounds * 10))
for name in $("$work/out/fork_children"); do
	case $name in
	d11-*) run_case "${name//-/ }, $rounds children" fork_children "$name" $rounds ;;
	children-of-many-threads) run_case "${name//-/ }, $((rounds / 10))" fork_children "$name" $((rounds / 10)) ;;
	*) run_case "${name//-/ }" fork_children "$name" ;;
	esac
done
nothing_left "nothing is left of parents and children"

# A real library with one device, which asks for protection as real ones do.
cc=${CC:-cc}
mkdir "$work/real"
chmod 755 "$work/real"
# shellcheck disable=SC2086 # the compiler may have arguments
if [ -n "${VERBSD_SANITIZER-}" ]; then
	tap_skip "real devices" "the stand-in for the real library is not instrumented"
elif ! command -v ${cc%% *} >/dev/null; then
	tap_skip "real devices" "no compiler"
elif $cc -shared -fPIC -o "$work/real/libibverbs.so.1" -Wl,-soname,libibverbs.so.1 \
	-Wl,--version-script="$here/forward_real.map" "$here/forward_real.c"; then
	export LD_LIBRARY_PATH=$work/real
	run_case "d8 real devices" fork d8-real-devices
	run_case "real registrations" fork real-registrations
	run_case "real registration first" fork real-registration-first
	unset LD_LIBRARY_PATH
else
	tap_not_ok "real devices" "the stand-in does not build"
fi
tap_done
