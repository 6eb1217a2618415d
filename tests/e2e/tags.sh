#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Tag matching SRQs, with each engine that can fetch what a rendezvous offers.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need jq
program=$VERBSD_BUILD/tests/e2e/tags
[ -x "$program" ] || { echo "Bail out! no $program"; exit 1; }
# The unprivileged user may not be able to reach the build tree.
cp "$program" "$work/out/tags"
chmod 755 "$work/out/tags"
daemon_start

tags()
{
	(client_for 120 "$work/out/tags" "$1")
}

for engine in direct stage; do
	export VERBSD_ENGINE=$engine
	for name in $("$work/out/tags"); do
		tap_run "${name//-/ }, $engine" tags "$name"
	done
done
unset VERBSD_ENGINE
if until_true 20 daemon_empty; then
	tap_ok "nothing is left in the daemon"
else
	tap_not_ok "nothing is left in the daemon" "$("$verbsctl" --socket "$socket" list)"
fi
if daemon_stop; then tap_ok "the daemon ends well"; else tap_not_ok "the daemon ends well" "$(tail -n 5 "$work/daemon.log")"; fi
printf '[limits]\nqueue_bytes = 512K\n' >"$work/limits.conf"
chmod 644 "$work/limits.conf"
daemon_start --config "$work/limits.conf"
tap_run "a size of an SRQ is charged" tags charges
tap_done
