#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Calls that follow each other find the daemon awake: it does not go to sleep for each.
# shellcheck source=tests/e2e/cases.bash
. "$(dirname "$0")/cases.bash"
program_ready registration

# sleeps: how often the daemon waited, so far.
sleeps()
{
	sed -n 's/^voluntary_ctxt_switches:\t//p' "/proc/$daemon_pid/status"
}

# costs: waits of the daemon's during 1,000 calls and what a program needs beside.
costs()
{
	local before
	before=$(sleeps)
	(client_for 60 "$work/out/registration" calls) || return 1
	echo $(($(sleeps) - before))
}

# least TRIES: of so many runs; with much else to do a client does not always come back in time.
least()
{
	local try now least=
	for ((try = 0; try < $1; try++)); do
		now=$(costs) || return 1
		[ -n "$least" ] && [ "$least" -le "$now" ] || least=$now
		[ "$least" -ge 250 ] || break
	done
	echo "$least"
}

if [ "$(nproc)" -lt 2 ]; then
	tap_skip "a burst of calls finds the daemon awake" "one processor"
else
	daemon_start
	tap_run "a burst of calls finds the daemon awake" test "$(least 30)" -lt 250
	daemon_stop
fi
tap_done
