# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# For scripts that run a program once for each of its cases: without arguments it prints their names; status 77 says that
# there is nothing to test, and its output why.

# shellcheck source=tests/e2e/lib.bash
. "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

# program_ready NAME: copies it, since the unprivileged user may not be able to reach the build tree.
program_ready()
{
	local program=$VERBSD_BUILD/tests/e2e/$1
	[ -x "$program" ] || { echo "Bail out! no $program"; exit 1; }
	cp "$program" "$work/out/$1"
	chmod 755 "$work/out/$1"
}

# run_cases PROGRAM NAME... -- [ARG...]: each case in a process of its own, with those arguments.
run_cases()
{
	local program=$1 names=() name out
	shift
	for (( ; $#; )); do
		name=$1
		shift
		[ "$name" != -- ] || break
		names+=("$name")
	done
	for name in "${names[@]}"; do
		out=$( (client_for ${CASE_LIMIT:-60} "$work/out/$program" "$name" "$@") 2>&1)
		case $? in
		0) tap_ok "${name//-/ }" ;;
		77) tap_skip "${name//-/ }" "${out%%$'\n'*}" ;;
		*) tap_not_ok "${name//-/ }" "$out" "$(tail -n 5 "$work/daemon.log")" ;;
		esac
	done
}

nothing_left()
{
	if until_true 20 daemon_empty; then
		tap_ok "nothing is left in the daemon"
	else
		tap_not_ok "nothing is left in the daemon" "$("$verbsctl" --socket "$socket" list)"
	fi
}
