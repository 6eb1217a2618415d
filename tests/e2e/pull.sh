#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Long SENDs that the receiver fetches, between processes: tests/e2e/pull.c has the cases.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
program=$VERBSD_BUILD/tests/e2e/pull
[ -x "$program" ] || { echo "Bail out! no $program"; exit 1; }
# The unprivileged user may not be able to reach the build tree.
cp "$program" "$work/out/pull"
chmod 755 "$work/out/pull"
daemon_start

for case in $("$work/out/pull"); do
	(client_for 60 "$work/out/pull" "$case") >"$work/out/log" 2>&1
	case $? in
	0) tap_ok "${case//-/ }" ;;
	77) tap_skip "${case//-/ }" "$(head -n 1 "$work/out/log")" ;;
	*) tap_not_ok "${case//-/ }" "$(tail -n 20 "$work/out/log")" "$(tail -n 5 "$work/daemon.log")" ;;
	esac
	sed -n 's/^# /# /p' "$work/out/log"
done
tap_run "nothing is left in the daemon" until_true 20 daemon_empty
tap_done
