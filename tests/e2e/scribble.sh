#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# A peer that writes nonsense over all memory that it shares: the other end gets completions in error, nothing beside
# its regions is touched, and its work with a third process goes on. With the kernel's copies between processes, and
# with everything through the pair segment.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need jq
scribble=$VERBSD_BUILD/tests/e2e/scribble
[ -x "$scribble" ] || { echo "Bail out! no $scribble"; exit 1; }
rounds=24
[ -z "${VERBSD_SANITIZER-}" ] || rounds=12
[ -z "$full" ] || rounds=600
echo "# seed $seed"

# All of the vandals together take seconds. A program that waits in vain gives up before this, and says for what.
limit=400
[ -z "$full" ] || limit=$((30 * rounds))

# vandals DIR: one after the other, each with a seed of its own. What becomes of them is their own affair.
vandals()
{
	local i
	for ((i = 0; i < rounds; i++)); do
		kill -0 "$honest" 2>/dev/null || break
		(client timeout -k 1 $limit "$scribble" vandal "$1" $((seed + i)) >"$work/out/vandal.$i" 2>&1)
	done
}

both_listen()
{
	{ [ -S "$1/friend" ] && [ -S "$1/vandal" ]; } || is_gone "$honest"
}

round()
{
	local name=$1 dir=$work/out/$2 status
	mkdir -m 777 "$dir"
	(client timeout -k 5 $limit "$scribble" honest "$dir" $rounds >"$dir/honest" 2>&1) &
	honest=$!
	until_true 60 both_listen "$dir"
	(client timeout -k 5 $limit "$scribble" friend "$dir" >"$dir/log" 2>&1) &
	friend=$!
	vandals "$dir"
	wait $honest
	status=$?
	if [ $status = 0 ] && ! grep -q ", 0 broke their wire" "$dir/honest"; then
		tap_ok "$name: $(sed 's/^honest: //' "$dir/honest")"
	else
		tap_not_ok "$name: status $status, $(tail -n 1 "$dir/honest" | cut -c 1-80)" "$(tail -n 60 "$dir/honest")" "friend: $(tail -n 5 "$dir/log")" \
			"$(tail -n 3 "$work"/out/vandal.* | head -n 40)"
		kill $friend 2>/dev/null
	fi
	wait $friend
	status=$?
	if [ $status = 0 ]; then
		tap_ok "$name: a third process was not disturbed"
	else
		tap_not_ok "$name: a third process was not disturbed: status $status" "status $status" "$(tail -n 40 "$dir/log")"
	fi
	rm -f "$work"/out/vandal.*
	tap_run "$name: the daemon has no object left" until_true 20 daemon_empty
}

# Not in a subshell: only its parent can wait for it.
stop()
{
	daemon_stop
	tap_run "the daemon ends with status 0" [ $? = 0 ]
}

daemon_start
round "copies by the kernel" cma
stop
printf '[daemon]\ncma = off\n' >"$work/verbsd.conf"
chmod 644 "$work/verbsd.conf"
daemon_start --config "$work/verbsd.conf"
round "all through the segment" stage
stop
printf '[daemon]\ncma = off\nlane_slots = 2\n' >"$work/verbsd.conf"
daemon_start --config "$work/verbsd.conf"
round "lanes of two slots" two
stop
tap_done
