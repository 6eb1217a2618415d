#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The states of queue pairs: the whole product of types, states and masks against the specification's table, and what a QP
# does in each state.
# shellcheck source=tests/e2e/cases.bash
. "$(dirname "$0")/cases.bash"
need jq
program_ready states
echo "# seed $seed"
daemon_start
# shellcheck disable=SC2046 # names are words
run_cases states $("$work/out/states") -- "$seed"
nothing_left
tap_done
