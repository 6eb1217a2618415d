/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transmitting half of the requester: takes WRs in order and either runs an engine on them or puts them into the
 * request lane. It stops, and is resumed by a turn, where a slot, a chunk, a READ credit, a fence or the wire itself is
 * missing. It never waits, and one turn copies at most QP_SLICE bytes into chunks, and QP_COPY_SLICE by
 * engines, or QP_CMA_SLICE.
 */
#include <errno.h>

#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"
#include "client/soft/xrc.h"

static const uint8_t lane_ops[] = {
	[IBV_WR_RDMA_WRITE] = VSD_REQ_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = VSD_REQ_WRITE,
	[IBV_WR_SEND] = VSD_REQ_SEND,
	[IBV_WR_SEND_WITH_IMM] = VSD_REQ_SEND,
	[IBV_WR_SEND_WITH_INV] = VSD_REQ_SEND,
	[IBV_WR_RDMA_READ] = VSD_REQ_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = VSD_REQ_CMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = VSD_REQ_FETCH_ADD,
	[IBV_WR_ATOMIC_WRITE] = VSD_REQ_ATOMIC_WRITE,
};

static bool has_address(const struct swqe *w)
{
	return w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || w->opcode == IBV_WR_RDMA_READ ||
	       w->opcode == IBV_WR_ATOMIC_WRITE;
}

