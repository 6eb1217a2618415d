#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# /dev/infiniband and /sys/class/infiniband as programs see them that look there by themselves: by interposed functions
# and in a namespace; UCX and libfabric, which do; and what is left behind.
# Inner shells have variables of their own; functions are called by name.
# shellcheck disable=SC2016,SC2317
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need jq ls python3
out=$work/out/text
export TMPDIR=$work/tmp LC_ALL=C
unset XDG_RUNTIME_DIR
mkdir -m 1777 "$TMPDIR"

conf=$work/verbsd.conf
printf '[device soft0]\n[device roce0]\nlink_layer = ethernet\n' >"$conf"
chmod 644 "$conf"
daemon_start --config "$conf"

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
		return 1
	fi
}

has_one_qp()
{
	(as_user "$verbsctl" --admin-socket "$work/none" list qp --json) 2>/dev/null | jq -e '.qp | length == 1' >/dev/null
}

# says NAME TEXT: passes if that is the last output.
says()
{
	if [ "$(cat "$out")" = "$2" ]; then
		tap_ok "$1"
	else
		tap_not_ok "$1" "not: $2" "$(head -n 20 "$out")"
	fi
}

# Others of this machine may make files there, between two looks.
same_folders()
{
	local plain=(ls /sys/class/net /dev/null /dev/shm /dev/pts)
	[ "$( (as_user "${plain[@]}") 2>&1)" = "$( (as_user "${view[@]}" "${plain[@]}") 2>&1)" ]
}

modes=(interpose)
if (as_user "$verbsctl" run --paths namespace -- true) >"$out" 2>&1; then
	modes+=(namespace)
else
	tap_skip "namespace" "$(head -n 1 "$out")"
fi
real=
[ ! -e /sys/class/infiniband ] || real=1

for mode in "${modes[@]}"; do
	view=("$verbsctl" run --paths "$mode" --)
	run 0 "$mode: ls" "${view[@]}" ls /dev/infiniband
	[ -n "$real" ] || says "$mode: the devices" "$(printf 'roce0\nsoft0')"
	run 0 "$mode: ls -l" "${view[@]}" ls -l /dev/infiniband/ /sys/class/infiniband/ /sys/class/infiniband/soft0/ports/1
	tap_empty "$mode: without a word" "$(grep -i 'ls: ' "$out")"
	run 0 "$mode: stat" "${view[@]}" stat -Lc '%F %t:%T' /dev/infiniband/soft0
	says "$mode: a character device" 'character special file 1:3'
	run 0 "$mode: test" "${view[@]}" sh -c 'test -c /dev/infiniband/soft0 -a -r /dev/infiniband/soft0 -a -w /dev/infiniband/soft0'
	run 0 "$mode: cat" "${view[@]}" cat /sys/class/infiniband/soft0/ports/1/state /sys/class/infiniband/roce0/ports/1/link_layer \
		/sys/class/infiniband/roce0/ports/1/gid_attrs/types/1
	says "$mode: as the kernel writes" "$(printf '4: ACTIVE\nEthernet\nRoCE v2')"
	run 0 "$mode: a shell's pattern" "${view[@]}" sh -c 'echo /sys/class/infiniband/soft*/ports/1/gids/0'
	says "$mode: finds the file" /sys/class/infiniband/soft0/ports/1/gids/0
	run 0 "$mode: Python" "${view[@]}" python3 -c 'import os, glob
