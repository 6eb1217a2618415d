/* SPDX-License-Identifier: BSD-2-Clause */
/* verbsctl run: a program with the library, with the system's daemon or one of its own. */
#include <stdlib.h>

#include "client/ctl/ctl.h"
#include "client/ctl/form.h"
#include "client/ctl/installed.h"
#include "client/ctl/paths.h"
#include "client/ctl/preload.h"
#include "client/ctl/private.h"
#include "client/ctl/program.h"

/* 0, or an exit code: said why. */
static int heap_set(void)
{
	char *library = installed_find(NULL, VERBSD_LIBDIR "/verbsd", "libverbsd-heap.so");
	int r = CTL_CANNOT_RUN;

	if (library)
		r = preload_add(library);
	else
		ctl_say("run: verbsd/libverbsd-heap.so was not found");
	free(library);
	return r;
}

int ctl_run(const struct ctl *ctl)
{
	enum form form = FORM_AUTO;
	enum paths paths = PATHS_AUTO;
	int r;

	if (ctl->config && !ctl->private) {
		ctl_say("run: --config is for --private");
		return CTL_USAGE;
	}
	if (ctl->form && form_parse(ctl->form, &form) < 0) {
		ctl_say("run: --form is auto, preload, soname or both");
		return CTL_USAGE;
	}
	if (ctl->paths && paths_parse(ctl->paths, &paths) < 0) {
		ctl_say("run: --paths is auto, interpose, namespace or none");
		return CTL_USAGE;
	}
	r = form_set(form);
	if (r == 0 && ctl->heap)
		r = heap_set();
	if (r != 0)
		return r;
	program_check(ctl->args[0]);
	if (ctl->private)
		return private_run(ctl->args, ctl->config, paths);
	/* What was said on our command line holds for the program. */
	setenv(VSD_SOCKET_ENV, ctl->socket, 1);
	setenv(VSD_ADMIN_ENV, ctl->admin, 1);
	r = paths_set(paths, ctl->socket, NULL);
	return r != 0 ? r : program_exec(ctl->args);
}
