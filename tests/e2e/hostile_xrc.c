/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC domains, receive QPs and SRQs that are somebody else's, are of another domain, or are not there; and destroying them
 * in every wrong order.
 */
#include "hostile.h"

#include <errno.h>

#include <infiniband/verbs.h>

#define SHARED_FIELDS 27

static int xrcd_open(struct link *link, uint64_t inode, bool create, bool exclusive, uint32_t *xrcd)
{
	Vsd__XrcdOpenRequest request = VSD__XRCD_OPEN_REQUEST__INIT;

	request.context = link->context;
	request.has_device = request.has_inode = true;
	request.device = 0xfeed;
	request.inode = inode;
	request.create = create;
	request.exclusive = exclusive;
	return make_object(link, VSD__OP__OP_XRCD_OPEN, &request.base, xrcd);
}

static int qp_open(struct link *link, uint32_t xrcd, uint32_t qpn, uint32_t *qp)
{
	Vsd__QpOpenRequest request = VSD__QP_OPEN_REQUEST__INIT;

	request.context = link->context;
	request.xrcd = xrcd;
	request.qpn = qpn;
	return make_object(link, VSD__OP__OP_QP_OPEN, &request.base, qp);
}

static int xrc_qp(struct world *w, unsigned type, uint32_t xrcd, uint32_t qpn, uint32_t *qp)
{
	Vsd__QpCreateRequest request = VSD__QP_CREATE_REQUEST__INIT;

	request.context = w->link.context;
	request.type = type;
	request.qpn = qpn;
	request.has_xrcd = xrcd != 0;
	request.xrcd = xrcd;
	return make_object(&w->link, VSD__OP__OP_QP_CREATE, &request.base, qp);
}

static int xrc_connect(struct link *link, uint32_t qp, uint32_t srqn)
{
	Vsd__XrcConnectRequest request = VSD__XRC_CONNECT_REQUEST__INIT;

	request.context = link->context;
	request.qp = qp;
	request.srqn = srqn;
	return link_call(link, VSD__OP__OP_XRC_CONNECT, &request.base, NULL);
}

static int xrc_report(struct link *link, const Vsd__EvWire *wire, uint32_t event)
{
	Vsd__XrcReportRequest request = VSD__XRC_REPORT_REQUEST__INIT;

	request.segment = wire->segment;
	request.wire = wire->wire;
	request.generation = wire->generation;
	request.has_event = true;
	request.event = event;
	return link_call(link, VSD__OP__OP_XRC_REPORT, &request.base, NULL);
}

