/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receiving datagrams. A wire of another process's is hostile: a descriptor that breaks the order breaks the wire, a
 * datagram with a wrong Q_Key or address, for a QP that does not listen, or with a source that its sender does not own is dropped.
 */
#include <errno.h>

#include "client/soft/datagram_private.h"
#include "client/soft/rt_private.h"
#include "client/soft/grh.h"
#include "client/soft/multicast.h"
#include "client/soft/qp_private.h"

#define KNOWN_FLAGS (VSD_F_FIRST | VSD_F_LAST | VSD_F_CHUNK | VSD_F_IMM | VSD_F_SOLICITED | VSD_F_GRH)

static bool listens(struct soft_qp *dst, const struct vsd_req *head)
{
	int state = qp_state(dst);

	return (state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
		       state == IBV_QPS_SQE) &&
	       head->ud.qkey == dst->attr.qkey && !atomic_load(&dst->priv->recv_failed);
}

/* Whether it was sent to this QP's port. To a group: whoever is in it was found by its name. */
static bool addressed(const struct soft_qp *dst, const struct vsd_req *head, const uint8_t *payload)
{
	const Vsd__Port *port = datagram_port(dst);

	return head->ud.dst_qpn == VSD_QPN_MCAST || !port ||
	       grh_addresses(port, head->ud.dlid, head->flags & VSD_F_GRH ? payload : NULL);
}

/* The first 40 bytes of the receive are the GRH's, whether there is one or not. */
static int place(struct soft_qp *dst, const struct vsd_req *head, const uint8_t *payload, uint32_t length)
{
	int err = 0;

	if (head->flags & VSD_F_GRH) {
		err = sge_receive(dst, 0, payload, QP_GRH);
		payload += QP_GRH;
	}
	return err < 0 ? err : sge_receive(dst, QP_GRH, payload, length);
}

static void receive_failed(struct soft_qp *dst, enum ibv_wc_status status)
{
	responder_cqe(dst, status, NULL);
	atomic_store(&dst->priv->recv_failed, true);
	rt_run_later(dst);
}

/* rq lock held. False: dropped. */
static bool receive(struct soft_qp *dst, const struct vsd_req *head, const uint8_t *payload)
{
	uint32_t length = head->len - (head->flags & VSD_F_GRH ? QP_GRH : 0);

	if (!listens(dst, head) || !addressed(dst, head, payload) || !responder_take(dst))
		return false;
	if (responder_room(&dst->priv->resp.recv) < QP_GRH + length) {
		receive_failed(dst, IBV_WC_LOC_LEN_ERR);
		return true;
	}
	if (place(dst, head, payload, length) < 0) {
		receive_failed(dst, IBV_WC_LOC_PROT_ERR);
		return true;
	}
	struct soft_cqe cqe = {
		.wc = {
			.opcode = IBV_WC_RECV,
			.byte_len = QP_GRH + length,
			.src_qp = head->ud.src_qpn,
			.slid = head->ud.slid,
			.sl = head->ud.sl,
			.pkey_index = head->ud.pkey_index,
		},
		.solicited = head->flags & VSD_F_SOLICITED,
	};

	if (head->flags & VSD_F_GRH)
		cqe.wc.wc_flags |= IBV_WC_GRH;
	if (head->flags & VSD_F_IMM) {
		cqe.wc.wc_flags |= IBV_WC_WITH_IMM;
		cqe.wc.imm_data = head->imm;
	}
	responder_cqe(dst, IBV_WC_SUCCESS, &cqe);
	rt_count(VSD_COUNT_BYTES_RECEIVED, length);
	return true;
}

void datagram_deliver(struct soft_qp *dst, const struct vsd_req *head, const uint8_t *payload)
{
	bool received = false;

	if (dst->init.qp_type == IBV_QPT_UD) {
		soft_lock(&dst->rq_lock);
		received = !dst->priv->stopped && receive(dst, head, payload);
		soft_unlock(&dst->rq_lock);
	}
	if (!received)
		rt_count(VSD_COUNT_DROPPED, 1);
}

static bool legal(const struct wire *wire, const struct vsd_req *head, uint64_t expected)
{
	uint32_t grh = head->flags & VSD_F_GRH ? QP_GRH : 0;

	(void)wire;
	return head->op == VSD_REQ_DATAGRAM && !(head->flags & ~KNOWN_FLAGS) &&
	       (head->flags & VSD_F_FIRST) && (head->flags & VSD_F_LAST) && head->len == head->total &&
	       head->len >= grh && head->len - grh <= QP_UD_MTU && head->msn == (uint32_t)expected;
}

/* The map page says whose a QP number is. A process that is gone has none there any more; what it sent before is its. */
static bool source_is_peers(struct wire *wire, uint32_t qpn)
{
	uint32_t owner = rt_qpn_owner(qpn), range = (qpn >> VSD_MAP_SHIFT) + 1;

	if (owner == wire->pair->peer)
		wire->src_range = range;
	return owner == wire->pair->peer || (owner == 0 && wire->src_range == range);
}

/* False: nobody here is meant. Groups end at the domain. */
static bool arrived(const struct wire *wire, const struct vsd_req *head, const uint8_t *payload)
{
	struct soft_qp *dst;

	if (head->ud.dst_qpn == VSD_QPN_MCAST)
		return pair_is_kin(wire->pair) && mcast_arrived(head, payload);
	dst = rt_qp_get(head->ud.dst_qpn);
	if (!dst)
		return false;
	datagram_deliver(dst, head, payload);
	rt_qp_put(dst);
	return true;
}

/* Only the thread that holds the runtime's progress comes here. The count of what was received is the wire's acked. */
bool datagram_service(struct wire *wire)
{
	uint64_t n = 0, received = atomic_load_explicit(&wire->mine->acked, memory_order_relaxed);
	uint8_t inline_payload[VSD_INLINE_RW];
	struct vsd_req head;
	int rc = 0;

	if (wire->broken)
		return false;
	wire_look(wire);
	if (!wire_is_open(wire))
		return false;
	for (; n < QP_TURN_WRS; n++) {
		rc = wire_req_peek(wire, &head);
		if (rc <= 0)
			break;
		if (!order_is_kept_cold(wire)) {
			rt.leftover = true;
			break;
		}
		if (!legal(wire, &head, received + n)) {
			rc = -EPROTO;
			break;
		}
		if (!source_is_peers(wire, head.ud.src_qpn) ||
			!arrived(wire, &head, wire_req_payload(wire, &head, inline_payload)))
			rt_count(VSD_COUNT_DROPPED, 1);
		wire_req_consume(wire, &head);
	}
	if (rc < 0)
		wire->broken = true;
	if (n) {
		wire_ack(wire, received + n);
		wire_notify_space(wire);
	}
	datagram_wake(wire);
	return n != 0;
}
