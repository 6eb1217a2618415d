#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Objects of real devices go to the real library, soft ones do not, and a program may have both. The real library is a
# stand-in with one device that needs no hardware.
. "$(dirname "$0")/lib.bash"
here=$(cd "$(dirname "$0")" && pwd)
cc=${CC:-cc}
# shellcheck disable=SC2086 # the compiler may have arguments
command -v ${cc%% *} >/dev/null || tap_skip_all "no compiler"

mkdir "$work/real"
chmod 755 "$work/real"
# shellcheck disable=SC2086
$cc -shared -fPIC -o "$work/real/libibverbs.so.1" -Wl,-soname,libibverbs.so.1 \
	-Wl,--version-script="$here/forward_real.map" "$here/forward_real.c" &&
	$cc -o "$work/out/forward" "$here/forward.c" -libverbs || {
	echo "Bail out! the stand-in does not build"
	exit 1
}
daemon_start

# checks FORM COMMAND...: what the program found out, a line for each.
checks()
{
	local form=$1 line
	shift
	("$@") >"$work/out/checks" 2>&1 || echo "not ok - the program ended with status $?" >>"$work/out/checks"
	grep -q '^1\.\.' "$work/out/checks" || tap_not_ok "$form: the program went to its end" "$(cat "$work/out/checks")"
	while IFS= read -r line; do
		case $line in
		"ok "*) tap_ok "$form: ${line#ok * - }" ;;
		"not ok "*) tap_not_ok "$form: ${line#not ok }" ;;
		esac
	done <"$work/out/checks"
}

checks preload client env LD_LIBRARY_PATH="$work/real" "$work/out/forward"
# Where the SONAME is ours the real library is looked for: in that variable, too.
checks soname as_user env LD_LIBRARY_PATH="$root/lib/verbsd:$work/real" "$work/out/forward"
checks both as_user env LD_LIBRARY_PATH="$root/lib/verbsd:$work/real" LD_PRELOAD="$root/lib/verbsd/libibverbs.so.1" \
	"$work/out/forward"
tap_done
