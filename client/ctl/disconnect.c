/* SPDX-License-Identifier: BSD-2-Clause */
/* verbsctl disconnect: ends a client's session; its objects go as if it had died. */
#include <errno.h>
#include <stdlib.h>

#include "client/ctl/ctl.h"

int ctl_disconnect(const struct ctl *ctl)
{
	const char *text = ctl->args[0];
	char *end;

	errno = 0;

	uint64_t session = strtoull(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || errno || session == 0) {
		ctl_say("disconnect: %s is no client's number (see verbsctl clients)", text);
		return CTL_USAGE;
	}

	struct conn *conn = ctl_connect(ctl, true);

	if (!conn)
		return CTL_NO_DAEMON;

	Vsd__DisconnectRequest request = VSD__DISCONNECT_REQUEST__INIT;

	request.session = session;

	int r = conn_call(conn, VSD__OP__OP_DISCONNECT, &request.base, NULL, NULL);

	conn_close(conn);
	if (r == -ENOENT || r == -EINVAL) {
		ctl_say("disconnect: there is no client %s", text);
		return CTL_FAILED;
	}
	return r < 0 ? ctl_failed("disconnect", r) : CTL_OK;
}
