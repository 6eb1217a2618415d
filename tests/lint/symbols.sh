#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What libverbsd.so needs and shows. It is preloaded into programs that know nothing of it: it must need libc alone, an
# old enough one, and export no name by accident.
cd "$(dirname "$0")/../.." || exit 99
. tests/lib/tap.bash
[ -n "${VERBSD_BUILD-}" ] || tap_skip_all "VERBSD_BUILD names no build"
lib=$VERBSD_BUILD/.libs/libverbsd.so
[ -e "$lib" ] || tap_skip_all "no $lib"

# The functions of libc that the library may stand in front of, for programs that look for device nodes themselves.
interposed='open(at)?(64)?|f?stat(at|x)?(64)?|lstat(64)?|__[fl]?xstat(64)?|__fxstatat(64)?|access|faccessat|write|fopen(64)?'
interposed+='|opendir|scandir(64)?|readlink(at)?|realpath|__open(at)?(64)?_2|__realpath_chk|__readlink_chk|euidaccess|eaccess'

needed=$(readelf -dW "$lib" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
sanitized=
grep -q '^#define VERBSD_SANITIZED 1' "$VERBSD_BUILD/config.h" && sanitized=1
exports=$(nm -D --defined-only --with-symbol-versions "$lib" | awk '{ print $3 }')

if [ -n "$sanitized" ]; then
	tap_skip "needs libc alone" "a sanitizer build needs the sanitizer"
	tap_skip "no glibc symbol newer than 2.34" "a sanitizer build needs the sanitizer"
else
	tap_empty "needs libc alone" "$(grep -vxE 'libc\.so\.6|ld-linux-x86-64\.so\.2' <<<"$needed")"
	tap_empty "no glibc symbol newer than 2.34" "$(nm -D --undefined-only --with-symbol-versions "$lib" |
		sed -n 's/.*@GLIBC_2\.\([0-9]*\).*/\1 &/p' | awk '$1 > 34 { $1 = ""; print }')"
fi
tap_empty "exports only verbs, verbsd_* and the interposed names of libc" \
	"$(grep -vxE "_?ibv_[a-z0-9_]+|verbsd_[a-z0-9_]+@@VERBSD_1|VERBSD_1(@@VERBSD_1)?|mult_to_ibv_rate|mbps_to_ibv_rate|$interposed" \
		<<<"$exports")"
tap_empty "its SONAME is not libibverbs" "$(readelf -dW "$lib" | grep -E 'SONAME.*libibverbs')"
tap_empty "no text relocation, no executable stack" \
	"$(readelf -dW "$lib" | grep TEXTREL; readelf -lW "$lib" | grep -E 'GNU_STACK.* RWE')"
tap_empty "no symbol of protobuf-c or of the protocol shows" "$(grep -E '^(protobuf_c_|vsd_|vsd__)' <<<"$exports")"

# Whatever a Debian 12 program may call of libibverbs has to end here: a function that we lack would be answered by the
# real library, which would read our objects as its own.
real=$(ldconfig -p 2>/dev/null | awk '$1 == "libibverbs.so.1" { print $NF; exit }')
if [ -e "${real:-/lib/x86_64-linux-gnu/libibverbs.so.1}" ]; then
	public=$(nm -D --defined-only --with-symbol-versions "${real:-/lib/x86_64-linux-gnu/libibverbs.so.1}" |
		sed -nE 's/.* ([a-z0-9_]+)@@IBVERBS_1\.[0-9]+$/\1/p' | grep -vx ibv_register_driver
		echo ibv_query_gid_type)
	tap_empty "defines every public function of libibverbs" \
		"$(grep -vxF -f <(sed 's/@.*//' <<<"$exports") <<<"$public")"
else
	tap_skip "defines every public function of libibverbs" "no libibverbs.so.1 to compare with"
fi
later='ibv_query_port_speed ibv_reg_mr_ex ibv_alloc_dmah ibv_dealloc_dmah ibv_dm_export_dmabuf_fd ibv_alloc_buf ibv_free_buf
	ibv_reg_buf_mr ibv_export_buf_dmabuf_fd _ibv_query_comp_cntr_caps ibv_create_comp_cntr ibv_destroy_comp_cntr
	ibv_inc_comp_cntr ibv_inc_err_comp_cntr ibv_qp_attach_comp_cntr ibv_read_comp_cntr ibv_read_err_comp_cntr
	ibv_set_comp_cntr ibv_set_err_comp_cntr'
tap_empty "defines the public functions that came up to IBVERBS_1.18" \
	"$(tr -s '[:space:]' '\n' <<<"$later" | grep -vxF -f <(sed 's/@.*//' <<<"$exports"))"
tap_done
