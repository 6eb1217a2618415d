#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Ports on Ethernet: GID tables as a RoCE adapter has them, connections by each GID, and addresses that come at a reload.
# Functions are called by name.
# shellcheck disable=SC2317
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need ibv_rc_pingpong ibv_devinfo ip jq python3
out=$work/out/text

conf=$work/verbsd.conf
cat >"$conf" <<-EOF
	[device soft0]
	[device roce0]
	link_layer = ethernet
	netdev = lo
	guid = 0256:5344:0000:0077
	[device roce1]
	link_layer = ethernet
	netdev = none
EOF
chmod 644 "$conf"

# As root the daemon gets a network of its own, with addresses that the test chooses. Nobody else needs one.
network=
if [ "$(id -u)" = 0 ] && unshare -n true 2>/dev/null; then
	network=1
	(
		unshare -n sh -c 'ip link set lo up; ip addr add 198.51.100.7/32 dev lo; ip -6 addr add 2001:db8::7/128 dev lo nodad
			echo ready; exec sleep infinity' # until it is killed
	) >"$work/out/network" 2>&1 &
	holder=$!
	pids+=("$holder")
	until_true 20 grep -qx ready "$work/out/network"
fi

as_user_there()
{
	exec nsenter -t "$holder" -n setpriv --reuid=$nobody --regid=$nobody --clear-groups --inh-caps=-all --bounding-set=-all "$@"
}

if [ -n "$network" ]; then
	mkdir -p "$work/run"
	chown $nobody:$nobody "$work/run"
	socket=$work/run/verbsd.sock
	admin=$work/run/admin.sock
	export VERBSD_SOCKET=$socket VERBSD_ADMIN_SOCKET=$admin
	(as_user_there "$verbsd" --socket "$socket" --admin-socket "$admin" --config "$conf" >"$work/daemon.log" 2>&1) &
	daemon_pid=$!
	until_true 20 daemon_answers || {
		echo "Bail out! the daemon does not answer: $(cat "$work/daemon.log")"
		exit 1
	}
	ipv4=198.51.100.7
else
	daemon_start --config "$conf"
	ipv4=127.0.0.1
fi

# gids DEVICE: index, GID and type, one a line, as ibv_devinfo says.
gids()
{
	(client ibv_devinfo -v -d "$1") | sed -nE 's/^[[:space:]]*GID\[ *([0-9]+)\]:[[:space:]]*([^,]*)(, (.*))?$/\1 \2 \4/p'
}

# is NAME WANT GOT
is()
{
	if [ "$2" = "$3" ]; then
		tap_ok "$1"
	else
		tap_not_ok "$1" "want: $2" "got: $3"
	fi
}

link_local=fe80::56:53ff:fe00
is "InfiniBand has one GID" "0 fe80:0000:0000:0000:0256:5344:0000:0001 " "$(gids soft0)"
is "without an interface there is the link-local one" "1 $link_local:3 RoCE v2" "$(gids roce1 | tail -n 1)"
is "twice" 2 "$(gids roce1 | wc -l)"
gids roce0 >"$out"
is "RoCE v1 comes first" "0 fe80:0000:0000:0000:0056:53ff:fe00:0077 RoCE v1" "$(sed -n 1p "$out")"
is "then RoCE v2" "1 $link_local:77 RoCE v2" "$(sed -n 2p "$out")"
# The address that lo always has comes first.
is "then IPv4 addresses" "::ffff:127.0.0.1 ::ffff:$ipv4" \
	"$(awk '$4 == "v2" && $2 ~ /ffff:[0-9]*\./ { print $2 }' "$out" | sed -n '1p;$p' | tr '\n' ' ' | sed 's/ $//')"
is "kinds alternate" "v1 v2" "$(awk '{ print $4 }' "$out" | uniq | sort -u | tr '\n' ' ' | sed 's/ $//')"
if [ -n "$network" ]; then
	is "then IPv6 addresses" "2001:db8::7" "$(awk '$4 == "v2" && $2 ~ /2001/ { print $2 }' "$out")"
else
	tap_skip "then IPv6 addresses" "no network of our own"
fi
n=$(wc -l <"$out")
is "Ethernet has no LID" "port_lid: 0 link_layer: Ethernet" \
	"$(client ibv_devinfo -d roce0 2>/dev/null | grep -E 'port_lid|link_layer' | xargs)"

