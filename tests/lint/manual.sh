#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Every public function, subcommand page and program has its man page.
cd "$(dirname "$0")/../.." || exit 99
. tests/lib/tap.bash

pages=$(find doc -name '*.[1-8]' -o -name '*.[1-8].in' | sort)
for page in verbsd.8 verbsctl.1 verbsd.conf.5 verbsd.7 verbsd-parent-domain.7 libverbsd.3; do
	if grep -qE "/${page//./\\.}(\.in)?$" <<<"$pages"; then
		tap_ok "$page is there"
	else
		tap_not_ok "$page is there"
	fi
done

functions=$(grep -oE '\bverbsd_[a-z0-9_]+\(' client/verbsd.h | tr -d '(' | sort -u)
for function in $functions; do
	if grep -qw "$function" "doc/$function.3" 2>/dev/null ||
		grep -qw "$function" "doc$(sed -n 's/^\.so man3//p' "doc/$function.3" 2>/dev/null)" 2>/dev/null; then
		tap_ok "$function has its man page"
	else
		tap_not_ok "$function has its man page"
	fi
done
tap_done
