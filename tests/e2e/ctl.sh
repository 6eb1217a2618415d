#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# verbsctl against the real daemon: exit codes, what it shows of a client that holds objects, administration, and
# programs run with and without a daemon of their own.
# jq and inner shells have variables of their own; functions are called by name.
# shellcheck disable=SC2016,SC2317
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need ibv_rc_pingpong jq script

out=$work/out/ctl
export LC_ALL=C.UTF-8
# The path of a socket has a limit: private folders must be short. What others make in /tmp meanwhile is not ours to find.
TMPDIR=$(mktemp -d /tmp/v.XXXXXX)
export TMPDIR
trap 'rm -rf "$TMPDIR"; cleanup' EXIT
unset XDG_RUNTIME_DIR

# holds NAME COMMAND...: passes if the command succeeds.
holds()
{
	tap_run "$@"
}

ctl()
{
	"$verbsctl" "$@"
}

# --- without a daemon

status 0 "--help" ctl --help
for command in status devices clients list watch run mr disconnect reload; do
	holds "--help names $command" grep -q "^  $command " "$out"
done
for command in status devices clients list watch run mr disconnect reload; do
	status 0 "$command --help" ctl $command --help && cp "$out" "$out.$command"
done
holds "help of run says --private" grep -q -e --private "$out.run"
status 0 "--version" ctl --version
holds "version has a number" grep -qE '^verbsctl [0-9]+\.[0-9]+' "$out"
status 2 "no command" ctl
status 2 "unknown command" ctl frobnicate
status 2 "unknown option" ctl status --frobnicate
status 2 "option of another command" ctl status --private
status 2 "too many arguments" ctl status now
status 2 "too few arguments" ctl disconnect
status 2 "disconnect takes a number" ctl disconnect -- -1
status 2 "disconnect takes a number that fits" ctl disconnect 99999999999999999999
status 2 "unknown kind of object" ctl list frobs
status 2 "run without a program" ctl run --
status 2 "run with a configuration for nobody" ctl run --config /dev/null -- true
for command in status devices clients list watch reload "disconnect 1"; do
	# shellcheck disable=SC2086 # a command and its argument
	status 3 "$command without a daemon" ctl --socket "$work/nothing.sock" $command
	holds "$command says which socket" grep -q "$work/.*sock" "$out.err"
done

# --- with a daemon

conf=$work/verbsd.conf
: >"$conf"
chmod 644 "$conf"
daemon_start --config "$conf"

status 0 "status" ctl status
holds "status shows the socket" grep -q "$socket" "$out"
status 0 "status in JSON" ctl status --json
holds "status in JSON has numbers" jq -e '.status[0] | (.pid | type) == "number" and .sessions >= 1 and .wires == 0' "$out"
status 0 "devices" ctl devices
status 0 "devices in JSON" ctl devices --json
holds "there is a soft device with an active port" \
	jq -e '[.devices[] | select(.kind == "soft" and .state == "active" and .max_qp > 0)] | length >= 1' "$out"
for kind in "" pd td mr cq qp srq ah wire mw parent-domain context client region; do
	# shellcheck disable=SC2086 # none is none
	status 0 "list $kind" ctl list $kind
	# shellcheck disable=SC2086
	status 0 "list $kind in JSON" ctl list $kind --json
	holds "list $kind in JSON is JSON" jq -e "(.[\"${kind:-objects}\"] | type) == \"array\"" "$out"
done
status 1 "output that cannot be written" sh -c '"$0" status >/dev/full' "$verbsctl"
holds "is said" grep -q 'No space left' "$out.err"
status 0 "without the admin socket" ctl --admin-socket "$work/nothing.sock" list
holds "only the own domain, and it is said" grep -q 'your own domain only' "$out.err"
status 0 "with the admin socket" ctl list
tap_empty "nothing is said" "$(cat "$out.err")"

# A program with a name that nobody would choose.
evil=$work/out/$'p\e[31m"\n\\'
cp "$(command -v ibv_rc_pingpong)" "$evil"
chmod 755 "$evil"

watch_pids=()
"$verbsctl" watch >"$work/out/watch" 2>&1 &
watch_pids+=($!)
"$verbsctl" watch --json >"$work/out/watch.json" 2>&1 &
watch_pids+=($!)
pids+=("${watch_pids[@]}")
# A watcher is a client before it watches. That it does is seen by what it says: each look here is another client.
watchers_watch()
{
	"$verbsctl" status >/dev/null && [ -s "$work/out/watch" ] && [ -s "$work/out/watch.json" ]
}
holds "both watch" until_true 20 watchers_watch

port_next
(client "$evil" -p $port -g 0 >"$work/out/server" 2>&1) &
server=$!
pids+=("$server")
has_qp()
{
	[ "$("$verbsctl" list qp --json | jq '.qp | length')" = 1 ]
}
if until_true 20 listens $server $port && has_qp; then
	tap_ok "a client has a QP"
