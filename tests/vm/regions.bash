# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# For native.sh: shared regions on its devices.

region_size=$((64 << 20))

# regions ARG...: the program, as nobody.
regions()
{
	as_nobody timeout 300 /usr/lib/verbsd-regions "$@"
}

count_of()
{
	rdma resource show "$1" | grep -c .
}

# has_mrs N: the devices have so many memory regions.
has_mrs()
{
	[ "$(count_of mr)" = "$1" ]
}

# pinned KIB: what the daemon has locked for clients.
pinned()
{
	[ "$(status_of "$(main_pid)" VmPin)" = "$1 kB" ]
}

both_talked()
{
	[ "$(cat "$work/region-left" "$work/region-right" 2>/dev/null | xargs)" = "talked talked" ]
}

# Two clients that may lock 64 KiB, and a region of 64 MiB.
test_regions_talk()
{
	local left right kib=$((region_size >> 10)) start hold
	mkdir -m 777 "$work/regions"
	mkfifo "$work/region-stop"
	# Their standard input ends when this does.
	exec {hold}<>"$work/region-stop"
	regions rxe0 talk $region_size listen "$work/regions/s" <"$work/region-stop" >"$work/region-left" 2>"$work/region-left.err" {hold}>&- &
	left=$!
	until_true 60 test -S "$work/regions/s"
	regions rxe0 talk $region_size connect "$work/regions/s" <"$work/region-stop" >"$work/region-right" 2>"$work/region-right.err" {hold}>&- &
	right=$!
	if ! until_true 200 both_talked; then
		tap_not_ok "shared region: 64 MiB, written both ways" "$(cat "$work/region-left.err" "$work/region-right.err")"
	else
		tap_ok "shared region: 64 MiB, written both ways"
	fi
	tap_run "shared region: the daemon has it locked for each of them" pinned $((2 * kib))
	tap_is "shared region: they have nothing locked" "0 kB 0 kB" \
		"$(for pid in $(pgrep -x verbsd-regions); do status_of "$pid" VmPin; done | xargs)"
	start=$EPOCHREALTIME
	pkill -KILL -n -x verbsd-regions
	tap_run "shared region: kill -9 of one: its registration goes" until_true 30 has_mrs 1
	echo "# it went $(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }') s after the kill"
	tap_run "shared region: kill -9 of one: so does what was locked" until_true 30 pinned $kib
	exec {hold}>&-
	wait $left
	tap_is "shared region: kill -9 of one: the other ends well" 0 $?
	wait $right
	tap_run "shared region: the device has what it had before" until_true 30 is_clean
	tap_run "shared region: nothing is locked" until_true 30 pinned 0
}

test_regions_rules()
{
	tap_run "shared region: what is refused, and what stands in what's way" regions rxe0 rules $((16 << 20))
	tap_run "shared region: nothing is left" until_true 30 is_clean
}

orphaned()
{
	until_true 60 grep -q orphaned "$work/orphan" || { cat "$work/orphan.err"; return 1; }
}

# A child that has the device's file as well keeps nothing alive that the daemon registered.
test_regions_orphan()
{
	local hold pid contexts
	contexts=$(count_of ctx)
	exec {hold}<>"$work/region-stop"
	regions rxe0 orphan $((16 << 20)) <"$work/region-stop" >"$work/orphan" 2>"$work/orphan.err" {hold}>&- &
	pid=$!
	tap_run "shared region: its process dies, a child keeps the file" orphaned
	wait $pid
	tap_run "shared region: it is deregistered all the same" until_true 30 has_mrs 0
	tap_is "shared region: while the file is open" $((contexts + 1)) "$(count_of ctx)"
	exec {hold}>&-
	tap_run "shared region: and then the file goes" until_true 30 is_clean
}

# again N: the one that repeats has done it so often.
again()
{
	[ "$(grep -c again "$work/repeat")" -ge "$1" ]
}

