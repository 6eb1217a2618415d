#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What a connection costs beside its memory: no fd of its own, and so many requests to the daemon.
# shellcheck source=tests/e2e/cases.bash
. "$(dirname "$0")/cases.bash"
need jq
program_ready connects
daemon_start
many=1000

requests()
{
	"$verbsctl" --socket "$socket" status --json | jq '.status[0].requests'
}

# costs N [leave]: requests of two processes with so many connections, and those of looking.
costs()
{
	local before
	before=$(requests)
	(client_for 60 "$work/out/connects" "$@" >"$work/out/log" 2>&1) || return 1
	echo $(($(requests) - before))
}

lot=$(costs $many)
tap_run "$many connections have the fds of one" [ -n "$lot" ] || sed 's/^/# /' "$work/out/log"

# Either end: create, INIT, RTR, RTS. What comes beside that (numbers by the lease, say) is no more for many.
one=$(costs 1 leave)
lot=$(costs $many leave)
tap_run "$many of them take four requests an end ($lot, one takes $one)" \
	[ "${lot:-9999999}" -le $((${one:-0} + 2 * 4 * (many - 1) + 40)) ]
nothing_left
tap_done
