#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Debian's ibv_asyncwatch sees what happens to the port that it watches, and nothing of what happens to others; whoever
# asks for the port's state finds it as the event says.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need ibv_asyncwatch ibv_devinfo ibv_rc_pingpong jq
conf=$work/verbsd.conf

# ports STATE-OF-SOFT0 STATE-OF-SOFT1
ports()
{
	printf '[device soft0]\nport = %s\n[device soft1]\nport = %s\n' "$1" "$2" >"$conf"
	chmod 644 "$conf"
}

# saw DEVICE EVENT COUNT: that watcher has seen the event so often.
saw()
{
	[ "$(grep -c "event_type $2 ([0-9]*), port 1" "$work/out/$1")" = "$3" ]
}

ports active active
daemon_start --config "$conf"
for device in soft0 soft1; do
	(client ibv_asyncwatch -d $device >"$work/out/$device" 2>&1) &
	pids+=($!)
	tap_run "ibv_asyncwatch watches $device" until_true 20 grep -q "^$device: async event FD" "$work/out/$device"
done

for round in 1 2; do
	ports down active
	tap_run "the port goes down ($round)" "$verbsctl" reload
	tap_run "its watcher sees it" until_true 20 saw soft0 IBV_EVENT_PORT_ERR $round
	tap_run "ibv_devinfo says so" grep -q 'state:[[:space:]]*PORT_DOWN' <(client ibv_devinfo -d soft0 2>&1)
	ports active active
	tap_run "the port comes up ($round)" "$verbsctl" reload
	tap_run "its watcher sees it" until_true 20 saw soft0 IBV_EVENT_PORT_ACTIVE $round
	tap_run "ibv_devinfo says so" grep -q 'state:[[:space:]]*PORT_ACTIVE' <(client ibv_devinfo -d soft0 2>&1)
done

# What happens next to the other port comes after all that its watcher could have seen.
ports active down
tap_run "the other port goes down" "$verbsctl" reload
tap_run "its watcher sees it" until_true 20 saw soft1 IBV_EVENT_PORT_ERR 1
tap_run "and has seen nothing else" test "$(grep -c event_type "$work/out/soft1")" = 1
tap_run "a reload that changes nothing" "$verbsctl" reload
pair "messages pass while the watchers watch" "ibv_rc_pingpong -p %P -n 100" "ibv_rc_pingpong -p %P -n 100 127.0.0.1"
tap_run "nobody saw more than there was" test "$(cat "$work/out/soft0" "$work/out/soft1" | grep -c event_type)" = 5

# A context keeps the addresses that it was opened with, and its device; whoever opens it anew finds what there is now. So there is
# no event of addresses, P_Keys, subnet managers or devices. The other port's comes last: all before it would have been seen.
printf '[device soft0]\nlid = 77\nguid = 0256:5344:0000:0077\n[device soft1]\nlid = 2\nguid = 0256:5344:0000:0002\nport = down\n' >"$conf"
tap_run "soft0 gets another LID and GID" "$verbsctl" reload
tap_run "who opens it then finds them" grep -q 'port_lid:[[:space:]]*77' <(client ibv_devinfo -d soft0 2>&1)
printf '[device soft1]\nlid = 2\nguid = 0256:5344:0000:0002\nport = active\n' >"$conf"
tap_run "soft0 goes, and the other port comes up" "$verbsctl" reload
tap_run "its watcher sees it" until_true 20 saw soft1 IBV_EVENT_PORT_ACTIVE 1
tap_run "soft0 is not in the list any more" test "$(client ibv_devinfo -l 2>&1 | grep -c soft0)" = 0
daemon_stop
tap_run "the watchers outlive the daemon" kill -0 "${pids[@]:0:2}"
tap_run "none of that is an event" test "$(cat "$work/out/soft0" "$work/out/soft1" | grep -c event_type)" = 6

kill "${pids[@]}" 2>/dev/null
wait "${pids[@]}" 2>/dev/null
tap_done
