#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Every file of the tree is packed by make dist. distcheck finds what a build and the unit tests lack, but not what is lacked
# by those tests that it does not run.
cd "$(dirname "$0")/../.." || exit 99
. tests/lib/tap.bash
[ -n "${VERBSD_BUILD-}" ] || tap_skip_all "VERBSD_BUILD names no build"

packed=$(make -s --no-print-directory -C "$VERBSD_BUILD" print-packed | sort -u)
[ -n "$packed" ] || exit 99

# in_list FILE: it, or a folder that it is in, is in the list.
in_list()
{
	local name=$1
	while ! grep -qxF -e "$name" <<<"$packed"; do
		[[ $name == */* ]] || return 1
		name=${name%/*}
	done
}

# files: what is under version control; in a copy of the tree without it, what is where such files are.
files()
{
	git ls-files 2>/dev/null | grep . || find LICENSE README.md acinclude.m4 configure.ac Makefile.am check demo .ci proto daemon client \
		systemd doc tests \( -type f -o -type l \) -not -path '*/__pycache__/*' -not -name '*~' -not -name '.dirstamp'
}

missing=
links=
while IFS= read -r file; do
	[ ! -L "$file" ] || links+="$file"$'\n'
	in_list "$file" || missing+="$file"$'\n'
done < <(files | grep -v '\.gitignore$' | sort)
tap_empty "every file of the tree is packed" "${missing%$'\n'}"
tap_empty "none is a symbolic link, to a place of somebody's" "${links%$'\n'}"
tap_done