/* One that nobody else has, with or without what it needs. */
static void xrc_objects(void)
{
	struct world mine, other;
	uint32_t a, b, handle;

	world_make(&mine);
	world_make(&other);

	struct link *link = &mine.link;

	must_be(xrcd_open(link, 7, false, false, &a), EAGAIN, "an inode that nobody has");
	must_be(xrcd_open(link, 7, true, true, &a), 0, "a new one");
	must_be(xrcd_open(&other.link, 7, true, true, &b), EINVAL, "a new one that is there");
	must_be(xrcd_open(&other.link, 7, false, false, &b), 0, "one that is there");
	must_be(qp_open(link, a, mine.xrecv_qpn, &handle), EINVAL, "a receive QP of another XRCD");
	must_be(qp_open(link, mine.xrcd, other.xrecv_qpn, &handle), EINVAL, "a receive QP of somebody else's XRCD");
	must_be(qp_open(link, mine.xrcd, mine.xsend_qpn, &handle), EINVAL, "a send QP as a receive QP");
	must_be(qp_open(link, mine.xrcd, mine.srqn, &handle), EINVAL, "an SRQ as a receive QP");
	must_be(qp_open(link, mine.xrcd, 0, &handle), EINVAL, "receive QP 0");
	must_be(qp_open(link, mine.xrcd, 0xffffffffu, &handle), EINVAL, "receive QP -1");
	must_be(xrc_qp(&mine, IBV_QPT_XRC_RECV, 0, 0, &handle), EINVAL, "a receive QP without an XRCD");
	must_be(xrc_qp(&mine, IBV_QPT_XRC_RECV, other.xrcd + 1000, 0, &handle), EINVAL, "one of an XRCD that is none");
	must_be(xrc_qp(&mine, IBV_QPT_XRC_RECV, mine.xrcd, mine.xrecv_qpn, &handle), EINVAL, "one of a chosen number");
	must_be(xrc_qp(&mine, IBV_QPT_XRC_SEND, mine.xrcd, mine.qpn_first + 20, &handle), EINVAL, "a send QP without a PD");
	must_be(make_qp(link, mine.pd, mine.cq, IBV_QPT_XRC_SEND, mine.qpn_first + 20, &handle), EINVAL,
		"a send QP that receives");
	must_be(destroy(link, VSD__OBJECT_TYPE__OBJ_XRCD, mine.xrcd), EBUSY, "an XRCD with a QP and an SRQ");
	must_be(destroy(link, VSD__OBJECT_TYPE__OBJ_CQ, mine.cq), EBUSY, "the CQ of an XRC SRQ");
	must_be(destroy(link, VSD__OBJECT_TYPE__OBJ_QP, mine.xrecv), 0, "the receive QP");
	must_be(destroy(link, VSD__OBJECT_TYPE__OBJ_XRCD, mine.xrcd), EBUSY, "an XRCD with an SRQ");
	must_be(destroy(link, VSD__OBJECT_TYPE__OBJ_SRQ, mine.xsrq), 0, "the SRQ");
	must_be(destroy(link, VSD__OBJECT_TYPE__OBJ_XRCD, mine.xrcd), 0, "an XRCD with nothing on it");
	must_be(destroy(link, VSD__OBJECT_TYPE__OBJ_XRCD, mine.xrcd), EINVAL, "it again");
	world_end(&other);
	world_end(&mine);
}

static int set_shared(struct link *link, uint32_t qp, unsigned state, uint32_t mask, size_t n, uint32_t value)
{
	Vsd__QpModifyRequest request = VSD__QP_MODIFY_REQUEST__INIT;
	Vsd__SharedAttr attr = VSD__SHARED_ATTR__INIT;
	uint32_t values[64];

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		values[i] = value;
	request.context = link->context;
	request.handle = qp;
	request.state = state;
	request.attr = &attr;
	attr.mask = mask;
	attr.values = values;
	attr.n_values = n;
	return link_call(link, VSD__OP__OP_QP_MODIFY, &request.base, NULL);
}

/* Attributes that are too many, too few, or nonsense; states that do not follow; others that have it open see it. */
static void xrc_attributes(void)
{
	Vsd__QpQueryRequest query = VSD__QP_QUERY_REQUEST__INIT;
	struct world w;
	uint32_t again;

	world_make(&w);

	struct link *link = &w.link;

	must_be(qp_open(link, w.xrcd, w.xrecv_qpn, &again), 0, "the receive QP a second time");
	must_be(set_shared(link, w.xrecv, IBV_QPS_INIT, 1u << SHARED_FIELDS, 1, 1), EINVAL, "an attribute that is none");
	must_be(set_shared(link, w.xrecv, IBV_QPS_INIT, 7, 2, 1), EINVAL, "a value too few");
	must_be(set_shared(link, w.xrecv, IBV_QPS_INIT, 7, 60, 1), EINVAL, "values too many");
	must_be(set_shared(link, w.xrecv, IBV_QPS_INIT, 1, 1, 0xffffffffu), EINVAL, "access of every kind");
	must_be(set_shared(link, w.xrecv, IBV_QPS_INIT, 1u << VSD__SHARED_FIELD__FIELD_MIN_RNR_TIMER, 1, 32), EINVAL,
		"an RNR timer past the last");
	must_be(set_shared(link, w.xrecv, IBV_QPS_INIT, 1u << VSD__SHARED_FIELD__FIELD_MAX_DEST_RD_ATOMIC, 1, 200),
		EINVAL, "200 READs at a time");
	must_be(set_shared(link, w.xsend, IBV_QPS_INIT, 1, 1, 1), EINVAL, "a send QP that is shared");
	must_be(modify(link, w.xrecv, IBV_QPS_RTS, 0), EINVAL, "RESET to RTS");
	must_be(set_shared(link, w.xrecv, IBV_QPS_INIT, 1, 1, 6), 0, "INIT");
	must_be(modify(link, again, IBV_QPS_RTR, 0), EINVAL, "RTR without a destination");
	must_be(modify(link, again, IBV_QPS_RTR, w.xsend_qpn), 0, "RTR by the other one");
	query.context = link->context;
	query.handle = w.xrecv;
	must_be(link_call(link, VSD__OP__OP_QP_QUERY, &query.base, &vsd__qp_query_reply__descriptor), 0, "the query");
	if (!link->reply || ((Vsd__QpQueryReply *)link->reply)->state != IBV_QPS_RTR)
		complain("the receive QP is in another state for who made it");
	query.handle = w.xsend;
	must_be(link_call(link, VSD__OP__OP_QP_QUERY, &query.base, NULL), EINVAL, "a query of a QP that is not shared");
	must_be(destroy(link, VSD__OBJECT_TYPE__OBJ_QP, w.xrecv), 0, "its maker's");
	query.handle = again;
	must_be(link_call(link, VSD__OP__OP_QP_QUERY, &query.base, NULL), 0, "what the other one has still");
	must_be(destroy(link, VSD__OBJECT_TYPE__OBJ_QP, again), 0, "the last one");
	must_be(qp_open(link, w.xrcd, w.xrecv_qpn, &again), EINVAL, "one that is gone");
	world_end(&w);
}

