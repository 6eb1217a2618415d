#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Real devices: programs of an unprivileged user on rxe devices whose nodes are root's alone, under a real systemd. Runs in
# the VM, by tests/vm/run.
# shellcheck source=tests/vm/lib.bash
. "$(dirname "$0")/lib.bash"
# shellcheck source=tests/vm/install.bash
. "$(dirname "$0")/install.bash"
# shellcheck source=tests/vm/regions.bash
. "$(dirname "$0")/regions.bash"

here=$(dirname "$0")
preload=/usr/lib/libverbsd.so
conf=/etc/verbsd/conf.d/test.conf
port=21000
rounds=${full:+1000}
rounds=${rounds:-50}

# policy LINE...: what is granted from now on.
policy()
{
	printf '%s\n' "$@" >$conf
	systemctl reload verbsd.service
}

said()
{
	journalctl -q -b -u verbsd -o cat | grep -qF -e "$1"
}

# says TEXT: the journal, which has a line a moment after it was written.
says()
{
	until_true 20 said "$1"
}

# says_of TEXT COMMAND...: the journal has it once that command was refused. Of one user's refusals ten lines are written in a
# minute, and those before it may have used them up: he tries again.
says_of()
{
	until_true 150 said_of "$@"
}

said_of()
{
	"${@:2}" >/dev/null 2>&1
	said "$1"
}

# resources: what the kernel says that the devices have.
resources()
{
	rdma resource show | sed 's/^[0-9]*: //; s/ *$//'
}

is_clean()
{
	[ "$(resources)" = "$before" ]
}

listed()
{
	as_nobody ibv_devices 2>/dev/null | awk 'NR > 2 { print $1 }' | sort | xargs
}

# pair NAME SERVER -- CLIENT...: two programs; @PORT@ is a port of their own.
pair()
{
	local name=$1 server client status pid
	shift
	port=$((port + 1))
	local -a one=() other=()
	while [ "$1" != -- ]; do one+=("${1//@PORT@/$port}"); shift; done
	shift
	other=("${@//@PORT@/$port}")
	as_nobody timeout 120 "${one[@]}" >"$work/server" 2>&1 &
	pid=$!
	if ! until_true 60 listens_or_gone $port $pid; then
		server_kill
		wait $pid
		tap_not_ok "$name" "the server does not listen" "$(cat "$work/server")"
		return
	fi
	as_nobody timeout 120 "${other[@]}" >"$work/client" 2>&1
	client=$?
	[ $client = 0 ] || server_kill
	wait $pid
	server=$?
	if [ "$client $server" = "0 0" ]; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "client: status $client" "$(tail -n 15 "$work/client")" "server: status $server" \
			"$(tail -n 15 "$work/server")"
	fi
}

# The background job is a shell above the program.
server_kill()
{
	pkill -P $pid
	kill $pid 2>/dev/null
}

listens_or_gone()
{
	listens "$1" || rdma resource show cm_id | grep -qw "state LISTEN .*:$1" || ! kill -0 "$2" 2>/dev/null
}

# pingpong NAME PROGRAM OPTION...
pingpong()
{
	local name=$1
	shift
	pair "$name" "$@" -d rxe0 -g 1 -p @PORT@ -- "$@" -d rxe0 -g 1 -p @PORT@ 127.0.0.1
}

perf()
{
	local name=$1
	shift
	pair "$name" "$@" -d rxe0 -x 1 -F -p @PORT@ -- "$@" -d rxe0 -x 1 -F -p @PORT@ 127.0.0.1
}

test_start()
{
	modprobe -a ib_uverbs rdma_ucm rdma_rxe
	install_guest "$VERBSD_ROOT"
	if ! rxe_make 0 || ! rxe_make 1; then
		tap_not_ok "two rxe devices" "they cannot be made"
		tap_done
		exit
	fi
	chmod 600 /dev/infiniband/rdma_cm
	mkdir -p /etc/verbsd/conf.d
	printf '%s\n' '[grant test]' 'users = 65534' >$conf
	tap_run "start" systemctl start verbsd.service
}

# soname COMMAND...: as as_nobody, but the library is found by the real one's name.
soname()
{
	local preload=
	as_nobody env LD_LIBRARY_PATH=/usr/lib/verbsd "$@"
}

