# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# For end-to-end tests: a private daemon, and programs that run under the preload as an unprivileged user with 64 KiB
# of lockable memory. Run by root, they run as uid 65534; run by anyone else, as that user.
#
# Nothing here sleeps for a fixed time: `until_true` looks at a condition again and again, up to a limit that only a
# broken build reaches.

# shellcheck source=tests/lib/tap.bash
. "$(dirname "${BASH_SOURCE[0]}")/../lib/tap.bash"

root=${VERBSD_ROOT:?VERBSD_ROOT names the installed tree}
verbsd=$root/sbin/verbsd
verbsctl=$root/bin/verbsctl
preload=$root/lib/libverbsd.so
full=
[ "${VERBSD_LENGTH:-ci}" != full ] || full=1
# What is random is the same in each run of CI length: what such a run finds is of the change that it is run for. At full length
# it is something else each time, which a script prints.
seed=${VERBSD_SEED:-1}
[ -z "$full" ] || seed=${VERBSD_SEED:-$((RANDOM * 32768 + RANDOM))}
# Limits are for what hangs: each is waited for so often, since the machine may be busy, and with a sanitizer all takes several
# times as long.
patience=3
[ -z "${VERBSD_SANITIZER-}" ] || patience=6
nobody=65534
work=$(mktemp -d "${TMPDIR:-/tmp}/verbsd-e2e.XXXXXX")
chmod 755 "$work"
mkdir -m 777 "$work/out"
pids=()
daemon_pid=
# Where the last program listened, see port_next. Scripts that run at the same time begin in places of their own.
port=$((20000 + ${VERBSD_PLACE:-0} * 4000 + RANDOM % 3500))

cleanup()
{
	local p
	for p in "${pids[@]}" $daemon_pid; do
		kill -9 "$p" 2>/dev/null && wait "$p" 2>/dev/null
	done
	rm -rf "$work"
}
trap cleanup EXIT

# as_user COMMAND...: replaces the (sub)shell by the command as the unprivileged user.
as_user()
{
	if [ "$BASHPID" = $$ ]; then
		echo "Bail out! $1 would take the place of the script itself"
		exit 1
	fi
	ulimit -l 64
	if [ "$(id -u)" = 0 ]; then
		exec setpriv --reuid=$nobody --regid=$nobody --clear-groups --inh-caps=-all --bounding-set=-all "$@"
	fi
	exec "$@"
}

# client COMMAND...: the same, under the preload and the private daemon's socket.
client()
{
	as_user env LD_PRELOAD="${VERBSD_PRELOAD_FIRST:+$VERBSD_PRELOAD_FIRST:}$preload" VERBSD_SOCKET="$socket" "$@"
}

# client_for SECONDS COMMAND...: the same under a time limit, with the preload in the command alone (a program that is
# not instrumented itself cannot load an instrumented library).
client_for()
{
	local limit=$1
	shift
	as_user timeout -k 5 $((limit * patience)) env LD_PRELOAD="${VERBSD_PRELOAD_FIRST:+$VERBSD_PRELOAD_FIRST:}$preload" \
		VERBSD_SOCKET="$socket" "$@"
}

# until_true SECONDS COMMAND...: tries the command until it succeeds.
until_true()
{
	local end=$((SECONDS + $1 * patience))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		breathe
	done
}

# breathe: leaves the processor to others for a moment, between two looks.
breathe()
{
	read -rt 0.01 <> <(:) || :
}

# daemon_start [OPTION...]: a private daemon as the unprivileged user, ready when this returns.
daemon_start()
{
	mkdir -p "$work/run"
	[ "$(id -u)" != 0 ] || chown $nobody:$nobody "$work/run"
	socket=$work/run/verbsd.sock
	admin=$work/run/admin.sock
	export VERBSD_SOCKET=$socket VERBSD_ADMIN_SOCKET=$admin
	: >"$work/daemon.log"
	(as_user "$verbsd" --socket "$socket" --admin-socket "$admin" "$@" >>"$work/daemon.log" 2>&1) &
	daemon_pid=$!
	if ! until_true 20 daemon_answers; then
		echo "Bail out! the daemon does not answer: $(tail -n 3 "$work/daemon.log" | tr '\n' ' ')"
		exit 1
	fi
}