static void connect_xrc(struct world *from, struct world *to)
{
	must_be(modify(&from->link, from->xsend, IBV_QPS_INIT, 0), 0, "INIT");
	must_be(modify(&to->link, to->xrecv, IBV_QPS_INIT, 0), 0, "INIT");
	must_be(modify(&from->link, from->xsend, IBV_QPS_RTR, to->xrecv_qpn), 0, "RTR");
	must_be(modify(&to->link, to->xrecv, IBV_QPS_RTR, from->xsend_qpn), 0, "RTR");
}

/* Wires only to SRQs of the domain, reports only of what one serves. */
static void xrc_wires(void)
{
	struct world a, b, c;
	ProtobufCMessage *wire, *refused, *event;

	world_make(&a);
	world_make(&b);
	world_make(&c);
	must_be(xrc_connect(&a.link, a.qp, b.srqn), EINVAL, "an SRQ for an RC QP");
	must_be(xrc_connect(&a.link, a.xsend, b.srqn), EINVAL, "an SRQ for a QP in RESET");
	connect_xrc(&a, &b);
	must_be(xrc_connect(&a.link, a.xsend, b.srqn), 0, "the SRQ");
	wire = link_event(&a.link, VSD__OP__EV_WIRE, &vsd__ev_wire__descriptor, 1000);
	if (!wire) {
		complain("no wire to an XRC SRQ");
		goto out;
	}
	must_be(xrc_report(&a.link, (Vsd__EvWire *)wire, IBV_EVENT_QP_FATAL), ENOENT, "a report of the sender's");
	must_be(xrc_report(&c.link, (Vsd__EvWire *)wire, IBV_EVENT_QP_FATAL), ENOENT, "a report of somebody else's");
	must_be(xrc_report(&b.link, (Vsd__EvWire *)wire, IBV_EVENT_CQ_ERR), EINVAL, "an event of no QP");
	must_be(xrc_report(&b.link, (Vsd__EvWire *)wire, 4000), EINVAL, "an event that is none");
	must_be(xrc_connect(&a.link, a.xsend, c.srqn), 0, "an SRQ of another XRCD");
	refused = link_event(&a.link, VSD__OP__EV_XRC_REFUSED, &vsd__ev_xrc_refused__descriptor, 1000);
	event = link_event(&b.link, VSD__OP__EV_XRC_EVENT, &vsd__ev_xrc_event__descriptor, 1000);
	if (!refused || ((Vsd__EvXrcRefused *)refused)->srqn != c.srqn)
		complain("an SRQ of another XRCD was not refused");
	if (!event || ((Vsd__EvXrcEvent *)event)->event != IBV_EVENT_QP_ACCESS_ERR)
		complain("who has the receive QP was not told");
	must_be(xrc_report(&b.link, (Vsd__EvWire *)wire, IBV_EVENT_QP_FATAL), ENOENT, "a report after the QP failed");
	protobuf_c_message_free_unpacked(refused, NULL);
	protobuf_c_message_free_unpacked(event, NULL);
	protobuf_c_message_free_unpacked(wire, NULL);
out:
	world_end(&c);
	world_end(&b);
	world_end(&a);
}

