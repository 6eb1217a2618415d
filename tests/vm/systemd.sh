#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The units under a real systemd: the life of the service from installation to removal, what the process may do, and
# programs of an unprivileged user that talk verbs through it. Runs in the VM, by tests/vm/run.
# shellcheck source=tests/vm/lib.bash
. "$(dirname "$0")/lib.bash"
# shellcheck source=tests/vm/install.bash
. "$(dirname "$0")/install.bash"

preload=/usr/lib/libverbsd.so
socket=/run/verbsd/verbsd.sock
admin=/run/verbsd/admin.sock
conf=/etc/verbsd/verbsd.conf
port=20000
# Both programs poll, and in the short form they share a processor: a round trip is then two turns of the scheduler.
rounds=${full:+1000}
rounds=${rounds:-100}
# CAP_CHOWN 0, CAP_SYS_PTRACE 19, CAP_SYS_RESOURCE 24, CAP_MKNOD 27
caps=$(printf '%016x' $((1 << 0 | 1 << 19 | 1 << 24 | 1 << 27)))

# sees DEVICE: an unprivileged program finds it, which takes a daemon that answers.
sees()
{
	as_nobody ibv_devices 2>&1 | grep -qw "$1"
}

is_active()
{
	[ "$(prop verbsd.service ActiveState)" = active ]
}

# restarted PID: another process is the daemon, and is ready.
restarted()
{
	is_active && [ "$(main_pid)" != "$1" ]
}

# says TEXT: the journal of the service has it, a moment after it was said.
says()
{
	until_true 30 has_said "$1"
}

has_said()
{
	journalctl -q -b -u verbsd -o cat | grep -qF -e "$1"
}

# has_message ID: one with that MESSAGE_ID, once.
has_message()
{
	[ "$(journalctl -q -b -u verbsd MESSAGE_ID="$1" -o cat | grep -c .)" = 1 ]
}

test_install()
{
	install_guest "$VERBSD_ROOT"
	tap_run "sysusers makes the user" getent passwd verbsd
	tap_is "tmpfiles makes the sockets' folder" "root 755" "$(stat -c '%U %a' /run/verbsd)"
	tap_is "tmpfiles makes the nodes' folder" "root 700" "$(stat -c '%U %a' /run/verbsd-nodes)"
	tap_empty "systemd has nothing to say about the units" \
		"$(systemd-analyze verify --man=no verbsd.service verbsd.socket verbsd-admin.socket 2>&1)"
}

# The settings that the default file shows behind a #: the daemon knows each of them.
test_default_configuration()
{
	mkdir "$work/etc"
	sed 's/^#\([[:lower:][]\)/\1/' $conf >"$work/etc/verbsd.conf"
	tap_is "default configuration: shows settings" yes "$(grep -q '^[[:lower:]]' "$work/etc/verbsd.conf" && echo yes)"
	tap_run "default configuration: the daemon takes them" verbsd --check-config --config "$work/etc/verbsd.conf"
	tap_run "default configuration: and the file as it is" verbsd --check-config --config $conf
}

test_start()
{
	local pid
	tap_run "enable" systemctl enable verbsd.service
	tap_is "enable: the sockets too" "enabled enabled" "$(systemctl is-enabled verbsd.socket verbsd-admin.socket | xargs)"
	tap_run "start" systemctl start verbsd.service
	tap_is "start: the sockets too" "active active" "$(systemctl is-active verbsd.socket verbsd-admin.socket | xargs)"
	pid=$(main_pid)
	tap_is "it runs as user verbsd" verbsd "$(stat -c %U "/proc/$pid")"
	for set in CapInh CapPrm CapEff CapBnd CapAmb; do
		tap_is "$set: MKNOD, CHOWN, SYS_RESOURCE and SYS_PTRACE alone" "$caps" "$(status_of "$pid" $set)"
	done
	tap_is "no new privileges" 1 "$(status_of "$pid" NoNewPrivs)"
	tap_is "a system call filter" 2 "$(status_of "$pid" Seccomp)"
	tap_is "the socket for programs" "root root 666" "$(stat -c '%U %G %a' $socket)"
	tap_is "the socket for administration" "root verbsd 660" "$(stat -c '%U %G %a' $admin)"
	tap_is "a status" 1 "$(prop verbsd.service StatusText | grep -c .)"
	tap_is "room for 4096 descriptors in systemd's store" 4096 "$(prop verbsd.service FileDescriptorStoreMax)"
	tap_is "limit of open files" 262144 "$(awk '/^Max open files/ { print $5 }' "/proc/$pid/limits")"
	tap_is "limit of locked memory" unlimited "$(awk '/^Max locked memory/ { print $5 }' "/proc/$pid/limits")"
	test_nodes "$pid"
	test_security
	tap_run "the modules of RDMA are loaded" test -c /dev/infiniband/rdma_cm
	tap_run "the journal has the message of its start" until_true 30 has_message 2fca40cea7ee4297a2389ea592b33b31
}