print(sorted(d.name for d in os.scandir("/sys/class/infiniband") if d.name in ("soft0", "roce0")), len(glob.glob("/sys/class/infiniband/*/ports/1/lid")) > 1,
	open("/sys/class/infiniband/soft0/node_guid").read().strip())'
	says "$mode: sees the same" "['roce0', 'soft0'] True 0256:5344:0000:0001"
	# The library's answers and the files are the same.
	run 0 "$mode: verbs" "${view[@]}" sh -c 'ibv_devinfo -v -d roce0 | sed -nE "s/.*GID\[ *3\]:[[:space:]]*([^,]*).*/\1/p"
		cat /sys/class/infiniband/roce0/ports/1/gids/3'
	run 0 "$mode: writing is refused" "${view[@]}" sh -c '! echo x >/sys/class/infiniband/soft0/node_desc'
	run 0 "$mode: other folders are there" "${view[@]}" sh -c 'ls /sys/class/net /dev/null /dev/shm /dev/pts; ls /dev/fd/ >/dev/null'
	tap_run "$mode: and are what they were, to the letter" until_true 20 same_folders
	run 0 "$mode: who it is" "${view[@]}" id -u
	says "$mode: is who it was" "$(as_user id -u)"
	# Every function. Static links and names in sysfs are as in the view, so what the real ones have is not looked at.
	(as_user "${view[@]}" "$VERBSD_BUILD/tests/e2e/paths" soft0) >"$out" 2>&1
	tap_empty "$mode: every function of libc" "$(grep -v '^ok' "$out" | grep -v '^1\.\.')"
	grep -q '^1\.\.' "$out" || tap_not_ok "$mode: to its end" "$(tail -n 5 "$out")"
	port_next
	(as_user "${view[@]}" ibv_rc_pingpong -p $port >"$out" 2>&1) &
	server=$!
	pids+=("$server")
	until_true 20 listens $server $port
	# A listing ends at the domain: user, socket and pid namespace.
	if until_true 20 has_one_qp; then
		tap_ok "$mode: is in its user's domain"
	else
		tap_not_ok "$mode: is in its user's domain" "$(cat "$out")"
	fi
	kill -9 $server
	wait $server 2>/dev/null
done

run 0 "--no-paths" "$verbsctl" run --no-paths -- sh -c 'echo "$VERBSD_PATHS"; ls /dev/infiniband/soft0 /sys/class/infiniband/soft0 2>&1 | grep -c "cannot access"'
says "shows nothing" "$(printf '\n2')"
run 0 "--paths none" "$verbsctl" run --paths none -- sh -c '! test -e /dev/infiniband/soft0'
run 0 "a run in a run has its own" "$verbsctl" run -- "$verbsctl" run --no-paths -- sh -c '! test -e /dev/infiniband/soft0'
run 2 "--paths with a wrong name" "$verbsctl" run --paths frob -- true
run 0 "the form without a preload has paths, too" "$verbsctl" run --form soname -- test -c /dev/infiniband/soft0
run 0 "without a daemon" "$verbsctl" --socket "$work/none.sock" run -- sh -c '! test -e /dev/infiniband/soft0'
says "nothing is said" ""
run 0 "where nothing can be written the program runs" env TMPDIR=/proc XDG_RUNTIME_DIR=/proc "$verbsctl" run -- true
if grep -q '^verbsctl: run: no files for /dev/infiniband' "$out"; then
	tap_ok "and one line says why"
else
	tap_not_ok "and one line says why" "$(cat "$out")"
fi
run 126 "unless it was asked for" env TMPDIR=/proc "$verbsctl" run --paths interpose -- true

# --- what is kept

kept()
{
	find "$TMPDIR" -mindepth 1 -maxdepth 2 | wc -l
}
one=$(kept)
run 0 "the same devices again" "$verbsctl" run -- true
if [ "$(kept)" = "$one" ] && [ "$one" = 2 ]; then
	tap_ok "have the same folder"
else
	tap_not_ok "have the same folder" "$(find "$TMPDIR" | head)"
fi
run 0 "a cleaner that took some of it" sh -c 'rm -rf "$TMPDIR"/verbsd-paths-*/*/sys/class/infiniband/soft0/ports'
run 0 "is made up for" "$verbsctl" run -- test -e /sys/class/infiniband/soft0/ports/1/gids/0
if [ "$(id -u)" = 0 ]; then
	# Somebody else's folder under our name is not used.
	rm -rf "$TMPDIR"/verbsd-paths-*
	mkdir "$TMPDIR/verbsd-paths-$nobody"
	run 126 "a folder of another user's is not used" "$verbsctl" run --paths interpose -- true
	rmdir "$TMPDIR/verbsd-paths-$nobody"
else
	tap_skip "a folder of another user's" "not root"