test_devices()
{
	tap_is "real devices and soft ones side by side" "rxe0 rxe1 soft0" "$(listed)"
	tap_run "ibv_devinfo -v" as_nobody ibv_devinfo -v -d rxe0
	tap_run "ibv_devinfo -v with libibverbs.so.1 of verbsd" soname ibv_devinfo -v -d rxe0
	tap_is "verbsctl devices" "soft0 soft rxe0 real rxe1 real" \
		"$(verbsctl devices --json | jq -r '[.devices[] | .device, .kind] | join(" ")')"
	tap_is "without the library nothing opens" 1 "$(preload='' as_nobody ibv_devinfo -d rxe0 2>&1 | grep -c Failed)"
}

test_pingpongs()
{
	pingpong "ibv_rc_pingpong" ibv_rc_pingpong -n $rounds
	pingpong "ibv_rc_pingpong -e" ibv_rc_pingpong -n $rounds -e
	pingpong "ibv_rc_pingpong -N" ibv_rc_pingpong -n $rounds -N
	pingpong "ibv_uc_pingpong" ibv_uc_pingpong -n $rounds
	pingpong "ibv_ud_pingpong" ibv_ud_pingpong -n $rounds
	pingpong "ibv_srq_pingpong" ibv_srq_pingpong -n $rounds
}

test_perftest()
{
	perf "ib_write_bw" ib_write_bw -n $rounds -s 4096
	perf "ib_read_bw" ib_read_bw -n $rounds -s 4096
	perf "ib_send_bw -e" ib_send_bw -n $rounds -s 4096 -e
	perf "ib_atomic_bw" ib_atomic_bw -n $rounds
}

test_cm()
{
	pair "rping" rping -s -a 10.99.0.1 -p @PORT@ -C 5 -- rping -c -a 10.99.0.1 -p @PORT@ -C 5
	pair "ucmatose" ucmatose -b 10.99.0.1 -p @PORT@ -- ucmatose -s 10.99.0.1 -p @PORT@
	pair "ib_write_bw -R" ib_write_bw -R -d rxe0 -x 1 -F -n $rounds -s 4096 -p @PORT@ -- \
		ib_write_bw -R -d rxe0 -x 1 -F -n $rounds -s 4096 -p @PORT@ 10.99.0.1
	policy '[grant test]' 'users = 65534' 'rdma_cm = off'
	# A server that had it would wait for a client until it is ended.
	tap_fails "no grant of rdma_cm: no server" as_nobody timeout 60 rping -s -a 10.99.0.1 -p 20999 -C 1
	tap_is "no grant of rdma_cm: it has no channel" 1 "$(grep -c 'event channel' <<<"$said")"
	tap_run "no grant of rdma_cm: the log says so" \
		says_of "no grant of rdma_cm" as_nobody timeout 60 rping -s -a 10.99.0.1 -p 20999 -C 1
	policy '[grant test]' 'users = 65534'
}

test_policy()
{
	policy '[grant test]' 'users = 65534' 'devices = rxe1'
	tap_is "one of two is granted: that one is listed" "rxe1 soft0" "$(listed)"
	tap_run "one of two: it opens" as_nobody ibv_devinfo -d rxe1
	tap_fails "one of two: the other does not" as_nobody ibv_devinfo -d rxe0
	policy '[grant test]' 'users = 65534' 'devices = rxe0/1 rxe1/2'
	tap_is "ports: a device that is granted by all that it has is listed, another is not" "rxe0 soft0" "$(listed)"
	tap_run "ports: it opens" as_nobody ibv_devinfo -d rxe0
	tap_fails "ports: the other does not" as_nobody ibv_devinfo -d rxe1
	policy '[grant test]' 'groups = root'
	tap_is "none is granted: none is listed" "soft0" "$(listed)"
	test_policy_contexts
	test_policy_cgroup
	test_policy_default
	policy '[grant test]' 'users = 65534'
}

# keeper_start: a program with a context of rxe0. keeper_end.
keeper_start()
{
	cp "$VERBSD_BUILD/tests/vm/keeper" /usr/lib/verbsd-keeper
	as_nobody /usr/lib/verbsd-keeper rxe0 >"$work/keeper-out" 2>&1 &
	keeper=$!
	until_true 60 grep -q ready "$work/keeper-out"
}