# test_nodes PID: a tmpfs with devices that only the daemon sees, though /run has none.
test_nodes()
{
	local mount
	mount=$(awk '$5 == "/run/verbsd-nodes"' "/proc/$1/mountinfo")
	tap_is "private nodes: a tmpfs" tmpfs "$(sed 's/.* - //' <<<"$mount" | cut -d' ' -f1)"
	tap_is "private nodes: with devices" "" "$(grep -ow nodev <<<"$mount")"
	tap_is "/run is without" nodev "$(awk '$5 == "/run"' "/proc/$1/mountinfo" | grep -ow nodev | head -n 1)"
	tap_is "private nodes: nobody else has them" "" "$(awk '$5 == "/run/verbsd-nodes"' /proc/self/mountinfo)"
}

test_security()
{
	local score
	score=$(systemd-analyze security --no-pager verbsd.service | sed -n 's/.*exposure level.*: \([0-9.]*\).*/\1/p')
	echo "# systemd-analyze security: $score"
	if awk -v s="$score" 'BEGIN { exit !(s != "" && s <= 2.0) }'; then
		tap_ok "systemd-analyze security: 2.0 or better"
	else
		tap_not_ok "systemd-analyze security: 2.0 or better" "$score"
	fi
}

# rxe_node: a real RDMA device for the moment; its uverbs node.
rxe_node()
{
	modprobe rdma_rxe && ip link add dummy0 type dummy && ip addr add 10.99.0.1/24 dev dummy0 && ip link set dummy0 up &&
		rdma link add rxe0 type rxe netdev dummy0 && until_true 30 test -c /dev/infiniband/uverbs0 &&
		echo /dev/infiniband/uverbs0
}

# What the kernel lets a process do that has the unit's lines.
test_sandbox()
{
	local client node unit=/run/systemd/system/verbsd-sandbox.service
	if [ ! -x "$VERBSD_BUILD/tests/vm/sandbox" ]; then
		tap_skip "sandbox" "no tests/vm/sandbox in VERBSD_BUILD: make check-programs builds it"
		return
	fi
	cp "$VERBSD_BUILD/tests/vm/sandbox" /usr/lib/verbsd-sandbox
	node=$(rxe_node 2>/dev/null) || tap_skip "sandbox: with a uverbs node" "no rxe device on this kernel"
	setpriv --reuid=$nobody --regid=$nobody --clear-groups tail -f /dev/null &
	client=$!
	sed -e "s|^ExecStart=.*|ExecStart=/usr/lib/verbsd-sandbox $client $node|" \
		-e 's/^Type=.*/Type=oneshot/' -e '/^Restart/d' -e '/^WatchdogSec/d' -e '/^ExecReload/d' \
		-e "s|^\[Install\]|StandardOutput=file:$work/sandbox\n&|" /usr/lib/systemd/system/verbsd.service >$unit
	systemctl daemon-reload
	tap_run "sandbox: runs to its end" systemctl start verbsd-sandbox.service
	while IFS=$'\t' read -r verdict name detail; do
		if [ "$verdict" = ok ]; then tap_ok "$name"; else tap_not_ok "$name" "$detail"; fi
	done <"$work/sandbox"
	kill $client
	rm -f $unit /usr/lib/verbsd-sandbox
	rdma link delete rxe0 2>/dev/null
}

# test_pingpong NAME: two programs of nobody's.
test_pingpong()
{
	local name=$1 server client status
	port=$((port + 1))
	as_nobody timeout 120 ibv_rc_pingpong -p $port -n $rounds >"$work/server" 2>&1 &
	server=$!
	if ! until_true 60 listens $port; then
		kill $server
		wait $server
		tap_not_ok "$name" "the server does not listen" "$(cat "$work/server")"
		return
	fi
	as_nobody timeout 120 ibv_rc_pingpong -p $port -n $rounds 127.0.0.1 >"$work/client" 2>&1
	client=$?
	[ $client = 0 ] || kill $server 2>/dev/null
	wait $server
	status=$?
	if [ $client = 0 ] && [ $status = 0 ]; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "$(cat "$work/server" "$work/client")"
	fi
}

