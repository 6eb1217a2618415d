#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Completion statuses, each provoked, by the way that a process takes with itself and through the lane; and between two
# processes by each engine that there is between them.
# shellcheck source=tests/e2e/cases.bash
. "$(dirname "$0")/cases.bash"
need jq
program_ready statuses
program_ready apart
daemon_start
for engine in direct stage; do
	echo "# by $engine"
	export VERBSD_ENGINE=$engine
	# shellcheck disable=SC2046 # names are words
	run_cases statuses $("$work/out/statuses")
done
for engine in stage cma map; do
	echo "# between processes, by $engine"
	export VERBSD_ENGINE=$engine
	# shellcheck disable=SC2046
	run_cases apart $("$work/out/apart")
done
nothing_left
tap_done
