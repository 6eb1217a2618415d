#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Read-only exports cannot be written by any trick: by an unprivileged user and by uid 0 without capabilities, against a
# daemon of another user; sealed ones by nobody at all.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
program=$VERBSD_BUILD/tests/e2e/readonly
[ -x "$program" ] || { echo "Bail out! no $program"; exit 1; }
cp "$program" "$work/out/readonly"
chmod 755 "$work/out/readonly"
# Without capabilities: what setpriv leaves is taken away by exec, also from uid 0.
bare=(--clear-groups --inh-caps=-all --bounding-set=-all)

# findings NAME MODE COMMAND...: what the program found, one by one.
findings()
{
	local who=$1 mode=$2 verdict name detail n=0 status
	shift 2
	LD_PRELOAD=$preload timeout -k 5 120 "$@" "$work/out/readonly" "$socket" "$mode" "$daemon_pid" \
		>"$work/out/findings" 2>"$work/out/log"
	status=$?
	while IFS=$'\t' read -r verdict name detail; do
		n=$((n + 1))
		if [ "$verdict" = ok ]; then
			tap_ok "$who: $name"
		else
			tap_not_ok "$who: $name" "$detail"
		fi
	done <"$work/out/findings"
	if [ $status = 0 ] && [ $n -gt 10 ]; then
		tap_ok "$who: it came to its end"
	else
		tap_not_ok "$who: it came to its end" "status $status, $n findings" "$(tail -n 5 "$work/out/log")" \
			"$(tail -n 5 "$work/daemon.log")"
	fi
}

if [ "$(id -u)" != 0 ]; then
	tap_skip "read-only against a daemon of another user" "users are changed by root alone"
	daemon_start
	findings "same user, sealed" sealed env
	tap_done
fi
# The daemon's user, with what the system unit gives it to tell its clients' namespaces.
nobody=65532
as_user()
{
	exec setpriv --reuid=$nobody --regid=$nobody --clear-groups --inh-caps=-all,+sys_ptrace --ambient-caps=-all,+sys_ptrace \
		--bounding-set=-all,+sys_ptrace "$@"
}
printf '[connect]\nusers = 65534 root\n' >"$work/verbsd.conf"
chmod 644 "$work/verbsd.conf"
daemon_start --config "$work/verbsd.conf"
tap_run "the daemon is another user" test "$(stat -c %u "/proc/$daemon_pid")" = 65532
findings "uid 65534" plain setpriv --reuid=65534 --regid=65534 "${bare[@]}"
findings "uid 0 without capabilities" plain setpriv --reuid=0 --regid=0 "${bare[@]}"
findings "uid 0 with all capabilities, sealed" sealed env
tap_run "nothing is left in the daemon" until_true 20 daemon_empty
tap_done
