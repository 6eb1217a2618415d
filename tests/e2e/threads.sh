#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Many threads on one QP and one CQ, and one thread for each of many thread domains: every message exactly once, and no
# data race under ThreadSanitizer (its reports end a program with status 66).
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need jq
[ -x "$VERBSD_BUILD/tests/e2e/threads" ] || { echo "Bail out! no $VERBSD_BUILD/tests/e2e/threads"; exit 1; }
daemon_start
n=20000
[ "${VERBSD_SANITIZER-}" = "" ] || n=3000
[ -z "$full" ] || n=$((n * 10))

threads()
{
	local name=$1
	shift
	(client_for 300 "$VERBSD_BUILD/tests/e2e/threads" "$@" >"$work/out/threads" 2>&1)
	local status=$?
	if [ $status = 0 ]; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "status $status" "$(head -n 60 "$work/out/threads")"
	fi
}

threads "two processes, 1 thread each, $n messages each way" 1 $n
threads "two processes, 8 threads each" 8 $n
threads "one process, 8 threads" --one 8 $n
threads "two processes, 8 threads and one that sleeps in the channel" --events 8 $n
threads "one process, 8 threads and two that sleep" --one --events 8 $n
threads "two processes, 8 thread domains each, a thread for each" --domains 8 $((n / 4))
threads "one process, 8 thread domains that talk to each other" --one --domains 8 $((n / 4))
tap_run "the daemon has no object left" until_true 20 daemon_empty
tap_done
