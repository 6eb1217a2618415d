/* SPDX-License-Identifier: BSD-2-Clause */
/* verbsctl reload: the daemon reads its configuration again, and keeps the old one when the new one is wrong. */
#include <stdio.h>

#include "client/ctl/ctl.h"
#include "client/ctl/escape.h"

int ctl_reload(const struct ctl *ctl)
{
	struct conn *conn = ctl_connect(ctl, true);
	ProtobufCMessage *msg;

	if (!conn)
		return CTL_NO_DAEMON;

	int r = conn_call(conn, VSD__OP__OP_RELOAD, NULL, &vsd__reload_reply__descriptor, &msg);

	conn_close(conn);
	if (r < 0)
		return ctl_failed("reload", r);

	const Vsd__ReloadReply *reply = (Vsd__ReloadReply *)msg;
	bool applied = reply->applied;
	char reason[1024];

	if (!applied)
		ctl_say("reload: refused, the old configuration stays: %s",
			escape(reason, sizeof(reason), reply->error));
	conn_reply_free(msg);
	return applied ? CTL_OK : CTL_FAILED;
}
