#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# UCX's own benchmark between two processes: its protocols over reliable connections, over datagrams and over both, and
# its two transports by themselves.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need ucx_perftest jq
daemon_start
n=200
[ -z "$full" ] || n=20000

# ucx NAME TIMES TRANSPORTS OPTION...: both ends; the client's last line is the result.
ucx()
{
	local name=$1 n=$2 tls=$3 server status
	shift 3
	port_next
	local command=(env -C / UCX_TLS="$tls" UCX_NET_DEVICES=soft0:1 timeout -k 5 120 "$verbsctl" run -- ucx_perftest)
	(as_user "${command[@]}" "$@" -n $n -p $port >"$work/out/server" 2>&1) &
	server=$!
	pids+=($server)
	until_true 20 listens $server $port
	(as_user "${command[@]}" 127.0.0.1 "$@" -n $n -p $port >"$work/out/client" 2>&1)
	status=$?
	kill $server 2>/dev/null
	wait $server
	if [ $status = 0 ] && tail -n 1 "$work/out/client" | grep -qE "^Final: +$n "; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "status $status" "$(tail -n 15 "$work/out/client")" "$(tail -n 5 "$work/out/server")"
	fi
}

tests="tag_lat tag_bw"
[ -z "$full" ] || tests+=" tag_sync_lat ucp_put_lat ucp_put_bw ucp_get ucp_add ucp_fadd ucp_swap ucp_cswap stream_lat stream_bw ucp_am_lat ucp_am_bw"
for tls in rc_v,self ud_v,self rc_v,ud_v,self; do
	for test in $tests; do
		sizes=4096
		case $test in *add | *swap) sizes=8 ;; *) [ -z "$full" ] || sizes="8 4096 1048576" ;; esac
		for size in $sizes; do
			ucx "$test of $size bytes over $tls" $((size > 4096 ? n / 100 : n)) $tls -t "$test" -s "$size"
		done
	done
done
ucx "active messages of rc_verbs" $n all -d soft0:1 -x rc_verbs -t am_lat
ucx "puts of rc_verbs" $n all -d soft0:1 -x rc_verbs -t put_lat
ucx "gets of rc_verbs" $n all -d soft0:1 -x rc_verbs -t get -D bcopy
ucx "active messages of ud_verbs" $n all -d soft0:1 -x ud_verbs -t am_bw

tap_run "the daemon has no object left" until_true 20 daemon_empty
daemon_stop

# UCX before 1.16 looks for a device whose atomics are exact among its own QPs, and knows no better; its benchmark has atomics of
# rc_verbs then.
printf '[device soft0]\natomics = device\n' >"$work/atomics.conf"
chmod 644 "$work/atomics.conf"
daemon_start --config "$work/atomics.conf"
tap_run "ibv_devinfo says so" grep -q 'atomic_cap:[[:space:]]*ATOMIC_HCA' <(client ibv_devinfo -v 2>&1)
(as_user env -C / timeout -k 5 60 "$verbsctl" run -- ucx_info -d 2>&1) | sed -n '/Transport: rc_verbs/,/Transport: ud_/p' >"$work/out/info"
tap_run "ucx_info has atomics of the device" grep -q 'atomic_fadd: *64' "$work/out/info"
for test in add fadd cswap; do
	ucx "$test of rc_verbs" $n all -d soft0:1 -x rc_verbs -t ${test/#add/add_lat}
	ucx "$test between workers" $n rc_v,self -t ucp_$test -s 8
done
tap_run "the daemon has no object left" until_true 20 daemon_empty
tap_done
