/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects other than QPs.
 */
#include "daemon/op.h"

#include <errno.h>

#include "daemon/ah.h"
#include "daemon/context.h"
#include "daemon/cq.h"
#include "daemon/mr.h"
#include "daemon/mw.h"
#include "daemon/parent_domain.h"
#include "daemon/pd.h"
#include "daemon/refuse.h"
#include "daemon/srq.h"
#include "daemon/td.h"

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
	};
	struct object *object = NULL;

	if (!attachment)
		return -EINVAL;
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
	};
	struct object *object = NULL;

	if (!attachment)
		return -EINVAL;
	return call_object(call, srq_new(attachment, request->pd, &attr, &object), &object);
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

int op_destroy(struct call *call)
{
	const Vsd__DestroyRequest *request = (const void *)call->request;
	struct attachment *attachment = call_attachment(call, request->context);
	struct object *object;

	if (!attachment)
		return -EINVAL;
	object = object_class((enum object_type)request->type)
			 ? object_get(attachment, (enum object_type)request->type, request->handle)
			 : NULL;
	if (!object)
		return refuse(-EINVAL, "no %s %u",
			object_type_name((enum object_type)request->type), request->handle);
	return object_destroy(object);
}
