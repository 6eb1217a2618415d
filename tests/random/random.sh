#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The randomised tester: programs that once found something, then programs from seeds, each with one of the engines. At
# CI length the seeds are always the same; at full length they begin somewhere else each time, which is printed, or at
# VERBSD_SEED. What fails is made smaller and kept in tests/random/found of the build tree.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/../e2e/lib.bash"
random=$VERBSD_BUILD/tests/random/random
[ -x "$random" ] || { echo "Bail out! no $random"; exit 1; }
found=$VERBSD_BUILD/tests/random/found
engines=auto,stage,cma,direct,map
kinds=all
seed=${VERBSD_SEED:-1}
total=50000
[ "${VERBSD_SANITIZER-}" != asan ] || [ -n "${VERBSD_SEED-}" ] || total=10000 # see the README
limit=900 # what hangs ends within it; a sweep of CI length takes about a minute where nothing else runs
# At its pace the model still takes some orders of things for errors, one in some 15,000 operations.
[ "${VERBSD_SANITIZER-}" != tsan ] || [ -n "$full" ] ||
	tap_skip_all "under ThreadSanitizer at full length only: the model is not sure at its pace"
if [ -n "$full" ]; then
	seed=${VERBSD_SEED:-$((RANDOM * 32768 + RANDOM))}
	total=$((total * 20))
	limit=7200
fi

# run NAME ARGUMENT...: passes if the tester finds nothing; what it reached is printed all the same.
run()
{
	local name=$1 status
	shift
	(client_for "$limit" "$random" --keep "$work/out" "$@" >"$work/out/log" 2>&1)
	status=$?
	if [ $status = 0 ]; then
		tap_ok "$name"
		sed 's/^/# /' "$work/out/log"
		return
	fi
	mkdir -p "$found" && cp "$work/out"/random-* "$found" 2>/dev/null
	tap_not_ok "$name" "status $status" "$(head -n 80 "$work/out/log")" "$(tail -n 5 "$work/daemon.log")" "$found"
}

daemon_start
for program in "$(dirname "$0")"/kept/*.ops; do
	cp "$program" "$work/out/program.ops"
	chmod 644 "$work/out/program.ops"
	run "$(basename "$program" .ops)" --replay "$work/out/program.ops" --engine "$engines" --tries 1
done
run "$total operations, seeds from $seed" --seed "$seed" --seeds 1000000 --ops 1000 --total $total \
	--engine "$engines" --minimise --within $((limit - 30)) --require
# Beyond the base: a shorter run.
run "$((total / 5)) operations of all kinds, seeds from $seed" --kinds "$kinds" --seed "$seed" --seeds 1000000 --ops 1000 \
	--total $((total / 5)) --engine "$engines" --minimise --within $((limit - 30)) --require
tap_run "nothing is left in the daemon" until_true 20 daemon_empty
tap_done
