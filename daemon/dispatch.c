/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: everything that a client can do goes through one table, so that no check can be missing for one request.
 * Guarantees: a handler only sees a request that is well formed, in a state and on a socket where it is legal; an
 * answer has exactly the fds that the table says; a malformed frame ends its session and nothing else.
 */
#include "daemon/dispatch.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "daemon/context.h"
#include "daemon/later.h"
#include "daemon/log.h"
#include "daemon/op.h"
#include "daemon/pd.h"
#include "daemon/process.h"
#include "daemon/qp.h"
#include "daemon/refuse.h"
#include "daemon/scratch.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/xrcd.h"
#include "proto/limits.h"

#define NEW    SESSION_NEW
#define READY  (SESSION_READY | SESSION_JOINED)
#define JOINED SESSION_JOINED

/* clang-format off */
#define ROW(op, text, type, states, where, fds, fn) \
	[VSD__OP__OP_##op] = { text, &vsd__##type##__descriptor, states, where, fds, fn }

static const struct method methods[] = {
	/*  opcode		name			request				states	where	      fds  handler */
	ROW(HELLO,		"hello",		hello_request,			NEW,	METHOD_BOTH,	0, op_hello),
	ROW(JOIN,		"join",			empty,				SESSION_READY, 0,	4, op_join),
	ROW(DEVICE_LIST,	"device_list",		empty,				READY,	METHOD_BOTH,	0, op_device_list),
	ROW(CONTEXT_OPEN,	"context_open",		context_open_request,		JOINED,	0,		1, op_context_open),
	ROW(CONTEXT_ATTACH,	"context_attach",	context_attach_request,		JOINED,	0,		1, op_context_attach),
	ROW(CONTEXT_CLOSE,	"context_close",	context_close_request,		JOINED,	0,		0, op_context_close),
	ROW(LEASE,		"lease",		lease_request,			JOINED,	0,		0, op_lease),
	ROW(SEGMENT_GET,	"segment_get",		segment_get_request,		JOINED,	METHOD_EVENTS,	0, op_segment_get),
	ROW(WIRE_RELEASE,	"wire_release",		wire_release_request,		JOINED,	METHOD_EVENTS,	0, op_wire_release),
	ROW(PEER_RESOLVE,	"peer_resolve",		peer_resolve_request,		JOINED,	METHOD_EVENTS,	0, op_peer_resolve),
	ROW(MCAST_RESOLVE,	"mcast_resolve",	mcast_resolve_request,		JOINED,	METHOD_EVENTS,	0, op_mcast_resolve),
	ROW(PD_ALLOC,		"pd_alloc",		pd_alloc_request,		JOINED,	0,		0, op_pd_alloc),
	ROW(TD_ALLOC,		"td_alloc",		td_alloc_request,		JOINED,	0,		0, op_td_alloc),
	ROW(PARENT_DOMAIN_ALLOC, "parent_domain_alloc", parent_domain_alloc_request,	JOINED,	0,		0, op_parent_domain_alloc),
	ROW(MR_REG,		"mr_reg",		mr_reg_request,			JOINED,	0,		0, op_mr_reg),
	ROW(MR_REREG,		"mr_rereg",		mr_rereg_request,		JOINED,	0,		0, op_mr_rereg),
	ROW(MR_PLACES,		"mr_places",		mr_places_request,		JOINED,	0,		0, op_mr_places),
	ROW(DM_ALLOC,		"dm_alloc",		dm_alloc_request,		JOINED,	0,		1, op_dm_alloc),
	ROW(DM_IMPORT,		"dm_import",		dm_import_request,		JOINED,	0,		1, op_dm_import),
	ROW(CQ_CREATE,		"cq_create",		cq_create_request,		JOINED,	0,		0, op_cq_create),
	ROW(CQ_RESIZE,		"cq_resize",		cq_resize_request,		JOINED,	0,		0, op_cq_resize),
	ROW(SRQ_CREATE,		"srq_create",		srq_create_request,		JOINED,	0,		0, op_srq_create),
	ROW(SRQ_MODIFY,		"srq_modify",		srq_modify_request,		JOINED,	0,		0, op_srq_modify),
	ROW(QP_CREATE,		"qp_create",		qp_create_request,		JOINED,	0,		0, op_qp_create),
	ROW(QP_MODIFY,		"qp_modify",		qp_modify_request,		JOINED,	0,		0, op_qp_modify),
	ROW(AH_CREATE,		"ah_create",		ah_create_request,		JOINED,	0,		0, op_ah_create),
	ROW(MW_ALLOC,		"mw_alloc",		mw_alloc_request,		JOINED,	0,		0, op_mw_alloc),
	ROW(DESTROY,		"destroy",		destroy_request,		JOINED,	0,		0, op_destroy),
	ROW(IN_USE,		"in_use",		in_use_request,			JOINED,	0,		0, op_in_use),
	ROW(MCAST_ATTACH,	"mcast_attach",		mcast_request,			JOINED,	0,		0, op_mcast_attach),
	ROW(MCAST_DETACH,	"mcast_detach",		mcast_request,			JOINED,	0,		0, op_mcast_detach),
	ROW(REGION_CREATE,	"region_create",	region_create_request,		JOINED,	0,		1, op_region_create),
	ROW(REGION_EXPORT,	"region_export",	region_export_request,		READY,	METHOD_FEWER_FDS, 1, op_region_export),
	ROW(REGION_IMPORT,	"region_import",	region_import_request,		JOINED,	0,		1, op_region_import),
	ROW(REGION_PERSIST,	"region_persist",	region_persist_request,		READY,	0,		0, op_region_persist),
	ROW(REGION_RELEASE,	"region_release",	region_release_request,		READY,	METHOD_BOTH,	0, op_region_release),
	ROW(REGION_QUERY,	"region_query",		region_query_request,		READY,	0,		0, op_region_query),
	ROW(REGION_GRANT,	"region_grant",		region_grant_request,		JOINED,	METHOD_EVENTS,	1, op_region_grant),
	ROW(HEAP_CREATE,	"heap_create",		heap_create_request,		READY,	0,		1, op_heap_create),
	ROW(HEAP_DESTROY,	"heap_destroy",		heap_destroy_request,		READY,	0,		0, op_heap_destroy),
	ROW(PD_IMPORT,		"pd_import",		pd_import_request,		JOINED,	0,		0, op_pd_import),
	ROW(MR_IMPORT,		"mr_import",		mr_import_request,		JOINED,	0,		1, op_mr_import),
	ROW(NATIVE_OPEN,	"native_open",		native_open_request,		READY,	METHOD_FEWER_FDS, 2, op_native_open),
	ROW(NATIVE_CLOSE,	"native_close",		native_close_request,		READY,	0,		0, op_native_close),
	ROW(NATIVE_WAIT,	"native_wait",		native_wait_request,		READY,	0,		0, op_native_wait),
	ROW(NATIVE_REGION,	"native_region",	native_region_request,		READY,	0,		1, op_native_region),
	ROW(NATIVE_REG,		"native_reg",		native_reg_request,		READY,	0,		0, op_native_reg),
	ROW(NATIVE_RELEASE,	"native_release",	native_release_request,		READY,	0,		0, op_native_release),
	ROW(DEVICE_COUNTERS,	"device_counters",	device_counters_request,	READY,	METHOD_BOTH,	0, op_device_counters),
	ROW(NATIVE_DOMAIN,	"native_domain",	native_domain_request,		READY,	METHOD_FEWER_FDS, 1, op_native_domain),
	ROW(XRCD_OPEN,		"xrcd_open",		xrcd_open_request,		JOINED,	0,		0, op_xrcd_open),
	ROW(QP_OPEN,		"qp_open",		qp_open_request,		JOINED,	0,		0, op_qp_open),
	ROW(QP_QUERY,		"qp_query",		qp_query_request,		JOINED,	0,		0, op_qp_query),
	ROW(XRC_CONNECT,	"xrc_connect",		xrc_connect_request,		JOINED,	METHOD_EVENTS,	0, op_xrc_connect),
	ROW(XRC_REPORT,		"xrc_report",		xrc_report_request,		JOINED,	METHOD_EVENTS,	0, op_xrc_report),
	ROW(STATUS,		"status",		empty,				READY,	METHOD_BOTH,	0, op_status),
	ROW(LIST,		"list",			list_request,			READY,	METHOD_BOTH,	0, op_list),
	ROW(WATCH,		"watch",		empty,				READY,	METHOD_BOTH,	0, op_watch),
	ROW(RELOAD,		"reload",		empty,				READY,	METHOD_ADMIN,	0, op_reload),
	ROW(DISCONNECT,		"disconnect",		disconnect_request,		READY,	METHOD_ADMIN,	0, op_disconnect),
};
/* clang-format on */

const struct method *method_get(unsigned opcode)
{
	const struct method *method =
		opcode < sizeof(methods) / sizeof(methods[0]) ? &methods[opcode] : NULL;

	return method && method->fn ? method : NULL;
}

int dispatch_refuse(struct session *session, const char *why)
{
	session->server->refused++;
	session_log(session, LOG_LEVEL_WARNING, MSG_CLIENT_MISBEHAVED,
		"malformed: %s; disconnected", why);
	return -EBADMSG;
}

static void answer(struct call *call, int status)
{
	const struct frame_header *request = call->header;
	struct server *server = call->server;
	struct frame_header header = {
		.magic = FRAME_MAGIC,
		.version = VSD_VERSION_MAX,
		.opcode = request->opcode,
		.serial = request->serial,
		.fds = (uint16_t)call->fds.n,
		.flags = FRAME_REPLY,
		.status = -status,
	};
	int n = frame_pack(
		server->answer, sizeof(server->answer), &header, status == 0 ? call->reply : NULL);

	assert(n > 0);
	server->requests++;
	if (call->on_events)
		process_answer(call->session->process, server->answer, (size_t)n, &call->fds);
	else
		session_send(call->session, server->answer, (size_t)n, &call->fds, false);
}

/* Whether @method may be called now. Some wrong times end the session, others only the request. */
static int check(const struct session *session, const struct method *method)
{
	if (session->state & ~method->states) {
		if (session->state == SESSION_NEW || method->states == SESSION_NEW)
			return 1;
		if (method->states == SESSION_READY)
			return refuse(-EALREADY, "joined already");
		return refuse(-ENOTCONN, "JOIN comes first");
	}
	if (method->where == METHOD_ADMIN && !session->admin)
		return refuse(-EPERM, "only on the admin socket");
	if (!(method->where & (METHOD_ADMIN | METHOD_BOTH)) && session->admin)
		return refuse(-EPERM, "not on the admin socket");
	return 0;
}

/* @r is what the handler returned. */
static int check_out(struct call *call, int r)
{
	const struct method *method = call->method;

	if (r == CALL_LATER)
		return r;
	if (r == 0) {
		assert(call->fds.n == method->fds ||
			(method->where & METHOD_FEWER_FDS && call->fds.n < method->fds));
		return 0;
	}
	fdlist_deinit(&call->fds);
	call->fds = (struct fdlist)FDLIST_NULL;
	session_log(call->session, LOG_LEVEL_INFO, refuse_is_quota() ? MSG_CLIENT_QUOTA : NULL,
		"%s: %s%s%s", method->name, strerror(-r), refuse_reason()[0] ? ": " : "",
		refuse_reason());
	return r;
}

static const char *malformed(const struct session *session, const void *frame, size_t length,
	struct frame_header *header)
{
	if (frame_parse(frame, length, header) < 0)
		return "no frame of this protocol";
	if (header->flags != 0 || header->fds != 0 || header->status != 0)
		return "not a request";
	if (session->state != SESSION_NEW &&
		(header->version < VSD_VERSION_MIN || header->version > VSD_VERSION_MAX))
		return "version that was not agreed on";
	if (!method_get(header->opcode))
		return "unknown opcode";
	return NULL;
}

static int dispatch_from(struct session *session, const void *frame, size_t length, bool on_events)
{
	struct call call = { .server = session->server,
		.session = session,
		.fds = FDLIST_NULL,
		.on_events = on_events };
	struct scratch *scratch = &session->server->scratch;
	const struct method *method;
	struct frame_header header;
	ProtobufCMessage *request;
	const char *why;
	int r;

	why = malformed(session, frame, length, &header);
	if (why)
		return dispatch_refuse(session, why);
	method = method_get(header.opcode);
	call.header = &header;
	call.method = method;
	if (on_events && !(method->where & METHOD_EVENTS))
		return dispatch_refuse(session, "not for the event socket");
	refuse_clear();
	scratch_reset(scratch);
	r = frame_unpack(&scratch->request, method->request,
		(const uint8_t *)frame + sizeof(header), header.length, &request);
	if (r < 0)
		return dispatch_refuse(
			session, r == -E2BIG ? "too many parts" : "body of another type");
	r = check(session, method);
	if (r > 0)
		return dispatch_refuse(
			session, session->state == SESSION_NEW ? "no HELLO" : "second HELLO");
	call.request = request;
	if (r == 0)
		r = check_out(&call, method->fn(&call));
	else
		session_log(session, LOG_LEVEL_INFO, NULL, "%s: %s: %s", method->name,
			strerror(-r), refuse_reason());
	if (session->process)
		process_flush(session->process);
	if (r == CALL_LATER) {
		/* Who asks there waits in a thread of his own: progress. */
		assert(!on_events);
		return 0;
	}
	answer(&call, r);
	return call.end ? -EPROTONOSUPPORT : 0;
}

void dispatch_later(struct session *session, struct later *later, bool skipped)
{
	struct call call = { .server = session->server,
		.session = session,
		.header = &later->header,
		.method = later->method,
		.fds = FDLIST_NULL };
	int r;

	refuse_clear();
	scratch_reset(&session->server->scratch);
	r = skipped ? refuse(-ECANCELED, "the daemon ends") : later->finish(later, &call);
	r = check_out(&call, r);
	if (session->process)
		process_flush(session->process);
	answer(&call, r);
}

int dispatch(struct session *session, const void *frame, size_t length)
{
	return dispatch_from(session, frame, length, false);
}

int dispatch_on_events(struct session *session, const void *frame, size_t length)
{
	return dispatch_from(session, frame, length, true);
}

struct attachment *call_attachment(const struct call *call, uint32_t context)
{
	struct attachment *attachment = attachment_get(call->session, context);

	if (!attachment)
		refuse(0, "no context %u", context);
	return attachment;
}

void *call_alloc(const struct call *call, size_t size)
{
	return scratch_alloc(&call->server->scratch, size);
}

int call_object(struct call *call, int r, struct object *const *object)
{
	Vsd__ObjectReply *reply;

	if (r < 0)
		return r;
	reply = call_alloc(call, sizeof(*reply));
	vsd__object_reply__init(reply);
	reply->handle = (*object)->handle;
	if ((*object)->type == OBJECT_PD) {
		reply->has_number = 1;
		reply->number = ((const struct pd *)*object)->number;
	} else if ((*object)->type == OBJECT_XRCD) {
		reply->has_number = 1;
		reply->number = xrcd_domain(*object)->number;
	} else if ((*object)->type == OBJECT_QP) {
		reply->has_number = 1;
		reply->number = ((const struct qp *)*object)->attr.qpn;
	}
	call->reply = &reply->base;
	return 0;
}
