/* SPDX-License-Identifier: BSD-2-Clause */
/* verbsctl run: a program with the library before all others, with the system's daemon or one of its own. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "client/ctl/preload.h"
#include "client/ctl/private.h"

int program_exec(char **argv)
{
	execvp(argv[0], argv);

	int error = errno;

	ctl_say("run: %s: %s", argv[0], strerror(error));
	return error == ENOENT ? CTL_NOT_FOUND : CTL_CANNOT_RUN;
}

int ctl_run(const struct ctl *ctl)
{
	if (ctl->config && !ctl->private) {
		ctl_say("run: --config is for --private");
		return CTL_USAGE;
	}

	int r = preload_set();

	if (r != 0)
		return r;
	if (ctl->private)
		return private_run(ctl->args, ctl->config);
	/* What was said on our command line holds for the program. */
	setenv(VSD_SOCKET_ENV, ctl->socket, 1);
	setenv(VSD_ADMIN_ENV, ctl->admin, 1);
	return program_exec(ctl->args);
}