test_programs()
{
	tap_run "ibv_devices as nobody sees soft0" sees soft0
	test_pingpong "ibv_rc_pingpong as nobody"
	tap_run "verbsctl status" verbsctl status
}

# Whoever has a region for reading, and no capability, cannot write it: tests/e2e/readonly.c.
test_readonly()
{
	local program=$VERBSD_BUILD/tests/e2e/readonly uid
	if [ ! -x "$program" ]; then
		tap_skip "read-only" "no tests/e2e/readonly in VERBSD_BUILD: make check-programs builds it"
		return
	fi
	cp "$program" /usr/lib/verbsd-readonly
	for uid in $nobody 0; do
		LD_PRELOAD=$preload timeout 120 setpriv --reuid=$uid --regid=$uid --clear-groups --inh-caps=-all --bounding-set=-all \
			/usr/lib/verbsd-readonly $socket plain "$(main_pid)" >"$work/findings" 2>&1
		tap_is "read-only, uid $uid: the tricks came to their end" 0 $?
		tap_is "read-only, uid $uid: none was allowed" "" "$(grep -v ^ok "$work/findings")"
		tap_is "read-only, uid $uid: there were many" yes "$([ "$(wc -l <"$work/findings")" -gt 100 ] && echo yes)"
	done
	rm -f /usr/lib/verbsd-readonly
}

test_activation()
{
	tap_run "stop" systemctl stop verbsd.service
	tap_is "stop: without a failure" "inactive success" \
		"$(prop verbsd.service ActiveState) $(prop verbsd.service Result)"
	tap_run "activation: a program starts the daemon" sees soft0
	tap_run "activation: it is running" is_active
	systemctl stop verbsd.service
	tap_run "activation: the socket for administration does too" verbsctl clients
	tap_run "activation: it is running" is_active
}

test_reload()
{
	local pid
	pid=$(main_pid)
	printf '[device soft1]\n' >/etc/verbsd/conf.d/test.conf
	tap_run "reload: a good file" systemctl reload verbsd.service
	tap_run "reload: it holds" sees soft1
	printf '[device soft1]\n[device soft2]\nmtu = green\n' >/etc/verbsd/conf.d/test.conf
	tap_fails "reload: a wrong file is refused" systemctl reload verbsd.service
	tap_run "reload: the reason is in the journal, with file and line" says "/etc/verbsd/conf.d/test.conf:3:"
	tap_run "reload: the old configuration holds" sees soft1
	tap_fails "reload: nothing of the wrong one does" sees soft2
	tap_is "reload: the same process, running" "$pid running" "$(main_pid) $(prop verbsd.service SubState)"
	rm /etc/verbsd/conf.d/test.conf
	tap_run "reload: the wrong file is gone" systemctl reload verbsd.service
	tap_fails "reload: so is its device" sees soft1
}

# A start that is refused is tried again until the file is right; the programs that wait at the socket are then served.
test_wrong_at_start()
{
	local program
	systemctl stop verbsd.service
	echo nonsense >/etc/verbsd/conf.d/test.conf
	tap_fails "wrong file at start: refused" systemctl start verbsd.service
	tap_run "wrong file at start: file and line are in the journal" says "/etc/verbsd/conf.d/test.conf:1:"
	as_nobody timeout 60 ibv_devices >"$work/program" 2>&1 &
	program=$!
	tap_run "wrong file at start: tried again" until_true 90 tried_again 6
	tap_is "wrong file at start: the sockets hold out" "active active" \
		"$(systemctl is-active verbsd.socket verbsd-admin.socket | xargs)"
	rm /etc/verbsd/conf.d/test.conf
	tap_run "wrong file at start: it starts by itself when the file is right" until_true 60 is_active
	wait $program
	if grep -qw soft0 "$work/program"; then
		tap_ok "wrong file at start: a program that waited is served"
	else
		tap_not_ok "wrong file at start: a program that waited is served" "$(cat "$work/program")"
	fi
}

tried_again()
{
	[ "$(prop verbsd.service NRestarts)" -ge "$1" ]
}

test_watchdog()
{
	local pid
	drop_in WatchdogSec=8s
	systemctl restart verbsd.service
	pid=$(main_pid)
	kill -STOP "$pid"
	tap_run "watchdog: a daemon that stands still is replaced" until_true 90 restarted "$pid"
	tap_run "watchdog: for that reason" says "Failed with result 'watchdog'"
	tap_run "watchdog: the new one answers" sees soft0
	# For the next process: this one keeps what it was started with.
	drop_in
}