keeper_end()
{
	pkill -KILL -x verbsd-keeper
	wait $keeper
}

test_policy_contexts()
{
	until_true 30 no_contexts
	policy '[grant test]' 'users = 65534' 'contexts = 1'
	tap_run "one context at a time: there is one" keeper_start
	tap_fails "one context at a time: no other" as_nobody ibv_devinfo -d rxe1
	tap_run "one context at a time: the log says why" says_of "contexts in its grant" as_nobody ibv_devinfo -d rxe1
	keeper_end
	# It goes a moment after its process.
	tap_run "one context at a time: after it another" until_true 30 as_nobody ibv_devinfo -d rxe1
	policy '[grant none]' 'users = 65534' 'devices = rxe0' 'contexts = 0' '[grant test]' 'users = 65534'
	tap_fails "one that cannot be opened" as_nobody ibv_devinfo -d rxe0
	tap_is "one that cannot be opened hides no other" "rxe0 rxe1 soft0" "$(listed)"
	tap_run "one that cannot be opened: another does" as_nobody ibv_devinfo -d rxe1
}

# in_unit NAME COMMAND...: nobody's program as a service of that name.
in_unit()
{
	systemd-run -q --wait --pipe --unit="$1" -p User=$nobody -p Environment=LD_PRELOAD=$preload "${@:2}"
}

test_policy_cgroup()
{
	policy '[grant test]' 'users = 65534' 'cgroups = /system.slice/granted.service'
	tap_run "a control group: it has the devices" in_unit granted ibv_devinfo -d rxe0
	tap_fails "a control group: another has not" in_unit other ibv_devinfo -d rxe0
}

# Without any grant real devices are group rdma's.
test_policy_default()
{
	local group
	groupadd -rf rdma
	group=$(getent group rdma | cut -d: -f3)
	policy ''
	tap_is "by default: real devices are not everybody's, soft ones are" "soft0" "$(listed)"
	tap_fails "by default: they do not open either" as_nobody ibv_devinfo -d rxe0
	to_nobody=(setpriv --reuid=$nobody --regid=$nobody --groups="$group" --inh-caps=-all --bounding-set=-all)
	tap_is "by default: they are group rdma's" "rxe0 rxe1 soft0" "$(listed)"
	tap_run "by default: for them they open" as_nobody ibv_devinfo -d rxe0
	to_nobody=(setpriv --reuid=$nobody --regid=$nobody --clear-groups --inh-caps=-all --bounding-set=-all)
}

# Both ends have a queue pair that is connected.
talks()
{
	[ "$(rdma resource show qp | grep -c 'state RTS')" -ge 2 ]
}

# traffic_start ROUNDS: two programs that talk for a while.
traffic_start()
{
	port=$((port + 1))
	as_nobody timeout 200 ibv_rc_pingpong -d rxe0 -g 1 -n "$1" -p $port >"$work/server" 2>&1 &
	left=$!
	until_true 60 listens $port
	as_nobody timeout 200 ibv_rc_pingpong -d rxe0 -g 1 -n "$1" -p $port 127.0.0.1 >"$work/client" 2>&1 &
	right=$!
	until_true 60 talks
}

# Whatever they had on the device goes with them.
test_kill_clients()
{
	local start
	tap_run "kill -9 of clients: while they talk" traffic_start 1000000
	tap_run "kill -9 of clients: verbsctl names their contexts" until_true 30 are_open "rxe0 rxe0"
	tap_is "kill -9 of clients: and what they have on the device" "1 1 1 1 1 1 1 1" \
		"$(verbsctl list context --json | jq -r '[.[][] | select(.kind == "real-node") | .pds, .mrs, .qps, .cqs] | join(" ")')"
	pkill -KILL -x ibv_rc_pingpong
	start=$(now_ms)
	wait $left $right
	tap_run "kill -9 of clients: the device has what it had before" until_true 30 is_clean
	echo "# kill -9 of clients: gone after $(($(now_ms) - start)) ms"
	tap_run "kill -9 of clients: the daemon has nothing of theirs" until_true 30 no_contexts
}

# The daemon has no context of a real device that is a client's.
no_contexts()
{
	[ "$(verbsctl list context --json | jq '[.[][] | select(.kind != null)] | length')" = 0 ]
}

