/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests made from the message descriptors alone, so that a new request or field is attacked without a line here.
 */
#include "hostile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define OPERATION(name, type) { VSD__OP__OP_##name, #name, &vsd__##type##__descriptor }

const struct operation operations[] = {
	OPERATION(HELLO, hello_request),
	OPERATION(JOIN, empty),
	OPERATION(DEVICE_LIST, empty),
	OPERATION(CONTEXT_OPEN, context_open_request),
	OPERATION(CONTEXT_ATTACH, context_attach_request),
	OPERATION(CONTEXT_CLOSE, context_close_request),
	OPERATION(LEASE, lease_request),
	OPERATION(SEGMENT_GET, segment_get_request),
	OPERATION(WIRE_RELEASE, wire_release_request),
	OPERATION(PEER_RESOLVE, peer_resolve_request),
	OPERATION(PD_ALLOC, pd_alloc_request),
	OPERATION(TD_ALLOC, td_alloc_request),
	OPERATION(PARENT_DOMAIN_ALLOC, parent_domain_alloc_request),
	OPERATION(MR_REG, mr_reg_request),
	OPERATION(MR_REREG, mr_rereg_request),
	OPERATION(MR_PLACES, mr_places_request),
	OPERATION(CQ_CREATE, cq_create_request),
	OPERATION(CQ_RESIZE, cq_resize_request),
	OPERATION(SRQ_CREATE, srq_create_request),
	OPERATION(SRQ_MODIFY, srq_modify_request),
	OPERATION(QP_CREATE, qp_create_request),
	OPERATION(QP_MODIFY, qp_modify_request),
	OPERATION(AH_CREATE, ah_create_request),
	OPERATION(MW_ALLOC, mw_alloc_request),
	OPERATION(DESTROY, destroy_request),
	OPERATION(IN_USE, in_use_request),
	OPERATION(DM_ALLOC, dm_alloc_request),
	OPERATION(DM_IMPORT, dm_import_request),
	OPERATION(REGION_QUERY, region_query_request),
	OPERATION(MCAST_ATTACH, mcast_request),
	OPERATION(MCAST_DETACH, mcast_request),
	OPERATION(MCAST_RESOLVE, mcast_resolve_request),
	OPERATION(REGION_CREATE, region_create_request),
	OPERATION(REGION_EXPORT, region_export_request),
	OPERATION(REGION_IMPORT, region_import_request),
	OPERATION(REGION_PERSIST, region_persist_request),
	OPERATION(REGION_RELEASE, region_release_request),
	OPERATION(REGION_GRANT, region_grant_request),
	OPERATION(HEAP_CREATE, heap_create_request),
	OPERATION(HEAP_DESTROY, heap_destroy_request),
	OPERATION(PD_IMPORT, pd_import_request),
	OPERATION(MR_IMPORT, mr_import_request),
	OPERATION(NATIVE_OPEN, native_open_request),
	OPERATION(NATIVE_CLOSE, native_close_request),
	OPERATION(NATIVE_WAIT, native_wait_request),
	OPERATION(NATIVE_REGION, native_region_request),
	OPERATION(NATIVE_REG, native_reg_request),
	OPERATION(NATIVE_RELEASE, native_release_request),
	OPERATION(NATIVE_DOMAIN, native_domain_request),
	OPERATION(DEVICE_COUNTERS, device_counters_request),
	OPERATION(XRCD_OPEN, xrcd_open_request),
	OPERATION(QP_OPEN, qp_open_request),
	OPERATION(QP_QUERY, qp_query_request),
	OPERATION(XRC_CONNECT, xrc_connect_request),
	OPERATION(XRC_REPORT, xrc_report_request),
	OPERATION(STATUS, empty),
	OPERATION(LIST, list_request),
	OPERATION(WATCH, empty),
	OPERATION(RELOAD, empty),
	OPERATION(DISCONNECT, disconnect_request),
};

const size_t n_operations = sizeof(operations) / sizeof(operations[0]);

/* ---- a session with everything in it ---- */

int make_object(struct link *link, unsigned op, const ProtobufCMessage *request, uint32_t *handle)
{
	int r = link_call(link, op, request, &vsd__object_reply__descriptor);

	*handle = r == 0 && link->reply ? ((Vsd__ObjectReply *)link->reply)->handle : 0;
	return r;
}

int make_pd(struct link *link, uint32_t *pd)
{
	Vsd__PdAllocRequest request = VSD__PD_ALLOC_REQUEST__INIT;

	request.context = link->context;
	return make_object(link, VSD__OP__OP_PD_ALLOC, &request.base, pd);
}

