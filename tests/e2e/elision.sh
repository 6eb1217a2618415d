#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# F4 of the field reports (beside the benchmark): objects under a thread domain take no lock: 10,000 posts and completions each way, counted by a program that stands
# before the functions that lock, and 1,000 of each kind of post and poll. The same program without a domain counts locks in
# every round.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need jq
[ -x "$VERBSD_BUILD/tests/e2e/elision" ] || { echo "Bail out! no $VERBSD_BUILD/tests/e2e/elision"; exit 1; }
daemon_start

# Only mutexes of the C library can be counted: this build has them itself, or names one that does.
counted=${VERBSD_POSIX_MUTEXES-}
! grep -q '^#define VERBSD_POSIX_MUTEXES 1' "$VERBSD_BUILD/config.h" || counted=$preload

elision()
{
	(preload=$counted client_for 100 "$VERBSD_BUILD/tests/e2e/elision" "$@" >"$work/out/elision" 2>&1)
}

# A channel is for every CQ and thread: it is locked when an event comes and when it is taken, and nothing else is. Other
# threads come between, on a busy machine in each of 300 rounds of 100 events: what counts is the least of them, so there are
# more until either side had a round for itself.
locks_of_a_channel()
{
	local alone='' try
	for try in 1 2 3 4 5 6 7 8; do
		elision --domain --way notify 300
		sed "s/^/try $try: /" "$work/out/elision"
		alone+=$(sed -nE 's/^([ab])\t.*at least 400\t.*/\1/p' "$work/out/elision")
		if [[ $alone == *a* && $alone == *b* ]]; then return 0; fi
	done
	return 1
}

locks()
{
	local status way engine
	elision --domain 2000
	status=$?
	sed 's/^/# /' "$work/out/elision"
	tap_run "no lock in 10,000 posts and completions each way" [ $status = 0 ]

	# Whoever reaches the memory: the initiator itself, in a mapping or by a system call, or its owner.
	for way in $("$VERBSD_BUILD/tests/e2e/elision") stage:write stage:read stage:ex-fetch-add; do
		[ "$way" != send ] || continue
		engine=
		[ "$way" = "${way#*:}" ] || engine=${way%%:*}
		if [ "$way" = notify ]; then
			tap_run "4 calls of the channel's lock for each event, and no other" locks_of_a_channel
		else
			VERBSD_ENGINE=$engine elision --domain --way "${way#*:}" 1000
			status=$?
			sed 's/^/# /' "$work/out/elision"
			tap_run "no lock by way of ${way/:/, }" [ $status = 0 ]
		fi
		elision --way "${way#*:}" 1
		tap_run "locks without a domain by way of ${way/:/, }" grep -qE 'clean 0 of 1.locks [1-9]' "$work/out/elision"
	done

	elision 3
	status=$?
	sed 's/^/# /' "$work/out/elision"
	tap_run "without a domain the same program counts locks in every round" \
		eval "[ $status = 3 ] && [ \"\$(grep -cE 'clean 0 of 3.locks [1-9]' '$work/out/elision')\" = 2 ]"
}

if [ -n "$counted" ]; then
	locks
else
	tap_skip "locks of the data path" "VERBSD_POSIX_MUTEXES names no libverbsd.so of a build with --enable-posix-mutexes"
fi

# Posts of one side, an instruction at a time. Stepping is slow, so the progress thread and the peer get in between:
# what no post can do without is the least of them all.
barriers()
{
	local out
	least=
	out=$(as_user timeout -k 5 200 env VERBSD_SOCKET="$socket" "$VERBSD_BUILD/tests/e2e/barriers" \
		/usr/bin/env LD_PRELOAD="$preload" "$VERBSD_BUILD/tests/e2e/elision" "$@") || { echo "status $? $out"; return 1; }
	echo "# $out" >&3
	least=${out##*least }
}
exec 3>&1
if [ "$(uname -m)" != x86_64 ]; then
	tap_skip "one full barrier a post" "instructions of $(uname -m) are not known to barriers.c"
else
	# That it posted; and where it reaches the peer's memory itself, that it is about to.
	for way in send:1 ex-send:1 write:1 shared-read:1 shared-fetch-add:2; do
		# On a busy machine something may come between in each of the 200 posts.
		for _ in 1 2 3 4 5; do
			barriers --domain --way "${way%:*}" --mark 1 || break
			[ "$least" -gt "${way#*:}" ] || break
		done
		tap_run "at most ${way#*:} full barriers a post by way of ${way%:*}" \
			[ "${least:-9}" -le "${way#*:}" ]
	done
	# Else nothing would be counted. Without a domain there need be no more: a mutex may be the thread's own.
	tap_run "of which an atomic is one" [ "${least:-0}" = 2 ]
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