# Both queries of all entries at once and of one give the same, with the kind of each.
cat >"$work/out/table.py" <<-'EOF'
	import pyverbs.device as d
	context = d.Context(name='roce0')
	table = context.query_gid_table(64)
	for entry in table:
	    one = context.query_gid_ex(1, entry.gid_index)
	    assert str(one) == str(entry), (str(one), str(entry))
	    assert str(context.query_gid(1, entry.gid_index)).replace(':', '') in str(entry).replace(':', ''), str(entry)
	    print(entry.gid_index, {1: 'RoCE v1', 2: 'RoCE v2'}[entry.gid_type])
	try:
	    context.query_gid_ex(1, len(table))
	    print('an empty entry has been found')
	except Exception as e:
	    assert ('No data' if len(table) < 8 else 'Invalid') in str(e), e
EOF
python=$(command -v /usr/bin/python3 python3 | head -n 1)
if "$python" -c "import pyverbs" 2>/dev/null; then
	is "queries agree" "$(awk '{ print $1, $3, $4 }' "$out")" "$(client "$python" "$work/out/table.py" 2>&1)"
else
	tap_skip "queries agree" "python3-pyverbs is not installed"
fi

[ "$n" -gt 6 ] && [ -z "$full" ] && n=6
for ((index = 0; index < n; index++)); do
	for program in rc ud; do
		pair "ibv_${program}_pingpong by GID $index" "ibv_${program}_pingpong -d roce0 -p %P -c -n 100 -g $index" \
			"ibv_${program}_pingpong -d roce0 -p %P -c -n 100 -g $index 127.0.0.1"
	done
done
pair "two devices on Ethernet" "ibv_rc_pingpong -d roce0 -p %P -c -n 100 -g 3" "ibv_rc_pingpong -d roce1 -p %P -c -n 100 -g 1 127.0.0.1"
pair "Ethernet and InfiniBand" "ibv_uc_pingpong -d roce0 -p %P -c -n 100 -g 1" "ibv_uc_pingpong -d soft0 -p %P -c -n 100 -g 0 127.0.0.1"
if command -v ib_send_bw >/dev/null; then
	# perftest chooses a GID by itself.
	pair "ib_send_bw" "ib_send_bw -d roce0 -p %P -n 100" "ib_send_bw -d roce0 -p %P -n 100 127.0.0.1"
	pair "ib_send_bw UD" "ib_send_bw -d roce0 -p %P -n 100 -c UD" "ib_send_bw -d roce0 -p %P -n 100 -c UD 127.0.0.1"
else
	tap_skip "ib_send_bw" "perftest is not installed"
fi

# refused NAME OPTION...: neither side can connect.
refused()
{
	local name=$1
	shift
	port_next
	(client timeout 20 ibv_rc_pingpong -d roce0 -p $port "$@" >"$work/out/server" 2>&1) &
	local server=$!
	pids+=("$server")
	until_true 20 listens $server $port
	if (client timeout 20 ibv_rc_pingpong -d roce0 -p $port "$@" 127.0.0.1) >"$out" 2>&1; then
		tap_not_ok "$name" "$(cat "$out")"
	else
		tap_ok "$name"
	fi
	kill $server 2>/dev/null
	wait $server 2>/dev/null
}
refused "without a GID nobody is reached"
refused "an empty GID is nobody's" -g 15

if [ -n "$network" ]; then
	before=$(gids roce0 | wc -l)
	nsenter -t "$holder" -n ip addr add 198.51.100.8/32 dev lo
	is "a new address is not seen at once" "$before" "$(gids roce0 | wc -l)"
	"$verbsctl" reload
	is "but after a reload" "$((before + 2))" "$(gids roce0 | wc -l)"
	is "in its place" "::ffff:198.51.100.8" "$(gids roce0 | awk '$4 == "v2" { print $2 }' | grep ffff | tail -n 1)"
else
	tap_skip "a new address is seen after a reload" "no network of our own"
fi

if until_true 20 daemon_empty; then
	tap_ok "the daemon has no object left"
else
	tap_not_ok "the daemon has no object left" "$("$verbsctl" --socket "$socket" list 2>&1)"
fi
if daemon_stop; then tap_ok "the daemon ends with status 0"; else tap_not_ok "the daemon ends with status 0"; fi
tap_done
