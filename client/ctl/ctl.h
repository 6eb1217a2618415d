/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the subcommands of verbsctl share: options, exit codes, the way to the daemon, messages.
 */
#ifndef CLIENT_CTL_CTL_H
#define CLIENT_CTL_CTL_H

#include <stdbool.h>

#include "client/ctl/conn.h"

enum ctl_exit {
	CTL_OK = 0,
	CTL_FAILED = 1,
	CTL_USAGE = 2,
	CTL_NO_DAEMON = 3,
	CTL_CANNOT_RUN = 126,
	CTL_NOT_FOUND = 127,
};

struct ctl {
	const char *socket; /* --socket, or what the environment or the default says */
	const char *
		admin; /* the same for --admin-socket; beside the socket when only that was named */
	const char *config; /* --config */
	const char *form, *paths; /* --form, --paths */
	bool json, no_headings, private;
	bool heap; /* --shared-heap */
	const char *uid; /* --uid; NULL: one's own */
	char **args; /* what follows options, NULL-terminated */
	int n_args;
};

/* A subcommand's main. Returns an exit code. */
typedef int ctl_main(const struct ctl *ctl);

ctl_main ctl_status, ctl_devices, ctl_clients, ctl_list, ctl_watch, ctl_run, ctl_disconnect,
	ctl_reload, ctl_mr, ctl_counters;

/* One line on standard error, with the program's name before it. */
__attribute__((format(printf, 1, 2))) void ctl_say(const char *format, ...);

/* Connects to the ordinary or the admin socket, or says why not and returns NULL. */
struct conn *ctl_connect(const struct ctl *ctl, bool admin);

/*
 * The admin socket when it can be reached, else the ordinary one, after saying that only the caller's own domain will
 * be seen. *@all: everything is seen.
 */
struct conn *ctl_connect_widest(const struct ctl *ctl, bool *all);

/* Says that @what failed with the negative errno @error, and returns the exit code for it. */
int ctl_failed(const char *what, int error);

#endif
