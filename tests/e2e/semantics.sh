#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Drops, overruns, events, order and fences, by the way that a process takes with itself and through the lane.
# shellcheck source=tests/e2e/cases.bash
. "$(dirname "$0")/cases.bash"
need jq
program_ready semantics
daemon_start
for engine in direct stage; do
	echo "# by $engine"
	export VERBSD_ENGINE=$engine
	# shellcheck disable=SC2046 # names are words
	run_cases semantics $("$work/out/semantics")
done
nothing_left
tap_done
