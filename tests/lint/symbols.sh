#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What libverbsd.so and its other form, libibverbs.so.1, need and show. They are preloaded into programs that
# know nothing of them: they must need libc alone, an old enough one, and export no name by accident.
cd "$(dirname "$0")/../.." || exit 99
. tests/lib/tap.bash
[ -n "${VERBSD_BUILD-}" ] || tap_skip_all "VERBSD_BUILD names no build"
lib=$VERBSD_BUILD/.libs/libverbsd.so
[ -e "$lib" ] || tap_skip_all "no $lib"

sanitized=
grep -q '^#define VERBSD_SANITIZED 1' "$VERBSD_BUILD/config.h" && sanitized=1

# exports LIBRARY: name, name@version (an old version) or name@@version of all that it defines.
exports()
{
	nm -D --defined-only --with-symbol-versions "$1" | awk '{ print $3 }'
}

# stands_alone NAME LIBRARY: what holds for each library that is loaded into programs that know nothing of it.
stands_alone()
{
	local name=$1 lib=$2
	if [ -n "$sanitized" ]; then
		tap_skip "$name: needs libc alone" "a sanitizer build needs the sanitizer"
		tap_skip "$name: no glibc symbol newer than 2.34" "a sanitizer build needs the sanitizer"
	else
		tap_empty "$name: needs libc alone" "$(readelf -dW "$lib" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
			grep -vxE 'libc\.so\.6|ld-linux-x86-64\.so\.2')"
		tap_empty "$name: no glibc symbol newer than 2.34" "$(nm -D --undefined-only --with-symbol-versions "$lib" |
			sed -n 's/.*@GLIBC_2\.\([0-9]*\).*/\1 &/p' | awk '$1 > 34 { $1 = ""; print }')"
	fi
	tap_empty "$name: no text relocation, no executable stack" \
		"$(readelf -dW "$lib" | grep TEXTREL; readelf -lW "$lib" | grep -E 'GNU_STACK.* RWE')"
	tap_empty "$name: no initial-exec TLS" \
		"$(readelf -dW "$lib" | grep STATIC_TLS; readelf -rW "$lib" | grep TPOFF | head -n 3)"
	tap_empty "$name: no symbol of protobuf-c or of the protocol shows" \
		"$(exports "$lib" | grep -E '^(protobuf_c_|vsd_|vsd__)')"
	if readelf -dW "$lib" | grep -q 'FLAGS_1.*NODELETE'; then
		tap_ok "$name: is never unloaded"
	else
		tap_not_ok "$name: is never unloaded"
	fi
}

# Functions of libc by which a device is opened, and the one that drivers ring its doorbell by.
brokered='open(at)?(64)?|__open(at)?(64)?_2|stat(64)?|fstatat(64)?|__xstat(64)?|f?access(at)?|e(uid)?access|write'

stands_alone libverbsd "$lib"
exports=$(exports "$lib")
tap_empty "exports only verbs, verbsd_* and what opens devices" \
	"$(grep -vxE "$brokered|_?ibv_[a-z0-9_]+|verbsd_[a-z0-9_]+@@VERBSD_1|VERBSD_1(@@VERBSD_1)?|mult_to_ibv_rate|mbps_to_ibv_rate" \
		<<<"$exports")"
tap_empty "its SONAME is not libibverbs" "$(readelf -dW "$lib" | grep -E 'SONAME.*libibverbs')"

# The other form: the same functions, each under the version that it has in the real library.
soname=$VERBSD_BUILD/client/soname/.libs/libibverbs.so
stands_alone libibverbs "$soname"
versioned=$(exports "$soname")
if readelf -dW "$soname" | grep -q 'SONAME.*\[libibverbs\.so\.1\]'; then
	tap_ok "its SONAME is libibverbs.so.1"
else
	tap_not_ok "its SONAME is libibverbs.so.1"
fi
tap_empty "every symbol has a version, but libc's" \
	"$(grep -v '@' <<<"$versioned" | grep -vxE "$brokered|(IBVERBS|VERBSD)_[A-Z0-9_.]+")"
tap_empty "both forms have the same functions" "$(diff \
	<(grep -oxE '(_?ibv_|verbsd_|m)[a-z0-9_]+(@@VERBSD_1)?' <<<"$exports" | sed 's/@.*//' | sort) \
	<(sed -nE 's/@@(IBVERBS_1\.[0-9]+|VERBSD_1)$//p; s/^(ibv_query_gid_type)@@.*/\1/p' <<<"$versioned" |
		grep -v '^IBVERBS' | sort))"
