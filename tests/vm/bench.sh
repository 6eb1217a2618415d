#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The same perftest lines on the kernel's rxe, as root without verbsd and as an unprivileged user through it, and on the soft
# device. The first two are run in pairs, whose order alternates: what counts is the median of the pairs' ratios, which is printed
# with the bounds between which it is with a probability of 95 %. And how long the kernel has what a program left that was killed.
# Runs in the VM, by `make bench-vm`, and at full length by tests/vm/run.
#
# The guest's clock counts instructions (run-in-vm --icount), so what a line takes is the number of those it needs, in the
# programs, in the library and in the kernel, whatever else the host does: two runs of a line differ by two percent at most, and a
# ratio that is not within 0.95 and 1.05 is an error. The numbers say nothing of a real processor, where an instruction may take
# any time.
#
# The guest has one processor. A program that polls keeps it for the rest of its turn while the other has what it waits for, so
# with two that poll for each other (ib_write_lat; ib_send_lat without -e) only the scheduler's turns would be measured. Where both
# have something to do they wait for events here; in ib_write_bw, ib_read_bw, ib_read_lat and ib_atomic_lat only the client has,
# and polls.
# shellcheck source=tests/vm/lib.bash
. "$(dirname "$0")/lib.bash"
# shellcheck source=tests/vm/install.bash
. "$(dirname "$0")/install.bash"

here=$(dirname "$0")
preload=/usr/lib/libverbsd.so
port=22000
rounds=${VERBSD_BENCH_ROUNDS:-5}

# VERBSD_BENCH_LINES: those of some programs only.
# program, size, iterations, unit, options
lines=(
	"ib_write_bw 65536 100 MB/s"
	"ib_read_bw 65536 100 MB/s"
	"ib_send_bw 65536 100 MB/s -e"
	"ib_write_bw 8 3000 M/s"
	"ib_send_lat 8 300 us -e"
	"ib_read_lat 8 300 us"
	"ib_atomic_lat 8 300 us"
)

as_root()
{
	env -u LD_PRELOAD "$@"
}

# once WHO DEVICE PROGRAM SIZE ITERATIONS UNIT OPTION...: one number, or nothing.
once()
{
	local who=$1 device=$2 program=$3 size=$4 n=$5 column pid
	local -a options=(-d "$device" -F -n "$n" "${@:7}")
	[ "$device" = soft0 ] || options+=(-x 1)
	[ "$program" = ib_atomic_lat ] || options+=(-s "$size")
	# The averages: a median would jump where messages are of two kinds, those that come before and after the other waits.
	case $6 in MB/s) column=4 ;; M/s) column=5 ;; us) column=6 ;; esac
	port=$((port + 1))
	"$who" timeout 120 "$program" "${options[@]}" -p $port >"$work/server" 2>&1 &
	pid=$!
	until_true 60 listens $port
	"$who" timeout 120 "$program" "${options[@]}" -p $port 127.0.0.1 >"$work/client" 2>&1 || pkill -P $pid
	wait $pid
	# Where no time is seen to pass perftest says inf, or nothing at all but 0.
	awk -v s="$size" -v c=$column '$1 == s && $c ~ /^[0-9.]+$/ && $c > 0 { print $c }' "$work/client"
}

# death WHO: milliseconds until the devices have what they had before a program of theirs was killed.
death()
{
	local -a who=()
	[ "$1" = native ] || who=("${to_nobody[@]}" env LD_PRELOAD="$preload")
	python3 "$here/death.py" "${who[@]}" /usr/lib/verbsd-keeper rxe0 2>"$work/client"
}

# pairs NATIVE BROKERED: two commands that print a number each; the files native and brokered, of those pairs that are whole.
pairs()
{
	local i one other
	rm -f "$work"/{native,brokered}
	for ((i = 0; i < rounds; i++)); do
		if ((i % 2)); then
			$2 >"$work/other"
			$1 >"$work/one"
		else
			$1 >"$work/one"
			$2 >"$work/other"
		fi
		one=$(<"$work/one")
		other=$(<"$work/other")
		[ -n "$one" ] && [ -n "$other" ] || continue
		echo "$one" >>"$work/native"
		echo "$other" >>"$work/brokered"
	done
}

# tell NAME BYTES UNIT SOFT: the row of the last pairs, of which there are as many as were run, and what paired.py says of them
# in $native, $brokered, $ratio, $from and $to.
tell()
{
	read -r native brokered ratio from to < <(python3 "$here/paired.py" "$work/native" "$work/brokered")
	printf '# %-14s %8s %6s  %12s %12s %8s %16s %12s %6s\n' "$1" "$2" "$3" "${native:--}" "${brokered:--}" "${ratio:--}" \
		"${from:--} - ${to:--}" "$4" "$(wc -l <"$work/native")"
	[ "$(wc -l <"$work/native")" = "$rounds" ] || tap_not_ok "$1, $2 bytes: $rounds pairs" "$(tail -n 5 "$work"/{client,server})"
}

bench_line()
{
	local program=$1 size=$2 soft native brokered ratio from to
	pairs "once as_root rxe0 $*" "once as_nobody rxe0 $*"
	once as_nobody soft0 "$@" >"$work/one"
	soft=$(<"$work/one")
	tell "$program" "$size" "$4" "${soft:--}"
	if awk -v from="${from:-0}" -v to="${to:-0}" 'BEGIN { exit !(from + 0 >= 0.95 && to + 0 <= 1.05) }'; then
		tap_ok "$program, $size bytes: through verbsd as natively (ratio $ratio, $from to $to)"
	else
		tap_not_ok "$program, $size bytes: through verbsd as natively" "ratio $ratio, $from to $to"
	fi
	if [ -n "$soft" ]; then
		tap_ok "$program, $size bytes: on the soft device"
	else
		tap_not_ok "$program, $size bytes: on the soft device" "$(tail -n 5 "$work"/{client,server})"
	fi
}

# The daemon notices, looks whether the program is dead, and destroys what it left, for a child of its may have it as well.
bench_death()
{
	local native brokered ratio from to longest
	cp "$VERBSD_BUILD/tests/vm/keeper" /usr/lib/verbsd-keeper
	pairs "death native" "death brokered"
	tell death "" ms ""
	longest=$(sort -n "$work/brokered" | tail -n 1)
	if awk -v ms="${longest:-inf}" 'BEGIN { exit !(ms + 0 < 1000) }'; then
		tap_ok "death: the device has what it had before within a second (at most $longest ms)"
	else
		tap_not_ok "death: the device has what it had before within a second" "at most ${longest:-?} ms" "$(tail -n 5 "$work/client")"
	fi
}

modprobe -a ib_uverbs rdma_ucm rdma_rxe
install_guest "$VERBSD_ROOT"
rxe_make 0 || tap_skip_all "no rxe device on this kernel"
mkdir -p /etc/verbsd/conf.d
printf '%s\n' '[grant test]' 'users = 65534' 'memlock = 64M' >/etc/verbsd/conf.d/test.conf
tap_run "start" systemctl start verbsd.service
echo "# medians of $rounds pairs; soft0: one run"
printf '# %-14s %8s %6s  %12s %12s %8s %16s %12s %6s\n' what bytes unit "rxe, root" "rxe, verbsd" ratio "95 %" soft0 pairs
for line in "${lines[@]}"; do
	[[ " ${VERBSD_BENCH_LINES:-$line} " == *" ${line%% *} "* ]] || continue
	# shellcheck disable=SC2086 # fields
	bench_line $line
done
[[ " ${VERBSD_BENCH_LINES:-death} " != *" death "* ]] || bench_death
tap_done
