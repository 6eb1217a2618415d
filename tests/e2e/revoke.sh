#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# No byte of a peer's lands after the verb that forbids it returned: while it copies, by itself or by the lane, and while it is
# stopped. map.sh has the same with regions.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
program=$VERBSD_BUILD/tests/e2e/revoke
[ -x "$program" ] || { echo "Bail out! no $program"; exit 1; }
# The unprivileged user may not be able to reach the build tree.
cp "$program" "$work/out/revoke"
chmod 755 "$work/out/revoke"
rounds=60
[ -z "$full" ] || rounds=600
echo "# seed $seed"
daemon_start

for engine in stage cma; do
	name="dereg, destroy and error end what the peer writes by $engine, $rounds times"
	(client_for 300 "$work/out/revoke" "$rounds" "$seed" $engine) >"$work/out/log" 2>&1
	case $? in
	0) tap_ok "$name" ;;
	77) tap_skip "$name" "$(head -n 1 "$work/out/log")" ;;
	*) tap_not_ok "$name" "$(tail -n 20 "$work/out/log")" "$(tail -n 5 "$work/daemon.log")" ;;
	esac
done
if until_true 20 daemon_empty; then
	tap_ok "nothing is left in the daemon"
else
	tap_not_ok "nothing is left in the daemon" "$("$verbsctl" --socket "$socket" status)"
fi
tap_done
