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
	sizes="1 2 64 255 256 264 265 1024 4096 4097 16384 16385 32768 32769 65536 1048576 8388608"
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

# What is left of the options: timestamps, device memory, MTUs, depths, service levels, devices, numbers of QPs.
# both PROGRAM OPTIONS
both()
{
	pair "$1 $2" "$1 -p %P $2" "$1 -p %P $2 127.0.0.1"
}
n=$((small / 10))
# Not -t with -e: it gives up at an event whose completion it has polled already, as may come on any device.
for option in -t "-t -N -c" "-t -o -P" -j "-j -c -e" "-j -t -N" "-j -s 4" "-j -s 65536"; do
	both ibv_rc_pingpong "-n $n $option"
done

# refuses_size SIZE: the client says that it cannot copy so many bytes to device memory; its server is not waited for.
refuses_size()
{
	local server status
	port_next
	(client_for 60 ibv_rc_pingpong -p $port -j -s "$1" >"$work/out/server" 2>&1) &
	server=$!
	pids+=($server)
	until_true 20 listens $server $port
	(client_for 60 ibv_rc_pingpong -p $port -j -s "$1" 127.0.0.1 >"$work/out/client" 2>&1)
	status=$?
	kill $server 2>/dev/null
	wait $server
	cat "$work/out/client"
	[ $status = 1 ] && grep -q "Copy to dm buffer failed" "$work/out/client"
}
# Device memory is copied by fours: so adapters have it, and rdma-core's own test of bad access asks that all else fail.
for size in 1 4097; do tap_run "ibv_rc_pingpong -j -s $size is refused" refuses_size $size; done

for mtu in 256 4096; do
	for kind in rc uc srq; do both ibv_${kind}_pingpong "-n $n -s 10000 -m $mtu"; done
done
for kind in rc uc ud; do both ibv_${kind}_pingpong "-n $n -r 1 -e"; done
for kind in rc uc ud srq; do
	both ibv_${kind}_pingpong "-n $n -r 4096"
	both ibv_${kind}_pingpong "-n $n -d soft0 -i 1 -l 5 -g 0 -c -e"
done
for option in "-q 1" "-q 128 -r 200 -n 50" -o "-o -c -e"; do both ibv_srq_pingpong "-n $n $option"; done

# clients NUMBER: so many of ibv_xsrq_pingpong at one server.
clients()
{
	local i all=() failed=
	port_next
	(client_for 60 ibv_xsrq_pingpong -p $port -n 20 -c "$1" >"$work/out/server" 2>&1) &
	all+=($!)
	until_true 20 listens ${all[0]} $port
	for ((i = 0; i < $1; i++)); do
		(client_for 60 ibv_xsrq_pingpong -p $port -n 20 127.0.0.1 >"$work/out/client.$i" 2>&1) &
		all+=($!)
	done
	for i in "${all[@]}"; do wait "$i" || failed=1; done
	[ -z "$failed" ] || tail -n 5 "$work/out/server" "$work/out/client."*
	[ -z "$failed" ]
}

if [[ $(client ibv_devinfo -v) == *[[:space:]]XRC[[:space:]]* ]]; then
	for size in 1 4096 65536; do
		for option in "" -e; do both ibv_xsrq_pingpong "-n 100 -s $size $option"; done
	done
	for option in -o "-g 0" "-l 3 -m 256 -s 10000"; do both ibv_xsrq_pingpong "-n 100 $option"; done
	# Clients share the domain of a file whose name is the program's own; another user may have left one.
	domain=/tmp/xrc_domain
	(as_user test ! -e $domain -o -r $domain) || rm -f $domain 2>/dev/null
	if (as_user test ! -e $domain -o -r $domain); then
		tap_run "ibv_xsrq_pingpong with five clients" clients 5
	else
		tap_skip "ibv_xsrq_pingpong with five clients" "$domain is another user's"
	fi
else
	tap_not_ok "the device has XRC"
fi

if until_true 20 daemon_empty; then
	tap_ok "the daemon has no object left"
else
	tap_not_ok "the daemon has no object left" "$("$verbsctl" --socket "$socket" list 2>&1)"
fi
if daemon_stop; then tap_ok "the daemon ends with status 0"; else tap_not_ok "the daemon ends with status 0"; fi
tap_done
