#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Many of everything: queue pairs of one process, processes that all have a queue pair with each other, and clients at the same
# time. 10,000, 64 and 1,000 at full length. Not with a sanitizer, where each process takes many times the memory.
#
# Of the file descriptors that the daemon may open one user can have half, and a program that uses verbs needs five; a segment
# of two processes needs one.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need jq
program=$VERBSD_BUILD/tests/bench/scale
[ -x "$program" ] || { echo "Bail out! no $program"; exit 1; }
# The unprivileged user may not be able to reach the build tree.
cp "$program" "$work/out/scale"
chmod 755 "$work/out/scale"
qps=1000 processes=16 clients=100
if [ -n "$full" ] && [ -z "${VERBSD_SANITIZER-}" ]; then
	qps=10000 processes=64 clients=1000
fi
connections=$((processes * (processes - 1) / 2))
ulimit -n "$(ulimit -Hn)"
daemon_start

# daemon_has NAME...: so many of each, in one line.
daemon_has()
{
	"$verbsctl" --socket "$socket" status --json | jq -r ".status[0] | [$(printf '.%s,' "$@" | sed 's/,$//')] | @tsv" | tr '\t' ' '
}

# What the daemon has while nobody is there but who asks.
before=$(daemon_has sessions fds)

as_before()
{
	[ "$(daemon_has contexts objects wires segments regions)" = "0 0 0 0 0" ] && [ "$(daemon_has sessions fds)" = "$before" ]
}

nothing_left()
{
	if until_true 60 as_before; then
		tap_ok "the daemon has nothing left of $1"
	else
		tap_not_ok "the daemon has nothing left of $1" "$("$verbsctl" --socket "$socket" status)"
	fi
}

# scale MODE N: the program, in a process of its own.
scale()
{
	(client_for 300 "$work/out/scale" "$@")
}

# printed NAME VALUE UNIT: the last program's output has that line, patterns all.
printed()
{
	grep -qP "^$1\t$2\t$3\$" "$last"
}

last=$work/out/last
out=$last
if status 0 "$qps queue pairs of one process are connected with $qps of another one" \
	scale connect $qps; then
	tap_run "and a message went each way on each" printed "connect_$qps" '[0-9.]+' us
fi
nothing_left "the $qps queue pairs"

the_mesh()
{
	status 0 "$processes processes all to all: each message is what was sent" scale mesh $processes &&
		tap_run "by $connections connections" printed mesh_connections $connections connections
	nothing_left "the $processes processes"
}

# All connected, and idle until their stdin ends.
clients_say()
{
	printed clients $clients connected || is_gone "$crowd"
}

count_qps()
{
	"$verbsctl" --socket "$socket" list qp --json | jq '.qp | length'
}

the_clients()
{
	local ended
	mkfifo "$work/out/end"
	chmod 666 "$work/out/end"
	(client_for 600 "$work/out/scale" clients $clients <"$work/out/end" >"$last" 2>"$last.err") &
	crowd=$!
	pids+=("$crowd")
	exec 7>"$work/out/end"
	until_true 300 clients_say
	tap_run "$clients clients are connected in pairs" printed clients $clients connected
	tap_run "the daemon knows $clients contexts and queue pairs" eval '[ "$(daemon_has contexts) $(count_qps)" = "$clients $clients" ]'
	exec 7>&-
	wait "$crowd"
	ended=$?
	tap_run "and all give back what they have" [ $ended = 0 ]
	[ $ended = 0 ] || sed 's/^/# /' "$last.err" | head -n 20
	nothing_left "the $clients clients"
}

# with_fds PROCESSES SEGMENTS NAME COMMAND: the command, where the daemon may open as many as so many need.
with_fds()
{
	local fds=$((2 * (5 * $1 + $2) + 100))
	if [ "$(ulimit -n)" = unlimited ] || [ "$(ulimit -n)" -ge $fds ]; then
		"$4"
	else
		tap_skip "$3" "the daemon needs $fds file descriptors, and may open $(ulimit -n) (ulimit -Hn)"
	fi
}

with_fds $processes $connections "$processes processes all to all" the_mesh
with_fds $clients $((clients / 2)) "$clients clients" the_clients
daemon_stop
ended=$?
tap_run "the daemon ends without an error" [ $ended = 0 ]
tap_done
