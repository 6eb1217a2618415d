#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The examples of verbsd(8) and libverbsd(3), as they stand there. Those of verbsctl(1) and verbsd.conf(5) are run by
# ctl.sh and daemon.sh; `systemctl reload` by the VM tests.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need ibv_devinfo pkg-config cc
src=${VERBSD_SRCDIR:-$(dirname "$0")/../..}
export PATH=$root/bin:$root/sbin:$PATH PKG_CONFIG_PATH=$root/lib/pkgconfig LD_LIBRARY_PATH=$root/lib

# literal PAGE N: the N-th literal block of its EXAMPLES, with roff's \e as a backslash
literal()
{
	awk -v want="$2" '/^\.Sh/ { here = /EXAMPLES/ } here && /^\.Bd -literal/ { n++; inside = 1; next }
		/^\.Ed/ { inside = 0 } here && inside && n == want { gsub(/\\e/, "\\"); print }' "$src/doc/$1"
}

literal verbsd.8 1 | sed -n 's/^\$ //p' | sed "s,/tmp/my.sock,$work/out/my.sock,g" >"$work/example"
tap_run "verbsd(8) has an example with five commands" test "$(wc -l <"$work/example")" = 5
(ulimit -l 64; timeout -k 5 60 bash -m -e "$work/example" >"$work/out/example" 2>&1)
status=$?
if [ $status = 0 ] && grep -q soft0 "$work/out/example"; then
	tap_ok "verbsd(8): the example runs"
else
	tap_not_ok "verbsd(8): the example runs" "status $status" "$(cat "$work/out/example")"
fi

literal libverbsd.3 1 >"$work/out/example.c"
# shellcheck disable=SC2046 # options
tap_run "libverbsd(3): the example compiles and links" \
	cc -Wall -Wextra -Werror -o "$work/out/example-c" "$work/out/example.c" $(pkg-config --cflags --libs verbsd)
daemon_start
if VERBSD_SOCKET=$socket "$work/out/example-c" >"$work/out/example" 2>&1 && grep -qx soft0 "$work/out/example"; then
	tap_ok "libverbsd(3): the example runs, linked with -lverbsd"
else
	tap_not_ok "libverbsd(3): the example runs" "$(cat "$work/out/example")"
fi
tap_done
