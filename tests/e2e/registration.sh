#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Registration of ordinary memory makes no request, and the daemon shows it all the same: in listings, in what a PD is in use
# by, to those who watch; and forgets it with its process.
# shellcheck source=tests/e2e/cases.bash
. "$(dirname "$0")/cases.bash"
need jq
program_ready registration
daemon_start

requests()
{
	"$verbsctl" --socket "$socket" status --json | jq '.status[0].requests'
}

# costs NAME: requests that a run of that test makes, and the one of looking. What it takes to see that the daemon is empty is
# another number each time.
costs()
{
	local before after
	before=$(requests)
	(client_for 60 "$work/out/registration" "$1") || return 1
	after=$(requests)
	until_true 20 daemon_empty || return 1
	echo $((after - before))
}

once=$(costs once)
often=$(costs often)
tap_run "10,000 registrations cost no more requests than one ($often, $once)" \
	[ "${often:-9999}" -le $((once + 20)) ]
run_cases registration threads

mkfifo "$work/out/in"
chmod 666 "$work/out/in"

# talk TEST: starts it; its lines are in $work/out/said.
talk()
{
	: >"$work/out/said"
	(client "$work/out/registration" "$1" <"$work/out/in" >"$work/out/said" 2>&1) &
	talker=$!
	pids+=("$talker")
	exec 9>"$work/out/in"
}

# hears WORD: it has come so far.
hears()
{
	until_true 20 grep -qx "$1" "$work/out/said" || tap_not_ok "it says $1" "$(cat "$work/out/said")"
}

go()
{
	echo >&9
}

# shows FILTER: of the listing of MRs.
shows()
{
	"$verbsctl" --socket "$socket" list mr --json | jq -e ".mr | $1" >/dev/null
}

ends_well()
{
	wait "$talker"
	tap_run "the program ends well" test $? = 0
}

talk shown
hears two
read -r a b < <(head -n 1 "$work/out/said")
tap_run "both are listed, with keys and bounds" shows \
	"length == 2 and ([.[].key] | sort) == ([$a, $b] | sort) and ([.[].length] | unique) == [4096]"
go
hears changed
tap_run "a change is seen" shows "length == 2 and (map(select(.key == $b))[0].length) == 100"
tap_run "and what their PD was in use by was said" grep -q 'destroy: .*in use by mr ' "$work/daemon.log"
go
hears one
tap_run "one is gone" shows "length == 1 and .[0].key == $b"
go
hears many
tap_run "however many there are" shows 'length == 601'
go
hears none
tap_run "none is left" shows 'length == 0'
go
ends_well

talk shown
hears two
kill -9 "$talker"
wait "$talker" 2>/dev/null
nothing_left

talk watched
hears registered
"$verbsctl" --socket "$socket" watch >"$work/out/watch" 2>&1 &
pids+=($!)
is_told()
{
	"$verbsctl" --socket "$socket" status >/dev/null && [ -s "$work/out/watch" ]
}
until_true 20 is_told || tap_not_ok "somebody watches"
go
hears gone
a=$(sed -n 1p "$work/out/said")
b=$(sed -n 3p "$work/out/said")
# told SIGN KEY: of an MR with that key, once.
told()
{
	[ "$(grep -c "^[$1] mr .* number $2 " "$work/out/watch")" = 1 ]
}
tap_run "a watcher is told of what goes that was there before" until_true 20 told - "$a"
tap_run "and of what comes" until_true 20 told + "$b"
tap_run "and goes" until_true 20 told - "$b"
go
ends_well
nothing_left
tap_done
