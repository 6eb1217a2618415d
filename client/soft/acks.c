/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The receiving half of the requester: acknowledgements, responses, RNR and NAK, and what time alone decides. WRs are
 * completed in order, one completion per signalled WR, and a place in the SQ is free again when the program has
 * read the completion of a signalled WR at or behind it.
 */
#include <errno.h>
#include <string.h>

#include "client/soft/copy.h"
#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"

static const uint8_t wc_opcodes[] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
	[IBV_WR_SEND] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_INV] = IBV_WC_SEND,
	[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
	[IBV_WR_LOCAL_INV] = IBV_WC_LOCAL_INV,
	[IBV_WR_BIND_MW] = IBV_WC_BIND_MW,
	[IBV_WR_ATOMIC_WRITE] = IBV_WC_ATOMIC_WRITE,
};

/* The delay that a responder's min_rnr_timer asks for, in units of 10 µs (the table of the verbs man page). */
static const uint32_t rnr_delays[32] = {
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

void requester_done(struct soft_qp *qp, uint64_t wr_id, unsigned opcode, uint32_t length, enum ibv_wc_status status)
{
	struct requester *req = &qp->priv->req;
	uint64_t freed_to = req->una + 1 - req->internals_done;
	struct soft_cq_place at;

	if (!qp->send_cq) {
		soft_freed(&req->freed, freed_to);
		return;
	}
	if (!soft_cq_begin(qp->send_cq, &at)) {
		qp_fail(qp, QP_FAIL_CQ, IBV_EVENT_QP_FATAL);
		return;
	}
	soft_wc_fill(at.wc, wr_id, status, wc_opcodes[opcode], length, qp->v.qp.qp_num);
	soft_cq_end(qp->send_cq, &at, qp, status != IBV_WC_SUCCESS, &req->freed, freed_to);
}

void requester_cqe(struct soft_qp *qp, const struct swqe *w, enum ibv_wc_status status)
{
	if (w->internal)
		tag_fetched(qp, w, status);
	else
		requester_done(qp, w->wr_id, w->opcode, w->length, status);
}

/* Bytes of a WR in the direction that they went; atomics and local operations move none. */
static void count_bytes(const struct swqe *w, uint64_t *sent, uint64_t *received)
{
	if (w->opcode == IBV_WR_RDMA_READ)
		*received += w->length;
	else if (!swqe_has_response(w) && w->opcode != IBV_WR_LOCAL_INV && w->opcode != IBV_WR_BIND_MW)
		*sent += w->length;
}

void requester_complete(struct soft_qp *qp)
{
	struct requester *req = &qp->priv->req;
	uint64_t sent = 0, received = 0;

	for (; req->una != req->head; req->una++) {
		const struct swqe *w = swqe_at(req, req->una);

		if (w->state == SWQE_FAILED)
			qp_fail(qp, QP_FAIL_SEND, -1);
		if (w->state != SWQE_DONE)
			break;
		count_bytes(w, &sent, &received);
		if (qp->init.sq_sig_all || (w->flags & IBV_SEND_SIGNALED) || w->internal)
			requester_cqe(qp, w, IBV_WC_SUCCESS);
	}
	if (sent)
		qp_count(qp, VSD_COUNT_BYTES_SENT, sent);
	if (received)
		qp_count(qp, VSD_COUNT_BYTES_RECEIVED, received);
}

void requester_fail(struct soft_qp *qp, struct swqe *w, enum ibv_wc_status status)
{
	struct requester *req = &qp->priv->req;

	if (w->state == SWQE_PARTIAL)
		req->msn++; /* of an unreliable message that breaks off */
	w->state = SWQE_FAILED;
	w->status = status;
	requester_complete(qp);
}

/* All messages before @acked reached their owner; READs and atomics complete by their responses. */
static void mark_acked(struct requester *req, uint64_t acked)
{
	req->acked = acked;
	if (req->ackpos < req->una) /* engines completed some; older places hold other WRs by now */
		req->ackpos = req->una;
	for (; req->ackpos < req->tx; req->ackpos++) {
		struct swqe *w = swqe_at(req, req->ackpos);

		if (w->state != SWQE_SENT)
			continue;
		if (w->msn >= acked)
			return;
		if (w->timed)
			way_run_add(&req->run, w->length, w->pulled ? WAY_FETCH : WAY_CHUNKS);
		else if (w->length >= PULL_MIN)
			way_run_mix(&req->run);
		if (!swqe_has_response(w))
			w->state = SWQE_DONE;
	}
}

/* False: nonsense. */
static bool take_acks(struct soft_qp *qp, const struct wire *wire, uint64_t acked)
{
	struct requester *req = &qp->priv->req;
	bool more = acked != req->acked;

	if (acked < req->acked || acked > req->msn)
		return false;
	mark_acked(req, acked);
	req->rnr_left = qp->attr.rnr_retry;
	requester_complete(qp);
	if (req->run.since && more)
		way_run_turn(&req->run, &wire->pair->priv->ways, rt_now(), rt_in_progress_thread());
	return true;
}

/* What else comes of it, and what is wrong with it, is for the QP's turn: the wire stays one that has something. */
void requester_acks_first(struct soft_qp *qp, struct wire *wire)
{
	if (qp->priv->failure == QP_FINE && !qp->priv->stopped && qp_state(qp) >= IBV_QPS_RTS && qp_state(qp) <= IBV_QPS_SQE)
		take_acks(qp, wire, wire_acked(wire));
}

int requester_acks(struct soft_qp *qp, struct wire *wire)
{
	struct requester *req = &qp->priv->req;
	uint64_t acked = wire_acked(wire);
	bool sane;

	if (acked == req->acked) {
		wire_acked_done(wire, acked); /* requester_acks_first() may have been there */
		return 0;
	}
	sane = take_acks(qp, wire, acked);
	wire_acked_done(wire, acked);
	if (!sane)
		return -EPROTO;
	return wire->req_out.held && wire_req_space(wire) < 0 ? -EPROTO : 1; /* gives chunks back */
}

/* The message @msn, which is in the lane and neither acknowledged nor answered. */
static struct swqe *in_flight(struct requester *req, uint32_t msn, uint64_t *at)
{
	for (uint64_t pos = req->una; pos <= req->tx && pos != req->head; pos++) {
		struct swqe *w = swqe_at(req, pos);

		if ((w->state == SWQE_SENT || w->state == SWQE_PARTIAL) && (uint32_t)w->msn == msn) {
			*at = pos;
			return w->msn >= req->acked ? w : NULL;
		}
	}
	return NULL;
}

/* The owner works in order: whatever stands before the message that it refuses is done, READs have been answered. */
static int before_done(struct soft_qp *qp, struct swqe *w, uint64_t at)
{
	struct requester *req = &qp->priv->req;

	/* The refusal may be seen before the acknowledgement: its message has all its retries. */
	if (w->msn > req->acked)
		req->rnr_left = qp->attr.rnr_retry;
	mark_acked(req, w->msn);
	requester_complete(qp);
	return req->una == at ? 0 : -EPROTO;
}

static int take_rnr(struct soft_qp *qp, struct wire *wire, const struct vsd_resp *resp)
{
	struct requester *req = &qp->priv->req;
	uint64_t at;
	struct swqe *w = in_flight(req, resp->msn, &at);

	if (!w || req->rnr_at || swqe_has_response(w) || before_done(qp, w, at) < 0)
		return -EPROTO;
	qp_count(qp, VSD_COUNT_RNR, 1);
	requester_back(qp, at, w->msn);
	req->restart = true;

	uint32_t recvs = atomic_load_explicit(&wire->theirs->recvs, memory_order_acquire);

	if (recvs != req->recvs_seen)
		req->recvs_seen = recvs; /* one was posted meanwhile: at once, and not counted */
	else if (qp->attr.rnr_retry != 7 && !req->rnr_left)
		requester_fail(qp, w, IBV_WC_RNR_RETRY_EXC_ERR);
	else
		req->rnr_at = rt_now() + rnr_delays[resp->value & 31] * 10000ull;
	return 0;
}

/* The peer cannot fetch it: from there on everything is sent again, this one as others are. */
static int take_stage(struct soft_qp *qp, struct wire *wire, const struct vsd_resp *resp)
{
	struct requester *req = &qp->priv->req;
	uint64_t at;
	struct swqe *w = in_flight(req, resp->msn, &at);

	if (!w || !w->pulled || req->rnr_at || before_done(qp, w, at) < 0)
		return -EPROTO;
	if (resp->value >= VSD_STAGE_WIRE)
		req->no_pull = true;
	if (resp->value >= VSD_STAGE_PAIR)
		atomic_store_explicit(&wire->pair->no_pull, true, memory_order_relaxed);
	requester_back(qp, at, w->msn);
	req->restart = true;
	w->lane_only = true;
	return 0;
}

static int take_nak(struct soft_qp *qp, const struct vsd_resp *resp)
{
	uint64_t at;
	struct swqe *w = in_flight(&qp->priv->req, resp->msn, &at);

	if (!w || (resp->status != IBV_WC_REM_INV_REQ_ERR && resp->status != IBV_WC_REM_ACCESS_ERR &&
			  resp->status != IBV_WC_REM_OP_ERR))
		return -EPROTO;
	if (before_done(qp, w, at) < 0)
		return -EPROTO;
	requester_fail(qp, w, resp->status);
	return 0;
}

/* The oldest READ or atomic without its response. */
static struct swqe *awaiting(struct requester *req)
{
	if (req->rsp < req->una)
		req->rsp = req->una;
	for (; req->rsp < req->tx; req->rsp++) {
		struct swqe *w = swqe_at(req, req->rsp);

		if (w->state == SWQE_SENT && swqe_has_response(w))
			return w;
	}
	return NULL;
}

static void response_complete(struct soft_qp *qp, struct swqe *w, int err)
{
	qp->priv->req.rd_out--;
	if (err < 0) {
		requester_fail(qp, w, IBV_WC_LOC_PROT_ERR);
		return;
	}
	w->state = SWQE_DONE;
	requester_complete(qp);
}

static int take_read(struct soft_qp *qp, struct wire *wire, const struct vsd_resp *resp)
{
	struct swqe *w = awaiting(&qp->priv->req);

	if (!w || w->opcode != IBV_WR_RDMA_READ || (uint32_t)w->msn != resp->msn ||
		resp->len > w->length - w->off || (!resp->len && w->length) ||
		!(resp->flags & VSD_F_LAST) != (w->off + resp->len < w->length))
		return -EPROTO;
	int err = sge_scatter(qp, w->sge, w->n_sge, w->off, wire_resp_payload(wire, resp), resp->len);

	w->off += resp->len;
	if (err < 0 || w->off == w->length)
		response_complete(qp, w, err);
	return 0;
}

static int take_atomic(struct soft_qp *qp, const struct vsd_resp *resp)
{
	struct swqe *w = awaiting(&qp->priv->req);

	if (!w || w->opcode == IBV_WR_RDMA_READ || (uint32_t)w->msn != resp->msn)
		return -EPROTO;
	response_complete(qp, w,
		sge_scatter(qp, w->sge, w->n_sge, 0, &resp->value, sizeof(resp->value)));
	return 0;
}

static int take_response(struct soft_qp *qp, struct wire *wire, const struct vsd_resp *resp)
{
	switch (resp->op) {
	case VSD_RESP_READ:
		return take_read(qp, wire, resp);
	case VSD_RESP_ATOMIC:
		return take_atomic(qp, resp);
	case VSD_RESP_RNR:
		return take_rnr(qp, wire, resp);
	case VSD_RESP_NAK:
		return take_nak(qp, resp);
	case VSD_RESP_STAGE:
		return take_stage(qp, wire, resp);
	default:
		return -EPROTO;
	}
}

/* A receive was posted at the other end since the RNR answer: retry at once, and it does not count. */
static void take_hint(struct requester *req, const struct wire *wire)
{
	uint32_t recvs;

	if (!req->rnr_at)
		return;
	recvs = atomic_load_explicit(&wire->theirs->recvs, memory_order_acquire);
	if (recvs == req->recvs_seen)
		return;
	req->recvs_seen = recvs;
	req->rnr_at = 0;
}

/*
 * Acknowledgements are read before responses: what is acknowledged later than that belongs to the next look, and a
 * refusal acknowledges what stands before it by itself.
 */
int requester_inbound(struct soft_qp *qp, struct wire *wire)
{
	struct requester *req = &qp->priv->req;
	struct vsd_resp resp;
	int did = requester_acks(qp, wire), rc = 0;

	if (did < 0)
		return did;
	take_hint(req, wire);
	for (unsigned n = 0; qp->priv->failure == QP_FINE; n++) {
		if (n == QP_TURN_WRS) {
			qp_again(qp);
			break;
		}
		rc = wire_resp_peek(wire, &resp);
		if (rc <= 0)
			break;
		rc = take_response(qp, wire, &resp);
		if (rc < 0)
			break;
		wire_resp_consume(wire);
		req->resp_dirty = true;
		did = 1;
	}
	return rc < 0 ? rc : did;
}

static void retry_exceeded(struct soft_qp *qp)
{
	struct requester *req = &qp->priv->req;

	if (req->una != req->head)
		requester_fail(qp, swqe_at(req, req->una), IBV_WC_RETRY_EXC_ERR);
}

/* UC without a peer: a fabric would have lost them long ago. What needs no peer is done all the same. */
static void lose(struct soft_qp *qp)
{
	struct requester *req = &qp->priv->req;

	req->known = true;
	for (; req->tx != req->head; req->tx++) {
		struct swqe *w = swqe_at(req, req->tx);

		if (w->opcode == IBV_WR_LOCAL_INV || w->opcode == IBV_WR_BIND_MW)
			break;
		w->state = SWQE_DONE;
		qp_count(qp, VSD_COUNT_DROPPED, 1);
	}
	requester_complete(qp);
}

/* Both ends are connected, and the peer's process has not come to its end of the wire yet. */
static bool is_coming(const struct wire *wire)
{
	return wire && !wire->broken && !wire_is_open(wire) && !wire_is_closed(wire) && !atomic_load(&wire->pair->dead);
}

/* What waits, and for a peer that is not there. Time alone breaks nothing with one that lives. */
static bool waits_unlinked(struct soft_qp *qp)
{
	struct requester *req = &qp->priv->req;
	struct wire *wire = atomic_load(&qp->wire);
	int state = qp_state(qp);

	if (qp->init.qp_type == IBV_QPT_UD || requester_link(qp, wire) || is_coming(wire) || req->unanswered)
		return false;
	return (state == IBV_QPS_RTS && req->una != req->head) ||
	       (state == IBV_QPS_SQD && req->una < req->started);
}

/* How long a request waits for a peer that is not there; 0: for ever. */
static uint64_t patience(const struct soft_qp *qp)
{
	const struct wire *wire = atomic_load(&qp->wire);
	uint64_t ns = qp->attr.timeout
			      ? (4096ull << (qp->attr.timeout & 31)) * (qp->attr.retry_cnt + 1u)
			      : 0;

	/*
	 * Its process ended, so nobody will come back. But not at once: of two programs that have finished the slower one
	 * may have requests too many, and would be told while it still counts its last completions. (A peer that died
	 * without parting is qp_wire_gone()'s.)
	 */
	if (wire && atomic_load(&wire->pair->dead) && wire_has_parted(wire) && (!ns || ns > QP_PARTED_NS))
		ns = QP_PARTED_NS;
	/* Both ends may be connected and their wire still on its way: time alone must not break that. */
	else if (ns && ns < QP_LINK_NS && !wire)
		ns = QP_LINK_NS;
	return ns;
}

static void unlinked_deadline(struct soft_qp *qp, uint64_t now)
{
	struct requester *req = &qp->priv->req;
	uint64_t ns = patience(qp);

	if (!qp_is_rc(qp)) {
		if (!req->lost_at)
			req->lost_at = now + (req->known ? QP_LOST_NS : QP_LINK_NS);
	} else if (ns && (!req->retry_at || req->retry_at > now + ns)) {
		req->retry_at = now + ns;
	}
}

/* It is due; but not while there is something of the daemon's to read, which may be the wire. */
static bool is_over(uint64_t *deadline, uint64_t now)
{
	if (!*deadline || now < *deadline)
		return false;
	if (events_unread()) {
		*deadline = now + QP_FLUSH_NS;
		return false;
	}
	*deadline = 0;
	return true;
}

bool requester_timers(struct soft_qp *qp, uint64_t now)
{
	struct requester *req = &qp->priv->req;
	bool did = false;

	if (req->rnr_at && now >= req->rnr_at) {
		req->rnr_at = 0;
		if (req->rnr_left)
			req->rnr_left--;
		did = true;
	}
	if (!waits_unlinked(qp)) {
		req->retry_at = req->lost_at = 0;
		return did;
	}
	if (is_over(&req->retry_at, now)) {
		retry_exceeded(qp);
		return true;
	}
	if (is_over(&req->lost_at, now)) {
		lose(qp);
		return true;
	}
	unlinked_deadline(qp, now);
	return did;
}
