#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Multicast groups on both link layers, their limits, what verbsctl shows of them, and perftest's -g. On InfiniBand perftest
# asks a subnet administrator by MADs, which the soft device does not have; on Ethernet it asks nobody.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need jq
program=$VERBSD_BUILD/tests/e2e/multicast
[ -x "$program" ] || { echo "Bail out! no $program"; exit 1; }
# The unprivileged user may not be able to reach the build tree.
cp "$program" "$work/out/multicast"
chmod 755 "$work/out/multicast"

printf '[device roce0]\nlink_layer = ethernet\nnetdev = none\n' >"$work/ethernet.conf"
printf '[limits]\nmcasts = 4\n' >"$work/limits.conf"
chmod 644 "$work"/*.conf

multicast()
{
	(client_for 120 "$work/out/multicast" "$1")
}

# groups FIELD: of all that verbsctl lists
groups()
{
	"$verbsctl" --socket "$socket" list mcast --json | jq -r "[.. | objects | select(.type? == \"mcast\") | $1] | join(\" \")"
}

gone()
{
	[ "$(groups .name)" = "" ]
}

listed()
{
	local holder got
	rm -f "$work/out/hold"
	(client "$work/out/multicast" hold >"$work/out/hold" 2>&1) &
	holder=$!
	until_true 20 grep -qx attached "$work/out/hold"
	got=$(groups '.name, .kind, (.users | tostring), .in_use_by')
	kill -9 $holder
	wait $holder 2>/dev/null
	case $got in
	"ff0e::101 $1 1 qp "*" (QPN 0x"*) ;;
	*) echo "listed: $got"; return 1 ;;
	esac
	until_true 20 gone
}

for link in infiniband ethernet; do
	if [ $link = ethernet ]; then daemon_start --config "$work/ethernet.conf"; else daemon_start; fi
	for name in $("$work/out/multicast"); do
		tap_run "$link: ${name//-/ }" multicast "$name"
	done
	tap_run "$link: verbsctl lists groups, and none of a client that was killed" listed $link
	if [ $link = ethernet ] && command -v ib_send_bw >/dev/null; then
		for op in bw lat; do
			# What perftest leaks is its own.
			ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0" pair "ib_send_$op UD -g" "ib_send_$op -c UD -g -n 500 -F -p %P" "ib_send_$op -c UD -g -n 500 -F -p %P 127.0.0.1"
		done
	fi
	if until_true 20 daemon_empty; then
		tap_ok "$link: nothing is left in the daemon"
	else
		tap_not_ok "$link: nothing is left in the daemon" "$("$verbsctl" --socket "$socket" list)"
	fi
	if daemon_stop; then tap_ok "$link: the daemon ends well"; else tap_not_ok "$link: the daemon ends well" "$(tail -n 5 "$work/daemon.log")"; fi
done
daemon_start --config "$work/limits.conf"
tap_run "no more attachments than the limit allows" multicast quota
tap_done
