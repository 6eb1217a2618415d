#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The library is the same source with newer headers of rdma-core than those that are installed: client/abi/ compiles against
# tests/lint/newer, which declares what came after version 44, and against whole newer headers where VERBSD_NEWER_HEADERS
# names a folder that has infiniband/verbs.h.
cd "$(dirname "$0")/../.." || exit 99
. tests/lib/tap.bash
[ -n "${VERBSD_BUILD-}" ] || tap_skip_all "VERBSD_BUILD names no build"

src=$PWD
mapfile -t flags < <(make -s --no-print-directory -C "$VERBSD_BUILD" print-cppflags)
[ ${#flags[@]} -gt 0 ] || exit 99

# against FOLDER FILE
against()
{
	cd "$VERBSD_BUILD" && ${CC:-cc} -fsyntax-only -Wall -Wextra -Wno-unused-parameter -Wredundant-decls -Werror \
		-I"$1" "${flags[@]}" "$src/$2"
}

for file in client/abi/refuse.c client/abi/buffer.c; do
	tap_run "$file with newer declarations" against "$src/tests/lint/newer" "$file"
done
if [ -n "${VERBSD_NEWER_HEADERS-}" ]; then
	while IFS= read -r file; do
		tap_run "$file with $VERBSD_NEWER_HEADERS" against "$VERBSD_NEWER_HEADERS" "$file"
	done < <(find client/abi client/soft -name '*.c' | sort)
fi
tap_done