int make_mr(struct link *link, uint32_t pd, uint32_t key, uint32_t *mr)
{
	Vsd__MrRegRequest request = VSD__MR_REG_REQUEST__INIT;

	request.context = link->context;
	request.pd = pd;
	request.key = key;
	request.addr = request.iova = 0x10000;
	request.length = 4096;
	return make_object(link, VSD__OP__OP_MR_REG, &request.base, mr);
}

int make_cq(struct link *link, uint32_t *cq)
{
	Vsd__CqCreateRequest request = VSD__CQ_CREATE_REQUEST__INIT;

	request.context = link->context;
	request.cqe = 16;
	return make_object(link, VSD__OP__OP_CQ_CREATE, &request.base, cq);
}

int make_qp(struct link *link, uint32_t pd, uint32_t cq, unsigned type, uint32_t qpn, uint32_t *qp)
{
	Vsd__QpCreateRequest request = VSD__QP_CREATE_REQUEST__INIT;

	request.context = link->context;
	request.pd = pd;
	request.type = type;
	request.qpn = qpn;
	request.has_send_cq = request.has_recv_cq = true;
	request.send_cq = request.recv_cq = cq;
	request.max_send_wr = request.max_recv_wr = request.max_send_sge = request.max_recv_sge = 1;
	return make_object(link, VSD__OP__OP_QP_CREATE, &request.base, qp);
}

int make_lease(struct link *link, Vsd__LeaseKind kind, uint32_t wanted, uint32_t *first, uint32_t *n)
{
	Vsd__LeaseRequest request = VSD__LEASE_REQUEST__INIT;
	int r;

	request.context = link->context;
	request.kind = kind;
	request.count = wanted;
	r = link_call(link, VSD__OP__OP_LEASE, &request.base, &vsd__lease_reply__descriptor);
	*first = *n = 0;
	if (r == 0 && link->reply) {
		*first = ((Vsd__LeaseReply *)link->reply)->first;
		*n = ((Vsd__LeaseReply *)link->reply)->count;
	}
	return r;
}

int destroy(struct link *link, Vsd__ObjectType type, uint32_t handle)
{
	Vsd__DestroyRequest request = VSD__DESTROY_REQUEST__INIT;

	request.context = link->context;
	request.type = type;
	request.handle = handle;
	return link_call(link, VSD__OP__OP_DESTROY, &request.base, NULL);
}

int modify(struct link *link, uint32_t qp, unsigned state, uint32_t dest)
{
	Vsd__QpModifyRequest request = VSD__QP_MODIFY_REQUEST__INIT;

	request.context = link->context;
	request.handle = qp;
	request.state = state;
	if (state == IBV_QPS_RTR) {
		request.has_port = request.has_dlid = request.has_rq_psn = true;
		request.port = request.dlid = 1;
		request.has_dest_qpn = dest != 0;
		request.dest_qpn = dest;
	}
	return link_call(link, VSD__OP__OP_QP_MODIFY, &request.base, NULL);
}

static void world_object(struct world *world, unsigned op, uint32_t *handle)
{
	size_t i = 0;

	while (operations[i].op != op)
		i++;

	ProtobufCMessage *request = request_make(&operations[i], world, op == VSD__OP__OP_PARENT_DOMAIN_ALLOC);

	must_be(make_object(&world->link, op, request, handle), 0, "%s", operations[i].name);
	request_free(request);
}

/* What the session before had leased, all of it perhaps, is free a moment after that one's end. */
static void world_lease(struct world *world, Vsd__LeaseKind kind, uint32_t *first, uint32_t *n)
{
	int r = ENOSPC;

	for (unsigned i = 0; r == ENOSPC && i < 200000; i++)
		r = make_lease(&world->link, kind, 1, first, n);
	must_be(r, 0, "LEASE");
	if (r != 0)
		exit(1);
}

/* An XRC domain with a QP of each kind and an SRQ. */
static void world_xrc(struct world *world)
{
	struct link *link = &world->link;
	Vsd__XrcdOpenRequest open = VSD__XRCD_OPEN_REQUEST__INIT;
	Vsd__SrqCreateRequest srq = VSD__SRQ_CREATE_REQUEST__INIT;
	Vsd__QpCreateRequest recv = VSD__QP_CREATE_REQUEST__INIT, send = VSD__QP_CREATE_REQUEST__INIT;

	open.context = srq.context = recv.context = send.context = link->context;
	open.create = true;
	must_be(make_object(link, VSD__OP__OP_XRCD_OPEN, &open.base, &world->xrcd), 0, "XRCD_OPEN");
	srq.pd = send.pd = world->pd;
	srq.max_wr = srq.max_sge = send.max_send_wr = send.max_send_sge = 1;
	srq.type = IBV_SRQT_XRC;
	srq.has_cq = srq.has_xrcd = srq.has_number = recv.has_xrcd = send.has_send_cq = true;
	srq.cq = send.send_cq = world->cq;
	srq.xrcd = recv.xrcd = world->xrcd;
	srq.number = world->srqn = world->qpn_first + world->qpn_next++;
	must_be(make_object(link, VSD__OP__OP_SRQ_CREATE, &srq.base, &world->xsrq), 0, "SRQ_CREATE, XRC");
	recv.type = IBV_QPT_XRC_RECV;
	must_be(make_object(link, VSD__OP__OP_QP_CREATE, &recv.base, &world->xrecv), 0, "QP_CREATE, XRC_RECV");
	world->xrecv_qpn = link->reply ? ((Vsd__ObjectReply *)link->reply)->number : 0;
	send.type = IBV_QPT_XRC_SEND;
	send.qpn = world->xsend_qpn = world->qpn_first + world->qpn_next++;
	must_be(make_object(link, VSD__OP__OP_QP_CREATE, &send.base, &world->xsend), 0, "QP_CREATE, XRC_SEND");
}

