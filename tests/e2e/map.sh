#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The map engine between processes: contents, rights, atomics, order, revocation and death. tests/e2e/map.c has the
# cases; each program proves by its counters that the engine ran.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
for name in map revoke; do
	[ -x "$VERBSD_BUILD/tests/e2e/$name" ] || { echo "Bail out! no $VERBSD_BUILD/tests/e2e/$name"; exit 1; }
	# The unprivileged user may not be able to reach the build tree.
	cp "$VERBSD_BUILD/tests/e2e/$name" "$work/out/$name"
	chmod 755 "$work/out/$name"
done
rounds=40
[ -z "$full" ] || rounds=800

# run NAME COMMAND...: passes if it ends with status 0; 77 is a skip, and its output says why.
run()
{
	local name=$1 status
	shift
	"$@" >"$work/out/log" 2>&1
	status=$?
	if [ $status = 0 ]; then
		tap_ok "$name"
	elif [ $status = 77 ]; then
		tap_skip "$name" "$(head -n 1 "$work/out/log")"
	else
		tap_not_ok "$name" "status $status" "$(tail -n 20 "$work/out/log")" "$(tail -n 5 "$work/daemon.log")"
	fi
}

as_client()
{
	(client_for 60 "$@")
}

# The program changes its users itself.
as_root()
{
	LD_PRELOAD="${VERBSD_PRELOAD_FIRST:+$VERBSD_PRELOAD_FIRST:}$preload" timeout -k 5 $((60 * patience)) "$@"
}

daemon_start
for case in $("$work/out/map"); do
	[ "$case" = strangers-take-the-lane ] || run "$case" as_client "$work/out/map" "$case"
done
run "dereg, rereg, destroy and error end what the peer writes, $rounds times, seed $seed" \
	as_client "$work/out/revoke" "$rounds" "$seed" map
tap_run "nothing is left in the daemon" until_true 20 daemon_empty
daemon_stop

# Two users are two domains.
printf '[connect]\nusers = 65533 65534 root\n' >"$work/verbsd.conf"
chmod 644 "$work/verbsd.conf"
daemon_start --config "$work/verbsd.conf"
run "strangers-take-the-lane" as_root "$work/out/map" strangers-take-the-lane
tap_run "nothing is left of strangers" until_true 20 daemon_empty
tap_done
