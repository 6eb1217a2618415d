#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Who polls makes no system call, and kicks nobody who polls as well, whatever way data goes: tests/e2e/quiet.c has the ways.
# shellcheck source=tests/e2e/cases.bash
. "$(dirname "$0")/cases.bash"
need jq
program_ready quiet
daemon_start
# shellcheck disable=SC2046 # names are words
run_cases quiet $("$work/out/quiet")
nothing_left
tap_done
