/* SPDX-License-Identifier: BSD-2-Clause */
/* What the library says on stderr: nothing, unless VERBSD_DEBUG asks, but for control_tell()'s one line. */
#include "client/control/control.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool debug_wanted(void)
{
	static _Atomic int wanted;

	if (wanted == 0) {
		const char *value = secure_getenv("VERBSD_DEBUG");

		wanted = value && *value && *value != '0' ? 1 : -1;
	}
	return wanted > 0;
}

/* One write, so that lines of several processes do not mix; not through stdio, whose locks a program may hold. */
__attribute__((format(printf, 1, 0))) static void line_write(const char *format, va_list args)
{
	char line[512] = "verbsd: ";
	int n = vsnprintf(line + 8, sizeof(line) - 9, format, args);

	if (n < 0)
		return;

	size_t length = 8 + (size_t)n < sizeof(line) - 2 ? 8 + (size_t)n : sizeof(line) - 2;

	line[length++] = '\n';
	/* Not write(): that is a cancellation point, and the caller may hold locks. */
	if (syscall(SYS_write, STDERR_FILENO, line, length) < 0)
		return;
}

void control_debug(const char *format, ...)
{
	if (!debug_wanted())
		return;

	va_list args;

	va_start(args, format);
	line_write(format, args);
	va_end(args);
}

void control_tell(const char *format, ...)
{
	static _Atomic bool told;

	if (atomic_exchange(&told, true))
		return;

	va_list args;

	va_start(args, format);
	line_write(format, args);
	va_end(args);
}
