/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects other than QPs.
 */
#include "daemon/op.h"

#include <errno.h>
#include <string.h>

#include "daemon/ah.h"
#include "daemon/context.h"
#include "daemon/cq.h"
#include "daemon/dm.h"
#include "daemon/log.h"
#include "daemon/mr.h"
#include "daemon/mr_place.h"
#include "daemon/mw.h"
#include "daemon/parent_domain.h"
#include "daemon/pd.h"
#include "daemon/refuse.h"
#include "daemon/srq.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/td.h"
#include "daemon/users.h"

int op_pd_alloc(struct call *call)
{
	const Vsd__PdAllocRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	struct object *object = NULL;

	return call_object(call, attachment ? pd_new(attachment, &object) : -EINVAL, &object);
}

int op_pd_import(struct call *call)
{
	const Vsd__PdImportRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	struct object *object =
		attachment ? object_get(attachment, OBJECT_PD, request->handle) : NULL;

	return call_object(call, object ? 0 : -EINVAL, &object);
}

int op_td_alloc(struct call *call)
{
	const Vsd__TdAllocRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	struct object *object = NULL;

	return call_object(call, attachment ? td_new(attachment, &object) : -EINVAL, &object);
}

int op_parent_domain_alloc(struct call *call)
{
	const Vsd__ParentDomainAllocRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	struct object *object = NULL;

	if (!attachment)
		return -EINVAL;
	if (request->has_td && request->td == 0)
		return refuse(-EINVAL, "td 0");
	return call_object(call,
		parent_domain_new(
			attachment, request->pd, request->has_td ? request->td : 0, &object),
		&object);
}

int op_mr_reg(struct call *call)
{
	const Vsd__MrRegRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	const struct mr_attr attr = {
		.addr = request->addr,
		.length = request->length,
		.iova = request->iova,
		.access = request->access,
		.dm = request->has_dm ? request->dm : 0,
		.heap = request->has_region ? request->region : 0,
		.offset = request->has_offset ? request->offset : 0,
	};
	struct object *object = NULL;

	if (!attachment)
		return -EINVAL;
	if (request->has_dm && request->dm == 0)
		return refuse(-EINVAL, "dm 0");
	if (request->has_region != request->has_offset || (request->has_region && request->region == 0))
		return refuse(-EINVAL, "a region comes with an offset, and has a number");
	return call_object(
		call, mr_new(attachment, request->pd, request->key, &attr, &object), &object);
}

int op_mr_rereg(struct call *call)
{
	const Vsd__MrReregRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	const struct mr_change change = {
		.pd = request->has_pd ? &request->pd : NULL,
		.addr = request->has_addr ? &request->addr : NULL,
		.length = request->has_length ? &request->length : NULL,
		.iova = request->has_iova ? &request->iova : NULL,
		.access = request->has_access ? &request->access : NULL,
	};

	return attachment ? mr_change(attachment, request->handle, &change) : -EINVAL;
}

int op_mr_places(struct call *call)
{
	const Vsd__MrPlacesRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	struct mr *mrs[VSD_MR_PLACES];
	Vsd__MrPlacesReply *reply;
	uint32_t n;

	if (!attachment)
		return -EINVAL;
	/* As much as a request for each would tell. */
	mr_places_look(call->session->process, 2);
	n = mr_places_new(attachment, request->count, mrs);
	reply = call_alloc(call, sizeof(*reply));
	vsd__mr_places_reply__init(reply);
	reply->n_places = reply->n_handles = n;
	reply->places = call_alloc(call, n * sizeof(*reply->places));
	reply->handles = call_alloc(call, n * sizeof(*reply->handles));
	for (uint32_t i = 0; i < n; i++) {
		reply->places[i] = mrs[i]->place - 1;
		reply->handles[i] = mrs[i]->object.handle;
	}
	call->reply = &reply->base;
	return 0;
}

static int reply_dm(struct call *call, const struct object *dm)
{
	Vsd__DmReply *reply;
	int r = dm_fd(dm);

	if (r >= 0)
		r = fdlist_consume(&call->fds, r);
	if (r < 0)
		return r;
	reply = call_alloc(call, sizeof(*reply));
	vsd__dm_reply__init(reply);
	reply->handle = dm->handle;
	reply->length = dm_length(dm);
	reply->size = dm_size(dm);
	call->reply = &reply->base;
	return 0;
}

int op_dm_alloc(struct call *call)
{
	const Vsd__DmAllocRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	struct object *dm = NULL;
	int r = attachment ? dm_new(attachment, request->length, &dm) : -EINVAL;

	if (r < 0)
		return r;
	r = reply_dm(call, dm);
	if (r < 0)
		(void)object_destroy(dm);
	return r;
}