are_open()
{
	[ "$(verbsctl list context --json |
		jq -r '[.[][] | select(.kind == "real-node" and .state == "open") | .device] | join(" ")')" = "$1" ]
}

test_kill_daemon()
{
	local pid status
	pid=$(main_pid)
	tap_run "kill -9 of the daemon: while they talk" traffic_start "${full:+20}2000"
	kill -KILL "$pid"
	wait $left
	status=$?
	wait $right
	tap_is "kill -9 of the daemon: the programs end with status 0" "0 0" "$status $?"
	tap_run "kill -9 of the daemon: it is started again" until_true 60 restarted "$pid"
	pingpong "kill -9 of the daemon: new clients work" ibv_rc_pingpong -n $rounds
}

restarted()
{
	[ "$(prop verbsd.service ActiveState)" = active ] && [ "$(main_pid)" != "$1" ]
}

# A service without any device of its own, and without a network: the daemon's socket is all that it has.
test_container()
{
	local program
	cat >"$work/container" <<-'END'
	#!/bin/bash
	[ -e /dev/infiniband ] && exit 3
	"$@" >/tmp/server 2>&1 &
	for ((i = 0; i < 600; i++)); do
		grep -qE ':5208 [0-9A-F]+:0000 0A ' /proc/net/tcp /proc/net/tcp6 && break
		read -rt 0.1 <> <(:)
	done
	"$@" 127.0.0.1 || { cat /tmp/server; exit 4; }
	wait
	END
	chmod 755 "$work/container"
	for program in "ibv_rc_pingpong -d rxe0 -g 1 -n $rounds -p 21000" "ibv_rc_pingpong -e -d rxe0 -g 1 -n $rounds -p 21000" \
		"ib_write_bw -d rxe0 -x 1 -F -n $rounds -s 4096 -p 21000"; do
		# shellcheck disable=SC2086 # a command line
		tap_run "no device, no network: ${program% -d*}" systemd-run -q --wait --pipe -p User=$nobody -p PrivateDevices=yes \
			-p DevicePolicy=strict -p PrivateNetwork=yes -p PrivateTmp=yes -p LimitMEMLOCK=65536 \
			-p Environment=LD_PRELOAD=$preload "$work/container" $program
	done
}

# Two buffers of a mebibyte, with 64 KiB that may be locked.
test_memlock()
{
	local big="ib_write_bw -d rxe0 -x 1 -F -n 5 -s 1048576 -p @PORT@"
	# It registers before it listens.
	tap_fails "memory lock limit: is the program's own" as_nobody timeout 60 ibv_rc_pingpong -d rxe0 -g 1 -s 1048576 -p 20998
	tap_is "memory lock limit: stops a registration" 1 "$(grep -c "Couldn't register MR" <<<"$said")"
	policy '[grant test]' 'users = 65534' 'memlock = 64M'
	# shellcheck disable=SC2086 # a command line
	pair "memory lock limit: is raised where policy says so" $big -- $big 127.0.0.1
	keeper_start
	tap_is "memory lock limit: to what it says" $((64 << 20)) "$(memlock_of "$(pgrep -x verbsd-keeper)")"
	keeper_end
	policy '[grant test]' 'users = 65534' 'memlock = 32K'
	keeper_start
	tap_is "memory lock limit: is never lowered" $((64 << 10)) "$(memlock_of "$(pgrep -x verbsd-keeper)")"
	keeper_end
	policy '[grant test]' 'users = 65534'
}

# memlock_of PID: what it may lock now.
memlock_of()
{
	awk '/^Max locked memory/ { print $4 }' "/proc/$1/limits"
}

# What the port has counted, from sysfs.
test_counters()
{
	local sent
	sent=$(counter sent_pkts)
	tap_is "counters: of the driver" yes "$([ "${sent:-none}" -ge 0 ] 2>/dev/null && echo yes)"
	pingpong "counters: with traffic" ibv_rc_pingpong -n 10
	tap_is "counters: more were sent" yes "$([ "$(counter sent_pkts)" -gt "$sent" ] && echo yes)"
	# The last acknowledgement may be on its way between two looks.
	tap_run "counters: as sysfs has it" until_true 30 same_counter
	tap_is "counters: events too" 1 "$(verbsctl counters rxe0 --json | jq '[.counters[] | select(.counter == "port-error")] | length')"
	tap_fails "counters: of what is no real device" verbsctl counters soft0
}

