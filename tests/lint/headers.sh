#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Every header of the product compiles alone; the public one as C++ too. Needs the flags of a build.
cd "$(dirname "$0")/../.." || exit 99
. tests/lib/tap.bash
[ -n "${VERBSD_BUILD-}" ] || tap_skip_all "VERBSD_BUILD names no build"

src=$PWD
mapfile -t flags < <(make -s --no-print-directory -C "$VERBSD_BUILD" print-cppflags)
[ ${#flags[@]} -gt 0 ] || exit 99

# alone HEADER: compiles nothing but that header.
alone()
{
	cd "$VERBSD_BUILD" &&
		printf '#include "%s"\n' "$1" | ${CC:-cc} -fsyntax-only -Wall -Wextra -Wno-unused-parameter -Werror \
			"${flags[@]}" -x c -
}

while IFS= read -r header; do
	tap_run "$header" alone "$header"
done < <(find proto daemon client tests/lib -name '*.h' | sort)

if command -v c++ >/dev/null; then
	tap_run "client/verbsd.h as C++" c++ -fsyntax-only -Wall -Wextra -Werror -x c++ "$src/client/verbsd.h"
else
	tap_skip "client/verbsd.h as C++" "no c++"
fi
tap_done
