#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Two programs that share nothing but the daemon's socket: two network namespaces joined by a veth pair (the pingpongs
# exchange their addresses over TCP); then user, mount, pid and network namespaces of their own, as containers have.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need ibv_rc_pingpong jq ip unshare
[ "$(id -u)" = 0 ] || tap_skip_all "network namespaces joined by a veth pair need root"
a=vsd-a-$$ b=vsd-b-$$
if ! ip netns add $a 2>"$work/err" || ! ip netns add $b 2>"$work/err"; then
	ip netns del $a 2>/dev/null
	tap_skip_all "no network namespaces here: $(cat "$work/err")"
fi
trap 'ip netns del $a; ip netns del $b; cleanup' EXIT
if ! ip link add va$$ netns $a type veth peer name vb$$ netns $b 2>"$work/err"; then
	tap_skip_all "no veth here: $(cat "$work/err")"
fi
ip -n $a addr add 10.231.7.1/24 dev va$$ && ip -n $a link set va$$ up && ip -n $a link set lo up
ip -n $b addr add 10.231.7.2/24 dev vb$$ && ip -n $b link set vb$$ up && ip -n $b link set lo up
daemon_start

# apart NAME SERVER CLIENT: as pair, the server in one network namespace and the client in the other; `around` is put
# around both.
around=()
apart()
{
	local name=$1 server=$2 client=$3 spid cpid ss cs
	port=$((port + 1))
	# shellcheck disable=SC2086
	(as_user_in $a ${server//%P/$port} >"$work/out/server" 2>&1) &
	spid=$!
	until_true 20 heard_in $a $spid || { kill $spid; tap_not_ok "$name" "no listener" "$(cat "$work/out/server")"; return; }
	# shellcheck disable=SC2086
	(as_user_in $b ${client//%P/$port} 10.231.7.1 >"$work/out/client" 2>&1) &
	cpid=$!
	wait $cpid
	cs=$?
	[ $cs = 0 ] || until_true 2 is_gone $spid || kill $spid
	wait $spid
	ss=$?
	if [ $ss = 0 ] && [ $cs = 0 ]; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "server: status $ss" "$(tail -n 10 "$work/out/server")" "client: status $cs" \
			"$(tail -n 10 "$work/out/client")" "$(tail -n 5 "$work/daemon.log")"
	fi
}

heard_in()
{
	[ -n "$(ip netns exec "$1" ss -Hltn "sport = :$port")" ] || is_gone "$2"
}

as_user_in()
{
	local ns=$1
	shift
	ulimit -l 64
	exec ip netns exec "$ns" setpriv --reuid=$nobody --regid=$nobody --clear-groups --inh-caps=-all \
		"${around[@]}" env LD_PRELOAD="$preload" VERBSD_SOCKET="$socket" timeout -k 5 120 "$@"
}

for kind in rc uc ud srq; do
	apart "ibv_${kind}_pingpong across network namespaces" "ibv_${kind}_pingpong -p %P" "ibv_${kind}_pingpong -p %P"
done
apart "ib_write_bw across network namespaces" "ib_write_bw -F -p %P -n 200" "ib_write_bw -F -p %P -n 200"

around=(unshare --user --map-root-user --mount --pid --fork --mount-proc --ipc --uts)
if (as_user_in $a true) 2>"$work/err"; then
	for kind in rc uc ud srq; do
		apart "ibv_${kind}_pingpong between user, mount, pid and network namespaces" \
			"ibv_${kind}_pingpong -p %P -c" "ibv_${kind}_pingpong -p %P -c"
	done
	apart "ib_send_bw between containers' worth of namespaces" "ib_send_bw -F -p %P -n 200 -a" \
		"ib_send_bw -F -p %P -n 200 -a"
else
	tap_skip "between user, mount, pid and network namespaces" "unshare: $(head -n 1 "$work/err")"
fi
tap_run "the daemon has no object left" until_true 20 daemon_empty
tap_done
