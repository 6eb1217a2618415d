#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Memory that processes share: the calls of <verbsd.h>, the import calls of verbs, and what else can be registered.
# functions are called by name
# shellcheck disable=SC2317
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need jq
programs="regions sharing imports imports_memory pools memory dm"
# It has an allocator of its own, and so has a sanitizer.
[ -n "${VERBSD_SANITIZER-}" ] || programs+=" faults"
# The unprivileged user may not be able to reach the build tree.
for program in $programs; do
	[ -x "$VERBSD_BUILD/tests/e2e/$program" ] || { echo "Bail out! no $program"; exit 1; }
	cp "$VERBSD_BUILD/tests/e2e/$program" "$work/out/$program"
	chmod 755 "$work/out/$program"
done
# Some cases end with objects made, as programs do.
export ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0"

# verdict NAME STATUS OUTPUT
verdict()
{
	case $2 in
	0) tap_ok "$1" ;;
	77) tap_skip "$1" "$3" ;;
	*) tap_not_ok "$1" "status $2" "$3" "$(tail -n 5 "$work/daemon.log")" ;;
	esac
}

# run_case PROGRAM CASE: in a process of its own.
run_case()
{
	local out
	out=$( (client_for 120 "$work/out/$1" "$2") 2>&1)
	verdict "$1: ${2//-/ }" $? "$out"
}

# as_root: as the user who runs this, under the preload.
as_root()
{
	timeout -k 5 $((120 * patience)) env LD_PRELOAD="${VERBSD_PRELOAD_FIRST:+$VERBSD_PRELOAD_FIRST:}$preload" \
		VERBSD_SOCKET="$socket" "$@"
}

nothing_left()
{
	if until_true 20 daemon_empty; then
		tap_ok "$1"
	else
		tap_not_ok "$1" "$("$verbsctl" --socket "$socket" status)" "$("$verbsctl" --socket "$socket" list)"
	fi
}

no_regions()
{
	[ "$("$verbsctl" --socket "$socket" status --json | jq '.. | .regions? // empty')" = 0 ]
}

# Huge pages for the time of this test, if there are none and it may ask for some.
huge=/proc/sys/vm/nr_hugepages
if [ "$(id -u)" = 0 ] && [ -w $huge ] && [ "$(cat $huge)" = 0 ] && echo 8 2>/dev/null >$huge; then
	trap 'echo 0 >$huge; cleanup' EXIT
fi

printf '[connect]\nusers = *\n' >"$work/open.conf"
daemon_start --config "$work/open.conf"
for program in $programs; do
	names=$("$work/out/$program") || tap_not_ok "$program has cases"
	for name in $names; do
		case $name in
		the-daemon-goes | quotas | for-another-user) ;;
		*) run_case "$program" "$name" ;;
		esac
	done
	nothing_left "nothing is left in the daemon after $program"
done

[ -z "${VERBSD_SANITIZER-}" ] || tap_skip "faults" "a sanitizer has the allocator"
out=$(as_root "$work/out/sharing" for-another-user 2>&1)
verdict "sharing: for another user" $? "$out"
nothing_left "nothing is left of the two users"
tap_run "no region is left" until_true 20 no_regions

# The daemon is killed while a program has a region.
mkfifo "$work/out/go"
exec 9<>"$work/out/go"
(client_for 120 "$work/out/regions" the-daemon-goes <"$work/out/go" 9>&- >"$work/out/gone" 2>&1) &
program_pid=$!
pids=("$program_pid")
says_ready()
{
	grep -qx ready "$work/out/gone" || is_gone $program_pid
}
until_true 20 says_ready
disown "$daemon_pid"
kill -9 "$daemon_pid"
until_true 20 is_gone "$daemon_pid"
daemon_pid=
exec 9>&-
wait $program_pid
verdict "regions: the daemon goes" $? "$(cat "$work/out/gone")"
pids=()

printf '[limits]\nregions = 3\nregion_bytes = 4M\npersistent_bytes = 1M\n' >"$work/small.conf"
daemon_start --config "$work/small.conf"
run_case sharing quotas
nothing_left "nothing is left over a quota"
tap_done
