# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# TAP for test scripts: one line a test, the plan at the end. A script sources this, calls the functions below and ends
# with tap_done.

tap_n=0
tap_failed=0

# tap_ok NAME / tap_not_ok NAME [DETAIL...] / tap_skip NAME REASON
tap_ok()
{
	tap_n=$((tap_n + 1))
	echo "ok $tap_n - $1"
}

tap_not_ok()
{
	local name=$1
	shift
	tap_n=$((tap_n + 1))
	tap_failed=1
	echo "not ok $tap_n - $name"
	[ $# = 0 ] || printf '%s\n' "$@" | sed 's/^/# /'
}

tap_skip()
{
	tap_n=$((tap_n + 1))
	echo "ok $tap_n - $1 # SKIP $2"
}

# tap_empty NAME TEXT: passes if TEXT, a list of offences, is empty.
tap_empty()
{
	if [ -z "$2" ]; then
		tap_ok "$1"
	else
		tap_not_ok "$1" "$2"
	fi
}

# tap_run NAME COMMAND...: passes if the command succeeds; what it prints is shown only if it does not.
tap_run()
{
	local name=$1 out
	shift
	if out=$("$@" 2>&1); then
		tap_ok "$name"
	else
		tap_not_ok "$name" "status $?: $*" "$out"
	fi
}

# tap_skip_all REASON: ends the script with nothing run.
tap_skip_all()
{
	echo "1..0 # SKIP $1"
	exit 0
}

tap_done()
{
	echo "1..$tap_n"
	exit $tap_failed
}
