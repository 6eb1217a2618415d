#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Debian's perftest between two processes: each program over each transport that it has, with each of its options that
# needs neither rdma_cm nor another kind of device; and that what it cannot have is refused. At full length the whole
# product; CI takes one program for each line of options, in turn, so that all options and all programs are there.
# VERBSD_FORMS has patterns of the forms to be run, if it is not all of them: "write_*:XRC *_lat:UD".
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need ib_write_bw ibv_devinfo jq
daemon_start

n=100
# A ping-pong takes the scheduler's time for each message where there are fewer processors than who polls: few of them.
few=100
[ -z "$full" ] || n=1000
[ -z "$full" ] || PAIR_LIMIT=600
device=$(client ibv_devinfo -v)
vectors=$(sed -n 's/^.*num_comp_vectors:[[:space:]]*//p' <<<"$device")
transports="RC UC UD"
[[ $device != *XRC* ]] || transports+=" XRC"
declare -A has=([send]="RC UC UD XRC" [write]="RC UC XRC" [read]="RC XRC" [atomic]="RC XRC")

# wanted FORM
wanted()
{
	local pattern patterns
	read -ra patterns <<<"${VERBSD_FORMS:-*}"
	for pattern in "${patterns[@]}"; do
		# shellcheck disable=SC2053 # they are patterns
		[[ $1 != $pattern ]] || return 0
	done
	return 1
}

# The form of a program is OP_KIND:TRANSPORT, as send_bw:UD.
forms=()
for op in send write read atomic; do
	for kind in bw lat; do
		for transport in ${has[$op]}; do
			wanted "${op}_$kind:$transport" || continue
			[[ " $transports " != *" $transport "* ]] || forms+=("${op}_$kind:$transport")
		done
	done
done