void world_make(struct world *world)
{
	struct link *link = &world->link;

	*world = (struct world){ .link = { .fd = -1 } };
	link_ready(link);
	world_lease(world, VSD__LEASE_KIND__LEASE_QPN, &world->qpn_first, &world->qpns);
	world_lease(world, VSD__LEASE_KIND__LEASE_KEY, &world->key_first, &world->keys);
	must_be(make_pd(link, &world->pd), 0, "PD_ALLOC");
	must_be(make_cq(link, &world->cq), 0, "CQ_CREATE");
	world_object(world, VSD__OP__OP_TD_ALLOC, &world->td);
	world_object(world, VSD__OP__OP_PARENT_DOMAIN_ALLOC, &world->parent);
	world_object(world, VSD__OP__OP_SRQ_CREATE, &world->srq);
	world_object(world, VSD__OP__OP_AH_CREATE, &world->ah);
	world_object(world, VSD__OP__OP_MW_ALLOC, &world->mw);
	world_xrc(world);
	world->key = (world->key_first + world->key_next++) << 8;
	must_be(make_mr(link, world->pd, world->key, &world->mr), 0, "MR_REG");
	world->qpn = world->qpn_first + world->qpn_next++;
	must_be(make_qp(link, world->pd, world->cq, IBV_QPT_RC, world->qpn, &world->qp), 0, "QP_CREATE");
	world->ud_qpn = world->qpn_first + world->qpn_next++;
	must_be(make_qp(link, world->pd, world->cq, IBV_QPT_UD, world->ud_qpn, &world->ud), 0, "QP_CREATE");
}

void world_end(struct world *world)
{
	link_close(&world->link);
}

/* ---- from descriptors ---- */

static uint64_t name_value(const struct operation *operation, const char *name, struct world *w)
{
	const struct {
		const char *name;
		uint64_t value;
	} values[] = {
		{ "min_version", 1 }, { "max_version", 1 }, { "context", w->link.context }, { "pd", w->pd },
		{ "td", w->td }, { "parent_domain", w->parent }, { "send_cq", w->cq }, { "recv_cq", w->cq },
		{ "cq", w->cq }, { "srq", w->srq }, { "addr", 0x10000 }, { "iova", 0x10000 },
		{ "length", 4096 }, { "access", 1 }, { "cqe", 16 }, { "max_wr", 4 }, { "max_sge", 1 }, { "max_tags", 4 },
		{ "max_send_wr", 4 }, { "max_recv_wr", 4 }, { "max_send_sge", 1 }, { "max_recv_sge", 1 },
		{ "port", 1 }, { "dlid", 1 }, { "lid", 0xc001 }, { "dest_qpn", w->qpn }, { "state", 1 }, { "count", 1 },
		{ "segment", 1 }, { "wire", 1 }, { "generation", 1 }, { "session", ~0ull },
		{ "size", 4096 }, { "peer", 1 }, { "srqn", w->srqn }, { "create", 1 },
	};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		if (strcmp(values[i].name, name) == 0)
			return values[i].value;
	if (strcmp(name, "mr") == 0) {
		/* What other requests did to the session may make this one fail: 0 then. */
		if (!w->region)
			make_region(&w->link, w->pd, 4096, 0, NULL, &w->region);
		return w->region;
	}
	if (strcmp(name, "key") == 0 || strcmp(name, "spare_key") == 0)
		return (uint64_t)(w->key_first + w->key_next++ % w->keys) << 8;
	/* Of other types than XRC it means nothing. */
	if (strcmp(name, "xrcd") == 0)
		return operation->op == VSD__OP__OP_QP_OPEN ? w->xrcd : 0;
	if (strcmp(name, "qp") == 0)
		return operation->op == VSD__OP__OP_XRC_CONNECT ? w->xsend : w->ud;
	if (strcmp(name, "qpn") == 0 && operation->op == VSD__OP__OP_QP_OPEN)
		return w->xrecv_qpn;
	if (strcmp(name, "qpn") == 0)
		return operation->op == VSD__OP__OP_PEER_RESOLVE ? w->ud_qpn :
		       operation->op == VSD__OP__OP_REGION_GRANT ? w->qpn :
								   w->qpn_first + w->qpn_next++ % w->qpns;
	if (strcmp(name, "kind") == 0)
		return VSD__LEASE_KIND__LEASE_KEY;
	if (strcmp(name, "handle") == 0)
		return operation->op == VSD__OP__OP_QP_MODIFY ? w->qp :
		       operation->op == VSD__OP__OP_CQ_RESIZE ? w->cq :
		       operation->op == VSD__OP__OP_SRQ_MODIFY ? w->srq :
		       operation->op == VSD__OP__OP_MR_REREG  ? w->mr :
		       operation->op == VSD__OP__OP_MR_IMPORT ? w->mr :
		       operation->op == VSD__OP__OP_PD_IMPORT ? w->pd :
		       operation->op == VSD__OP__OP_QP_QUERY  ? w->xrecv :
								w->ah;
	if (strcmp(name, "type") == 0)
		return operation->op == VSD__OP__OP_QP_CREATE ? IBV_QPT_RC :
		       operation->op == VSD__OP__OP_MW_ALLOC  ? IBV_MW_TYPE_1 :
		       operation->op == VSD__OP__OP_DESTROY   ? VSD__OBJECT_TYPE__OBJ_AH :
		       operation->op == VSD__OP__OP_LIST      ? VSD__OBJECT_TYPE__OBJ_PD :
								0;
	return 0;
}

