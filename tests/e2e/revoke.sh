#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# No byte of a peer's lands after the verb that forbids it returned: while it copies, and while it is stopped.
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

revoke()
{
	(client_for 300 "$work/out/revoke" "$rounds" "$seed")
}

tap_run "dereg, destroy and error end what the peer writes, $rounds times" revoke
if until_true 20 daemon_empty; then
	tap_ok "nothing is left in the daemon"
else
	tap_not_ok "nothing is left in the daemon" "$("$verbsctl" --socket "$socket" status)"
fi
tap_done