same_counter()
{
	[ "$(cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts)" = "$(counter sent_pkts)" ]
}

counter()
{
	verbsctl counters rxe0 --json | jq -r ".counters[] | select(.counter == \"$1\") | .value"
}

test_hot_plug()
{
	tap_run "hot plug: a device that is watched can go" timeout 60 rdma link delete rxe1
	tap_run "hot plug: a device that goes is in no list" until_true 30 has_devices "rxe0"
	rdma link add rxe1 type rxe netdev dummy1
	tap_run "hot plug: one that comes is" until_true 30 has_devices "rxe0 rxe1"
	until_true 30 test -c /dev/infiniband/uverbs1
	chmod 600 /dev/infiniband/uverbs*
	tap_run "hot plug: it opens" as_nobody ibv_devinfo -d rxe1
}

# The daemon's own contexts are there.
watched()
{
	[ "$(verbsctl devices --json | jq -r '[.devices[] | select(.kind == "real" and .max_qp > 0) | .device] | join(" ")')" = "rxe0 rxe1" ]
}

# A port whose interface goes down and comes up.
test_events()
{
	local watcher
	tap_run "events: the daemon watches both devices" until_true 30 watched
	tap_is "events: limits and MTU are listed" "true true" \
		"$(verbsctl devices --json | jq -r '.devices[] | select(.device == "rxe0") | "\(.max_cqe > 0) \(.mtu > 0)"')"
	verbsctl watch >"$work/watch" 2>&1 &
	watcher=$!
	until_true 30 watcher_sees
	ip link set dummy1 down
	tap_run "events: a port that goes down is told" until_true 30 grep -qF -e '- device        rxe1 port 1 port-error' "$work/watch"
	ip link set dummy1 up
	tap_run "events: one that comes up too" until_true 30 grep -qF -e '+ device        rxe1 port 1 port-active' "$work/watch"
	tap_run "events: and both are in the log" says "rxe1 port 1: port-error"
	tap_is "events: with a message id" 1 \
		"$(journalctl -q -b -u verbsd MESSAGE_ID=c0d6f5b1a7a34f0e9a52f4c1d03a8e6b -o cat | grep -c 'rxe1 port 1: port-error')"
	kill $watcher
	wait $watcher 2>/dev/null
	tap_is "events: the listing has the port as it is" active \
		"$(verbsctl devices --json | jq -r '.devices[] | select(.device == "rxe1") | .state')"
}

# Whoever connects is in what the watcher sees.
watcher_sees()
{
	verbsctl status >/dev/null
	grep -q client "$work/watch"
}

# objects DEVICE: what the kernel has there but for contexts, which last as long as a file is open.
objects()
{
	rdma resource show | sed -n "s/^[0-9]*: $1: //p" | sed 's/ctx [0-9]*//; s/ *$//'
}

has_objects()
{
	[ "$(objects rxe0)" = "$1" ]
}

now_ms()
{
	date +%s%3N
}

# A program is killed whose child keeps its file open.
test_left_behind()
{
	local parent child was start
	if [ ! -x "$VERBSD_BUILD/tests/vm/keeper" ]; then
		tap_skip "left behind" "no tests/vm/keeper in VERBSD_BUILD: make check-programs builds it"
		return
	fi
	cp "$VERBSD_BUILD/tests/vm/keeper" /usr/lib/verbsd-keeper
	mkdir -m 777 "$work/keeper"
	was=$(objects rxe0)
	as_nobody /usr/lib/verbsd-keeper rxe0 "$work/keeper/child" >"$work/keeper/out" 2>&1 &
	tap_run "left behind: a program has objects and a child" until_true 60 grep -q ready "$work/keeper/out"
	tap_fails "left behind: the kernel shows them" has_objects "$was"
	child=$(cat "$work/keeper/child")
	parent=$(status_of "$child" PPid)
	start=$(now_ms)
	kill -KILL "$parent"
	tap_run "left behind: they go with the program" until_true 30 has_objects "$was"
	echo "# left behind: gone after $(($(now_ms) - start)) ms"
	tap_run "left behind: its child lives on" kill -0 "$child"
	tap_run "left behind: the daemon has nothing of theirs" until_true 30 no_contexts
	kill -KILL "$child"
	tap_run "left behind: with the child the file goes" until_true 30 is_clean
	rm -f /usr/lib/verbsd-keeper
}

