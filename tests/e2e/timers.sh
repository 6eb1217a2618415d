#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# RNR timers and transport timeouts, each code: nobody gives up before the time is over. How a payload travels makes no
# difference to what waits.
# shellcheck source=tests/e2e/cases.bash
. "$(dirname "$0")/cases.bash"
need jq
program_ready timers
daemon_start
# shellcheck disable=SC2046 # names are words
run_cases timers $("$work/out/timers")
nothing_left
tap_done
