#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The worked example of verbsd(7), doc/examples/pool.c: a named region of 1 GiB, eight workers, a server killed and
# started again. It is built as its reader would, against the installed tree.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need jq pkg-config pkill
source=$(dirname "$0")/../../doc/examples/pool.c
# shellcheck disable=SC2046 # flags are words
if ! ${CC:-cc} -O2 -o "$work/out/pool" "$source" \
	$(PKG_CONFIG_PATH=$root/lib/pkgconfig pkg-config --cflags --libs verbsd) >"$work/out/cc" 2>&1; then
	tap_not_ok "the example builds with -lverbsd" "$(cat "$work/out/cc")"
	tap_done
fi
daemon_start
mib=1024 workers=8
[ "${VERBSD_SANITIZER-}" = "" ] || mib=64
meet=$work/out/pool.sock
exec 7<> <(:) # a pipe that never ends: the server's standard input

# It is linked with -lverbsd: nothing is preloaded but what a sanitizer wants.
pool()
{
	as_user env LD_LIBRARY_PATH="$root/lib" ${VERBSD_PRELOAD_FIRST:+LD_PRELOAD="$VERBSD_PRELOAD_FIRST"} \
		VERBSD_SOCKET="$socket" timeout -k 5 300 "$work/out/pool" "$@"
}

server_start()
{
	: >"$work/out/server"
	rm -f "$meet"
	(pool server e2e.pool $mib "$meet" >"$work/out/server" 2>&1 <&7) &
	server=$!
	pids=("$server")
	until_true 120 server_says || { tap_not_ok "the server starts" "$(cat "$work/out/server")"; tap_done; }
}

server_says()
{
	grep -q "^$1" "$work/out/server" || is_gone "$server"
}

# The program behind the subshell and timeout.
server_kill()
{
	pkill -9 -P "$server" -x pool || kill -9 "$server"
	wait "$server" 2>/dev/null
	pids=()
}

workers_run()
{
	local role=$1 id ps=() status=0
	for ((id = 0; id < workers; id++)); do
		(pool "$role" e2e.pool "$meet" $id $workers >"$work/out/worker.$id" 2>&1) &
		ps+=($!)
	done
	for id in "${!ps[@]}"; do
		wait "${ps[id]}" || { status=1; cat "$work/out/worker.$id"; }
		grep -q "bytes right" "$work/out/worker.$id" || status=1
	done
	return $status
}

region()
{
	"$verbsctl" --socket "$socket" list mr --json | jq -e "$@" >/dev/null
}

server_start
tap_run "the first server creates the region" grep -q '^created .* servers 1 workers 0' "$work/out/server"
rkey=$(sed -n 's/.*rkey \(0x[0-9a-f]*\) .*/\1/p' "$work/out/server")
tap_run "eight workers write, read and count" workers_run worker
server_kill
tap_run "the region is there without a server" region \
	--argjson size $((mib << 20)) '[.. | objects | select(.name? == "e2e.pool" and (.length? // .size?) == $size)] | length >= 1'
server_start
tap_run "the second server finds it, with the same rkey" grep -q "^found rkey $rkey servers 2 workers $workers" "$work/out/server"
tap_run "eight workers read what the first eight wrote" workers_run check
server_kill
region_rm()
{
	(as_user "$verbsctl" --socket "$socket" mr rm e2e.pool)
}
tap_run "verbsctl mr rm" region_rm
region_gone()
{
	! region '[.. | objects | select(.name? == "e2e.pool")] | length > 0'
}
tap_run "the region is gone" until_true 20 region_gone
tap_run "the daemon has no object left" until_true 20 daemon_empty
tap_done