else
	tap_not_ok "a client has a QP" "$(cat "$work/out/server")" "$(tail -n 5 "$work/daemon.log")"
fi

ctl list qp --json >"$out"
holds "QP: owner" jq -e --argjson pid "$server" '.qp[0] | .pid == $pid and (.uid | type) == "number" and .client > 0' "$out"
holds "QP: what it stands on" jq -e '.qp[0] | .pd != null and .send_cq != null and .recv_cq != null' "$out"
holds "QP: kind, state, depth" jq -e '.qp[0] | .kind == "RC" and (.state | type) == "string" and .number > 1' "$out"
for kind in pd mr cq; do
	ctl list $kind --json >"$out"
	holds "$kind of the client" jq -e --argjson pid "$server" "[.[\"$kind\"][] | select(.pid == \$pid)] | length == 1" "$out"
done
ctl list mr --json >"$out"
holds "MR: size and key" jq -e '.mr[0] | .length >= 4096 and .key > 0' "$out" ||
	jq -c '.mr[0]' "$out" | sed 's/^/# /'
ctl list --json >"$out"
holds "all objects of the client" jq -e --argjson pid "$server" \
	'[.objects[] | select(.pid == $pid) | .type] | (index("qp") != null and index("pd") != null and index("mr") != null)' "$out"
ctl clients --json >"$out"
holds "client: command is escaped" jq -e --argjson pid "$server" \
	'.clients[] | select(.pid == $pid) | .command | contains("\\x1b[31m") and contains("\\x0a")' "$out"
ctl clients >"$out"
ctl list >>"$out"
ctl list qp >>"$out"
holds "a table has it as JSON has it" grep -qF 'p\x1b[31m"\x0a' "$out"
tap_empty "no control character reaches a terminal" "$(tr -d '\n' <"$out" | grep -nP '[\x00-\x1f\x7f]')"

# fits COLUMNS COMMAND...: lines of the output that are longer, on a terminal of that width.
too_long()
{
	local columns=$1
	shift
	script -qec "stty cols $columns rows 24; '$verbsctl' $*" /dev/null </dev/null |
		tr -d '\r' | awk -v n="$columns" 'length > n { print length ": " $0 }'
}
for columns in 80 132; do
	for command in status devices clients list "list qp" "list mr" "list cq"; do
		tap_empty "$command fits $columns columns" "$(too_long $columns "$command")"
	done
done

number=$(ctl clients --json | jq --argjson pid "$server" '.clients[] | select(.pid == $pid) | .client')
status 3 "disconnect needs the admin socket" ctl --admin-socket "$work/nothing.sock" disconnect "$number"
status 1 "disconnect on the ordinary socket" ctl --admin-socket "$socket" disconnect "$number"
status 1 "disconnect a client that is not there" ctl disconnect 999999999
status 0 "disconnect" ctl disconnect "$number"
has_no_qp()
{
	[ "$("$verbsctl" list qp --json | jq '.qp | length')" = 0 ]
}
holds "its objects are gone" until_true 10 has_no_qp
kill -9 $server 2>/dev/null
wait $server 2>/dev/null

holds "watch saw the QP come" until_true 10 grep -qE '^\+ qp .* pid '"$server" "$work/out/watch"
holds "watch saw the client go" until_true 10 grep -qE '^- client .* pid '"$server" "$work/out/watch"
tap_empty "watch escapes" "$(tr -d '\n' <"$work/out/watch" | grep -P '[\x00-\x1f\x7f]')"
json_watched()
{
	jq -se --argjson pid "$server" '([.[].added[]? | select(.type == "qp" and .pid == $pid)] | length) == 1 and
		([.[].removed[]? | select(.type == "client" and .pid == $pid)] | length) == 1' "$work/out/watch.json" >/dev/null
}
holds "watch in JSON saw both" until_true 10 json_watched

status 0 "reload" ctl reload
printf '[limits]\nfrobs = 7\n' >"$conf"
status 1 "reload of a wrong file" ctl reload
holds "says file and line" grep -qE "$conf:2: " "$out.err"
status 1 "reload on the ordinary socket" ctl --admin-socket "$socket" reload
status 0 "the daemon is there still" ctl status

daemon_stop
for pid in "${watch_pids[@]}"; do
	wait "$pid"
	holds "watch ends with the daemon, status 3" [ $? = 3 ]
done

# --- run