fi
run 0 "a private daemon" "$verbsctl" run --private -- sh -c 'test -c /dev/infiniband/soft0 && echo "$VERBSD_PATHS"'
tap_empty "leaves nothing" "$(find "$TMPDIR" -maxdepth 1 -name 'verbsd-??????')"
if [[ " ${modes[*]} " == *" namespace "* ]]; then
	run 0 "a private daemon and a namespace" "$verbsctl" run --private --paths namespace -- test -c /dev/infiniband/soft0
fi

# --- UCX and libfabric

client()
{
	as_user env UCX_TLS="$transports,self" UCX_NET_DEVICES="$device:1" "$verbsctl" run --paths "$mode" -- "$@"
}

if ! command -v ucx_perftest >/dev/null || ! command -v ucx_info >/dev/null; then
	tap_skip "UCX" "ucx-utils is not installed"
else
	for mode in "${modes[@]}"; do
		for device in soft0 roce0; do
			run 0 "$mode: ucx_info on $device" env UCX_NET_DEVICES=$device:1 "$verbsctl" run --paths "$mode" -- ucx_info -d
			for transport in rc_verbs ud_verbs; do
				if grep -qE "Transport: $transport" "$out"; then
					tap_ok "$mode: $transport on $device"
				else
					tap_not_ok "$mode: $transport on $device" "$(grep -E 'Transport|Device' "$out")"
				fi
			done
		done
	done
	run 0 "--no-paths: ucx_info" "$verbsctl" run --no-paths -- ucx_info -d
	tap_empty "UCX takes no device without its node" "$(grep -E 'Transport: (rc|ud)_verbs' "$out")"

	mode=interpose
	tests="tag_lat ucp_am_bw ucp_put_bw ucp_get"
	[ -z "$full" ] || tests="tag_lat tag_bw tag_sync_lat stream_bw stream_lat ucp_am_bw ucp_am_lat ucp_put_lat ucp_put_bw ucp_get
		ucp_add ucp_fadd ucp_swap ucp_cswap"
	for device in soft0 roce0; do
		for transports in rc_v,ud_v ud_verbs; do
			for test in $tests; do
				[ $test = tag_lat ] || [ -n "$full" ] || [ $transports != ud_verbs ] || continue
				case $test in
				*add | *swap) size=8 ;;
				*) size=4096 ;;
				esac
				PAIR_LIMIT=60 pair "ucx_perftest -t $test over $transports on $device" \
					"ucx_perftest -t $test -p %P -n 200 -w 10 -s $size" \
					"ucx_perftest -t $test -p %P -n 200 -w 10 -s $size 127.0.0.1"
			done
		done
	done
	# Each kind of GID, and the header that it means for datagrams.
	transports=ud_verbs
	for index in 0 1 2 3; do
		export UCX_IB_GID_INDEX=$index
		if [ "$index" -gt 1 ] &&
			! (as_user "$verbsctl" run -- grep -q '0000:0000:0000:0000:0000:ffff' /sys/class/infiniband/roce0/ports/1/gids/2) 2>/dev/null; then
			tap_skip "ucx_perftest by GID $index" "no interface with an IPv4 address"
			continue
		fi
		PAIR_LIMIT=60 pair "ucx_perftest by GID $index" "ucx_perftest -t tag_lat -p %P -n 100 -w 10" \
			"ucx_perftest -t tag_lat -p %P -n 100 -w 10 127.0.0.1"
	done
	unset UCX_IB_GID_INDEX
fi

if command -v fi_info >/dev/null; then
	run 0 "fi_info -p verbs" "$verbsctl" run -- fi_info -p verbs
	for want in 'domain: soft0$' 'domain: soft0-dgram' 'FI_EP_MSG' 'FI_EP_DGRAM' 'domain: roce0$'; do
		if grep -q "$want" "$out"; then
			tap_ok "fi_info says $want"
		else
			tap_not_ok "fi_info says $want" "$(head -n 40 "$out")"
		fi
	done
else
	tap_skip "fi_info -p verbs" "libfabric-bin is not installed"
fi

if until_true 20 daemon_empty; then
	tap_ok "the daemon has no object left"
else
	tap_not_ok "the daemon has no object left" "$("$verbsctl" --socket "$socket" list 2>&1)"
fi
if daemon_stop; then tap_ok "the daemon ends with status 0"; else tap_not_ok "the daemon ends with status 0"; fi
tap_done
