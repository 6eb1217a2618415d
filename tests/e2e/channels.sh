#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Completion channels between two processes: blocked, in poll(2), interrupted, cancelled, many threads.
. "$(dirname "$0")/lib.bash"
program=$VERBSD_BUILD/tests/e2e/channels
[ -x "$program" ] || tap_skip_all "no $program"
# The unprivileged user may not be able to reach the build tree.
cp "$program" "$work/out/channels"
chmod 755 "$work/out/channels"
daemon_start
# Some tests end with objects made, as programs do.
export ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0"

channel()
{
	(client_for 120 "$work/out/channels" "$1")
}

for name in $("$work/out/channels"); do
	if [ "$name" = cancelled ] && [ -n "${VERBSD_SANITIZER-}" ]; then
		tap_skip "$name" "sanitizers do not know cancellation"
		continue
	fi
	tap_run "${name//-/ }" channel "$name"
done
if until_true 20 daemon_empty; then
	tap_ok "nothing is left in the daemon"
else
	tap_not_ok "nothing is left in the daemon" "$("$verbsctl" --socket "$socket" status)"
fi
tap_done
