#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Shared regions as verbsctl shows them, and how their names are taken away.
# jq has variables of its own; functions are called by name.
# shellcheck disable=SC2016,SC2317
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need jq script

out=$work/out/ctl
export LC_ALL=C.UTF-8
cp "$VERBSD_BUILD/tests/e2e/holder" "$work/out/holder"
chmod 755 "$work/out/holder"
mkfifo "$work/out/hold"
exec 8<>"$work/out/hold" # as long as this script lives, holders wait

ctl()
{
	"$verbsctl" "$@"
}

# As the user whose regions they are.
user_ctl()
{
	(as_user "$verbsctl" --admin-socket "$work/nothing.sock" "$@")
}

# says NAME FILTER: of the JSON in $out.
says()
{
	tap_run "$1" jq -e "$2" "$out" || tr -d '\n' <"$out" | head -c 600 | sed 's/^/# /; s/$/\n/'
}

# hold FILE NAME SIZE [FLAG...]: a process with that region; its pid in $holder. What it said is in FILE.
hold()
{
	local file=$work/out/$1
	shift
	(client "$work/out/holder" "$@" >"$file" 2>&1 <"$work/out/hold" 8>&-) &
	holder=$!
	pids+=("$holder")
	until_true 20 has_said "$file" "$holder" && grep -qE '^(created|found)' "$file" && return 0
	tap_not_ok "a process holds $1" "$(cat "$file")" "$(tail -n 3 "$work/daemon.log")"
	return 1
}

has_said()
{
	grep -qs . "$1" || is_gone "$2"
}

gone()
{
	kill -9 "$1" 2>/dev/null
	wait "$1" 2>/dev/null
}

# regions N: that many regions are there.
regions()
{
	[ "$("$verbsctl" status --json | jq '.status[0].regions')" = "$1" ]
}

# --- without a daemon

status 2 "mr without a command" ctl mr
status 2 "mr with an unknown command" ctl mr frob x
status 2 "mr rm without a name" ctl mr rm
status 2 "mr rm of two names" ctl mr rm a b
status 2 "mr rm of a user who is not there" ctl mr rm --uid no-such-user x
status 2 "--uid is for mr" ctl list --uid 0
status 3 "mr rm without a daemon" ctl --socket "$work/nothing.sock" mr rm x
status 3 "mr rm --uid without a daemon" ctl --socket "$work/nothing.sock" mr rm --uid 0 x
status 0 "mr --help" ctl mr --help
tap_run "it says how" grep -q 'rm \[--uid USER\] NAME' "$out"

# --- what is seen

daemon_start
"$verbsctl" watch >"$work/out/watch" 2>&1 &
pids+=($!)
# A watcher is a client before it watches. That it does is seen by what it says: each look here is another client.
watcher_watches()
{
	"$verbsctl" status >/dev/null && [ -s "$work/out/watch" ]
}
tap_run "somebody watches" until_true 20 watcher_watches

hold one pool/1 1048576 persist ro
one=$holder
hold two pool/1 4096 reads
two=$holder
hold three - 8192
three=$holder
tap_run "one created it" grep -q '^created' "$work/out/one"
tap_run "the other found it" grep -q '^found' "$work/out/two"

status 0 "list mr" ctl list mr
tap_run "it shows name, size, users, mode and persistence" \
	grep -qE '^ *[0-9]+ +[0-9]+ pool/1 +0x[0-9a-f]+ +[0-9]+ +1\.0M +2 +ro +yes ' "$out" || sed 's/^/# /' "$out"
status 0 "list mr in JSON" ctl list mr --json
says "MRs on the region" \
	'[.mr[] | select(.name == "pool/1" and .type == "mr" and .length == 1048576 and .users == 2 and .persistent)] | length == 2'
says "its creator writes, the other reads" \
	'[.mr[] | select(.name == "pool/1") | .mode] | sort == ["ro", "rw"]'
says "they have one key and one address" \
	'[.mr[] | select(.name == "pool/1") | [.key, .address, .region]] | unique | length == 1'
says "one without a name" '[.mr[] | select(.name == null and .region != null and .users == 1 and .persistent == false)] | length == 1'
status 0 "list region in JSON" ctl list region --json
says "regions by themselves" \
	'(.region | length) == 2 and ([.region[] | select(.name == "pool/1") |
		.type == "region" and .client == null and .pid == null and .length == 1048576 and .users == 2 and .mode == "ro" and .persistent] == [true])'
