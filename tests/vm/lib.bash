# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# For tests inside the VM. They install units and kill daemons, so they refuse to run on a real machine.
#
# Nothing here sleeps for a fixed time: `until_true` looks at a condition again and again, up to a limit that only a
# broken build reaches.
# shellcheck source=tests/lib/tap.bash
. "$(dirname "${BASH_SOURCE[0]}")/../lib/tap.bash"
[ -e /run/vm/settings ] || tap_skip_all "not in a VM (start it by tests/vm/run)"

nobody=65534
to_nobody=(setpriv --reuid=$nobody --regid=$nobody --clear-groups --inh-caps=-all --bounding-set=-all)
full=
[ "${VERBSD_LENGTH:-ci}" != full ] || full=1
work=$(mktemp -d /run/verbsd-test.XXXXXX)
chmod 755 "$work"

# breathe: leaves the processor to others for a moment, between two looks.
breathe()
{
	read -rt 0.1 <> <(:) || :
}

# until_true SECONDS COMMAND...: tries the command until it succeeds.
until_true()
{
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		breathe
	done
}

# tap_is NAME WANTED GOT
tap_is()
{
	if [ "$2" = "$3" ]; then
		tap_ok "$1"
	else
		tap_not_ok "$1" "wanted: $2" "got: $3"
	fi
}

# tap_fails NAME COMMAND...: passes if the command fails. What it printed is in $said.
tap_fails()
{
	local name=$1
	shift
	if said=$("$@" 2>&1); then
		tap_not_ok "$name" "succeeded: $*" "$said"
	else
		tap_ok "$name"
	fi
}

# as_nobody COMMAND...: an unprivileged user with 64 KiB of lockable memory and the library preloaded.
as_nobody()
{
	(
		ulimit -l 64
		exec "${to_nobody[@]}" env LD_PRELOAD="$preload" "$@"
	)
}

# prop UNIT PROPERTY: what systemd says.
prop()
{
	systemctl show -p "$2" --value "$1"
}

main_pid()
{
	prop verbsd.service MainPID
}

# status_of PID FIELD: a line of /proc/PID/status.
status_of()
{
	sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status" | tr '\t' ' '
}

# drop_in LINE...: lines for [Service], over those of the unit; none: the unit as it was installed.
drop_in()
{
	local dir=/run/systemd/system/verbsd.service.d
	rm -rf $dir
	if [ $# -gt 0 ]; then
		mkdir -p $dir
		printf '%s\n' '[Service]' "$@" >$dir/test.conf
	fi
	systemctl daemon-reload
}

# listens PORT: a process listens on that TCP port.
listens()
{
	grep -qsE "^ *[0-9]+: [0-9A-F]+$(printf ':%04X' "$1") [0-9A-F]+:0000 0A " /proc/net/tcp /proc/net/tcp6
}

# rxe_make N: rxeN on an interface of its own, its node closed.
rxe_make()
{
	local node
	ip link add "dummy$1" address "$(printf 02:00:0a:63:%02x:01 "$1")" type dummy &&
		ip addr add "10.99.$1.1/24" dev "dummy$1" && ip link set "dummy$1" multicast on up &&
		rdma link add "rxe$1" type rxe netdev "dummy$1" || return
	node=/dev/infiniband/uverbs$1
	until_true 30 test -c "$node" && chmod 600 "$node" && chown root:root "$node"
}
