/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The command line.
 */
#ifndef DAEMON_ARGUMENTS_H
#define DAEMON_ARGUMENTS_H

#include <stdbool.h>

struct arguments {
	const char *socket, *admin_socket;
	const char *config; /* NULL: where it normally is, and it may be missing */
	int ready_fd;       /* -1: none */
	int log_level;      /* -1: as configured */
	bool check_config;
};

/* -1 to go on, or the exit status. */
int arguments_parse(int argc, char **argv, struct arguments *arguments);
const char *arguments_config(const struct arguments *arguments);

#endif
