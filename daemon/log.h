/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Log lines. A line at run time means that a client misbehaved or that something was lost. What a client chose is
 * escaped; lines about clients are limited to 10 a minute per domain, then counted.
 */
#ifndef DAEMON_LOG_H
#define DAEMON_LOG_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/msgids.h"

enum log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARNING,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
};

#define LOG_LIMIT_LINES 10
#define LOG_LIMIT_MS    60000

struct log_limit {
	uint64_t since; /* start of the minute that is counted, 0: none */
	unsigned lines, dropped;
};

/* Where lines go: stderr, unless a sink was set. @id is NULL for lines without a message id. */
typedef void log_sink_fn(enum log_level level, const char *id, const char *text);

void log_set_level(enum log_level level);
void log_set_sink(log_sink_fn *sink);
/* "error", "warning", "info", "debug". 0 or -EINVAL. */
int log_level_parse(const char *text, enum log_level *level);

void log_line(enum log_level level, const char *id, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void log_vline(enum log_level level, const char *id, const char *format, va_list args)
	__attribute__((format(printf, 3, 0)));

/* Whether a line may be written now. *@dropped says how many were not since the last one. */
int log_limit_take(struct log_limit *limit, uint64_t now, unsigned *dropped);

/* Writes @n bytes into @buf as printable ASCII, others as \xNN, cut to @size. Returns @buf. */
const char *log_escape(char *buf, size_t size, const void *bytes, size_t n);

#define log_error(...)   log_line(LOG_LEVEL_ERROR, NULL, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, NULL, __VA_ARGS__)
#define log_info(...)    log_line(LOG_LEVEL_INFO, NULL, __VA_ARGS__)
#define log_debug(...)   log_line(LOG_LEVEL_DEBUG, NULL, __VA_ARGS__)

#endif
