#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The cma engine where the kernel and the policy let it, and where not: tests/e2e/cma.c has the cases.
# shellcheck source=tests/e2e/cases.bash
. "$(dirname "$0")/cases.bash"
need jq
program_ready cma

# run CASE COMMAND...: passes if it ends with status 0; 77 is a skip, and its output says why.
run()
{
	local name=${1//-/ }
	"${@:2}" "$work/out/cma" "$1" >"$work/out/log" 2>&1
	case $? in
	0) tap_ok "$name" ;;
	77) tap_skip "$name" "$(head -n 1 "$work/out/log")" ;;
	*) tap_not_ok "$name" "$(tail -n 20 "$work/out/log")" "$(tail -n 5 "$work/daemon.log")" ;;
	esac
	grep '^# ' "$work/out/log"
}

as_client()
{
	(client_for 60 "$@")
}

# The program changes its users itself. Who looks for leaks does not find its threads in the /proc of another namespace.
as_root()
{
	ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" \
		LD_PRELOAD="${VERBSD_PRELOAD_FIRST:+$VERBSD_PRELOAD_FIRST:}$preload" timeout -k 5 $((60 * patience)) "$@"
}

# configured LINE...: a daemon with that configuration.
configured()
{
	printf '%s\n' "$@" >"$work/verbsd.conf"
	chmod 644 "$work/verbsd.conf"
	daemon_start --config "$work/verbsd.conf"
}

daemon_start
for case in $("$work/out/cma"); do
	case $case in
	switched-off | another-*) ;;
	*) run "$case" as_client ;;
	esac
done
tap_run "nothing is left in the daemon" until_true 20 daemon_empty
daemon_stop

configured '[connect]' 'users = 65533 65534 root'
for case in another-user another-pid-namespace another-number-in-proc; do
	run "$case" as_root
done
tap_run "nothing is left of others" until_true 20 daemon_empty
daemon_stop

configured '[daemon]' 'cma = off'
run switched-off as_client
tap_run "nothing is left in the daemon that does without" until_true 20 daemon_empty
tap_done
