#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What outlives what: fds that the program closed, contexts opened again and again, objects in use.
. "$(dirname "$0")/lib.bash"
program=$VERBSD_BUILD/tests/e2e/lifetimes
[ -x "$program" ] || tap_skip_all "no $program"
# The unprivileged user may not be able to reach the build tree.
cp "$program" "$work/out/lifetimes"
chmod 755 "$work/out/lifetimes"
daemon_start
# Some tests end with objects made, as programs do.
export ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0"

lifetime()
{
	(client_for 60 "$work/out/lifetimes" "$1")
}

for name in $("$work/out/lifetimes"); do
	tap_run "${name//-/ }" lifetime "$name"
done
if until_true 20 daemon_empty; then
	tap_ok "nothing is left in the daemon"
else
	tap_not_ok "nothing is left in the daemon" "$("$verbsctl" --socket "$socket" status)"
fi
tap_done
