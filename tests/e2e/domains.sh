#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Programs that know nothing of thread domains, under them (tests/lib/domains.c): pingpongs, perftest, processes that are
# killed. Then where membarrier is forbidden, as in some containers.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need ibv_rc_pingpong ib_write_bw jq
shim=$VERBSD_BUILD/tests/lib/.libs/domains.so
[ -e "$shim" ] || { echo "Bail out! no $shim"; exit 1; }
# The unprivileged user may not be able to reach the build tree.
cp "$shim" "$work/out/"
chmod 755 "$work/out/domains.so"
export VERBSD_PRELOAD_FIRST=${VERBSD_PRELOAD_FIRST:+$VERBSD_PRELOAD_FIRST:}$work/out/domains.so
export VERBSD_DOMAINS_LOG=$work/out/domains.log
daemon_start

# domains_used NAME PROGRAMS: so many said that all they had was under a domain; the log is emptied.
domains_used()
{
	local n
	n=$(grep -cE '^domains [1-9][0-9]* cqs [1-9][0-9]* refused 0$' "$VERBSD_DOMAINS_LOG")
	if [ "$n" -ge "$2" ] && ! grep -qvE 'cqs [1-9][0-9]* refused 0$' "$VERBSD_DOMAINS_LOG"; then
		tap_ok "$1: all of it was under thread domains"
	else
		tap_not_ok "$1: all of it was under thread domains" "$n of $2" "$(sort "$VERBSD_DOMAINS_LOG" | uniq -c)"
	fi
	log_new
}

log_new()
{
	: >"$VERBSD_DOMAINS_LOG"
	chmod 666 "$VERBSD_DOMAINS_LOG"
}
log_new

if [ -n "$full" ]; then n=20000 sizes="1 264 265 4096 65536 8388608"; else n=300 sizes="1 265 65536"; fi

# ping KIND SIZE [OPTION...]
ping()
{
	local program=ibv_$1_pingpong size=$2
	shift 2
	pair "$program $size bytes $* $how" "$program -p %P -s $size -n $n $*" "$program -p %P -s $size -n $n $* 127.0.0.1"
	programs=$((programs + 2))
}

# perf PROGRAM [OPTION...]: -F quietens a warning about changing clocks
perf()
{
	pair "$* $how" "$* -F -n $n -p %P" "$* -F -n $n -p %P 127.0.0.1"
	programs=$((programs + 2))
}

all_programs()
{
	how=$1
	programs=0
	for size in $sizes; do
		ping rc "$size" -c
		ping rc "$size" -e
		ping uc "$size"
		ping srq "$size" -c
	done
	ping rc 4096 -N -c -e
	ping ud 1024
	for op in send write read atomic; do
		perf ib_${op}_bw
		perf ib_${op}_lat
		perf ib_${op}_bw -q 16 -b
	done
	perf ib_send_bw -e
	perf ib_send_bw -c UD
	perf ib_send_bw -r 1
	domains_used "$1" $programs
}

all_programs "under domains"
export VERBSD_DOMAINS_FENCES=1
[ -n "$full" ] || sizes=265
all_programs "without membarrier"
tap_run "the daemon has no object left" until_true 20 daemon_empty
daemon_stop

# Another script, with the same preload; who is killed says nothing at its end.
chaos()
{
	local line out="$work/out/chaos" status
	VERBSD_ROUNDS=$1 "${BASH_SOURCE[0]%/*}/chaos.py" >"$out" 2>&1
	status=$?
	while IFS= read -r line; do
		case $line in
		"ok "*) tap_ok "$how: ${line#* - }" ;;
		"not ok "*) tap_not_ok "$how: ${line#* - }" "$(grep '^#' "$out" | tail -n 10)" ;;
		esac
	done <"$out"
	tap_run "$how: the script ends well" eval "[ $status = 0 ] && grep -q '^1[.][.]' '$out'"
	domains_used "$how" 1
}
how="killed without membarrier"
chaos 10
unset VERBSD_DOMAINS_FENCES
how="killed under domains"
chaos 20
tap_done
