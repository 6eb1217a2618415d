#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Thread domains and parent domains: allocators, one family of domains, limits, every order of destruction, and who is
# named as the one in the way. F1, F5 to F8 and F11 of the field reports.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need jq
program=$VERBSD_BUILD/tests/e2e/parents
[ -x "$program" ] || { echo "Bail out! no $program"; exit 1; }
# The unprivileged user may not be able to reach the build tree.
cp "$program" "$work/out/parents"
chmod 755 "$work/out/parents"
echo "# seed $seed"
rounds=200
[ -z "$full" ] || rounds=5000

parents()
{
	(client_for 300 "$work/out/parents" "$@")
}

nothing_left()
{
	if until_true 20 daemon_empty; then
		tap_ok "nothing is left in the daemon$1"
	else
		tap_not_ok "nothing is left in the daemon$1" "$("$verbsctl" --socket "$socket" list)"
	fi
}

daemon_start
for name in $("$work/out/parents"); do
	tap_run "${name//-/ }" parents "$name" "$rounds" "$seed"
done
# F11, whatever engine runs.
for engine in stage cma direct; do
	for name in mix mix-processes; do
		tap_run "${name//-/ } by $engine" env VERBSD_ENGINE=$engine bash -c "$(declare -f parents client_for as_user)
			work=$work socket=$socket preload=$preload nobody=$nobody patience=$patience
			parents $name"
	done
done
# F1: to the device's limit.
tap_run "32768 thread domains and no more" parents td-limit 32768
nothing_left ""

# --- names: F7, F8; by a daemon of its own, since lines about a client are limited to 10 a minute

daemon_stop
daemon_start
mkfifo "$work/out/go"
[ "$(id -u)" != 0 ] || chmod 666 "$work/out/go"
(VERBSD_DEBUG=1 ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0" client_for 60 "$work/out/parents" named <"$work/out/go" >"$work/out/named" 2>"$work/out/debug") &
named_pid=$!
pids+=("$named_pid")
exec 7>"$work/out/go"
is_ready()
{
	grep -q '^ready$' "$work/out/named" || ! kill -0 $named_pid 2>/dev/null
}
until_true 20 is_ready
# the NAME of one thing: "qp 7 (QPN 0x12)"
handle() { awk -v t="$1" '$1 == t { print $2 }' "$work/out/named"; }
thing() { awk -v t="$1" '$1 == t { print $1 " " $2 ($3 ? " (" $3 " " $4 ")" : "") }' "$work/out/named"; }
declare -A in_the_way=(
	[pd]="$(thing parent_domain)"
	[cq]="$(thing qp)"
	[srq]="$(thing qp)"
)
log_names()
{
	grep -qF "destroy: Device or resource busy: $1 $(handle "$1"): in use by $2" "$work/daemon.log"
}
for type in pd cq srq; do
	tap_run "the daemon's log names what is in the way of a $type" log_names $type "${in_the_way[$type]}"
	tap_run "verbsctl list $type --json names it" jq -e --arg by "${in_the_way[$type]}" --argjson id "$(handle $type)" \
		"[.${type}[] | select(.id == \$id)] | .[0].in_use_by == \$by and .[0].users == 1" \
		<("$verbsctl" --socket "$socket" list $type --json 2>/dev/null)
	tap_run "and so does VERBSD_DEBUG" grep -qF "destroy: $type $(handle $type): in use by 1 objects: ${in_the_way[$type]}" \
		"$work/out/debug"
done
# Six objects on the parent domain: four of them are named. Which, is the daemon's to choose: of the region it learned last.
one="($(for type in mr mw ah srq qp cq; do thing $type; done | sed 's/[()]/./g' | paste -sd'|'))"
many="($one, ){3}$one and 2 more"
tap_run "of many some are named" grep -qE "destroy: .*: parent_domain $(handle parent_domain): in use by $many" "$work/daemon.log"
tap_run "and listed" grep -qE "$many" <("$verbsctl" --socket "$socket" list parent-domain 2>/dev/null)
tap_run "a window in the way of its region is named by its key" grep -qE \
	"deregister: mr $(handle mr) .*: memory windows are bound to it: 1: key $(handle window)\$" \
	"$work/out/debug"
exec 7>&-
wait $named_pid
tap_run "closing a context says what is left in it" grep -qE "close: 1[01] objects left: $(thing qp | sed 's/[()]/./g'), " \
	"$work/out/debug"
nothing_left " after a client that left everything"

# --- a daemon that refuses

daemon_stop
printf '[limits]\ncqs = 3\nsrqs = 3\nqps = 3\ntds = 5\n' >"$work/limits.conf"
daemon_start --config "$work/limits.conf"
tap_run "memory goes back when the daemon refuses" parents refused
tap_run "a quota of thread domains" parents td-limit 5
nothing_left " that refused"
daemon_stop
printf '[limits]\nqueue_bytes = 256M\n' >"$work/limits.conf"
daemon_start --config "$work/limits.conf"
tap_run "resizing within a quota" parents resize
nothing_left " that counts bytes"
tap_done
