#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Debian's perftest between two processes: bandwidth and latency of send, write, read and atomics, over RC and, where
# they exist, UC and UD; events, all sizes, many QPs, both directions, depths, duration mode.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need ib_write_bw jq
daemon_start

if [ -n "$full" ]; then n=5000 short=1000 duration=10; else n=500 short=100 duration=2; fi

# perf NAME PROGRAM [OPTION...]: -F quietens a warning about changing clocks
perf()
{
	local name=$1
	shift
	pair "$name" "$* -F -p %P" "$* -F -p %P 127.0.0.1"
}

for op in send write read atomic; do
	perf "ib_${op}_bw RC" ib_${op}_bw -n $n
	perf "ib_${op}_lat RC" ib_${op}_lat -n $n
	perf "ib_${op}_bw RC -q 16" ib_${op}_bw -n $n -q 16
	perf "ib_${op}_bw RC -b both directions" ib_${op}_bw -n $n -b
	perf "ib_${op}_bw RC -t 1" ib_${op}_bw -n $short -t 1
	perf "ib_${op}_bw RC -t 512" ib_${op}_bw -n 1024 -t 512
	perf "ib_${op}_bw RC -D duration" ib_${op}_bw -D $duration
	[ $op = atomic ] || perf "ib_${op}_bw RC -a all sizes" ib_${op}_bw -n $short -a
	[ $op = atomic ] || perf "ib_${op}_lat RC -a all sizes" ib_${op}_lat -n $short -a
done
# perftest itself refuses -e for write.
for op in send read atomic; do
	perf "ib_${op}_bw RC -e events" ib_${op}_bw -n $n -e
	perf "ib_${op}_lat RC -e events" ib_${op}_lat -n $n -e
done
for op in send write; do
	perf "ib_${op}_bw UC" ib_${op}_bw -c UC -n $n
	perf "ib_${op}_lat UC" ib_${op}_lat -c UC -n $n
	perf "ib_${op}_bw UC -a all sizes" ib_${op}_bw -c UC -n $short -a
done
perf "ib_atomic_bw RC -A FETCH_AND_ADD" ib_atomic_bw -A FETCH_AND_ADD -n $n
perf "ib_atomic_bw RC -A CMP_AND_SWAP" ib_atomic_bw -A CMP_AND_SWAP -n $n
perf "ib_send_bw UD" ib_send_bw -c UD -n $n
perf "ib_send_lat UD" ib_send_lat -c UD -n $n
perf "ib_send_bw UD -e" ib_send_bw -c UD -n $n -e
perf "ib_send_lat UD -e" ib_send_lat -c UD -n $n -e
perf "ib_send_bw RC -r 1" ib_send_bw -n $short -r 1
perf "ib_send_bw RC -r 1024" ib_send_bw -n 2048 -r 1024
perf "ib_send_lat RC -I 220 inline" ib_send_lat -n $n -s 220 -I 220
perf "ib_write_lat RC -I 64 inline" ib_write_lat -n $n -s 64 -I 64
perf "ib_send_bw RC -l 16 post lists" ib_send_bw -n 1600 -l 16
perf "ib_write_bw RC --use_old_post_send" ib_write_bw -n $n --use_old_post_send

tap_run "the daemon has no object left" until_true 20 daemon_empty
tap_done
