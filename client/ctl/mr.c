/* SPDX-License-Identifier: BSD-2-Clause */
/* verbsctl mr rm: a shared region loses its name, and what no process has any more is freed. */
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

static bool uid_find(const char *user, uint32_t *uid)
{
	const struct passwd *entry;
	char *end;

	errno = 0;

	unsigned long long number = strtoull(user, &end, 10);

	if (*user >= '0' && *user <= '9' && !*end && !errno && number < UINT32_MAX) {
		*uid = (uint32_t)number;
		return true;
	}
	entry = getpwnam(user);
	if (entry)
		*uid = entry->pw_uid;
	return entry != NULL;
}

int ctl_mr(const struct ctl *ctl)
{
	Vsd__RegionReleaseRequest request = VSD__REGION_RELEASE_REQUEST__INIT;

	if (strcmp(ctl->args[0], "rm") != 0) {
		ctl_say("mr: no such command: %s", ctl->args[0]);
		return CTL_USAGE;
	}
	request.name = ctl->args[1];
	request.has_uid = ctl->uid != NULL;
	if (ctl->uid && !uid_find(ctl->uid, &request.uid)) {
		ctl_say("mr rm: no such user: %s", ctl->uid);
		return CTL_USAGE;
	}

	struct conn *conn = ctl_connect(ctl, ctl->uid);

	if (!conn)
		return CTL_NO_DAEMON;

	int r = conn_call(conn, VSD__OP__OP_REGION_RELEASE, &request.base, NULL, NULL);

	conn_close(conn);
	if (r == -ENOENT) {
		ctl_say("mr rm: there is no region %s", ctl->args[1]);
		return CTL_FAILED;
	}
	return r < 0 ? ctl_failed("mr rm", r) : CTL_OK;
}