daemon_answers()
{
	[ -S "$socket" ] && "$verbsctl" --socket "$socket" status >/dev/null 2>&1
}

# status WANT NAME COMMAND...: passes if the command ends with that status; output in $out, which the
# script sets, and $out.err.
status()
{
	local want=$1 name=$2 got
	shift 2
	"$@" >"$out" 2>"$out.err" </dev/null
	got=$?
	if [ $got = "$want" ]; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "status $got, not $want: $*" "$(head -n 5 "$out")" "$(head -n 5 "$out.err")"
		return 1
	fi
}

# daemon_stop: by SIGTERM; its exit status.
daemon_stop()
{
	local status
	kill "$daemon_pid" 2>/dev/null
	wait "$daemon_pid"
	status=$?
	daemon_pid=
	return $status
}

# count_objects: objects, wires and contexts that the daemon has.
count_objects()
{
	"$verbsctl" --socket "$socket" status --json 2>/dev/null |
		jq -r '[.. | objects | to_entries[] | select(.key | test("^(objects|wires|contexts)$")) | .value | tonumber] | add'
}

daemon_empty()
{
	[ "$(count_objects)" = 0 ]
}

# listens PID PORT: a process listens on that TCP port (in the network namespace of PID).
listens()
{
	local hex
	hex=$(printf ':%04X' "$2")
	grep -qsE "^ *[0-9]+: [0-9A-F]+$hex [0-9A-F]+:0000 0A " "/proc/$1/net/tcp" "/proc/$1/net/tcp6" || ! kill -0 "$1" 2>/dev/null
}

# port_next: $port is one where nobody listens.
port_next()
{
	local hex
	while :; do
		port=$((port + 1))
		hex=$(printf ':%04X' "$port")
		grep -qsE "^ *[0-9]+: [0-9A-F]+$hex [0-9A-F]+:0000 0A " /proc/net/tcp /proc/net/tcp6 || return 0
	done
}

# pair NAME SERVER CLIENT: two programs under the preload; %P stands for a fresh port. Passes when both end with
# status 0 and, with PAIR_CHECK set, both outputs match it. `in_server` and `in_client` may be set to a wrapping command.
in_server=()
in_client=()
pair()
{
	local name=$1 server=$2 client=$3 spid cpid ss cs
	port_next
	# shellcheck disable=SC2086
	(client "${in_server[@]}" timeout -k 5 $((${PAIR_LIMIT:-120} * patience)) ${server//%P/$port} >"$work/out/server" 2>&1) &
	spid=$!
	if ! until_true 20 listens $spid $port; then
		kill $spid 2>/dev/null
		wait $spid
		tap_not_ok "$name" "the server does not listen" "$(tail -n 20 "$work/out/server")"
		return 1
	fi
	# shellcheck disable=SC2086
	(client "${in_client[@]}" timeout -k 5 $((${PAIR_LIMIT:-120} * patience)) ${client//%P/$port} >"$work/out/client" 2>&1) &
	cpid=$!
	wait $cpid
	cs=$?
	if [ $cs != 0 ]; then
		# A server whose client failed may wait for ever.
		until_true 2 is_gone $spid || kill $spid 2>/dev/null
	fi
	wait $spid
	ss=$?
	if [ $cs = 0 ] && [ $ss = 0 ] && { [ -z "${PAIR_CHECK-}" ] ||
		{ grep -qE "$PAIR_CHECK" "$work/out/client" && grep -qE "$PAIR_CHECK" "$work/out/server"; }; }; then
		tap_ok "$name"
		return 0
	fi
	tap_not_ok "$name" "server: status $ss: $server" "$(tail -n 15 "$work/out/server")" \
		"client: status $cs: $client" "$(tail -n 15 "$work/out/client")" "$(tail -n 5 "$work/daemon.log")"
	return 1
}

is_gone()
{
	! kill -0 "$1" 2>/dev/null
}

need()
{
	local p
	for p; do
		command -v "$p" >/dev/null || tap_skip_all "$p is not installed"
	done
}