# matching PATTERN...: the forms that match one, without those that match one that begins with !.
matching()
{
	local form pattern keep
	for form in "${forms[@]}"; do
		keep=
		for pattern; do
			# shellcheck disable=SC2053 # they are patterns
			if [[ $pattern = !* ]]; then
				[[ $form != ${pattern#!} ]] || keep=
			else
				[[ $form != $pattern ]] || keep=1
			fi
		done
		[ -z "$keep" ] || echo "$form"
	done
}

# run FORM OPTIONS [OPTIONS-OF-THE-SERVER [OPTIONS-OF-THE-CLIENT]]: -F quietens a warning about changing clocks; %N is how
# many messages there are.
run()
{
	local both="ib_${1%:*} -c ${1#*:} -F $2"
	[[ $1 = *_lat:* ]] && both=${both//%N/$few} || both=${both//%N/$n}
	pair "${both/ -F / } ${3-}${4:+ / $4}" "$both ${3-} -p %P" "$both ${4-} -p %P 127.0.0.1"
}

# each "PATTERN..." OPTIONS...: all forms that match, in CI one of them; CI's turn moves on with each line.
turn=0
each()
{
	local form list patterns
	read -ra patterns <<<"$1"
	mapfile -t list < <(matching "${patterns[@]}")
	shift
	turn=$((turn + 1))
	[ ${#list[@]} != 0 ] || return 0
	[ -n "$full" ] || list=("${list[turn % ${#list[@]}]}")
	for form in "${list[@]}"; do run "$form" "$@"; done
}

# more "PATTERN..." OPTIONS...: the same, at full length alone.
more()
{
	[ -z "$full" ] || each "$@"
}

# refused NAME TEXT PROGRAM OPTION...: it ends by itself, not by a signal, with an error, and says what it is about.
refused()
{
	local name=$1 text=$2 status
	shift 2
	(client_for 20 "$@" >"$work/out/refused" 2>&1)
	status=$?
	if [ $status != 0 ] && [ $status -lt 124 ] && grep -qi "$text" "$work/out/refused"; then
		tap_ok "$name is refused"
	else
		tap_not_ok "$name is refused" "status $status: $*" "$(tail -n 15 "$work/out/refused")"
	fi
}

# endless FORM: --run_infinitely says every second how far it is; both ends go on until they are stopped.
endless()
{
	local both="ib_${1%:*} -c ${1#*:} -F --run_infinitely -D 1" server client n=2
	[ -z "$full" ] || n=10
	port_next
	# shellcheck disable=SC2086
	(client stdbuf -oL $both -p $port >"$work/out/server" 2>&1) &
	server=$!
	pids+=($server)
	until_true 20 listens $server $port
	# shellcheck disable=SC2086
	(client stdbuf -oL $both -p $port 127.0.0.1 >"$work/out/client" 2>&1) &
	client=$!
	pids+=($client)
	if until_true $((n * 6)) reported $n && kill -0 $server $client; then
		tap_ok "$both, $n reports"
	else
		tap_not_ok "$both, $n reports" "$(tail -n 20 "$work/out/server")" "$(tail -n 20 "$work/out/client")"
	fi
	kill $client $server 2>/dev/null
	wait $client $server 2>/dev/null
	tap_run "and its objects go with it" until_true 20 daemon_empty
}

# reported N: the client has printed so many lines with a message rate, none of them zero.
reported()
{
	[ "$(awk '$1 ~ /^[0-9]+$/ && $2 > 0 && $4 > 0' "$work/out/client" | wc -l)" -ge "$1" ]
}

# loopback FORM: by the script of the package, which starts both ends. It gives the server one second to listen: on a
# busy machine that may be too short, and says nothing about the library.
loopback()
{
	local last=$(($(nproc) - 1)) try out
	for try in 1 2 3 4 5; do
		port_next
		# shellcheck disable=SC2086
		out=$( (client_for 30 run_perftest_loopback 0 $last ib_${1%:*} -c ${1#*:} -F -n $n -p $port) \
			</dev/null 2>&1) && return 0
		[[ $out == *"Couldn't connect to"* ]] || break
	done
	echo "attempt $try: $out"
	return 1
}

# Each program over each transport, at CI length too.
for form in "${forms[@]}"; do run "$form" "-n %N"; done

bw="*_bw:*" lat="*_lat:*"
[ -n "$full" ] || bw+=" !write_bw:*" # it sleeps for a second: one of its lines below is enough
sized="* !atomic_*"		     # the size of atomics is 8
events="* !write_*" # perftest refuses -e for write
acked="send_bw:RC send_bw:XRC"	     # others lose what comes before its receive

# Depths. A list of WRs divides the number of messages.
each "$bw" "-n 1024 -t 1"
each "$bw" "-n 1024 -t 8192"
each "$bw" "-n 1024 -t 8192 -q 8"
each "$acked" "-n 1024 -s 1024 -r 1"
each "$acked" "-n 1024 -s 1024 -r 8192"
for depth in 2 17 128 512 1024 4096; do
	more "$bw" "-n 1024 -t $depth"
	more "$acked" "-n 1024 -s 1024 -r $depth"
done
for depth in 1 64 8192; do more "send_lat:*" "-n 128 -r $depth"; done
each "$bw" "-n 1280 -l 16"
for list in 1 2 128; do more "$bw" "-n 1280 -l $list"; done
each "send_bw:*" "-n 1280 -s 512 --recv_post_list=16"
more "send_bw:*" "-n 1280 -s 512 -l 32 --recv_post_list=8 -q 2"
each "$bw" "-n 1000 -Q 7"
for every in 1 100; do more "$bw" "-n 1000 -Q $every"; done
each "read_*:* atomic_*:*" "-n %N -o 1"
more "read_*:* atomic_*:*" "-n %N -o 16"

# Many QPs, both directions.
each "$bw" "-n %N -q 16"
more "$bw" "-n %N -q 2"
more "$bw !send_bw:XRC" "-n 100 -q 128 -N" # of each QP; the peak is found by comparing each completion with each, of all QPs
more "send_bw:XRC" "-n 1000 -q 128 -N" # with fewer messages than QPs its SRQ gets no receive
each "$bw" "-n %N -b"
each "$bw" "-n %N -b -q 16"
each "$bw" "-n %N -b --report-both"
each "$bw" "-n %N -q 4 --mr_per_qp"
each "send_bw:RC send_bw:UC write_bw:RC" "-n %N --reversed"
each "write_bw:*" "-n %N -q 3"

# Sizes, below and above what the lane and its chunks hold.
each "send_bw:RC send_bw:UC read_bw:*" "-n 5 -a"
more "$sized !*_lat:* !*:UD" "-n 100 -a"
more "$sized !*_bw:* !*:UD" "-n 10 -a" # it finds the processor's frequency anew for each size
for size in 1 255 256 257 264 265 4095 4096; do more "$sized" "-n %N -s $size"; done
for size in 4097 65537 1048576; do more "$sized !*:UD" "-n 10 -s $size"; done
each "$sized !*:UD" "-n %N -m 256 -s 3000" # perftest refuses a datagram above the MTU
for mtu in 512 1024 2048 4096; do more "$sized !*:UD" "-n %N -m $mtu -s 3000"; done
for mtu in 256 512 1024 2048; do more "send_*:UD" "-n %N -m $mtu -s $mtu"; done

# Inline data: all of the message, and one byte less. 912 is the most that perftest allows.
inlines="send_*:* write_lat:*"
[ -z "$full" ] || inlines+=" write_bw:*"
for inline in 64 220 912; do
	each "$inlines" "-n %N -s $inline -I $inline"
	each "$inlines" "-n %N -s $((inline + 1)) -I $inline"
done
for inline in 1 219 221 256 257 264 265; do more "$inlines" "-n %N -s $inline -I $inline"; done
more "$inlines" "-n %N -s 221 -I 912"
each "send_*:* read_*:*" "-n %N -s 32 --inline_recv=64"

# Events, on each vector.
each "$events" "-n %N -e"
each "$bw !write_*" "-n %N -e -b"
each "$bw !write_*" "-n %N -e -q 16"
for ((vector = 0; vector < vectors; vector++)); do
	each "$events" "-n %N -e -X $vector"
done

# Shared receive queues: UC has none.
each "send_*:RC send_*:UD" "-n %N --use-srq"
each "send_bw:RC send_bw:UD" "-n %N --use-srq -q 16 -s 512"
each "send_bw:RC" "-n %N --use-srq -q 8 -s 512 -b"
more "send_bw:* !*:UC" "-n %N --use-srq -r 8192"
each "send_*:* !*:UC" "-n %N --use-srq -e"

# The rest of what --help has.
each "atomic_*:*" "-n %N -A CMP_AND_SWAP"
more "atomic_*:*" "-n %N -A FETCH_AND_ADD"
each "$sized !*:UC !*:XRC" "-n %N --odp"
each "*" "-n %N --use_old_post_send -S 3 -u 12"
each "*" "-n %N -x 0 --tclass=8 --dlid=1"
each "*" "-n %N -d soft0 -i 1 --pkey_index=0 --force-link=IB"
more "$bw" "-n %N -N --report_gbits -w 0.001 -y 0.000001 --disable_pcie_relaxed"
more "$bw" "-n %N --wait_destroy=1 --out_json --out_json_file=$work/out/report.json"
# What changes no more than what is said, or how the two find each other.
more "send_bw:RC" "-n %N --ipv6"
more "send_bw:RC" "-n %N --source_ip=127.0.0.1"
more "send_bw:RC write_bw:RC" "-n %N --output=bandwidth"
more "send_bw:RC write_bw:RC" "-n %N --output=message_rate"
more "send_lat:RC write_lat:RC" "-n %N --output=latency"
more "send_lat:RC write_lat:RC" "-n %N -U"
# Without -Q it waits for more completions than it asked for.
each "read_bw:* atomic_bw:*" "-n %N --perform_warm_up -Q 1"
more "write_bw:*" "-n %N --perform_warm_up -Q 1"
each "send_bw:* read_bw:*" "-n %N --rate_limit=1 --rate_limit_type=SW --burst_size=16"
each "send_bw:RC send_bw:UC read_bw:*" "-n %N --rate_limit=10 --rate_limit_type=HW"
each "$lat" "-n %N -C -H"
more "$lat" "-n %N --latency_gap=10"
each "$bw" "-D 1 -f 0 --cpu_util"
more "$bw" "-D 2"
more "$lat" "-D 1 -f 0"
# Both ends map the same file: whoever waits for what the other writes there sees its own.
head -c 16777216 /dev/zero >"$work/out/memory"
chmod 666 "$work/out/memory"
each "send_*:* read_*:*" "-n %N -s 4096 --mmap=$work/out/memory --mmap-offset=4096"

# huge_pages WORD: "on" lets the programs' user have huge pages by shmget(); "off" puts back what was there.
huge_pages()
{
	local vm=/proc/sys/vm
	if [ "$1" = off ]; then
		echo "$huge_group" >$vm/hugetlb_shm_group
		echo "$huge_number" >$vm/nr_hugepages
		return
	fi
	[ "$(id -u)" = 0 ] && [ -w $vm/nr_hugepages ] && [ -w $vm/hugetlb_shm_group ] || return
	huge_group=$(<$vm/hugetlb_shm_group)
	huge_number=$(<$vm/nr_hugepages)
	echo $nobody >$vm/hugetlb_shm_group
	[ "$huge_number" -ge 64 ] || echo 64 >$vm/nr_hugepages
	[ "$(<$vm/nr_hugepages)" -ge 64 ] || { huge_pages off; return 1; }
}

if huge_pages on; then
	trap 'huge_pages off; cleanup' EXIT
	each "*" "-n %N --use_hugepages"
	huge_pages off
	trap cleanup EXIT
else
	tap_skip "--use_hugepages" "the host gives no huge pages"
fi

if [ -n "$full" ]; then
	for form in $(matching "*_bw:*"); do endless "$form"; done
	# Two processors, each end on one, and a second for the server to start: as the package's own script has it.
	for form in "${forms[@]}"; do
		tap_run "run_perftest_loopback ib_${form%:*} -c ${form#*:}" loopback "$form"
	done
else
	endless send_bw:RC
	tap_run "run_perftest_loopback ib_send_bw" loopback send_bw:RC
fi

# What needs other devices, or rdma_cm. Servers fail before they wait for anybody.
port_next
for kind in DC SRD; do
	(client_for 20 ib_send_bw -F -c $kind -p $port >"$work/out/server" 2>&1) &
	pids+=($!)
	until_true 20 listens $! $port
	refused "a QP of kind $kind" "Unable to create QP" ib_send_bw -F -c $kind -p $port 127.0.0.1
	wait $!
	port_next
done
refused "rdma_cm" "rdma_create_event_channel failed" ib_send_bw -F -R -p $port
refused "rdma_cm for the addresses" "rdma_create_event_channel failed" ib_write_bw -F -z -p $port
refused "a second port" "query port 2" ib_send_bw -F -O -p $port
refused "too much inline data" "Max inline" ib_send_bw -F -I 913 -p $port
# A port's counters are of packets, and there are none; so there is no such folder.
refused "a counter of /sys" "Unable to access performance counters" ib_send_bw -F -W counters/port_xmit_data -p $port
# On InfiniBand perftest asks a subnet manager for the group, by management datagrams. Multicast itself works, see below.
(client_for 20 ib_send_lat -F -c UD -g -p $port >"$work/out/server" 2>&1) &
server=$!
pids+=($server)
until_true 20 listens $server $port
refused "a group that a subnet manager keeps" "failed to open UMAD port" ib_send_lat -F -c UD -g -p $port 127.0.0.1
wait $server
port_next
# By itself: what other kinds of QPs have, or rdma_cm.
refused "a hop limit" "only valid for RawEth" ib_send_bw -F -L 3 -p $port
refused "a type of service" "only valid for rdma_cm" ib_send_bw -F -T 3 -p $port
refused "pacing of packets" "only supported for Raw Ethernet" ib_send_bw -F --rate_limit=1 --rate_limit_type=PP -p $port
refused "events of a write" "not available on WRITE" ib_write_bw -F -e -p $port
refused "a report of two ports" "only with Duration and Dualport" ib_send_bw -F --report-per-port -p $port
refused "encryption" "key encryption key" ib_send_bw -F --aes_xts -p $port
macs="-B 02:00:00:00:00:01 -E 02:00:00:00:00:02"
for program in bw lat fs_rate; do
	# shellcheck disable=SC2086
	refused "raw_ethernet_$program" "can only run on Ethernet" raw_ethernet_$program -F --client $macs
done
# By itself, before it looks at the device.
# shellcheck disable=SC2086
refused "raw_ethernet_burst_lat" "rate limiter" raw_ethernet_burst_lat -F --client $macs
tap_run "the daemon has no object left" until_true 20 daemon_empty
daemon_stop
printf '[device soft0]\nlink_layer = ethernet\n' >"$work/ethernet.conf"
chmod 644 "$work/ethernet.conf"
daemon_start --config "$work/ethernet.conf"
for program in bw lat fs_rate; do
	# shellcheck disable=SC2086
	refused "raw_ethernet_$program on Ethernet" "Unable to create QP" raw_ethernet_$program -F --client $macs
done
# There a group is a GID that nobody keeps, a link-local one by default; an IPv4 one with an IPv4 source.
each "send_*:UD" "-n %N -s 1024 -g -x 1"
more "send_*:UD" "-n %N -s 1024 -g -x 0"
each "send_*:UD" "-n %N -s 1024 -g -M 0:0:0:0:0:0:0:0:0:0:255:255:224:0:0:5"

tap_run "the daemon has no object left" until_true 20 daemon_empty
echo "# $((SECONDS / 60)) minutes"
tap_done
