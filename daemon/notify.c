/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: one file knows libsystemd. Guarantees: without systemd nothing here does anything; an fd that systemd passed
 * is handed on or closed.
 */
#define SD_JOURNAL_SUPPRESS_LOCATION
#include "daemon/notify.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-journal.h>
#include <time.h>
#include <unistd.h>

int notify_listen_fds(int (*fn)(void *data, int fd, bool admin), void *data)
{
	char **names = NULL;
	int n = sd_listen_fds_with_names(1, &names);
	int used = 0, r = 0;

	for (int i = 0; i < n; i++) {
		int fd = SD_LISTEN_FDS_START + i;
		bool admin = strcmp(names[i], "verbsd-admin") == 0;

		if (r < 0 || (!admin && strcmp(names[i], "verbsd") != 0)) {
			close(fd);
			continue;
		}
		r = sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, NULL, 0) > 0 ? fn(data, fd, admin)
									  : -EPROTOTYPE;
		used++;
	}
	for (int i = 0; i < n; i++)
		free(names[i]);
	free(names);
	return r < 0 ? r : n < 0 ? n : used;
}

void notify_ready(const char *status)
{
	sd_notifyf(0, "READY=1\nSTATUS=%s", status);
}

void notify_status(const char *status)
{
	sd_notifyf(0, "STATUS=%s", status);
}

void notify_reloading(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu",
		(unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000);
}

void notify_stopping(void)
{
	sd_notify(0, "STOPPING=1");
}

uint64_t notify_watchdog_period(void)
{
	uint64_t usec = 0;

	return sd_watchdog_enabled(0, &usec) > 0 ? usec / 2000 + 1 : 0;
}

void notify_watchdog(void)
{
	sd_notify(0, "WATCHDOG=1");
}

bool notify_has_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	return stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 &&
	       fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

void notify_journal(enum log_level level, const char *id, const char *text)
{
	static const int priorities[] = {
		[LOG_LEVEL_ERROR] = LOG_ERR,
		[LOG_LEVEL_WARNING] = LOG_WARNING,
		[LOG_LEVEL_INFO] = LOG_INFO,
		[LOG_LEVEL_DEBUG] = LOG_DEBUG,
	};

	if (id)
		sd_journal_send("MESSAGE=%s", text, "PRIORITY=%i", priorities[level],
			"MESSAGE_ID=%s", id, NULL);
	else
		sd_journal_send("MESSAGE=%s", text, "PRIORITY=%i", priorities[level], NULL);
}