# The programs' traffic neither needs the daemon nor notices that it goes.
test_kill()
{
	local pid i traffic=
	traffic_start && traffic=1
	for ((i = 0; i < ${full:+9} + 1; i++)); do
		pid=$(main_pid)
		kill -KILL "$pid"
		tap_run "kill -9: it is started again" until_true 90 restarted "$pid"
	done
	tap_run "kill -9: the new one answers" sees soft0
	tap_run "kill -9: for that reason" says "Main process exited, code=killed, status=9/KILL"
	[ -z "$traffic" ] || traffic_end
}

traffic_start()
{
	local traffic=$VERBSD_BUILD/tests/e2e/traffic
	if [ ! -x "$traffic" ]; then
		tap_skip "kill -9: traffic goes on" "no tests/e2e/traffic in VERBSD_BUILD: make check-programs builds it"
		return 1
	fi
	cp "$traffic" /usr/lib/verbsd-traffic
	mkdir -m 777 "$work/traffic"
	as_nobody timeout 300 /usr/lib/verbsd-traffic listen "$work/traffic/s" --until "$work/stop" >"$work/server" 2>&1 &
	server=$!
	until_true 60 test -S "$work/traffic/s"
	as_nobody timeout 300 /usr/lib/verbsd-traffic connect "$work/traffic/s" --until "$work/stop" >"$work/client" 2>&1 &
	client=$!
	tap_run "kill -9: while two programs talk" until_true 60 both_say running
}

# both_say WORD: as the last line of either program.
both_say()
{
	[ "$(tail -qn 1 "$work/server" "$work/client" | cut -d' ' -f1 | xargs)" = "$1 $1" ]
}

traffic_end()
{
	local status
	tap_run "kill -9: the programs talk on" kill -0 "$server" "$client"
	touch "$work/stop"
	wait "$client"
	status=$?
	wait "$server"
	status="$status $?"
	tap_is "kill -9: and end with status 0" "0 0" "$status"
	tap_run "kill -9: as if nothing had been" both_say "done"
	rm -f /usr/lib/verbsd-traffic
}

# The new program in the place of the old one, then a restart. The sockets stay, so nobody is turned away meanwhile.
test_upgrade()
{
	local pid inode
	pid=$(main_pid)
	inode=$(stat -c %i $socket)
	cp /usr/sbin/verbsd /usr/sbin/verbsd.new
	mv /usr/sbin/verbsd.new /usr/sbin/verbsd
	tap_is "upgrade: the old program runs on" "/usr/sbin/verbsd (deleted)" "$(readlink "/proc/$pid/exe")"
	systemctl restart verbsd.service &
	tap_run "upgrade: a program meanwhile is served" sees soft0
	wait $!
	tap_run "upgrade: another process" restarted "$pid"
	tap_is "upgrade: of the new program" "/usr/sbin/verbsd" "$(readlink "/proc/$(main_pid)/exe")"
	tap_is "upgrade: the same socket" "$inode" "$(stat -c %i $socket)"
	test_pingpong "upgrade: ibv_rc_pingpong"
}

test_disable()
{
	tap_run "disable --now" systemctl disable --now verbsd.socket
	tap_is "disable --now: nothing is active" "inactive inactive inactive" \
		"$(systemctl is-active verbsd.service verbsd.socket verbsd-admin.socket | xargs)"
	tap_is "disable --now: nothing is enabled" "disabled disabled disabled" \
		"$(systemctl is-enabled verbsd.service verbsd.socket verbsd-admin.socket | xargs)"
	tap_is "disable --now: no socket is left" "" "$(find /run/verbsd -mindepth 1)"
	tap_is "disable --now: no process is left" "" "$(pgrep -u verbsd)"
	tap_fails "disable --now: programs see no soft device" sees soft0
	tap_is "disable --now: and start nothing" inactive "$(prop verbsd.service ActiveState)"
}

test_uninstall()
{
	uninstall_guest
	tap_is "uninstall: systemd knows no unit" "" "$(systemctl list-units --all --plain --no-legend 'verbsd*')"
	tap_is "uninstall: no unit file is left" "" "$(systemctl list-unit-files --no-legend 'verbsd*')"
	tap_is "uninstall: nothing has failed" "" "$(systemctl --failed --plain --no-legend)"
	tap_is "uninstall: no file is left" "" \
		"$(find /usr/sbin /usr/bin /usr/lib/systemd /usr/lib/sysusers.d /usr/lib/tmpfiles.d /etc -name '*verbsd*' ! -name '*verbsd-sandbox*')"
}

test_install
test_default_configuration
test_start
test_sandbox
test_programs
test_readonly
test_activation
test_reload
test_wrong_at_start
test_watchdog
test_kill
test_upgrade
test_disable
test_uninstall
tap_done