int op_dm_import(struct call *call)
{
	const Vsd__DmImportRequest *request = (const void *)call->request;
	const struct attachment *attachment = call_attachment(call, request->context);
	const struct object *dm = attachment ? dm_get(attachment, request->handle) : NULL;

	return dm ? reply_dm(call, dm) : -EINVAL;
}

int op_cq_create(struct call *call)
{
	const Vsd__CqCreateRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	struct object *object = NULL;

	if (!attachment)
		return -EINVAL;
	if (request->has_parent_domain && request->parent_domain == 0)
		return refuse(-EINVAL, "parent domain 0");
	return call_object(call,
		cq_new(attachment, request->cqe, request->channel,
			request->has_parent_domain ? request->parent_domain : 0, &object),
		&object);
}

int op_cq_resize(struct call *call)
{
	const Vsd__CqResizeRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);

	return attachment ? cq_resize(attachment, request->handle, request->cqe) : -EINVAL;
}

int op_srq_create(struct call *call)
{
	const Vsd__SrqCreateRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	const struct srq_attr attr = {
		.max_wr = request->max_wr,
		.max_sge = request->max_sge,
		.type = request->type,
		.cq = request->has_cq ? request->cq : 0,
		.xrcd = request->has_xrcd ? request->xrcd : 0,
		.number = request->has_number ? request->number : 0,
	};
	struct object *object = NULL;

	if (!attachment)
		return -EINVAL;
	return call_object(call, srq_new(attachment, request->pd, &attr, &object), &object);
}

int op_srq_modify(struct call *call)
{
	const Vsd__SrqModifyRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);

	return attachment ? srq_modify(attachment, request->handle, request->max_wr,
				    request->has_max_tags ? request->max_tags : 0)
			  : -EINVAL;
}

int op_ah_create(struct call *call)
{
	const Vsd__AhCreateRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	struct object *object = NULL;

	if (!attachment)
		return -EINVAL;
	if (request->has_dgid && request->dgid.len != GID_SIZE)
		return refuse(-EINVAL, "GID of %zu bytes", request->dgid.len);
	return call_object(call,
		ah_new(attachment, request->pd, request->port, request->dlid,
			request->has_dgid ? request->dgid.data : NULL, &object),
		&object);
}

int op_mw_alloc(struct call *call)
{
	const Vsd__MwAllocRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	struct object *object = NULL;

	if (!attachment)
		return -EINVAL;
	return call_object(call,
		mw_new(attachment, request->pd, request->type, request->key, &object), &object);
}

static struct object *named(const struct attachment *attachment, Vsd__ObjectType type, uint32_t handle)
{
	struct object *object = NULL;

	if (attachment && object_class((enum object_type)type))
		object = object_get(attachment, (enum object_type)type, handle);
	if (attachment && !object)
		refuse(0, "no %s %u", object_type_name((enum object_type)type), handle);
	return object;
}

int op_destroy(struct call *call)
{
	const Vsd__DestroyRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	bool is_pd = request->type == VSD__OBJECT_TYPE__OBJ_PD || request->type == VSD__OBJECT_TYPE__OBJ_PARENT_DOMAIN;
	struct object *object;

	if (attachment && is_pd)
		mr_places_look_context(attachment->context);
	object = named(attachment, request->type, request->handle);
	if (object && object->type == OBJECT_MR && ((const struct mr *)object)->place)
		return refuse(-EINVAL, "mr %u: its process registers it by itself", object->handle);
	return object ? object_destroy(object) : -EINVAL;
}

static int in_use_reply(struct call *call, const char *by)
{
	Vsd__InUseReply *reply = call_alloc(call, sizeof(*reply));

	vsd__in_use_reply__init(reply);
	reply->by = scratch_strdup(&call->server->scratch, by);
	call->reply = &reply->base;
	return 0;
}

/* The library refused to destroy it, and its program may not be told why: the log is, as by a destroy that came here. */
int op_in_use(struct call *call)
{
	const Vsd__InUseRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	struct object *object;
	char by[USERS_TEXT];
	int r;

	if (attachment)
		mr_places_look_context(attachment->context);
	if (attachment && request->type == VSD__OBJECT_TYPE__OBJ_CONTEXT &&
		request->handle == request->context) {
		users_say_context(attachment, by, sizeof(by));
		return in_use_reply(call, by);
	}
	object = named(attachment, request->type, request->handle);
	if (!object)
		return -EINVAL;
	r = object_busy(object);
	if (r < 0)
		session_log(call->session, LOG_LEVEL_INFO, NULL, "destroy: %s: %s", strerror(-r),
			refuse_reason());
	users_say(object, call->session->domain, by, sizeof(by));
	return in_use_reply(call, by);
}
