/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: every line has one way out, so that limits and escaping hold everywhere. Guarantees: one call is one line;
 * errno is left as it was.
 */
#include "daemon/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const level_names[] = {
	[LOG_LEVEL_ERROR] = "error",
	[LOG_LEVEL_WARNING] = "warning",
	[LOG_LEVEL_INFO] = "info",
	[LOG_LEVEL_DEBUG] = "debug",
};

static void sink_stderr(enum log_level level, const char *id, const char *text)
{
	(void)id;
	fprintf(stderr, "verbsd: %s%s%s\n", level < LOG_LEVEL_INFO ? level_names[level] : "",
		level < LOG_LEVEL_INFO ? ": " : "", text);
}

static enum log_level level_now = LOG_LEVEL_INFO;
static log_sink_fn *sink_now = sink_stderr;

void log_set_level(enum log_level level)
{
	level_now = level;
}

void log_set_sink(log_sink_fn *sink)
{
	sink_now = sink ? sink : sink_stderr;
}

int log_level_parse(const char *text, enum log_level *level)
{
	for (size_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++) {
		if (strcmp(text, level_names[i]) == 0) {
			*level = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

void log_vline(enum log_level level, const char *id, const char *format, va_list args)
{
	char text[1024];
	int error = errno;

	if (level > level_now)
		return;
	vsnprintf(text, sizeof(text), format, args);
	sink_now(level, id, text);
	errno = error;
}

void log_line(enum log_level level, const char *id, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	log_vline(level, id, format, args);
	va_end(args);
}

int log_limit_take(struct log_limit *limit, uint64_t now, unsigned *dropped)
{
	if (limit->since == 0 || now - limit->since >= LOG_LIMIT_MS) {
		limit->since = now ? now : 1;
		limit->lines = 0;
	}
	if (limit->lines >= LOG_LIMIT_LINES) {
		limit->dropped++;
		return 0;
	}
	limit->lines++;
	*dropped = limit->dropped;
	limit->dropped = 0;
	return 1;
}

const char *log_escape(char *buf, size_t size, const void *bytes, size_t n)
{
	const unsigned char *from = bytes;
	size_t used = 0;

	for (size_t i = 0; i < n; i++) {
		int plain = from[i] >= 0x20 && from[i] < 0x7f && from[i] != '\\';
		size_t need = plain ? 1 : 4;

		if (used + need + 1 > size)
			break;
		if (plain)
			buf[used] = (char)from[i];
		else
			snprintf(buf + used, 5, "\\x%02x", from[i]);
		used += need;
	}
	buf[used] = '\0';
	return buf;
}
