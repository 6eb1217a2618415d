#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The conformance matrix: every function, opcode, flag, event and status has its row, every test that one names exists and
# names it, and doc/conformance.md is what `make doc` makes.
cd "$(dirname "$0")/../.." || exit 99
. tests/lib/tap.bash
command -v python3 >/dev/null || tap_skip_all "python3 is not installed"
tap_empty "tests/conformance.txt is whole" "$(python3 tests/lib/conformance check 2>&1)"
tap_empty "doc/conformance.md is what make doc makes of it" \
	"$(python3 tests/lib/conformance doc 2>&1 | diff doc/conformance.md - 2>&1 | head -n 10)"
tap_done
