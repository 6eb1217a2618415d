#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Debian's ibv_*_pingpong between two processes: polling and events, checked payload, the new post interface, sizes from
# one byte to 8 MiB (datagrams to the MTU). CI: a short form of each matrix.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need ibv_rc_pingpong jq
daemon_start

if [ -n "$full" ]; then
	small=100000
	sizes="1 2 64 255 256 264 265 1024 4096 4097 16384 16385 65536 1048576 8388608"
else
	small=2000
	sizes="1 64 265 4096 65536 1048576 8388608"
fi

# iterations SIZE: about five seconds' worth above 4 KiB at full length
iterations()
{
	if [ "$1" -le 4096 ]; then
		echo $small
	elif [ -n "$full" ]; then
		echo $((20000000000 / $1 > 100000 ? 100000 : 20000000000 / $1))
	else
		echo $((64000000 / $1 > 500 ? 500 : 64000000 / $1 + 2))
	fi
}

for kind in rc uc srq; do
	program=ibv_${kind}_pingpong
	for size in $sizes; do
		n=$(iterations "$size")
		for option in "" -e; do
			# 16 QPs share the receives of an SRQ test, and their number of exchanges
			pair "$program $size bytes $n times $option" "$program -p %P -s $size -n $n $option" \
				"$program -p %P -s $size -n $n $option 127.0.0.1"
		done
	done
done
for size in 1 265 4096 65536 8388608; do
	n=$(iterations "$size")
	pair "ibv_rc_pingpong -c $size bytes: payload checked" "ibv_rc_pingpong -p %P -c -s $size -n $n" \
		"ibv_rc_pingpong -p %P -c -s $size -n $n 127.0.0.1"
	pair "ibv_rc_pingpong -N $size bytes: new post interface" "ibv_rc_pingpong -p %P -N -s $size -n $n" \
		"ibv_rc_pingpong -p %P -N -s $size -n $n 127.0.0.1"
	pair "ibv_rc_pingpong -N -c -e $size bytes" "ibv_rc_pingpong -p %P -N -c -e -s $size -n $n" \
		"ibv_rc_pingpong -p %P -N -c -e -s $size -n $n 127.0.0.1"
done
for size in 1 265 4096 65536 8388608; do
	n=$(iterations "$size")
	for option in -o "-o -P" -O "-O -P" "-o -N -c -e"; do
		pair "ibv_rc_pingpong $option $size bytes: on-demand paging" "ibv_rc_pingpong -p %P $option -s $size -n $n" \
			"ibv_rc_pingpong -p %P $option -s $size -n $n 127.0.0.1"
	done
done
pair "ibv_rc_pingpong -g 0: global addressing" "ibv_rc_pingpong -p %P -g 0 -n $small" \
	"ibv_rc_pingpong -p %P -g 0 -n $small 127.0.0.1"
pair "ibv_uc_pingpong -c" "ibv_uc_pingpong -p %P -c -n $small" "ibv_uc_pingpong -p %P -c -n $small 127.0.0.1"
pair "ibv_srq_pingpong -c" "ibv_srq_pingpong -p %P -c -n $small" "ibv_srq_pingpong -p %P -c -n $small 127.0.0.1"
for size in 1 256 257 2048 4096; do
	for option in "" -e -c; do
		pair "ibv_ud_pingpong $size bytes $option" "ibv_ud_pingpong -p %P -s $size -n $small $option" \
			"ibv_ud_pingpong -p %P -s $size -n $small $option 127.0.0.1"
	done
done
pair "ibv_ud_pingpong -g 0" "ibv_ud_pingpong -p %P -g 0 -n $small" "ibv_ud_pingpong -p %P -g 0 -n $small 127.0.0.1"

if until_true 20 daemon_empty; then
	tap_ok "the daemon has no object left"
else
	tap_not_ok "the daemon has no object left" "$("$verbsctl" --socket "$socket" list 2>&1)"
fi
if daemon_stop; then tap_ok "the daemon ends with status 0"; else tap_not_ok "the daemon ends with status 0"; fi
tap_done