static void *member(ProtobufCMessage *request, unsigned offset)
{
	return (uint8_t *)request + offset;
}

static void field_set(ProtobufCMessage *request, const ProtobufCFieldDescriptor *field, uint64_t value)
{
	switch (field->type) {
	case PROTOBUF_C_TYPE_UINT64:
		*(uint64_t *)member(request, field->offset) = value;
		break;
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_ENUM:
		*(uint32_t *)member(request, field->offset) = (uint32_t)value;
		break;
	case PROTOBUF_C_TYPE_BOOL:
		*(protobuf_c_boolean *)member(request, field->offset) = value != 0;
		break;
	default:
		return;
	}
	if (field->label == PROTOBUF_C_LABEL_OPTIONAL)
		*(protobuf_c_boolean *)member(request, field->quantifier_offset) = true;
}

static void field_fill(ProtobufCMessage *request, const ProtobufCFieldDescriptor *field, struct world *world)
{
	ProtobufCBinaryData *bytes = member(request, field->offset);

	if (field->type == PROTOBUF_C_TYPE_STRING) {
		*(char **)member(request, field->offset) = strdup("soft0");
	} else if (field->type == PROTOBUF_C_TYPE_BYTES) {
		bool nonce = strcmp(field->name, "nonce") == 0;

		bytes->len = nonce ? VSD_NONCE_SIZE : 16;
		bytes->data = calloc(1, bytes->len);
		if (nonce)
			memcpy(bytes->data, world->link.nonce, bytes->len);
		if (strcmp(field->name, "gid") == 0) /* of a multicast group */
			bytes->data[0] = 0xff;
		if (field->label == PROTOBUF_C_LABEL_OPTIONAL)
			*(protobuf_c_boolean *)member(request, field->quantifier_offset) = true;
	}
}

ProtobufCMessage *request_make(const struct operation *operation, struct world *world, bool optional)
{
	const ProtobufCMessageDescriptor *type = operation->type;
	ProtobufCMessage *request = calloc(1, type->sizeof_message);

	protobuf_c_message_init(type, request);
	for (unsigned i = 0; i < type->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &type->fields[i];

		/* What a QP cannot be made without is optional for the protocol. */
		bool wanted = strcmp(field->name, "send_cq") == 0 || strcmp(field->name, "recv_cq") == 0;

		if (field->label == PROTOBUF_C_LABEL_OPTIONAL && !optional && !wanted)
			continue;
		field_set(request, field, name_value(operation, field->name, world));
		field_fill(request, field, world);
	}
	return request;
}

void request_set(ProtobufCMessage *request, const char *name, uint64_t value)
{
	const ProtobufCFieldDescriptor *field =
		protobuf_c_message_descriptor_get_field_by_name(request->descriptor, name);

	if (!field)
		abort();
	field_set(request, field, value);
}

void request_free(ProtobufCMessage *request)
{
	protobuf_c_message_free_unpacked(request, NULL);
}
