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
(client env LD_LIBRARY_PATH="$work/real" "$work/out/forward")
