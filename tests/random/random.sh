#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The randomised tester: programs that once found something, and programs from seeds, each with one of the engines. At
# CI length the seeds are always the same; at full length they begin somewhere else each time, which is printed, or at
# VERBSD_SEED. What fails is made smaller and kept in tests/random/found of the build tree.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/../e2e/lib.bash"
random=$VERBSD_BUILD/tests/random/random
[ -x "$random" ] || { echo "Bail out! no $random"; exit 1; }
found=$VERBSD_BUILD/tests/random/found
engines=auto,stage,cma,direct,map
kinds=all
total=50000
limit=900 # what hangs ends within it; a sweep of CI length takes less than a minute where nothing else runs
if [ -n "$full" ]; then
	total=$((total * 20))
	limit=7200
fi
declare -A begun

# begin ID ARGUMENT...: the tester, beside what goes on here.
begin()
{
	local id=$1
	shift
	mkdir -m 777 "$work/out/$id"
	(client_for "$limit" "$random" --keep "$work/out/$id" --engine "$engines" "$@" >"$work/out/$id/log" 2>&1) &
	begun[$id]=$!
}

# finish ID NAME: passes if that one found nothing; what it reached is printed all the same.
finish()
{
	local out=$work/out/$1 name=$2 status
	wait "${begun[$1]}"
	status=$?
	if [ $status = 0 ]; then
		tap_ok "$name"
		sed 's/^/# /' "$out/log"
		return
	fi
	mkdir -p "$found" && cp "$out"/random-* "$found" 2>/dev/null
	tap_not_ok "$name" "status $status" "$(head -n 80 "$out/log")" "$(tail -n 5 "$work/daemon.log")" "$found"
}

# from_seeds ID TOTAL ARGUMENT...: so many operations, in programs of a thousand.
from_seeds()
{
	begin "$1" --seed "$seed" --seeds 1000000 --ops 1000 --total "$2" --minimise --within $((limit - 30)) --require "${@:3}"
}

daemon_start
# Processes of one program wait for each other, so two programs at a time take little longer than one.
from_seeds base $total
for program in "$(dirname "$0")"/kept/*.ops; do
	id=$(basename "$program" .ops)
	cp "$program" "$work/out/$id.ops"
	chmod 644 "$work/out/$id.ops"
	begin "$id" --replay "$work/out/$id.ops" --tries 1
	finish "$id" "$id"
done
# Beyond the base: a shorter run.
from_seeds kinds $((total / 5)) --kinds "$kinds"
finish kinds "$((total / 5)) operations of all kinds, seeds from $seed"
finish base "$total operations, seeds from $seed"
tap_run "nothing is left in the daemon" until_true 20 daemon_empty
tap_done