status 0 "run" ctl run -- true
status 7 "run gives the program's status" ctl run -- sh -c 'exit 7'
# A folder of PATH that the user may not search would make it "permission denied", as with env(1).
PATH=/usr/bin:/bin status 127 "run: not found" ctl run -- no-such-program
status 126 "run: not executable" ctl run -- /etc/passwd
status 0 "run: the library" ctl run --form preload -- sh -c 'echo "$LD_PRELOAD"'
holds "run: is the installed one" grep -qxE "$(readlink -f "$root")/lib/libverbsd\\.so(\\.[0-9]+)?" "$out"
libm=$(ldconfig -p | awk '$1 == "libm.so.6" { print $NF; exit }')
LD_PRELOAD=$libm status 0 "run: keeps a preload" ctl run -- sh -c 'echo "$LD_PRELOAD"'
holds "run: both are there" grep -q "$libm:.*verbs" "$out"
echo rubbish >"$work/out/rubbish.so"
VERBSD_LIBRARY=$work/out/rubbish.so status 126 "run: a library that cannot be preloaded" ctl run -- true
tap_empty "run: says so in one line" "$(sed 1d "$out.err")"
holds "run: and why" grep -q 'rubbish.so cannot be preloaded: ' "$out.err"
VERBSD_LIBRARY=$work/none.so status 126 "run: a library that is not there" ctl run -- true
status 0 "run: sets the socket" ctl --socket "$work/x.sock" run -- sh -c 'echo "$VERBSD_SOCKET $VERBSD_ADMIN_SOCKET"'
holds "run: and the one beside it" grep -qx "$work/x.sock $work/admin.sock" "$out"

# Debian's ldconfig is a static program.
status 0 "run: a static program" ctl run -- /sbin/ldconfig --version
holds "run: says that the library has no effect" grep -q 'statically linked' "$out.err"

# --- run --private

left()
{
	find "$TMPDIR" -mindepth 1 -maxdepth 1 -name 'verbsd-??????'
}
unset VERBSD_SOCKET VERBSD_ADMIN_SOCKET
status 0 "private: a daemon" ctl run --private -- "$verbsctl" status --json
holds "private: has a socket of its own" jq -e --arg in "$TMPDIR/verbsd-" '.status[0].socket | startswith($in)' "$out"
status 7 "private: the program's status" ctl run --private -- sh -c 'exit 7'
status 143 "private: 128 and the signal" ctl run --private -- sh -c 'kill -TERM $$'
PATH=/usr/bin:/bin status 127 "private: not found" ctl run --private -- no-such-program
VERBSD_DAEMON=/bin/false status 1 "private: a daemon that does not start" ctl run --private -- true
VERBSD_DAEMON=$work/none status 1 "private: no daemon" ctl run --private -- true
printf '[limits]\nfrobs = 7\n' >"$conf"
status 1 "private: a configuration that is refused" ctl run --private --config "$conf" -- true
# The program ends at once; what it left behind asks the daemon after that, when told to.
mkfifo "$work/out/go" "$work/out/said"
"$verbsctl" run --private -- sh -c '(read -r line <"$1"; "$0" status >/dev/null; echo $? >"$2") & exit 5' \
	"$verbsctl" "$work/out/go" "$work/out/said" &
runner=$!
pids+=("$runner")
echo go >"$work/out/go"
read -rt 20 said <"$work/out/said"
holds "private: the daemon stays for the program's children" [ "$said" = 0 ]
wait "$runner"
holds "private: the status is the program's" [ $? = 5 ]
# A shell that waits in no system call: the signal finds it wherever it is.
"$verbsctl" run --private -- sh -c 'trap "exit 9" USR1; echo ready >"$0"; while :; do :; done' "$work/out/said" &
runner=$!
pids+=("$runner")
read -rt 20 said <"$work/out/said"
kill -USR1 $runner
wait "$runner"
holds "private: signals are passed on" [ $? = 9 ]
tap_empty "private: nothing is left" "$(left)"
port_next
holds "private: a program that talks to itself" ctl run --private -- sh -c \
	"ibv_rc_pingpong -g 0 -n 100 -p $port & until ibv_rc_pingpong -g 0 -n 100 -p $port localhost; do :; done; wait \$!"

# --- completion, and the manual

# completes WORD LINE...: passes if completing the last word of the line offers that word.
completes()
{
	bash -c '
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
	holds "completion: commands" completes status verbsctl st
	holds "completion: after an option with a value" completes status verbsctl --socket x st
	holds "completion: options of the command" completes --private verbsctl run --p
	holds "completion: forms" completes soname verbsctl run --form s
	holds "completion: the program behind them" completes ibv_devices verbsctl run --form soname --paths none -- ibv_dev
	holds "completion: kinds" completes srq verbsctl list s
	holds "completion: the program to run" completes ibv_devices verbsctl run -- ibv_dev
else
	tap_skip "completion" "bash-completion is not installed"
fi

while IFS= read -r example; do
	PATH=$root/bin:$root/sbin:$PATH status 0 "manual: $example" timeout -k 5 60 bash -c "$example"
done < <(sed -nE 's/^\.Dl \$ //p' "$VERBSD_SRCDIR/doc/verbsctl.1" | sed -e "s/\\\\(aq/'/g" -e 's/\\(dq/"/g')
tap_done