tap_empty "no name of an assembler symbol shows" "$(grep '^fwd_' <<<"$versioned")"
for n in 34 57 59 64 65; do
	for name in ibv_query_gid_type verbs_register_driver_$n verbs_allow_disassociate_destroy ibv_cmd_create_cq; do
		grep -qxE "$name@@?IBVERBS_PRIVATE_$n" <<<"$versioned" || echo "$name@IBVERBS_PRIVATE_$n"
	done
done >"${TMPDIR:-/tmp}/symbols.$$"
tap_empty "the interface to providers has every version" "$(cat "${TMPDIR:-/tmp}/symbols.$$")"
rm -f "${TMPDIR:-/tmp}/symbols.$$"

# Functions of libc that look up a path, and nothing else.
interposed='open(at)?(64)?|__open(at)?(64)?_2|fopen(64)?|l?stat(64)?|fstatat(64)?|statx|__l?xstat(64)?|__fxstatat(64)?|f?access(at)?'
interposed+='|e(uid)?access|opendir|scandir(64)?|readlink(at)?|__readlink(at)?_chk|realpath|__realpath_chk|canonicalize_file_name'
interposed+='|glob(64)?|chdir|l?getxattr'
paths=$VERBSD_BUILD/client/paths/.libs/libverbsd-paths.so
stands_alone libverbsd-paths "$paths"
tap_empty "libverbsd-paths: exports only functions that look up a path" "$(exports "$paths" | grep -vxE "$interposed")"

# Functions of libc that allocate or map, and what libverbsd asks it.
allocating='malloc|free|calloc|realloc(array)?|(posix_)?memalign|aligned_alloc|p?valloc|malloc_usable_size|mmap(64)?|munmap'
allocating+='|mprotect|madvise|mremap|verbsd_heap_find'
heap=$VERBSD_BUILD/client/heap/.libs/libverbsd-heap.so
stands_alone libverbsd-heap "$heap"
tap_empty "libverbsd-heap: exports only functions that allocate" "$(exports "$heap" | grep -vxE "$allocating")"

# Whatever a Debian 12 program may call of libibverbs has to end here: a function that we lack would be answered by the
# real library, which would read our objects as its own.
real=$(ldconfig -p 2>/dev/null | awk '$1 == "libibverbs.so.1" { print $NF; exit }')
if [ -e "${real:-/lib/x86_64-linux-gnu/libibverbs.so.1}" ]; then
	public=$(nm -D --defined-only --with-symbol-versions "${real:-/lib/x86_64-linux-gnu/libibverbs.so.1}" |
		sed -nE 's/.* ([a-z0-9_]+)@@IBVERBS_1\.[0-9]+$/\1/p' | grep -vx ibv_register_driver
		echo ibv_query_gid_type)
	tap_empty "defines every public function of libibverbs" \
		"$(grep -vxF -f <(sed 's/@.*//' <<<"$exports") <<<"$public")"
	# Old, hidden and private ones too: whoever is linked against that file must find all that it was linked with.
	tap_empty "has every symbol of libibverbs in its version" \
		"$(grep -vxF -f <(cat <<<"$versioned") < <(exports "${real:-/lib/x86_64-linux-gnu/libibverbs.so.1}"))"
else
	tap_skip "defines every public function of libibverbs" "no libibverbs.so.1 to compare with"
	tap_skip "has every symbol of libibverbs in its version" "no libibverbs.so.1 to compare with"
fi
later='ibv_query_port_speed ibv_reg_mr_ex ibv_alloc_dmah ibv_dealloc_dmah ibv_dm_export_dmabuf_fd ibv_alloc_buf ibv_free_buf
	ibv_reg_buf_mr ibv_export_buf_dmabuf_fd _ibv_query_comp_cntr_caps ibv_create_comp_cntr ibv_destroy_comp_cntr
	ibv_inc_comp_cntr ibv_inc_err_comp_cntr ibv_qp_attach_comp_cntr ibv_read_comp_cntr ibv_read_err_comp_cntr
	ibv_set_comp_cntr ibv_set_err_comp_cntr'
tap_empty "defines the public functions that came up to IBVERBS_1.18" \
	"$(tr -s '[:space:]' '\n' <<<"$later" | grep -vxF -f <(sed 's/@.*//' <<<"$exports"))"
tap_done
