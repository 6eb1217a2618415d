#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Faults in each step of each call that makes something: out of memory, out of file descriptors, no thread, a daemon that
# refuses, a session that ends. G4 of the field reports.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need jq
program=$VERBSD_BUILD/tests/e2e/steps
fault=$VERBSD_BUILD/tests/lib/.libs/fault.so
for file in "$program" "$fault"; do
	[ -e "$file" ] || { echo "Bail out! no $file"; exit 1; }
	# The unprivileged user may not be able to reach the build tree.
	cp "$file" "$work/out/"
	chmod 755 "$work/out/${file##*/}"
done
daemon_start

faults()
{
	(
		preload=$work/out/fault.so:$preload
		client_for 300 "$work/out/steps" "$1"
	)
}

for kind in $("$work/out/steps"); do
	tap_run "a fault of $kind in each step of each call" faults "$kind"
done
if until_true 20 daemon_empty; then
	tap_ok "nothing is left in the daemon"
else
	tap_not_ok "nothing is left in the daemon" "$("$verbsctl" --socket "$socket" list)"
fi
tap_done