has_devices()
{
	[ "$(verbsctl devices --json | jq -r '[.devices[] | select(.kind == "real") | .device] | join(" ")')" = "$1" ]
}

hostile()
{
	setpriv --reuid=$nobody --regid=$nobody --clear-groups python3 "$here/native_hostile.py" /run/verbsd/verbsd.sock "$@"
}

test_hostile()
{
	local pid was
	was=$(daemon_files)
	tap_is "hostile: a node opens once" EACCES "$(hostile twice)"
	tap_is "hostile: another device in its place" EACCES "$(hostile foreign /dev/null)"
	tap_is "hostile: the file of another node" EACCES "$(hostile foreign own)"
	tap_is "hostile: a file that hangs whoever closes it" EACCES "$(hostile hanging)"
	tap_run "hostile: the log says so" says_of "the file that it reported is not what it was given" hostile hanging
	tap_run "hostile: the daemon answers others" as_nobody ibv_devinfo -d rxe0
	tap_is "hostile: odd orders" "done" "$(hostile odd_order)"
	tap_is "hostile: what is not its own" EINVAL "$(hostile closes)"
	mkfifo -m 666 "$work/go"
	hostile kept "$work/go" >"$work/kept" &
	pid=$!
	tap_run "hostile: a node is kept" until_true 30 grep -q offered "$work/kept"
	policy '[grant test]' 'groups = root'
	echo >"$work/go"
	wait $pid
	tap_is "hostile: once its grant is withdrawn it does not open" EACCES "$(tail -n 1 "$work/kept")"
	policy '[grant test]' 'users = 65534'
	tap_run "hostile: the device has what it had before" until_true 30 is_clean
	tap_run "hostile: no process is left at the gate" until_true 30 no_gate
	tap_run "hostile: no context is left" until_true 30 no_contexts
	tap_run "hostile: nor any file in the daemon" until_true 30 has_files "$was"
}

daemon_files()
{
	find "/proc/$(main_pid)/fd" -mindepth 1 | wc -l
}

has_files()
{
	[ "$(daemon_files)" -le "$1" ]
}

no_gate()
{
	! pgrep -x verbsd-gate >/dev/null
}

# Files of a file system that a user has mounted in a namespace of his own and that never answers.
test_hanging()
{
	local fuse
	modprobe fuse
	until_true 30 test -c /dev/fuse && chmod 666 /dev/fuse
	mkfifo -m 666 "$work/quit"
	hostile fuse "$work/quit" >"$work/fuse" 2>&1 &
	fuse=$!
	if ! until_true 120 grep -q ready "$work/fuse"; then
		tap_skip "hanging files" "no FUSE in a user namespace here: $(tail -n 1 "$work/fuse")"
		kill $fuse
		return
	fi
	tap_run "hanging files: each is refused, and then that user's nodes" until_true 120 grep -q '^EBUSY' "$work/fuse"
	tap_run "hanging files: the log says what" says "the file that it reported is not what it was given"
	tap_run "hanging files: and why no more" says_of "that take fds hang" as_nobody ibv_devinfo -d rxe0
	tap_run "hanging files: processes at the gate hang for him" until_true 30 has_gates
	tap_run "hanging files: the daemon answers others" verbsctl devices
	tap_run "hanging files: and opens for others" as_other ibv_devinfo -d rxe0
	timeout 20 bash -c 'echo >"$1"' - "$work/quit" || pkill -KILL -f native_hostile.py
	wait $fuse
	tap_run "hanging files: with their file system they are gone" until_true 60 no_gate
	tap_run "hanging files: and he may again" until_true 30 as_nobody ibv_devinfo -d rxe0
}

has_gates()
{
	[ "$(pgrep -cx verbsd-gate)" -ge 4 ]
}

# as_other COMMAND...: another user, one without any right to a closed node.
as_other()
{
	policy '[grant test]' 'users = 65534 65533'
	setpriv --reuid=65533 --regid=65533 --clear-groups --inh-caps=-all --bounding-set=-all \
		env LD_PRELOAD="$preload" "$@"
}

