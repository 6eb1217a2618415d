# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The tiers of ./check: each builds what it needs, runs its tests and files their results. A tier whose build fails has
# failed, and the next one runs all the same.

# tier_args NAME: sets `args`, with which build/NAME is configured, and `test_cflags`, with which its tests are compiled: a
# variable that a test has not set must not be zero by chance.
tier_args()
{
	test_cflags='-g -O2 -ftrivial-auto-var-init=pattern'
	case $1 in asan | fuzz | tsan) test_cflags=${test_cflags/-O2/-O1} ;; esac
	case $1 in
	# Everything that is not a sanitizer's: lint, unit, e2e, vm and valgrind.
	gcc) args=("${build_root_args[@]}" --enable-werror CC=gcc) ;;
	# The other compiler. Its data path has mutexes that can be counted (elision.sh).
	clang) args=(--enable-werror --enable-posix-mutexes CC=clang) ;;
	asan) args=(--prefix="$top/build/asan/root" --enable-werror --enable-sanitizers=address,undefined CC=gcc CFLAGS='-g -O1') ;;
	fuzz) args=(--enable-fuzzing --enable-sanitizers=address,undefined CC=clang CFLAGS='-g -O1') ;;
	tsan) args=(--prefix="$top/build/tsan/root" --enable-werror --enable-sanitizers=thread CC=clang CFLAGS='-g -O1') ;;
	esac
}

# tier_configure TIER...: configures what these tiers build, as many at a time as there are processors, since a configure
# uses but one. What fails here is tried again, and told, by the tier that wants it.
tier_configure()
{
	local tier name args test_cflags
	declare -A wanted=()
	for tier; do
		case $tier in
		lint | e2e) wanted[gcc]=1 wanted[clang]=1 ;;
		asan) wanted[asan]=1 wanted[fuzz]=1 ;;
		tsan) wanted[tsan]=1 ;;
		*) wanted[gcc]=1 ;;
		esac
	done
	for name in "${!wanted[@]}"; do
		while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
		tier_args "$name"
		build_configure "$name" "${args[@]}" >"$top/build/$name.log" 2>&1 </dev/null &
	done
	wait
}

# tier_not_built TIER WHAT LOG: files that failure, and shows what of the log matters. Status 1.
tier_not_built()
{
	grep -E 'error|warning|undefined' "$3" | head -n 40 || true
	tail -n 20 "$3"
	result FAIL "$1" "$2" "see ${3#"$top/"}"
	return 1
}

# tier_build TIER NAME: build/NAME with its test programs; the compiler's output only if it fails.
tier_build()
{
	local tier=$1 name=$2 log=$top/build/$2.log args test_cflags
	tier_args "$name"
	mkdir -p "$top/build"
	if build_configure "$name" "${args[@]}" >"$log" 2>&1 && build_make "$name" all >>"$log" 2>&1 &&
		build_make "$name" check-programs CFLAGS="$test_cflags" >>"$log" 2>&1; then
		result PASS "$tier" "build $name"
	else
		tier_not_built "$tier" "build $name" "$log"
	fi
}

# tier_bench TIER NAME: the programs of the benchmark, as make bench builds them.
tier_bench()
{
	local log=$top/build/bench-$2.log
	if build_make "$2" bench-programs >"$log" 2>&1; then
		result PASS "$1" "build the benchmark, $2"
	else
		tier_not_built "$1" "build the benchmark, $2" "$log"
	fi
}

# tier_install TIER NAME: build/NAME installed into its own root: build/root for gcc, build/NAME/root for others.
tier_install()
{
	local log=$top/build/install-$2.log
	if [ "$2" = gcc ]; then
		build_install >"$log" 2>&1
	else
		build_make "$2" install >"$log" 2>&1
	fi && return
	tail -n 20 "$log"
	result FAIL "$1" "install $2"
	return 1
}

# tier_list NAME LIST: a list of tests, as the Makefile of that build has it.
tier_list()
{
	make -s --no-print-directory -C "$top/build/$1" print-tests | sed -n "s/^$2 //p"
}