/* The peer is told what this operation has, and nothing that a WR before it left in the WQE. */
static void lane_head(struct requester *req, const struct swqe *w, struct vsd_req *head)
{
	*head = (struct vsd_req){
		.op = lane_ops[w->opcode],
		.msn = (uint32_t)req->msn,
		.total = w->length,
	};
	if (w->opcode == IBV_WR_SEND_WITH_IMM || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		head->flags |= VSD_F_IMM;
	if (w->opcode == IBV_WR_SEND_WITH_INV)
		head->flags |= VSD_F_INV;
	if (head->flags & (VSD_F_IMM | VSD_F_INV))
		head->imm = w->imm;
	if (w->flags & IBV_SEND_SOLICITED)
		head->flags |= VSD_F_SOLICITED;
	if (w->off == 0)
		head->flags |= VSD_F_FIRST | (req->restart ? VSD_F_RESTART : 0);
	if (w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		head->atomic.raddr = w->raddr;
		head->atomic.rkey = w->rkey;
		head->atomic.compare = w->compare_add;
		head->atomic.swap_add = w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? w->swap :
										 w->compare_add;
	} else if (has_address(w)) {
		head->rw.raddr = w->raddr;
		head->rw.rkey = w->rkey;
	}
}

/* Room for @slots slots of requests: 1, 0 (the peer will tell), -EPROTO. */
static int lane_room(struct wire *wire, unsigned slots)
{
	int space = wire_req_space(wire);

	if (space >= 0 && space < (int)slots) {
		wire_want_space(wire, WIRE_WANT_REQ);
		space = wire_req_space(wire);
	}
	return space < 0 ? space : space >= (int)slots;
}

static void lane_put(struct soft_qp *qp, struct wire *wire, struct swqe *w, struct vsd_req *head,
	const void *payload, int chunk)
{
	struct requester *req = &qp->priv->req;

	if (head->flags & VSD_F_FIRST) {
		w->msn = req->msn;
		req->restart = false;
		if (!engine_is_for(w))
			req->owners = req->tx + 1;
	}
	w->off += head->len;
	w->state = SWQE_PARTIAL;
	if (head->flags & VSD_F_LAST) {
		req->msn++;
		w->state = qp_is_rc(qp) ? SWQE_SENT : SWQE_DONE;
	}
	wire_req_put(wire, head, payload, chunk);
	req->notify = true;
}

/* READs and atomics: one descriptor, no payload; `off` counts what came back. */
static int lane_request(struct soft_qp *qp, struct wire *wire, struct swqe *w)
{
	struct requester *req = &qp->priv->req;
	struct vsd_req head;
	int rc;

	if (req->rd_out >= qp->attr.max_rd_atomic)
		return 0;
	rc = sge_check(qp, w->sge, w->n_sge, IBV_ACCESS_LOCAL_WRITE);
	if (rc < 0)
		return rc;
	rc = lane_room(wire, 1);
	if (rc <= 0)
		return rc;
	lane_head(req, w, &head);
	head.flags |= VSD_F_LAST;
	head.slots = 1;
	lane_put(qp, wire, w, &head, NULL, -1);
	req->rd_out++;
	return 1;
}

/* The whole message inside descriptors. -EOVERFLOW: it does not fit. */
static int lane_inline(struct soft_qp *qp, struct wire *wire, struct swqe *w)
{
	uint8_t payload[VSD_INLINE_RW];
	struct vsd_req head;
	unsigned slots;
	int rc;

	if (w->length > VSD_INLINE_RW)
		return -EOVERFLOW;
	lane_head(&qp->priv->req, w, &head);
	slots = wire_req_slots(wire, &head, w->length);
	if (!slots)
		return -EOVERFLOW;
	rc = lane_room(wire, slots);
	if (rc <= 0)
		return rc;
	rc = swqe_gather(qp, w, 0, payload, w->length);
	if (rc < 0)
		return rc;
	head.flags |= VSD_F_LAST;
	head.slots = slots;
	head.len = w->length;
	lane_put(qp, wire, w, &head, payload, -1);
	return 1;
}

/* One chunk of a message: 1 when it is in the lane. */
static int lane_chunk(struct soft_qp *qp, struct wire *wire, struct swqe *w)
{
	struct vsd_req head;
	int rc = lane_room(wire, 1);

	if (rc <= 0)
		return rc;
	int chunk = pair_chunk_get(wire->pair, POOL_REQ, qp);

	if (chunk < 0)
		return 0;
	lane_head(&qp->priv->req, w, &head);
	head.slots = 1;
	head.flags |= VSD_F_CHUNK;
	head.len = w->length - w->off < VSD_CHUNK ? w->length - w->off : VSD_CHUNK;
	if (w->off + head.len == w->length)
		head.flags |= VSD_F_LAST;
	rc = swqe_gather(qp, w, w->off, pair_chunk(wire->pair, POOL_REQ, chunk), head.len);
	if (rc < 0) {
		pair_chunk_put(wire->pair, POOL_REQ, chunk);
		return rc;
	}
	head.rw.chunk = chunk;
	lane_put(qp, wire, w, &head, NULL, chunk);
	return 1;
}

/* The message as one descriptor, for the peer to fetch. */
static int lane_pull(struct soft_qp *qp, struct wire *wire, struct swqe *w)
{
	struct vsd_req head;
	int rc = lane_room(wire, 1);

	if (rc <= 0)
		return rc;
	lane_head(&qp->priv->req, w, &head);
	head.op = VSD_REQ_PULL;
	head.flags |= VSD_F_LAST;
	head.slots = 1;
	head.rw.raddr = w->sge->addr;
	head.rw.rkey = w->sge->lkey;
	w->pulled = true;
	lane_put(qp, wire, w, &head, NULL, -1);
	return 1;
}

static int lane_message(struct soft_qp *qp, struct wire *wire, struct swqe *w, uint32_t *budget)
{
	int rc;

	if (w->off == 0) {
		rc = lane_inline(qp, wire, w);
		if (rc != -EOVERFLOW)
			return rc;
		/* The whole message is looked at first: nothing of one with a bad key is sent. */
		rc = w->flags & IBV_SEND_INLINE ? 0 : sge_check(qp, w->sge, w->n_sge, 0);
		if (rc < 0)
			return rc;
		pull_choose(qp, wire, w);
		if (pull_is_for(qp, wire, w))
			return lane_pull(qp, wire, w);
		w->pulled = false;
	}
	do {
		uint64_t before = w->off;

		if (!*budget) {
			qp_again(qp);
			return 0;
		}
		rc = lane_chunk(qp, wire, w);
		if (rc <= 0)
			return rc;
		uint64_t copied = w->off - before;

		*budget -= copied < *budget ? copied : *budget;
	} while (w->state == SWQE_PARTIAL);
	return 1;
}

static int run_local_inv(struct soft_qp *qp, struct swqe *w)
{
	if (key_invalidate(w->imm, qp, false) < 0) {
		requester_fail(qp, w, IBV_WC_LOC_QP_OP_ERR);
		return -ECANCELED;
	}
	w->state = SWQE_DONE;
	return 1;
}

static int run_bind(struct soft_qp *qp, struct swqe *w)
{
	if (mw_bind(&w->bind, qp, w->rkey) < 0) {
		requester_fail(qp, w, IBV_WC_MW_BIND_ERR);
		return -ECANCELED;
	}
	w->state = SWQE_DONE;
	return 1;
}

/*
 * A UC message whose peer is gone is lost at once; before the wire is there it waits for a while. A wire that was closed
 * before anything went through it may be of the peer's life before: the one to come is still on its way. So it may be
 * when the peer came back before the message was posted: then what the daemon said of that is in the socket.
 */
static int unlinked(struct soft_qp *qp, const struct wire *wire, struct swqe *w)
{
	if (qp_is_rc(qp) || !wire || !wire_is_closed(wire) || !qp->priv->req.known || events_unread())
		return 0;
	w->state = SWQE_DONE;
	qp_count(qp, VSD_COUNT_DROPPED, 1);
	return 1;
}

/* Bytes that are left to a turn. */
struct budget {
	uint32_t chunks, engines;
};

static int transmit(struct soft_qp *qp, struct wire *wire, struct swqe *w, struct budget *budget)
{
	struct requester *req = &qp->priv->req;

	/* Of what is repeated: what this process did itself, behind what its peer was not ready for, is not done twice. */
	if (w->state == SWQE_DONE)
		return 1;
	if ((w->flags & IBV_SEND_FENCE) && req->rd_out)
		return 0;
	if (w->opcode == IBV_WR_LOCAL_INV)
		return run_local_inv(qp, w);
	if (w->opcode == IBV_WR_BIND_MW)
		return run_bind(qp, w);
	if (qp->init.qp_type == IBV_QPT_UD)
		return datagram_send(qp, w);
	if (qp->xrc) {
		int rc = xrc_route(qp, w);

		if (rc <= 0)
			return rc;
		wire = atomic_load_explicit(&qp->wire, memory_order_relaxed);
	}
	/* Nobody repeats what is put into a wire that its peer has closed since the last look. */
	if (!qp_is_rc(qp) && wire)
		wire_look(wire);
	if (!requester_link(qp, wire))
		return unlinked(qp, wire, w);
	req->known = true;
	if (req->rnr_at)
		return 0;
	bool turn = req->una == req->tx && req->acked == req->msn;

	/* datapath.md 3: an engine only when no earlier WR waits for the owner. */
	if (!turn && w->state == SWQE_QUEUED && !w->lane_only && req->owners <= req->una &&
		qp_is_rc(qp) && engine_awaits_turn(qp, wire, w))
		return 0;
	if (turn && !w->lane_only && w->state != SWQE_PARTIAL &&
		(w->opcode == IBV_WR_RDMA_WRITE || swqe_has_response(w))) {
		enum engine_result result = engine_run(qp, wire, w, &budget->engines);

		if (result == ENGINE_DONE) {
			w->state = SWQE_DONE;
			return 1;
		}
		if (result == ENGINE_MORE) {
			w->state = SWQE_ENGINE;
			qp_again(qp);
			return 0;
		}
		if (result == ENGINE_FAILED)
			return -ECANCELED;
		w->lane_only = true;
		w->off = 0;
	}
	if (swqe_takes_resources(w) && !qp->attr.max_rd_atomic) {
		requester_fail(qp, w, IBV_WC_LOC_QP_OP_ERR);
		return -ECANCELED;
	}
	return swqe_has_response(w) ? lane_request(qp, wire, w) : lane_message(qp, wire, w, &budget->chunks);
}

static bool may_transmit(struct soft_qp *qp, const struct swqe *w)
{
	int state = qp_state(qp);

	if (w->state == SWQE_FAILED || qp->priv->failure != QP_FINE)
		return false;
	return state == IBV_QPS_RTS ||
	       (state == IBV_QPS_SQD && qp->priv->req.tx < qp->priv->req.started);
}

bool requester_push(struct soft_qp *qp)
{
	struct requester *req = &qp->priv->req;
	struct wire *wire = atomic_load_explicit(&qp->wire, memory_order_relaxed);
	struct budget budget = { .chunks = QP_SLICE, .engines = QP_COPY_SLICE };
	bool did = false;

	if (rt_owes() && req->tx != req->head) {
		rt_run_later(qp);
		return false;
	}
	for (unsigned n = 0; req->tx != req->head; n++) {
		struct swqe *w = swqe_at(req, req->tx);

		if (!may_transmit(qp, w))
			break;
		if (n == QP_TURN_WRS) {
			qp_again(qp);
			break;
		}
		int rc = transmit(qp, wire, w, &budget);

		if (w->state != SWQE_QUEUED && req->started <= req->tx)
			req->started = req->tx + 1;
		if (rc == -EPROTO)
			qp_fail(qp, QP_FAIL_WIRE, IBV_EVENT_QP_FATAL);
		else if (rc < 0 && rc != -ECANCELED)
			requester_fail(qp, w, IBV_WC_LOC_PROT_ERR);
		if (rc <= 0)
			break;
		req->tx++;
		did = true;
		if (w->state == SWQE_DONE)
			requester_complete(qp);
	}
	return did;
}

void requester_back(struct soft_qp *qp, uint64_t pos, uint64_t msn)
{
	struct requester *req = &qp->priv->req;

	for (uint64_t p = pos; p != req->head && p <= req->tx; p++) {
		struct swqe *w = swqe_at(req, p);

		if (w->state == SWQE_FAILED || w->state == SWQE_DONE)
			continue;
		if (w->state == SWQE_SENT && swqe_has_response(w))
			req->rd_out--;
		w->state = SWQE_QUEUED;
		w->off = 0;
		w->timed = false;
	}
	req->tx = pos;
	req->msn = msn;
	req->run = (struct way_run){ 0 };
	req->aimed = 0;
	if (req->ackpos > pos)
		req->ackpos = pos;
	if (req->rsp > pos)
		req->rsp = pos;
}

void requester_reset(struct soft_qp *qp)
{
	struct requester *req = &qp->priv->req;

	req->head = req->tx = req->una = req->owners = req->started = req->ackpos = req->rsp = 0;
	atomic_store(&req->freed, 0);
	req->internals = req->internals_done = 0;
	req->msn = req->acked = 0;
	req->rd_out = 0;
	req->no_pull = false;
	req->run = (struct way_run){ 0 };
	req->restart = req->resp_dirty = req->notify = req->known = false;
	req->drained = false;
	req->rnr_at = req->retry_at = req->lost_at = 0;
	req->recvs_seen = 0;
	req->aimed = req->asked = 0;
	req->unanswered = 0;
	req->lost = 0;
}
