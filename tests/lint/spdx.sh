#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Every text file of the tree says its licence in one of its first two lines.
cd "$(dirname "$0")/../.." || exit 99
. tests/lib/tap.bash

missing=
while IFS= read -r file; do
	head -n 2 "$file" | grep -q 'SPDX-License-Identifier: BSD-2-Clause' || missing+="$file"$'\n'
done < <(find LICENSE README.md acinclude.m4 configure.ac Makefile.am check demo .ci proto daemon client systemd doc tests \
	-type f -not -path 'tests/fuzz/corpus/*' -not -path '*/__pycache__/*' -not -name '.*' -not -name '*.json' \
	-not -name '*~' -not -name '.dirstamp')
tap_empty "every file names its licence" "${missing%$'\n'}"
tap_done
