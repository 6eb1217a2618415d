/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sending datagrams. One datagram wire per peer process carries the datagrams of all UD QPs; it is asked for at the
 * first send, which waits for it, and those behind it in its QP too. A full lane holds a datagram while the receiver
 * consumes; after 100 ms without it is dropped and counted. Datagrams to a QP of this process are delivered at once.
 *
 * Locks: `lock` guards the peers and the sending side of all datagram wires; it is taken under sq locks, and nothing is
 * taken under it but the runtime's own.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/grh.h"
#include "client/soft/in_child.h"
#include "client/soft/qp_private.h"

#define PEER_BUCKETS 64u
#define RESOLVE_NS   2000000000ull /* the daemon's time to answer */
#define OWN_QKEY     0x80000000u   /* a Q_Key with this bit stands for the QP's own */

enum peer_state {
	PEER_NONE,	/* nobody asked yet */
	PEER_RESOLVING,
	PEER_READY,
	PEER_FAILED,	/* the daemon would not: datagrams are dropped until `until` */
};

struct datagram_peer {
	struct datagram_peer *next;
	uint32_t peer;
	enum peer_state state;
	uint64_t until;
	struct wire *wire;
	uint64_t sent;
	struct soft_qp *waiters;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct datagram_peer *peers[PEER_BUCKETS];

void datagram_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	memset(peers, 0, sizeof(peers));
}

static struct datagram_peer *peer_get(uint32_t id)
{
	struct datagram_peer **bucket = &peers[id % PEER_BUCKETS], *peer;

	for (peer = *bucket; peer; peer = peer->next) {
		if (peer->peer == id)
			return peer;
	}
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	peer->peer = id;
	peer->next = *bucket;
	*bucket = peer;
	return peer;
}

static void waiter_remove(struct soft_qp *qp)
{
	struct qp_private *priv = qp->priv;

	if (!priv->dgram)
		return;
	*priv->dgram_prev = priv->dgram_next;
	if (priv->dgram_next)
		priv->dgram_next->priv->dgram_prev = priv->dgram_prev;
	priv->dgram = NULL;
}

static void waiter_add(struct datagram_peer *peer, struct soft_qp *qp)
{
	struct qp_private *priv = qp->priv;

	waiter_remove(qp);
	priv->dgram = peer;
	priv->dgram_next = peer->waiters;
	priv->dgram_prev = &peer->waiters;
	if (peer->waiters)
		peer->waiters->priv->dgram_prev = &priv->dgram_next;
	peer->waiters = qp;
}

static void peer_wake(struct datagram_peer *peer)
{
	while (peer->waiters) {
		struct soft_qp *qp = peer->waiters;

		waiter_remove(qp);
		rt_run_later(qp);
	}
}

void datagram_forget(struct soft_qp *qp)
{
	pthread_mutex_lock(&lock);
	waiter_remove(qp);
	pthread_mutex_unlock(&lock);
}

void datagram_attached(uint32_t id, struct wire *wire)
{
	pthread_mutex_lock(&lock);
	struct datagram_peer *peer = peer_get(id);

	if (peer) {
		peer->wire = wire;
		peer->sent = 0;
		peer->state = wire ? PEER_READY : PEER_FAILED;
		peer->until = wire ? 0 : rt_now() + QP_LOST_NS;
		if (wire)
			wire->owner = peer;
		peer_wake(peer);
	}
	pthread_mutex_unlock(&lock);
}

void datagram_gone(struct wire *wire)
{
	/* What its process sent before it went is still delivered. */
	for (uint32_t i = 0; datagram_service(wire) && i < wire->req_in.n; i += QP_TURN_WRS)
		;
	pthread_mutex_lock(&lock);
	struct datagram_peer *peer = wire->owner;

	if (peer && peer->wire == wire) {
		peer->wire = NULL;
		peer->state = PEER_NONE;
		peer_wake(peer);
	}
	wire->owner = NULL;
	pthread_mutex_unlock(&lock);
	wire_release(wire);
}

