#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Every opcode by every way to post it; and calls that have no home elsewhere.
# shellcheck source=tests/e2e/cases.bash
. "$(dirname "$0")/cases.bash"
need jq
program_ready opcodes
program_ready calls
daemon_start
for engine in direct stage; do
	echo "# by $engine"
	export VERBSD_ENGINE=$engine
	# shellcheck disable=SC2046 # names are words
	run_cases opcodes $("$work/out/opcodes")
done
# shellcheck disable=SC2046
run_cases calls $("$work/out/calls")
nothing_left
tap_done
