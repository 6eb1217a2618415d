#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# XRC: domains and receive QPs that processes share, SRQs of several processes behind one receive QP, what is refused, and
# who may be killed.
# shellcheck source=tests/e2e/cases.bash
. "$(dirname "$0")/cases.bash"
need jq
program_ready xrc
daemon_start
# shellcheck disable=SC2046 # names are words
run_cases xrc $("$work/out/xrc")
nothing_left
tap_done
