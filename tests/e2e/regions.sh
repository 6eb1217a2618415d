#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Memory that processes share: the calls of <verbsd.h>, the import calls of verbs, and what else can be registered.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need jq
# The unprivileged user may not be able to reach the build tree.
for program in regions imports memory; do
	[ -x "$VERBSD_BUILD/tests/e2e/$program" ] || { echo "Bail out! no $program"; exit 1; }
	cp "$VERBSD_BUILD/tests/e2e/$program" "$work/out/$program"
	chmod 755 "$work/out/$program"
done
# Some cases end with objects made, as programs do.
export ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0"

# run_case PROGRAM CASE: in a process of its own.
run_case()
{
	local name="${1%s}: ${2//-/ }" out status
	out=$( (client_for 120 "$work/out/$1" "$2") 2>&1)
	status=$?
	case $status in
	0) tap_ok "$name" ;;
	77) tap_skip "$name" "$out" ;;
	*) tap_not_ok "$name" "status $status" "$out" "$(tail -n 5 "$work/daemon.log")" ;;
	esac
}

nothing_left()
{
	if until_true 20 daemon_empty; then
		tap_ok "$1"
	else
		tap_not_ok "$1" "$("$verbsctl" --socket "$socket" status)" "$("$verbsctl" --socket "$socket" list)"
	fi
}

daemon_start
for program in regions imports memory; do
	for name in $("$work/out/$program"); do
		[ "$name" = the-daemon-goes ] || run_case "$program" "$name"
	done
	nothing_left "nothing is left in the daemon after $program"
done

tap_done
