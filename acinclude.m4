# SPDX-License-Identifier: BSD-2-Clause
# The few macros of our own; everything else is Autoconf's or pkg-config's.

# VERBSD_FLAG(VARIABLE, FLAG): appends FLAG to VARIABLE when the compiler and the linker take it in silence.
AC_DEFUN([VERBSD_FLAG], [
AS_VAR_PUSHDEF([cache], [verbsd_cv_flag_$2])dnl
AC_CACHE_CHECK([whether $CC takes $2], [cache], [
	verbsd_save_CFLAGS=$CFLAGS
	CFLAGS="$CFLAGS -Werror m4_bpatsubst([$2], [^-Wno-], [-W])"
	AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
		[AS_VAR_SET([cache], [yes])], [AS_VAR_SET([cache], [no])])
	CFLAGS=$verbsd_save_CFLAGS])
AS_VAR_IF([cache], [yes], [$1="$$1 $2"])
AS_VAR_POPDEF([cache])dnl
])

# VERBSD_FLAGS(VARIABLE, FLAGS): the same for each of a blank-separated list; a flag may have commas.
AC_DEFUN([VERBSD_FLAGS], [m4_foreach_w([verbsd_flag], [$2], [VERBSD_FLAG([$1], m4_quote(verbsd_flag))])])
