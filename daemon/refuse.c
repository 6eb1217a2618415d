/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: an errno alone tells nobody what was wrong, and the place that knows is far from the one that logs. One thread,
 * one request at a time, so one reason.
 */
#include "daemon/refuse.h"

#include <stdarg.h>
#include <stdio.h>

static char reason[160];

int refuse(int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	return error;
}

const char *refuse_reason(void)
{
	return reason;
}

void refuse_clear(void)
{
	reason[0] = '\0';
}
