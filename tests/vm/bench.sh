#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The same perftest lines on the kernel's rxe, as root without verbsd and as an unprivileged user through it, and on the soft
# device. The first two are run in pairs, whose order alternates, so that what the machine does meanwhile hits both: what counts
# is the median of the pairs' ratios, which is printed with the bounds between which it is with a probability of 95 %. And how
# long the kernel has what a program left that was killed. Runs in the VM, by `make bench-vm`, and at full length by tests/vm/run.
#
# The numbers of an emulated processor say nothing of a real one; their ratio does. A ratio far from 1 is an error, one near it a
# line: how near depends on what else the machine does.
# shellcheck source=tests/vm/lib.bash
. "$(dirname "$0")/lib.bash"
# shellcheck source=tests/vm/install.bash
. "$(dirname "$0")/install.bash"

here=$(dirname "$0")
preload=/usr/lib/libverbsd.so
port=22000
rounds=${VERBSD_BENCH_ROUNDS:-${full:+11}}
rounds=${rounds:-3}

# program, size, iterations, what its column is in
# VERBSD_BENCH_LINES: those of some programs only.
lines=(
	"ib_write_bw 65536 200 MB/s"
	"ib_read_bw 65536 200 MB/s"
	"ib_send_bw 65536 200 MB/s"
	"ib_write_lat 8 300 us"
	"ib_send_lat 8 300 us"
	"ib_read_lat 8 300 us"
)

as_root()
{
	env -u LD_PRELOAD "$@"
}

# once WHO DEVICE PROGRAM SIZE ITERATIONS: one number, or nothing.
once()
{
	local who=$1 device=$2 program=$3 size=$4 n=$5 column=5 pid
	local -a options=(-d "$device" -F -s "$size" -n "$n")
	[ "$device" = soft0 ] || options+=(-x 1)
	[[ $program != *_bw ]] || column=4
	port=$((port + 1))
	"$who" timeout 120 "$program" "${options[@]}" -p $port >"$work/server" 2>&1 &
	pid=$!
	until_true 60 listens $port
	"$who" timeout 120 "$program" "${options[@]}" -p $port 127.0.0.1 >"$work/client" 2>&1 || pkill -P $pid
	wait $pid
	# Where no time is seen to pass perftest says inf.
	awk -v s="$size" -v c=$column '$1 == s && $c ~ /^[0-9.]+$/ { print $c }' "$work/client"
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

# tell NAME BYTES UNIT SOFT MOST: the row of the last pairs, and whether neither is more than MOST times the other.
tell()
{
	local native brokered ratio from to
	read -r native brokered ratio from to < <(python3 "$here/paired.py" "$work/native" "$work/brokered")
	printf '# %-14s %8s %6s  %12s %12s %8s %16s %12s\n' "$1" "$2" "$3" "${native:--}" "${brokered:--}" "${ratio:--}" \
		"${from:--} - ${to:--}" "$4"
	if awk -v r="${ratio:-0}" -v m="$5" 'BEGIN { exit !(r + 0 >= 1 / m && r + 0 <= m) }'; then
		tap_ok "$1: through verbsd as natively (ratio $ratio, $from to $to)"
	else
		tap_not_ok "$1: through verbsd as natively" "ratio $ratio" "$(tail -n 5 "$work/client")"
	fi
}

bench_line()
{
	local program=$1 size=$2 unit=$4 soft
	pairs "once as_root rxe0 $1 $2 $3" "once as_nobody rxe0 $1 $2 $3"
	once as_nobody soft0 "$1" "$2" "$3" >"$work/one"
	soft=$(<"$work/one")
	tell "$program" "$size" "$unit" "${soft:--}" 2
	if [ -n "$soft" ]; then tap_ok "$program: on the soft device"; else tap_not_ok "$program: on the soft device"; fi
}

modprobe -a ib_uverbs rdma_ucm rdma_rxe
install_guest "$VERBSD_ROOT"
rxe_make 0 || tap_skip_all "no rxe device on this kernel"
mkdir -p /etc/verbsd/conf.d
printf '%s\n' '[grant test]' 'users = 65534' 'memlock = 64M' >/etc/verbsd/conf.d/test.conf
tap_run "start" systemctl start verbsd.service
echo "# medians of $rounds pairs each; soft0: one run"
printf '# %-14s %8s %6s  %12s %12s %8s %16s %12s\n' what bytes unit "rxe, root" "rxe, verbsd" ratio "95 %" soft0
for line in "${lines[@]}"; do
	[[ " ${VERBSD_BENCH_LINES:-$line} " == *" ${line%% *} "* ]] || continue
	# shellcheck disable=SC2086 # fields
	bench_line $line
done
# The daemon notices, looks whether the program is dead, and destroys what it left, for a child of its may have it as well.
if [[ " ${VERBSD_BENCH_LINES:-death} " == *" death "* ]]; then
	cp "$VERBSD_BUILD/tests/vm/keeper" /usr/lib/verbsd-keeper
	pairs "death native" "death brokered"
	tell death "" ms "" 100
fi
tap_done