status 0 "list region" ctl list region
tap_run "a table of them" grep -qE '^ *[0-9]+ pool/1 +0x[0-9a-f]+ +1\.0M +2 +ro +yes ' "$out" || sed 's/^/# /' "$out"
status 0 "list" ctl list --json
says "regions are among all objects" '[.objects[] | select(.type == "region")] | length == 2'
status 0 "status" ctl status --json
says "status counts them" '.status[0] | .regions == 2 and .region_bytes == 1048576 + 8192'
for columns in 80 132; do
	for command in "list mr" "list region"; do
		tap_empty "$command fits $columns columns" "$(script -qec "stty cols $columns rows 24; '$verbsctl' $command" \
			/dev/null </dev/null | tr -d '\r' | awk -v n="$columns" 'length > n { print length ": " $0 }')"
	done
done

# --- who keeps what

gone "$three"
tap_run "without a name it goes with its process" until_true 10 regions 1
gone "$one"
gone "$two"
no_mr()
{
	[ "$("$verbsctl" list mr --json | jq '[.mr[] | select(.type == "mr")] | length')" = 0 ]
}
tap_run "kill -9 ends the MRs" until_true 10 no_mr
status 0 "list mr" ctl list mr --json
says "and the persistent region is still shown" \
	'[.mr[] | select(.type == "region" and .name == "pool/1" and .users == 0 and .persistent and .length == 1048576)] | length == 1'
hold again pool/1 1048576 reads
again=$holder
tap_run "a new process finds it, with its key" [ "$(cat "$work/out/again")" = "found $(sed 's/.* //' "$work/out/one")" ]

# --- its name taken away

status 1 "mr rm of a name that is not there" user_ctl mr rm pool/2
tap_run "it is said" grep -q 'there is no region pool/2' "$out.err"
status 1 "mr rm of what is no name" user_ctl mr rm 'po ol'
if [ "$(id -u)" = 0 ]; then
	status 1 "mr rm in another domain" ctl mr rm pool/1
	tap_run "as if it were not there" grep -q 'there is no region pool/1' "$out.err"
	status 1 "mr rm of another user's name" ctl mr rm --uid root pool/1
	owner=$nobody
else
	owner=$(id -u)
fi
status 1 "mr rm --uid on the ordinary socket" ctl --admin-socket "$socket" mr rm --uid "$owner" pool/1
tap_run "it is there still" regions 1
status 0 "mr rm" user_ctl mr rm pool/1
status 0 "list mr" ctl list mr --json
says "the name is gone, the memory is not" '[.mr[] | select(.type == "mr" and .name == null and .persistent == false and .users == 1)] | length == 1'
status 1 "mr rm again" user_ctl mr rm pool/1
gone "$again"
tap_run "it went with its last process" until_true 10 regions 0

hold kept kept 4096 persist
gone "$holder"
tap_run "another one is kept" regions 1
status 0 "mr rm by the administrator" ctl mr rm --uid "$owner" kept
tap_run "it is gone at once" regions 0
status 1 "mr rm by the administrator again" ctl mr rm --uid "$owner" kept

tap_run "watch saw a region come" until_true 10 grep -qE '^\+ region +id [0-9]+ name pool/1 number [0-9]+ uid '"$owner"'$' "$work/out/watch"
tap_run "watch saw a region go" until_true 10 grep -qE '^- region +id [0-9]+ name kept ' "$work/out/watch"

# --- completion

# completes WORD LINE...: passes if completing the last word of the line offers that word.
completes()
{
	PATH=$root/bin:$PATH bash -c '
		. /usr/share/bash-completion/bash_completion
		. "$0"
		want=$1
		shift
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
		_verbsctl
		printf "%s\n" "${COMPREPLY[@]}" | grep -qxF -e "$want"
	' "$root/share/bash-completion/completions/verbsctl.bash" "$@"
}
if [ -r /usr/share/bash-completion/bash_completion ]; then
	hold named done/well 4096
	tap_run "completion: rm" completes rm verbsctl mr r
	tap_run "completion: names of regions" completes done/well verbsctl --admin-socket "$admin" mr rm "do"
	tap_run "completion: users" completes root verbsctl mr rm --uid roo
	gone "$holder"
else
	tap_skip "completion" "bash-completion is not installed"
fi
tap_run "nothing is left" until_true 10 daemon_empty
tap_run "and no region" until_true 10 regions 0
daemon_stop
tap_run "the daemon ends well" [ $? = 0 ]
tap_done