# A GiB is being pinned (the kernel counts it first, and has a memory region of it last), and another client opens, registers and
# lets go meanwhile: the end of all that comes before the end of the other.
test_regions_busy()
{
	local hold pid big=$((1 << 30)) n=0 mrs passed=
	exec {hold}<>"$work/region-stop"
	regions rxe0 repeat $((1 << 20)) <"$work/region-stop" >"$work/repeat" 2>"$work/repeat.err" {hold}>&- &
	pid=$!
	until_true 60 grep -q waits "$work/repeat"
	# It may have been done with the large one before it had a turn: then that says nothing.
	while [ $n -lt 5 ] && [ -z "$passed" ]; do
		regions rxe0 once $big {hold}>&- 2>"$work/busy.err" &
		if ! until_true 120 pinned $((big >> 10)); then
			tap_not_ok "shared region: 1 GiB is registered" "$(cat "$work/busy.err")"
			break
		fi
		n=$((n + 1))
		echo -n x >&"$hold"
		until_true 120 again $n || break
		mrs=$(count_of mr)
		[ "$mrs" != 0 ] || passed=1
		wait $!
	done
	tap_is "shared region: while 1 GiB is registered others open and register" 1 "$passed"
	exec {hold}>&-
	wait $pid
	tap_is "shared region: and they end well" 0 $?
	tap_run "shared region: nothing of either is left" until_true 30 is_clean
}

# Kernels of before 6.2 pin nothing that cannot be written; the daemon has it mapped from before the seal.
test_regions_seal()
{
	tap_run "shared region: a sealed one is registered as well" regions rxe0 seal $((16 << 20))
	tap_run "shared region: and nothing of it is left" until_true 30 is_clean
}

# The part of siw's driver that is in the program has a say in registrations.
test_regions_siw()
{
	if ! siw_load || ! siw_make; then
		tap_skip "shared region: a driver that registers itself" "no siw device on this kernel"
		return
	fi
	until_true 30 has_devices "rxe0 rxe1 siw0"
	chmod 600 /dev/infiniband/uverbs*
	tap_fails "shared region: siw: on the program's own limit" regions siw0 once $((16 << 20))
	tap_run "shared region: siw: the log says why" \
		says_of "provider siw has a part of its own in registrations; its memory lock limit is smaller" \
		regions siw0 once $((16 << 20))
	policy '[grant test]' 'users = 65534' 'memlock = 32M'
	tap_run "shared region: siw: which policy may raise" regions siw0 once $((16 << 20))
	policy '[grant test]' 'users = 65534'
	test_siw
	rdma link delete siw0
	ip link delete dummy9
	until_true 30 has_devices "rxe0 rxe1"
}

# Debian's kernels have no siw; VERBSD_VM_SIW names one that was built for this kernel (tests/vm/siw-build).
siw_load()
{
	modprobe siw 2>/dev/null || { [ -f "${VERBSD_VM_SIW-}" ] && modprobe -a ib_uverbs libcrc32c iw_cm && insmod "$VERBSD_VM_SIW"; }
}

# On an interface of its own, by whose address rdma_cm chooses it.
siw_make()
{
	ip link add dummy9 address 02:00:0a:63:09:01 type dummy && ip addr add 10.99.9.1/24 dev dummy9 && ip link set dummy9 up &&
		rdma link add siw0 type siw netdev dummy9
}

# iWARP connects through rdma_cm alone.
test_siw()
{
	local program
	tap_run "siw: ibv_devinfo" as_nobody ibv_devinfo -d siw0
	pair "siw: rping" rping -s -a 10.99.9.1 -p @PORT@ -C 5 -- rping -c -a 10.99.9.1 -p @PORT@ -C 5
	pair "siw: ucmatose" ucmatose -b 10.99.9.1 -p @PORT@ -- ucmatose -s 10.99.9.1 -p @PORT@
	for program in ib_write_bw ib_read_bw ib_send_bw; do
		pair "siw: $program -R" $program -R -d siw0 -F -n $rounds -s 4096 -p @PORT@ -- \
			$program -R -d siw0 -F -n $rounds -s 4096 -p @PORT@ 10.99.9.1
	done
}

test_regions_hostile()
{
	tap_is "shared region: hostile: a PD that is none" EINVAL "$(hostile region_pd)"
	tap_is "shared region: hostile: pages that are not there" "EFAULT EFAULT" "$(hostile region_empty)"
	tap_is "shared region: hostile: another's device, another's region" "EINVAL EINVAL" "$(hostile region_foreign)"
	tap_run "shared region: hostile: nothing is left" until_true 30 is_clean
}

test_regions()
{
	if [ ! -x "$VERBSD_BUILD/tests/vm/regions" ]; then
		tap_skip "shared regions" "no tests/vm/regions in VERBSD_BUILD: make check-programs builds it"
		return
	fi
	cp "$VERBSD_BUILD/tests/vm/regions" /usr/lib/verbsd-regions
	test_regions_talk
	test_regions_rules
	test_regions_orphan
	test_regions_seal
	test_regions_busy
	test_regions_hostile
	test_regions_siw
	rm -f /usr/lib/verbsd-regions
}
