/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why a request was refused, kept beside its errno for the one log line that dispatch.c writes about it.
 */
#ifndef DAEMON_REFUSE_H
#define DAEMON_REFUSE_H

#include <stdbool.h>

/* Keeps the reason and returns @error. */
int refuse(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a quota: the line gets its own message id. */
int refuse_quota(int error, const char *what);
bool refuse_is_quota(void);
/* "" when none was given since the last refuse_clear(). */
const char *refuse_reason(void);
void refuse_clear(void);

#ifdef __clang_analyzer__
/* Which does not look into it: to it every caller might go on after a refusal. */
#define refuse(error, ...) (__extension__({ refuse(error, __VA_ARGS__); error; }))
#endif

#endif
