/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: an errno alone tells nobody what was wrong, and the place that knows is far from the one that logs. One thread,
 * one request at a time, so one reason.
 */
#include "daemon/refuse.h"

#include <stdarg.h>
#include <stdio.h>

#undef refuse

static char reason[320];
static bool is_quota;

int refuse(int error, const char *format, ...)
{
	va_list args;

	is_quota = false;
	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	return error;
}

int refuse_quota(int error, const char *what)
{
	snprintf(reason, sizeof(reason), "over the limit of %s", what);
	is_quota = true;
	return error;
}

bool refuse_is_quota(void)
{
	return is_quota;
}

const char *refuse_reason(void)
{
	return reason;
}

void refuse_clear(void)
{
	reason[0] = '\0';
	is_quota = false;
}
