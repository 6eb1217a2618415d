#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# verbsd by itself: its options, readiness, configuration at start and at reload, signals, and the examples of its
# manual pages.
# functions are called by name
# shellcheck disable=SC2317
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need jq

out=$work/out/daemon
conf=$work/verbsd.conf
src=${VERBSD_SRCDIR:?}

# status WANT NAME COMMAND...: passes if the command ends with that status; output in $out.
status()
{
	local want=$1 name=$2 got
	shift 2
	"$@" >"$out" 2>&1 </dev/null
	got=$?
	if [ $got = "$want" ]; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "status $got, not $want: $*" "$(head -n 5 "$out")"
	fi
}

says()
{
	tap_run "it says '$1'" grep -qF -- "$1" "$out"
}

logged()
{
	grep -qF -- "$1" "$work/daemon.log"
}

# --- options

status 0 "--help" "$verbsd" --help
for option in socket admin-socket config check-config ready-fd log-level version help; do
	says "--$option"
	tap_run "the manual has --$option" grep -qE "^\.It Fl -$option( |$)" "$src/doc/verbsd.8"
done
status 0 "--version" "$verbsd" --version
says "verbsd "
status 2 "unknown option" "$verbsd" --frobnicate
status 2 "unknown log level" "$verbsd" --log-level loud
status 2 "an argument" "$verbsd" now

# --- configuration

status 1 "a file that is named must exist" "$verbsd" --check-config --config "$work/none"
says "$work/none: No such file"
printf '[daemon]\n\ncma = perhaps\n' >"$conf"
chmod 644 "$conf"
status 1 "a wrong line" "$verbsd" --check-config --config "$conf"
says "$conf:3: cma must be one of: off on"
status 1 "a wrong line at the start" "$verbsd" --socket "$work/out/x.sock" --config "$conf"
says "$conf:3: cma must be one of: off on"
tap_run "no socket is left" test ! -e "$work/out/x.sock"

# The example of the manual, as it stands there.
sed -n '/^Two devices/,/^\.Ed/p' "$src/doc/verbsd.conf.5" | grep -v '^\.\|^Two' >"$conf"
tap_run "the manual has an example" grep -q '^\[device' "$conf"
status 0 "the example of verbsd.conf(5)" "$verbsd" --check-config --config "$conf"
daemon_start --config "$conf"
tap_run "its two devices are there" \
	test "$("$verbsctl" devices --json | jq -r '[.. | .name? // .device? // empty] | unique | length')" -ge 2
daemon_stop
tap_run "SIGTERM ends it with status 0" test $? = 0
tap_run "its socket is gone" test ! -e "$socket"

# --- readiness

mkfifo "$work/ready"
chmod 666 "$work/ready"
(as_user "$verbsd" --socket "$work/run/ready.sock" --ready-fd 3 3>"$work/ready" >>"$work/daemon.log" 2>&1) &
daemon_pid=$!
read -r word <"$work/ready"
tap_run "--ready-fd has a line" test "$word" = ready
tap_run "and then it answers" "$verbsctl" --socket "$work/run/ready.sock" status
daemon_stop
tap_run "SIGTERM ends this one" test $? = 0

# --- reload

printf '[device first]\n' >"$conf"
daemon_start --config "$conf"
devices()
{
	"$verbsctl" devices --json | grep -q "\"$1\""
}
tap_run "the device of the file is there" devices first
printf '[device second]\nlid = 9\n' >"$conf"
tap_run "verbsctl reload applies a new file" "$verbsctl" reload
tap_run "the new device is there" devices second
tap_run "the old one is not" eval '! devices first'
printf '[device third]\nlid = none\n' >"$conf"
status 1 "verbsctl reload fails for a wrong file" "$verbsctl" reload
says "$conf:2: lid must be a number"
tap_run "and the old configuration holds" devices second
kill -HUP "$daemon_pid"
tap_run "SIGHUP says so in the log" until_true 10 logged "reload refused"
printf '[device fourth]\n' >"$conf"
kill -HUP "$daemon_pid"
tap_run "SIGHUP applies a right one" until_true 10 devices fourth
daemon_stop
tap_run "SIGTERM ends it" test $? = 0

# --- the same socket again

daemon_start
kill -9 "$daemon_pid"
{ wait "$daemon_pid"; } 2>/dev/null
daemon_pid=
tap_run "a socket that was left is there" test -S "$socket"
daemon_start
tap_ok "and is replaced"
status 1 "but not while somebody listens" "$verbsd" --socket "$socket"
says "Address already in use"
tap_run "the first one still answers" daemon_answers
daemon_stop

tap_done
