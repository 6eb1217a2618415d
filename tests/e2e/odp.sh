#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# On-demand paging: memory that comes and goes under its region, by each engine, and advice about it.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need jq
program=$VERBSD_BUILD/tests/e2e/odp
[ -x "$program" ] || { echo "Bail out! no $program"; exit 1; }
# The unprivileged user may not be able to reach the build tree.
cp "$program" "$work/out/odp"
chmod 755 "$work/out/odp"
daemon_start

odp()
{
	(client_for 120 "$work/out/odp" "$1")
}

for name in $("$work/out/odp"); do
	tap_run "${name//-/ }" odp "$name"
done
for engine in stage cma direct; do
	export VERBSD_ENGINE=$engine
	for name in explicit implicit absent processes; do
		tap_run "$name by $engine" odp "$name"
	done
done
unset VERBSD_ENGINE
if until_true 20 daemon_empty; then
	tap_ok "nothing is left in the daemon"
else
	tap_not_ok "nothing is left in the daemon" "$("$verbsctl" --socket "$socket" list)"
fi
tap_done
