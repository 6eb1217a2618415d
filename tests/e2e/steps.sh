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

# While somebody watches, each registration is a call; else it finds a place that was had in advance.
watch()
{
	"$verbsctl" --socket "$socket" watch >"$work/out/watch" 2>&1 &
	watcher=$!
	pids+=("$watcher")
	until_true 20 is_told
}
is_told()
{
	"$verbsctl" --socket "$socket" status >/dev/null && [ -s "$work/out/watch" ]
}

for kind in $("$work/out/steps"); do
	case $kind in refusal | lost) tap_run "somebody watches" watch ;; esac
	tap_run "a fault of $kind in each step of each call" faults "$kind"
	case $kind in refusal | lost) kill "$watcher"; wait "$watcher" ;; esac
done
if until_true 20 daemon_empty; then
	tap_ok "nothing is left in the daemon"
else
	tap_not_ok "nothing is left in the daemon" "$("$verbsctl" --socket "$socket" list)"
fi
no_regions()
{
	[ "$("$verbsctl" --socket "$socket" status --json | jq '.. | .regions? // empty')" = 0 ]
}
tap_run "no region is left" until_true 20 no_regions
tap_done