# tier_make_check TIER NAME LIST...: make check on those lists of the build's Makefile.
tier_make_check()
{
	local tier=$1 name=$2 tests=()
	shift 2
	mapfile -t tests < <(for list; do tier_list "$name" "$list"; done)
	[ ${#tests[@]} -gt 0 ] || return 0
	(cd "$top/build/$name" && for test in "${tests[@]}"; do rm -f "${test%.*}.trs" "${test%.*}.log"; done)
	build_make "$name" check TESTS="${tests[*]}" >"$top/build/check-$name.log" 2>&1
	results_make_check "$tier" "$top/build/$name" "${tests[@]}"
}

# tier_scripts TIER NAME ROOT LIST: the scripts of that list against the installed tree.
tier_scripts()
{
	local tests=()
	mapfile -t tests < <(tier_list "$2" "$4")
	[ ${#tests[@]} -gt 0 ] || return 0
	VERBSD_BUILD=$top/build/$2 VERBSD_ROOT=$3 "$top/tests/lib/run-tap" -t "$1" -b "$(tier_list "$2" BESIDE_TESTS | xargs)" "${tests[@]}"
}

# tier_tool TIER NAME COMMAND...: one tool is one test.
tier_tool()
{
	local tier=$1 name=$2 out
	shift 2
	if out=$("$@" 2>&1); then
		result PASS "$tier" "$name"
	else
		tail -n 60 <<<"$out"
		result FAIL "$tier" "$name"
	fi
}

tier_lint()
{
	tier_tool lint shellcheck "$top/tests/lint/shellcheck"
	tier_tool lint man-pages "$top/tests/lint/man-pages"
	tier_build lint gcc || return
	tier_build lint clang
	tier_make_check lint gcc LINT_TESTS
	tier_tool lint cppcheck "$top/tests/lint/cppcheck" "$top/build/gcc"
	tier_tool lint clang-tidy "$top/tests/lint/clang-tidy" "$top/build/clang"
}

tier_unit()
{
	tier_build unit gcc || return
	tier_bench unit gcc
	tier_make_check unit gcc UNIT_TESTS FUZZ_TARGETS
	[ $VERBSD_LENGTH = ci ] || export LONG=1 # the larger models
	tier_scripts unit gcc "$top/build/root" MODEL_TESTS
	unset LONG
	# That what is packed is all that a build and its tests need. By another optimisation, so that the same tests in another
	# place find other things; the sanitizers have a tier of their own.
	if build_make gcc distcheck DISTCHECK_CONFIGURE_FLAGS='CFLAGS=-O1 --disable-lto' \
		>"$top/build/distcheck.log" 2>&1; then
		result PASS unit distcheck
	else
		grep -E '^(FAIL|ERROR|XPASS)|error:|\*\*\*|^ERROR' "$top/build/distcheck.log" | head -n 40
		tail -n 5 "$top/build/distcheck.log"
		result FAIL unit distcheck "see build/distcheck.log"
	fi
}

tier_e2e()
{
	tier_build e2e gcc && tier_install e2e gcc || return
	tier_bench e2e gcc
	tier_build e2e clang && export VERBSD_POSIX_MUTEXES=$top/build/clang/.libs/libverbsd.so
	tier_scripts e2e gcc "$top/build/root" E2E_TESTS
}

# The sanitizer's library has to come first in whatever the tests preload: they take it from VERBSD_PRELOAD_FIRST.
tier_asan()
{
	export ASAN_OPTIONS=detect_leaks=1:abort_on_error=1:detect_stack_use_after_return=1
	export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
	if tier_build asan asan; then
		tier_make_check asan asan UNIT_TESTS FUZZ_TARGETS
		tier_install asan asan &&
			VERBSD_SANITIZER=asan VERBSD_PRELOAD_FIRST=$(gcc -print-file-name=libasan.so) \
				tier_scripts asan asan "$top/build/asan/root" E2E_ASAN_TESTS
	fi
	tier_fuzz
	unset ASAN_OPTIONS UBSAN_OPTIONS
}

# libFuzzer on each target, new inputs into the build tree; as many at a time as there are processors.
tier_fuzz()
{
	local target name log targets args test_cflags
	tier_args fuzz
	build_configure fuzz "${args[@]}" >"$top/build/fuzz.log" 2>&1
	mapfile -t targets < <(tier_list fuzz FUZZ_TARGETS)
	[ ${#targets[@]} -gt 0 ] || return 0
	if ! build_make fuzz fuzz-programs >>"$top/build/fuzz.log" 2>&1; then
		tail -n 20 "$top/build/fuzz.log"
		result FAIL asan "build fuzz" "see build/fuzz.log"
		return 1
	fi
	printf '%s\n' "${targets[@]##*/fuzz-}" | xargs -P "$jobs" -I NAME \
		"$top/tests/fuzz/run" "$top/build/fuzz" "$fuzz_seconds" NAME
	for target in "${targets[@]}"; do
		name=${target##*/fuzz-}
		log=$top/build/fuzz/fuzz-found/$name.log
		if [ "$(cat "$top/build/fuzz/fuzz-found/$name.status" 2>/dev/null)" = 0 ]; then
			result PASS asan "fuzz $name for $fuzz_seconds s"
		else
			tail -n 30 "$log"
			result FAIL asan "fuzz $name" "see build/fuzz/fuzz-found"
		fi
	done
}

tier_tsan()
{
	local run=()
	# ThreadSanitizer's shadow does not fit every layout that the kernel may choose at random.
	setarch "$(uname -m)" -R true 2>/dev/null && run=(setarch "$(uname -m)" -R)
	# A process with a thread of the library's sleeps for a second before it ends, for races of what goes on meanwhile: nearly
	# all of these tests are such processes, and many start dozens. A part of that second is as good.
	export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:atexit_sleep_ms=50
	if tier_build tsan tsan; then
		make() { "${run[@]}" make "$@"; }
		tier_make_check tsan tsan UNIT_TESTS
		unset -f make
		tier_install tsan tsan &&
			VERBSD_SANITIZER=tsan tier_scripts tsan tsan "$top/build/tsan/root" E2E_TSAN_TESTS
	fi
	unset TSAN_OPTIONS
}

tier_vm()
{
	tier_build vm gcc && tier_install vm gcc || return
	tier_scripts vm gcc "$top/build/root" VM_TESTS
}

tier_valgrind()
{
	local test
	tier_build valgrind gcc || return
	for test in $(tier_list gcc UNIT_TESTS); do
		tier_tool valgrind "$test" make -s --no-print-directory -C "$top/build/gcc" check-valgrind UNIT_TESTS="$test"
	done
}
