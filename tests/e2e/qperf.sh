#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Debian's qperf, its tests that need no rdma_cm.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need qperf jq
daemon_start
seconds=1
[ -z "$full" ] || seconds=5

port_next
lp=$port
(client qperf -lp $lp >"$work/out/qserver" 2>&1) &
server=$!
pids+=($server)
tap_run "qperf's server listens" until_true 20 listens $server $lp

for test in rc_bw rc_lat uc_bw uc_lat ud_bw ud_lat rc_rdma_write_bw rc_rdma_read_bw rc_rdma_write_lat rc_rdma_read_lat \
	rc_compare_swap_mr rc_fetch_add_mr rc_bi_bw ver_rc_compare_swap ver_rc_fetch_add; do
	(client_for 60 qperf -lp $lp -t $seconds 127.0.0.1 $test >"$work/out/q" 2>&1)
	status=$?
	# a figure: "    bw  =  5.3 GB/sec", and not zero
	if [ $status = 0 ] && grep -qE '= +[1-9][0-9.]* ' "$work/out/q"; then
		tap_ok "qperf $test"
	else
		tap_not_ok "qperf $test" "status $status" "$(cat "$work/out/q")" "$(tail -n 5 "$work/out/qserver")"
	fi
done
kill $server
wait $server
tap_run "the daemon has no object left" until_true 20 daemon_empty
tap_done