void datagram_stop(void)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < PEER_BUCKETS; i++) {
		while (peers[i]) {
			struct datagram_peer *peer = peers[i];

			peers[i] = peer->next;
			if (peer->wire)
				wire_release(peer->wire);
			free(peer);
		}
	}
	pthread_mutex_unlock(&lock);
}

void datagram_wake(struct wire *wire)
{
	pthread_mutex_lock(&lock);
	struct datagram_peer *peer = wire->owner;

	/* The look also gives back the chunks of what was taken. */
	if (peer && wire_is_open(wire) && wire->req_out.pos != wire->req_out.taken &&
		wire_req_space(wire) < 0)
		wire->broken = true;
	if (peer && peer->waiters && wire_is_open(wire))
		peer_wake(peer);
	pthread_mutex_unlock(&lock);
}

/* --- building ---------------------------------------------------------------------------------------------------------- */

static const Vsd__Port *port_of(const struct soft_qp *qp)
{
	const Vsd__Device *info = qp->ctx->info;

	for (size_t i = 0; info && i < info->n_ports; i++) {
		if (info->ports[i]->number == qp->attr.port_num)
			return info->ports[i];
	}
	return NULL;
}

static void head_build(const struct soft_qp *qp, const struct swqe *w, struct vsd_req *head)
{
	const Vsd__Port *port = port_of(qp);

	*head = (struct vsd_req){
		.op = VSD_REQ_DATAGRAM,
		.flags = VSD_F_FIRST | VSD_F_LAST,
		.len = w->length + (w->ud.ah.is_global ? QP_GRH : 0),
		.imm = w->imm,
		.ud = {
			.dst_qpn = w->ud.qpn,
			.src_qpn = qp->v.qp.qp_num,
			.qkey = w->ud.qkey & OWN_QKEY ? qp->attr.qkey : w->ud.qkey,
			.slid = (port ? port->lid : 0) | w->ud.ah.src_path_bits,
			.pkey_index = qp->attr.pkey_index,
			.sl = grh_service_level(port, &w->ud.ah),
		},
	};
	head->total = head->len;
	if (w->ud.ah.is_global)
		head->flags |= VSD_F_GRH;
	if (w->opcode == IBV_WR_SEND_WITH_IMM)
		head->flags |= VSD_F_IMM;
	if (w->flags & IBV_SEND_SOLICITED)
		head->flags |= VSD_F_SOLICITED;
}

static int payload_build(struct soft_qp *qp, const struct swqe *w, uint8_t *to)
{
	if (w->ud.ah.is_global) {
		grh_build(port_of(qp), &w->ud.ah, w->length, to);
		to += QP_GRH;
	}
	return swqe_gather(qp, w, 0, to, w->length);
}

/* --- sending ----------------------------------------------------------------------------------------------------------- */

static int sent(struct soft_qp *qp, struct swqe *w, bool dropped)
{
	qp->priv->dgram_at = 0;
	w->state = SWQE_DONE;
	if (dropped)
		rt_count(VSD_COUNT_DROPPED, 1);
	return 1;
}

/* Waits while @taken moves on; @patience without that, and the datagram is dropped. */
static int hold(struct soft_qp *qp, struct swqe *w, uint64_t taken, uint64_t patience)
{
	struct qp_private *priv = qp->priv;
	uint64_t now = rt_now();

	if (!priv->dgram_at || priv->dgram_taken != taken) {
		priv->dgram_taken = taken;
		priv->dgram_at = now + patience;
		return 0;
	}
	return now < priv->dgram_at ? 0 : sent(qp, w, true);
}

static int send_here(struct soft_qp *qp, struct swqe *w)
{
	uint8_t payload[QP_GRH + QP_UD_MTU];
	struct vsd_req head;
	struct soft_qp *dst = rt_qp_get(w->ud.qpn);
	int err;

	if (!dst)
		return sent(qp, w, true);
	head_build(qp, w, &head);
	err = payload_build(qp, w, payload);
	if (err == 0)
		datagram_deliver(dst, &head, payload);
	rt_qp_put(dst);
	return err < 0 ? err : sent(qp, w, false);
}

