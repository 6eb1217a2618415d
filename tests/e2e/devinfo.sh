#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What the tools of ibverbs-utils say about the soft device, and what programs see without a daemon.
. "$(dirname "$0")/lib.bash"
need ibv_devices ibv_devinfo

text=$work/out/text

# run COMMAND...: as a client; output in $text, its status.
run()
{
	(client "$@") >"$text" 2>&1
}

# says NAME PATTERN: the last output has a line that matches.
says()
{
	if grep -qE "$2" "$text"; then
		tap_ok "$1"
	else
		tap_not_ok "$1" "no line matches $2" "$(head -n 40 "$text")"
	fi
}

daemon_start

tap_run "ibv_devices ends with status 0" run ibv_devices
device=$(awk 'NR > 2 && NF == 2 { print $1; exit }' "$text")
says "ibv_devices lists a device with its GUID" '^ +[a-z][a-z0-9_]+[[:space:]]+[0-9a-f]{16}$'

tap_run "ibv_devinfo -v ends with status 0" run ibv_devinfo -v
says "it names the device" "^hca_id:[[:space:]]+${device:-none}$"
says "the transport is InfiniBand" 'transport:[[:space:]]+InfiniBand'
says "the GUID is not zero" 'node_guid:[[:space:]]+[0-9a-f:]*[1-9a-f]'
says "the board is known without sysfs" 'board_id:[[:space:]]+verbsd-soft'
says "port 1 is active" 'state:[[:space:]]+PORT_ACTIVE'
says "the MTU is 4096" 'active_mtu:[[:space:]]+4096'
says "there is a GID" 'GID\[ *0\]:[[:space:]]+[0-9a-f:.]+'
says "atomics are global" 'atomic_cap:[[:space:]]+ATOMIC_GLOB'
says "QPs can be made" 'max_qp:[[:space:]]+[1-9]'

tap_run "ibv_devinfo -l lists it" run ibv_devinfo -l
says "one HCA" '^1 HCA'
tap_run "ibv_devinfo -d finds it by name" run ibv_devinfo -d "$device"
if run ibv_devinfo -d nosuchdevice; then
	tap_not_ok "another name is not found"
else
	tap_ok "another name is not found"
fi

if run env VERBSD_DEBUG=1 ibv_devices; then
	says "VERBSD_DEBUG says what was connected to" '^verbsd: connected to verbsd'
else
	tap_not_ok "VERBSD_DEBUG says what was connected to" "$(cat "$text")"
fi

run ibv_devices
if grep -q '^verbsd:' "$text"; then
	tap_not_ok "without it nothing is said" "$(cat "$text")"
else
	tap_ok "without it nothing is said"
fi

# Not by tap_run: the daemon is this shell's child, not a subshell's.
if daemon_stop; then
	tap_ok "the daemon ends with status 0"
else
	tap_not_ok "the daemon ends with status 0" "$(tail -n 5 "$work/daemon.log")"
fi

# Transparent: the same status as without the preload, and one line that says why there is no more.
as_is=0
(as_user ibv_devinfo) >"$work/out/plain" 2>&1 || as_is=$?
with=0
run ibv_devinfo || with=$?
if [ $as_is = $with ]; then
	tap_ok "without a daemon a program ends as it would without us"
else
	tap_not_ok "without a daemon a program ends as it would without us" "status $with, not $as_is"
fi
if [ -n "$(ls -A /sys/class/infiniband 2>/dev/null)" ]; then
	tap_skip "one line says why there is no device" "this machine has real devices"
elif [ "$(grep -c '^verbsd: ' "$text")" = 1 ]; then
	says "one line says why there is no device" '^verbsd: no soft devices: .*verbsd.sock: '
else
	tap_not_ok "one line says why there is no device" "$(cat "$text")"
fi
tap_done