# calls COMMAND...: what system calls each of 200 messages takes a client that COMMAND runs, from two runs of it.
calls()
{
	local n dir
	dir=$(mktemp -d "$work/calls.XXXXXX")
	chmod 777 "$dir"
	for n in 50 250; do
		port=$((port + 1))
		"$@" timeout 120 ibv_rc_pingpong -d rxe0 -g 1 -n $n -p $port >"$work/server" 2>&1 &
		until_true 60 listens $port
		"$@" timeout 120 strace -f -c -U calls,name -o "$dir/$n" \
			ibv_rc_pingpong -d rxe0 -g 1 -n $n -p $port 127.0.0.1 >"$work/client" 2>&1 || cat "$work/client"
		wait $!
	done
	join -j 2 <(sort -k 2 "$dir/50") <(sort -k 2 "$dir/250") |
		awk '$2 ~ /^[0-9]+$/ && $1 != "total" && $3 - $2 >= 100 { print $1, $3 - $2 }'
}

# The data path is the driver's own: the same calls as without verbsd.
test_calls()
{
	local native brokered
	if [ -z "$full" ]; then
		tap_skip "system calls of the data path" "at full length: make check-vm"
		return
	fi
	native=$(calls env)
	brokered=$(calls as_nobody)
	tap_is "system calls of the data path: a doorbell each, natively" "write 200" "$native"
	tap_is "system calls of the data path: the same through verbsd" "$native" "$brokered"
}

# suite_put FOLDER: rdma-core's Python tests, as files that Python reads.
suite_put()
{
	local file
	mkdir -p "$1/tests"
	for file in /usr/share/doc/rdma-core/tests/*; do
		case $file in
		*.gz) gzip -dc "$file" >"$1/tests/$(basename "$file" .gz)" ;;
		*) cp "$file" "$1/tests/" ;;
		esac
	done
	chmod -R go+rX "$1"
}

# The whole of rdma-core's own suite gives an unprivileged program through verbsd what it gives root without.
test_suite()
{
	if [ -z "$full" ]; then
		tap_skip "suite of rdma-core" "it takes minutes: make check-vm at full length"
		return
	fi
	suite_put "$work/suite"
	timeout 1500 /usr/bin/python3 "$here/native_suite.py" "$work/suite" rxe0 >"$work/native" 2>"$work/native.err"
	tap_is "suite of rdma-core: runs natively as root" 0 $?
	as_nobody timeout 1500 /usr/bin/python3 "$here/native_suite.py" "$work/suite" rxe0 >"$work/brokered" 2>"$work/brokered.err"
	tap_is "suite of rdma-core: runs through verbsd" 0 $?
	tap_is "suite of rdma-core: many pass" yes "$([ "$(grep -c ^pass "$work/native")" -ge 80 ] && echo yes)"
	tap_empty "suite of rdma-core: the same results, test by test" "$(diff "$work/native" "$work/brokered")"
	echo "# natively: $(cut -d' ' -f1 "$work/native" | sort | uniq -c | xargs)"
	echo "# through verbsd: $(cut -d' ' -f1 "$work/brokered" | sort | uniq -c | xargs)"
}

# What was open stays so (test_kill_daemon); what is to be opened is not.
test_no_daemon()
{
	systemctl stop verbsd.socket verbsd.service
	tap_fails "no daemon: no new context" as_nobody ibv_devinfo -d rxe0
	tap_is "no daemon: one line says so" 1 "$(grep -c '^verbsd: .*no daemon at /run/verbsd/verbsd.sock' <<<"$said")"
	systemctl start verbsd.service
	tap_run "no daemon: once it is back there are contexts" as_nobody ibv_devinfo -d rxe0
}

# Those of the lists that are wanted; VERBSD_VM_ONLY names some, for who looks for something. The second list is the shorter one: its VM
# begins when another one, systemd.sh's, has ended.
first="devices pingpongs perftest cm kill_clients left_behind kill_daemon container memlock regions"
second="policy counters events hot_plug hostile hanging no_daemon calls suite"
tests="$first $second"
[ -z "${VERBSD_VM_HALF-}" ] || tests=${!VERBSD_VM_HALF}

test_start
until_true 30 watched
before=$(resources)
for test in ${VERBSD_VM_ONLY:-$tests}; do
	start=$SECONDS
	"test_$test"
	echo "# $test: $((SECONDS - start)) s"
done
tap_run "at last the devices have what they had before" until_true 30 is_clean
tap_done