/* 1: in the lane; 0: no room; negative: an error of this side's memory. The peers' lock is held. */
static int put(struct soft_qp *qp, struct swqe *w, struct datagram_peer *peer)
{
	struct wire *wire = peer->wire;
	uint8_t inline_payload[VSD_INLINE_UD];
	struct vsd_req head;
	int chunk = -1, err;
	void *to = inline_payload;

	head_build(qp, w, &head);
	head.msn = (uint32_t)peer->sent;
	head.slots = head.len <= VSD_INLINE_UD ? wire_req_slots(wire, &head, head.len) : 0;
	bool inlined = head.slots != 0;

	if (!inlined)
		head.slots = 1;
	int space = wire_req_space(wire);

	if (space >= 0 && space < head.slots) {
		wire_want_space(wire);
		space = wire_req_space(wire);
	}
	if (space < head.slots)
		return 0;
	if (!inlined) {
		chunk = pair_chunk_get(wire->pair, POOL_REQ, qp);
		if (chunk < 0)
			return 0;
		to = pair_chunk(wire->pair, POOL_REQ, chunk);
		head.flags |= VSD_F_CHUNK;
		head.ud.chunk = chunk;
	}
	err = payload_build(qp, w, to);
	if (err < 0) {
		if (chunk >= 0)
			pair_chunk_put(wire->pair, POOL_REQ, chunk);
		return err;
	}
	wire_req_put(wire, &head, inlined ? inline_payload : NULL, chunk);
	peer->sent++;
	wire_notify(wire);
	return 1;
}

static bool wire_usable(struct wire *wire)
{
	if (!wire_is_open(wire))
		wire_look(wire);
	return wire_is_open(wire) && !wire_is_closed(wire) && !wire->broken;
}

/* The peers' lock is held. *@ask: the daemon is to be asked for the wire. */
static int send_there(struct soft_qp *qp, struct swqe *w, struct datagram_peer *peer, bool *ask)
{
	if (peer->state == PEER_FAILED && rt_now() < peer->until)
		return sent(qp, w, true);
	if (peer->state != PEER_READY) {
		*ask = peer->state != PEER_RESOLVING;
		peer->state = PEER_RESOLVING;
		waiter_add(peer, qp);
		int rc = hold(qp, w, ~0ull, RESOLVE_NS);

		if (rc > 0)
			peer->state = PEER_NONE; /* asked again by the next one */
		return rc;
	}
	if (wire_usable(peer->wire)) {
		int rc = put(qp, w, peer);

		if (rc)
			return rc < 0 ? rc : sent(qp, w, false);
	}
	waiter_add(peer, qp);
	return hold(qp, w, peer->wire->req_out.taken, QP_LOST_NS);
}

int datagram_send(struct soft_qp *qp, struct swqe *w)
{
	uint32_t owner = rt_qpn_owner(w->ud.qpn);
	bool ask = false;
	int rc = 1;

	if (w->length > QP_UD_MTU) {
		requester_fail(qp, w, IBV_WC_LOC_LEN_ERR);
		return -ECANCELED;
	}
	if (!owner)
		return sent(qp, w, true);
	if (owner == rt_peer_id())
		return send_here(qp, w);

	pthread_mutex_lock(&lock);
	struct datagram_peer *peer = peer_get(owner);

	rc = peer ? send_there(qp, w, peer, &ask) : sent(qp, w, true);
	if (rc)
		waiter_remove(qp);
	pthread_mutex_unlock(&lock);
	if (ask)
		rt_resolve(qp->ctx, w->ud.qpn, owner, w->ud.ah.dlid,
			w->ud.ah.is_global ? &w->ud.ah.grh.dgid : NULL);
	return rc;
}
