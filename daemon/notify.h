/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What systemd wants to know and gives. The only module that knows libsystemd.
 */
#ifndef DAEMON_NOTIFY_H
#define DAEMON_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/log.h"

/* Calls @fn for each socket passed by systemd: "verbsd" or "verbsd-admin"; others are closed. How many, or -errno. */
int notify_listen_fds(int (*fn)(void *data, int fd, bool admin), void *data);

void notify_ready(const char *status);
void notify_status(const char *status);
void notify_reloading(void);
void notify_stopping(void);
/* How often notify_watchdog() must be called, in ms; 0: never. */
uint64_t notify_watchdog_period(void);
void notify_watchdog(void);

/* Whether stderr is the journal. */
bool notify_has_journal(void);
/* A sink for log.h. */
void notify_journal(enum log_level level, const char *id, const char *text);

#endif
