/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The beginning of a session: versions, then the process.
 */
#include "daemon/op.h"

#include <errno.h>

#include "daemon/process.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/watch.h"
#include "proto/ring_abi.h"

int op_hello(struct call *call)
{
	const Vsd__HelloRequest *request = (const void *)call->request;
	Vsd__HelloReply *reply;

	if (request->min_version > request->max_version)
		return refuse(
			-EINVAL, "versions %u to %u", request->min_version, request->max_version);
	if (request->min_version > VSD_VERSION_MAX || request->max_version < VSD_VERSION_MIN) {
		call->end = true;
		return refuse(-EPROTONOSUPPORT, "versions %u to %u, this is %d to %d",
			request->min_version, request->max_version, VSD_VERSION_MIN,
			VSD_VERSION_MAX);
	}
	reply = call_alloc(call, sizeof(*reply));
	vsd__hello_reply__init(reply);
	reply->version =
		request->max_version < VSD_VERSION_MAX ? request->max_version : VSD_VERSION_MAX;
	reply->features = request->features & VSD_FEATURES;
	reply->daemon_version = scratch_strdup(&call->server->scratch, PACKAGE_VERSION);
	reply->max_frame = VSD_REQUEST_MAX;
	reply->session = call->session->id;
	reply->private_daemon = call->server->private_daemon;
	call->reply = &reply->base;
	call->session->state = SESSION_READY;
	watch_session(call->session, true);
	return 0;
}

int op_join(struct call *call)
{
	Vsd__JoinReply *reply;
	int r;

	if (call->session->pidfd < 0)
		return refuse(-EOPNOTSUPP, "no pidfd of the client");
	r = process_new(call->session, &call->fds, &call->session->process);
	if (r < 0)
		return r;
	reply = call_alloc(call, sizeof(*reply));
	vsd__join_reply__init(reply);
	reply->peer = call->session->process->id;
	reply->page_size = VSD_PAGE_SIZE;
	reply->map_size = VSD_MAP_SIZE;
	call->reply = &reply->base;
	call->session->state = SESSION_JOINED;
	return 0;
}
