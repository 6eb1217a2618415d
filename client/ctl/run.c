/* SPDX-License-Identifier: BSD-2-Clause */
/* verbsctl run: a program with the library before all others, with the system's daemon or one of its own. */
#include <stdlib.h>

#include "client/ctl/ctl.h"
#include "client/ctl/preload.h"
#include "client/ctl/private.h"
#include "client/ctl/program.h"

int ctl_run(const struct ctl *ctl)
{
	if (ctl->config && !ctl->private) {
		ctl_say("run: --config is for --private");
		return CTL_USAGE;
	}

	int r = preload_set();

	if (r != 0)
		return r;
	program_check(ctl->args[0]);
	if (ctl->private)
		return private_run(ctl->args, ctl->config);
	/* What was said on our command line holds for the program. */
	setenv(VSD_SOCKET_ENV, ctl->socket, 1);
	setenv(VSD_ADMIN_ENV, ctl->admin, 1);
	return program_exec(ctl->args);
}
