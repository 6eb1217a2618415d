#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Objects under a thread domain take no lock: 10,000 posts and completions each way, counted by a program that stands
# before the functions that lock. The same program without a domain counts locks in every round.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need jq
[ -x "$VERBSD_BUILD/tests/e2e/elision" ] || { echo "Bail out! no $VERBSD_BUILD/tests/e2e/elision"; exit 1; }
daemon_start

elision()
{
	(client_for 100 "$VERBSD_BUILD/tests/e2e/elision" "$@" >"$work/out/elision" 2>&1)
}

elision --domain 2000
status=$?
sed 's/^/# /' "$work/out/elision"
tap_run "no lock in 10,000 posts and completions each way" [ $status = 0 ]

elision 3
status=$?
sed 's/^/# /' "$work/out/elision"
tap_run "without a domain the same program counts locks in every round" \
	eval "[ $status = 3 ] && [ \"\$(grep -cE 'clean 0 of 3.locks [1-9]' '$work/out/elision')\" = 2 ]"
# Posts of one side, an instruction at a time. Stepping is slow, so the progress thread and the peer get in between:
# what no post can do without is the least of them all.
barriers()
{
	local out
	out=$(as_user timeout -k 5 200 env VERBSD_SOCKET="$socket" "$VERBSD_BUILD/tests/e2e/barriers" \
		/usr/bin/env LD_PRELOAD="$preload" "$VERBSD_BUILD/tests/e2e/elision" "$@") || { echo "status $? $out"; return 1; }
	echo "# $out" >&3
	least=${out##*least }
}
exec 3>&1
if [ "$(uname -m)" != x86_64 ]; then
	tap_skip "one full barrier a post" "instructions of $(uname -m) are not known to barriers.c"
else
	least=
	barriers --domain --mark 1
	tap_run "one full barrier a post under a domain" [ "$least" = 1 ]
	least=
	barriers --mark 1
	tap_run "without a domain there are more" [ "${least:-0}" -gt 1 ]
fi
# F2: nobody runs out of thread domains.
mkfifo "$work/out/end"
chmod 666 "$work/out/end"
(client_for 200 "$VERBSD_BUILD/tests/e2e/crowd" 64 128 <"$work/out/end" >"$work/out/crowd" 2>&1) &
crowd=$!
pids+=("$crowd")
exec 7>"$work/out/end"
crowd_says()
{
	grep -q '^ready$' "$work/out/crowd" || is_gone $crowd
}
until_true 120 crowd_says
tap_run "64 clients have 128 thread domains each" \
	jq -e '.td | length == 64 * 128' <("$verbsctl" --socket "$socket" list td --json)
exec 7>&-
wait $crowd
status=$?
tap_run "and give them back" [ $status = 0 ]
[ $status = 0 ] || sed 's/^/# /' "$work/out/crowd" | head -n 20
tap_run "the daemon has no object left" until_true 20 daemon_empty
tap_done
