# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Results of tests, one a line in the file $RESULTS: "PASS|FAIL|SKIP <tab> tier <tab> test <tab> reason". Whatever ran
# the test (Automake's .trs files, a TAP script, a tool), it ends here, and everything is counted from here.

# result PASS|FAIL|SKIP TIER NAME [REASON]
result()
{
	printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4-}" >>"$RESULTS"
	case $1 in
	FAIL) echo "FAIL: $3${4:+ ($4)}" ;;
	SKIP) echo "SKIP: $3${4:+ ($4)}" ;;
	esac
}

# results_count [TIER]: the line of counts.
results_count()
{
	awk -F '\t' -v tier="${1-}" '
		tier == "" || $2 == tier { n[$1]++ }
		END { printf "%d passed, %d failed, %d skipped\n", n["PASS"], n["FAIL"], n["SKIP"] }' "$RESULTS"
}

results_has_failed()
{
	grep -q '^FAIL' "$RESULTS"
}

# results_failed: as above, or nothing ran at all.
results_failed()
{
	results_has_failed || [ ! -s "$RESULTS" ]
}

# results_make_check TIER BUILD-FOLDER TEST...: of each test that make check ran. The names are in its .log, where the
# driver repeats every TAP line as "PASS: TEST NAME"; their number is in its .trs, and the two have to agree.
results_make_check()
{
	local tier=$1 dir=$2 test base kind name n failed
	shift 2
	for test; do
		base=$dir/${test%.sh} n=0 failed=0
		base=${base%.py}
		if [ ! -e "$base.trs" ]; then
			result FAIL "$tier" "$test" "did not run"
			continue
		fi
		while IFS= read -r name; do
			kind=${name%%: *} name=${name#*: } n=$((n + 1))
			case $kind in
			PASS | XFAIL) result PASS "$tier" "$name" ;;
			SKIP) result SKIP "$tier" "${name%% # SKIP*}" "${name##* # SKIP }" ;;
			ERROR)
				# A script that ends with 1 after it said "not ok" has failed once, not twice.
				[[ $name == *'- exited with status 1' ]] && [ $failed = 1 ] ||
					result FAIL "$tier" "$name"
				failed=1 ;;
			*)
				failed=1
				result FAIL "$tier" "$name" ;;
			esac
		done < <(grep -E "^(PASS|FAIL|SKIP|XFAIL|XPASS|ERROR): $test " "$base.log")
		[ "$(grep -c '^:test-result: ' "$base.trs")" = $n ] && [ $n != 0 ] ||
			result FAIL "$tier" "$test" "its log and its result differ, or it has no test"
		[ $failed = 0 ] || grep -vE '^((not )?ok|PASS:|SKIP:|FAIL:)' "$base.log" | tail -n 40
	done
}

# results_reason LINE LOG: what a script said below that line, as one line: the end of a long log may be all that anyone sees.
results_reason()
{
	awk -v line="$1" '
		$0 == line { found = 1; next }
		found && !/^#/ { exit }
		found { sub(/^# */, ""); gsub(/[\t ]+/, " "); reason = reason (reason == "" || $0 == "" ? "" : "; ") $0 }
		END { print substr(reason, 1, 600) }' "$2"
}

# results_tap TIER TEST LOG STATUS: what a script printed as TAP, and how it ended.
results_tap()
{
	local tier=$1 test=$2 log=$3 status=$4 line name plan='' n=0 failed=0
	while IFS= read -r line; do
		case $line in
		'ok '* | 'not ok '* | ok | 'not ok')
			n=$((n + 1))
			name=$(sed -E 's/^(not )?ok *[0-9]* *-? *//; s/ *# *(SKIP|TODO).*//I' <<<"$line")
			if [[ $line =~ \#\ *([Ss][Kk][Ii][Pp]|TODO)[^\ ]*\ *(.*)$ ]]; then
				result SKIP "$tier" "$test: $name" "${BASH_REMATCH[2]}"
			elif [[ $line == not* ]]; then
				failed=1
				result FAIL "$tier" "$test: $name" "$(results_reason "$line" "$log")"
			else
				result PASS "$tier" "$test: $name"
			fi ;;
		1..*)
			plan=${line#1..}
			[[ $plan =~ ^0\ *\#\ *[Ss][Kk][Ii][Pp][^\ ]*\ *(.*)$ ]] &&
				result SKIP "$tier" "$test" "${BASH_REMATCH[1]}"
			plan=${plan%% *} ;;
		'Bail out!'*)
			result FAIL "$tier" "$test" "$line"
			return ;;
		esac
	done <"$log"
	if [ "$status" = 124 ]; then
		result FAIL "$tier" "$test" "timed out"
	elif [ "$plan" != "$n" ]; then
		result FAIL "$tier" "$test" "planned ${plan:-nothing}, ran $n, status $status"
	elif [ "$status" != 0 ] && [ $failed = 0 ] && [ "$status" != 77 ]; then
		result FAIL "$tier" "$test" "ended with status $status"
	fi
}

# results_list KIND: the tests of that kind, for the end of a log.
results_list()
{
	awk -F '\t' -v kind="$1" '$1 == kind { print "  " $2 ": " $3 ($4 == "" ? "" : " (" $4 ")") }' "$RESULTS"
}