static int xrc_connect_of(struct link *link, uint32_t qp, uint32_t srqn, uint32_t resets)
{
	Vsd__XrcConnectRequest request = VSD__XRC_CONNECT_REQUEST__INIT;

	request.context = link->context;
	request.qp = qp;
	request.srqn = srqn;
	request.has_resets = true;
	request.resets = resets;
	return link_call(link, VSD__OP__OP_XRC_CONNECT, &request.base, NULL);
}

static uint32_t recv_state(struct world *w)
{
	Vsd__QpQueryRequest query = VSD__QP_QUERY_REQUEST__INIT;

	query.context = w->link.context;
	query.handle = w->xrecv;
	must_be(link_call(&w->link, VSD__OP__OP_QP_QUERY, &query.base, &vsd__qp_query_reply__descriptor), 0, "the query");
	return w->link.reply ? ((Vsd__QpQueryReply *)w->link.reply)->state : 0;
}

/* What a QP asked for before it was reset does nothing to its new connection. */
static void xrc_of_before(void)
{
	struct world a, b, c;

	world_make(&a);
	world_make(&b);
	world_make(&c);
	connect_xrc(&a, &b);
	must_be(modify(&a.link, a.xsend, IBV_QPS_RESET, 0), 0, "RESET");
	must_be(modify(&b.link, b.xrecv, IBV_QPS_RESET, 0), 0, "RESET");
	connect_xrc(&a, &b);
	must_be(xrc_connect_of(&a.link, a.xsend, c.srqn, 0), 0, "an SRQ of another XRCD, asked for before the reset");
	if (recv_state(&b) != IBV_QPS_RTR)
		complain("the receive QP failed for what was asked for before the reset");
	must_be(xrc_connect_of(&a.link, a.xsend, c.srqn, 1), 0, "an SRQ of another XRCD");
	if (recv_state(&b) != IBV_QPS_ERR)
		complain("an SRQ of another XRCD was not refused");
	world_end(&c);
	world_end(&b);
	world_end(&a);
}

/* Asked for again and again, and by QPs whose receive QP comes and goes. */
static void xrc_churn(void)
{
	struct world a, b;
	uint32_t again;

	world_make(&a);
	world_make(&b);
	for (unsigned i = 0; i < 50 * setting.scale; i++) {
		must_be(modify(&a.link, a.xsend, IBV_QPS_RESET, 0), 0, "RESET");
		must_be(modify(&b.link, b.xrecv, IBV_QPS_RESET, 0), 0, "RESET");
		connect_xrc(&a, &b);
		must_be(xrc_connect(&a.link, a.xsend, b.srqn), 0, "the SRQ");
		must_be(xrc_connect(&a.link, a.xsend, b.srqn), 0, "the SRQ again");
		if (chance() & 1)
			must_be(qp_open(&b.link, b.xrcd, b.xrecv_qpn, &again), 0, "once more");
		else
			again = 0;
		if (again)
			must_be(destroy(&b.link, VSD__OBJECT_TYPE__OBJ_QP, again), 0, "once less");
	}
	world_end(&b);
	world_end(&a);
}

const struct attack attacks_xrc[] = {
	{ "xrc_objects", xrc_objects }, { "xrc_attributes", xrc_attributes }, { "xrc_wires", xrc_wires },
	{ "xrc_of_before", xrc_of_before }, { "xrc_churn", xrc_churn }, { NULL, NULL },
};
