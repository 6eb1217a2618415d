/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: what may be said at the start, in one table and one text, which the manual page verbsd(8) repeats.
 */
#include "daemon/arguments.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/log.h"

#ifndef VERBSD_SYSCONFDIR
#define VERBSD_SYSCONFDIR "/etc/verbsd"
#endif

static const char usage[] =
	"Usage: verbsd [OPTION]...\n"
	"Owns RDMA devices and brokers them to programs that use libverbsd.\n"
	"\n"
	"  --socket PATH         listen at PATH as a private daemon, for programs of this user\n"
	"  --admin-socket PATH   listen for administration at PATH\n"
	"  --config FILE         read FILE instead of " VERBSD_SYSCONFDIR "/verbsd.conf\n"
	"  --check-config        read the configuration, say what is wrong with it, and exit\n"
	"  --ready-fd N          write a line to file descriptor N when clients can connect\n"
	"  --log-level LEVEL     error, warning, info or debug\n"
	"  --version             print the version\n"
	"  --help                print this\n";

const char *arguments_config(const struct arguments *arguments)
{
	return arguments->config ? arguments->config : VERBSD_SYSCONFDIR "/verbsd.conf";
}

static int wrong(const char *what, const char *which)
{
	fprintf(stderr, "verbsd: %s: '%s'\n", what, which);
	return 2;
}

int arguments_parse(int argc, char **argv, struct arguments *arguments)
{
	enum { SOCKET = 1, ADMIN, CONFIG, CHECK, READY, LEVEL, VERSION, HELP };
	static const struct option options[] = {
		{ "socket", required_argument, NULL, SOCKET },
		{ "admin-socket", required_argument, NULL, ADMIN },
		{ "config", required_argument, NULL, CONFIG },
		{ "check-config", no_argument, NULL, CHECK },
		{ "ready-fd", required_argument, NULL, READY },
		{ "log-level", required_argument, NULL, LEVEL },
		{ "version", no_argument, NULL, VERSION },
		{ "help", no_argument, NULL, HELP },
		{ NULL, 0, NULL, 0 },
	};
	enum log_level level;

	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		if (c == SOCKET)
			arguments->socket = optarg;
		else if (c == ADMIN)
			arguments->admin_socket = optarg;
		else if (c == CONFIG)
			arguments->config = optarg;
		else if (c == CHECK)
			arguments->check_config = true;
		else if (c == READY)
			arguments->ready_fd = atoi(optarg);
		else if (c == LEVEL && log_level_parse(optarg, &level) == 0)
			arguments->log_level = (int)level;
		else if (c == VERSION)
			return puts("verbsd " PACKAGE_VERSION) < 0;
		else if (c == HELP)
			return fputs(usage, stdout) < 0;
		else if (c == LEVEL)
			return wrong("no log level", optarg);
		else
			return 2; /* getopt has said why */
	}
	return optind < argc ? wrong("too many arguments", argv[optind]) : -1;
}
