#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Every public function, subcommand page and program has its man page.
cd "$(dirname "$0")/../.." || exit 99
. tests/lib/tap.bash

pages=$(find doc -name '*.[1-8]' -o -name '*.[1-8].in' | sort)
for page in verbsd.8 verbsctl.1 verbsd.conf.5 verbsd.7 libverbsd.3; do
	if grep -qE "/${page//./\\.}(\.in)?$" <<<"$pages"; then
		tap_ok "$page is there"
	else
		tap_not_ok "$page is there"
	fi
done

functions=$(sed -nE 's/^[^/*#]*\b(verbsd_[a-z0-9_]+)[[:space:]]*\(.*/\1/p' client/verbsd.h | sort -u)
for function in $functions; do
	# shellcheck disable=SC2086 # a list of files
	if grep -qw "$function" ${pages:-/dev/null}; then
		tap_ok "$function has its man page"
	else
		tap_not_ok "$function has its man page"
	fi
done
tap_done
