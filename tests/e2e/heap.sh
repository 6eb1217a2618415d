#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# verbsctl run --shared-heap: allocations behave as libc's (tests/e2e/heap.c), unmodified programs get the map engine, and
# where there is no daemon or no quota they get ordinary memory.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need jq ib_write_bw python3
[ -x "$VERBSD_BUILD/tests/e2e/heap" ] || { echo "Bail out! no $VERBSD_BUILD/tests/e2e/heap"; exit 1; }
# The unprivileged user may not be able to reach the build tree.
cp "$VERBSD_BUILD/tests/e2e/heap" "$work/out/heap"
chmod 755 "$work/out/heap"

# with_heap COMMAND...: as the unprivileged user.
with_heap()
{
	(as_user timeout -k 5 60 "$verbsctl" run --shared-heap --socket "$socket" -- "$@") # it is replaced by it
}

# behaves NAME [OPTION...]: none of the program's checks fails.
behaves()
{
	local name=$1
	shift
	if "$@" >"$work/out/log" 2>&1; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "$(grep -v '^ok' "$work/out/log" | head -n 20)" "$(tail -n 5 "$work/daemon.log")"
	fi
}

# mapped NAME PROGRAM [OPTION...]: two processes, of which the client says that it maps the server's memory.
mapped()
{
	local name=$1
	shift
	in_server=("$verbsctl" run --shared-heap --socket "$socket" --)
	in_client=(env VERBSD_DEBUG=1 "${in_server[@]}")
	pair "$name" "$* -F -p %P" "$* -F -p %P 127.0.0.1" &&
		tap_run "$name: by the map engine" grep -q 'mapped for writing' "$work/out/client"
	in_server=() in_client=()
}

no_region()
{
	[ "$("$verbsctl" --socket "$socket" status --json | jq '.status[0].regions')" = 0 ]
}

daemon_start
behaves "allocations out of the heap" with_heap "$work/out/heap"
mapped "ib_write_bw" ib_write_bw -n 500
mapped "ib_write_lat" ib_write_lat -n 500
mapped "ib_atomic_lat" ib_atomic_lat -n 500
mapped "ib_write_bw of all sizes" ib_write_bw -n 100 -a
behaves "a program that knows nothing of it" with_heap python3 -c '
import subprocess, multiprocessing
data = bytearray(8 << 20)
data[5 << 20] = 7
pool = multiprocessing.get_context("fork").Pool(2)
assert pool.map(len, [data, b"x"]) == [8 << 20, 1]
pool.close(); pool.join()
assert subprocess.run(["true"]).returncode == 0'
tap_run "nothing is left in the daemon" until_true 20 daemon_empty
tap_run "no region either" until_true 20 no_region
daemon_stop
behaves "without a daemon" with_heap "$work/out/heap" --ordinary

printf '[limits]\nregion_bytes = 0\n' >"$work/verbsd.conf"
chmod 644 "$work/verbsd.conf"
daemon_start --config "$work/verbsd.conf"
behaves "without a quota" with_heap "$work/out/heap" --ordinary
pair "perftest without a quota" "$verbsctl run --shared-heap -- ib_write_bw -n 100 -F -p %P" \
	"$verbsctl run --shared-heap -- ib_write_bw -n 100 -F -p %P 127.0.0.1"
tap_run "nothing is left without a quota" until_true 20 daemon_empty
tap_done
