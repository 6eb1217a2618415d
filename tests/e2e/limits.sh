#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What verbs refuse of their arguments; and the limits that the device reports, each at it and one past it. How many objects there can be is tried with quotas that
# make them few, which the device then reports; at full length with its own numbers as well.
# shellcheck source=tests/e2e/cases.bash
. "$(dirname "$0")/cases.bash"
need jq
program_ready limits
program_ready refusals
kinds="pd cq qp srq mr mw ah"
printf '[limits]\npds = 24\ncqs = 25\nqps = 26\nsrqs = 27\nmrs = 28\nmws = 29\nahs = 30\n' >"$work/few.conf"
daemon_start --config "$work/few.conf"
reports()
{
	[ "$("$verbsctl" --socket "$socket" devices --json | jq "[.. | .$1? // empty][0]")" = "$2" ]
}
tap_run "verbsctl devices reports what the quota leaves of max_qp" reports max_qp 26
# shellcheck disable=SC2046,SC2086 # names are words
run_cases limits $(printf '%s-limit ' $kinds)
nothing_left
daemon_stop
daemon_start
# shellcheck disable=SC2046
run_cases limits $("$work/out/limits" | grep -v -e -limit$ -e longest)
# shellcheck disable=SC2046
run_cases refusals $("$work/out/refusals")
if [ -n "$full" ]; then
	# shellcheck disable=SC2046,SC2086
	CASE_LIMIT=600 run_cases limits $(printf '%s-limit ' $kinds) longest-message
else
	tap_skip "the device's own numbers of objects, and a message of 2 GiB" "they take a minute: at full length only"
fi
nothing_left
tap_done
