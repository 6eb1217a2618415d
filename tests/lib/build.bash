# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Builds out of the source tree. `top` is the source tree; every build folder is below $top/build:
#
#	build/gcc    the build that is installed into build/root        build/clang  the other compiler
#	build/asan, build/tsan, build/fuzz                               the sanitizers
#
# Sourced by ./demo and ./check.

umask 022
export LC_ALL=C.UTF-8
# libtool is a shell script of 12,000 lines, which is read again for each object and each program. configure prefers bash for
# its line numbers; dash takes half the time, of every build and of every configure.
[ ! -x /bin/dash ] || export CONFIG_SHELL=/bin/dash
jobs=$(nproc 2>/dev/null || echo 2)

# build_bootstrap: configure out of configure.ac, when there is none or it is older.
build_bootstrap()
{
	if [ ! -x "$top/configure" ] || [ "$top/configure.ac" -nt "$top/configure" ] ||
		[ "$top/acinclude.m4" -nt "$top/configure" ] || [ ! -e "$top/Makefile.in" ]; then
		(cd "$top" && autoreconf -fi) || return
	fi
}

# build_configure NAME [ARG...]: configures build/NAME unless it was already with the same arguments. Objects know
# nothing of changed flags, so a build with others starts anew.
build_configure()
{
	local dir=$top/build/$1 args
	shift
	args=$(printf '%q ' "$@")
	if [ -e "$dir/Makefile" ] && [ "$(cat "$dir/configured" 2>/dev/null)" = "$args" ]; then
		return 0
	fi
	rm -rf "$dir"
	mkdir -p "$dir"
	(cd "$dir" && "$top/configure" -q "$@") || return
	printf '%s\n' "$args" >"$dir/configured"
}

# build_configure_any NAME ARG...: the same, but a build that was configured with more arguments is good enough.
build_configure_any()
{
	local args
	args=$(printf '%q ' "${@:2}")
	[[ "$(cat "$top/build/$1/configured" 2>/dev/null)" == "$args"* ]] && return 0
	build_configure "$@"
}

# build_make NAME [ARG...]
build_make()
{
	local dir=$top/build/$1
	shift
	make -C "$dir" -j"$jobs" --no-print-directory "$@"
}

# build_install: build/gcc installed afresh into build/root.
build_install()
{
	rm -rf "$top/build/root"
	build_make gcc install >"$top/build/install.log" 2>&1 || { cat "$top/build/install.log" >&2; return 1; }
}

# The arguments of the build that ends in build/root.
build_root_args=(--prefix="$top/build/root" --sysconfdir="$top/build/root/etc")
