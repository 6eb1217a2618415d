# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What the scripts need from Debian 12, and how it gets there: as root, through sudo, or not at all with a message that
# says what is missing. Sourced by ./demo and ./check.

packages_build=(gcc make libc6-dev autoconf automake libtool pkg-config protobuf-c-compiler libprotobuf-c-dev
	libevent-dev libsystemd-dev libsmartcols-dev libibverbs-dev)
packages_demo=(ibverbs-utils perftest util-linux iproute2)

# packages_tier NAME: what that tier of ./check needs beyond packages_build.
packages_tier()
{
	case $1 in
	lint) echo g++ clang clang-tidy cppcheck shellcheck mandoc libibverbs1 bash-completion systemd ;;
	unit) echo check spin xz-utils ;;
	e2e) echo check jq ibverbs-utils perftest qperf rdma-core python3 python3-pyverbs iproute2 procps util-linux \
		ucx-utils libfabric-bin gnuplot-nox ;;
	asan) echo check jq clang llvm libclang-rt-14-dev rdma-core python3 python3-pyverbs util-linux ;;
	tsan) echo check jq clang llvm libclang-rt-14-dev util-linux ;;
	vm) echo check jq qemu-system-x86 linux-image-amd64 busybox-static cpio xz-utils kmod iproute2 systemd rdma-core \
		ibverbs-utils perftest rdmacm-utils python3 python3-pyverbs strace ;;
	valgrind) echo check valgrind ;;
	esac
}

# packages_missing PACKAGE...: those that are not installed.
packages_missing()
{
	local installed
	installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null | sed -n 's/^installed //p')
	printf '%s\n' "$@" | sort -u | grep -vxF -e "$installed"
}

# packages_as_root COMMAND...: as root already, by sudo, or by sudo with a password where somebody can type one.
packages_as_root()
{
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
		sudo -n "$@"
	elif command -v sudo >/dev/null && [ -t 0 ] && [ -t 2 ]; then
		sudo "$@"
	else
		return 125
	fi
}

packages_apt()
{
	# Slim images leave /usr/share/doc out, where rdma-core keeps its tests.
	packages_as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l apt-get -q -y \
		-o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 \
		-o Dpkg::Options::=--path-include='/usr/share/doc/rdma-core/*' "$@" </dev/null
}

# packages_install PACKAGE...: installs what is missing of them.
packages_install()
{
	local missing log rc
	if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
		echo "This is not a Debian system: its packages are taken to be there." >&2
		return 0
	fi
	mapfile -t missing < <(packages_missing "$@")
	[ ${#missing[@]} -gt 0 ] || return 0
	echo "Installing: ${missing[*]}" >&2
	packages_as_root true
	rc=$?
	if [ $rc = 125 ]; then
		cat >&2 <<-EOF
		Packages are missing, and neither root nor sudo without a password is at hand. As root, run

		    apt-get install ${missing[*]}

		and start this again.
		EOF
		return 1
	fi
	[ $rc = 0 ] || return $rc
	log=$(mktemp)
	if ! { packages_apt update && packages_apt install --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
		tail -n 30 "$log" >&2
		rm -f "$log"
		echo "apt-get could not install: ${missing[*]}" >&2
		return 1
	fi
	rm -f "$log"
}
