/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Administration.
 */
#include "daemon/op.h"

#include <errno.h>
#include <stdio.h>

#include "daemon/log.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"

int op_reload(struct call *call)
{
	Vsd__ReloadReply *reply = call_alloc(call, sizeof(*reply));
	char *error = call_alloc(call, 512);
	int r;

	if (!call->server->reload)
		return refuse(-EOPNOTSUPP, "there is nothing to reload");
	vsd__reload_reply__init(reply);
	r = call->server->reload(call->server, error, 512);
	reply->applied = r == 0;
	if (r < 0)
		reply->error = error;
	call->reply = &reply->base;
	return 0;
}

int op_disconnect(struct call *call)
{
	const Vsd__DisconnectRequest *request = (const void *)call->request;
	struct session *session = server_session(call->server, request->session);

	if (!session)
		return refuse(-ENOENT, "no client %llu", (unsigned long long)request->session);
	if (session == call->session)
		return refuse(-EINVAL, "that is this one");
	session_log(session, LOG_LEVEL_INFO, MSG_CLIENT_DISCONNECTED,
		"disconnected by the administrator");
	session_lost(session, GONE_ADMIN);
	return 0;
}
