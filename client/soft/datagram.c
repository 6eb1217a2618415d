/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sending datagrams. One datagram wire per peer process carries the datagrams of all UD QPs; it is asked for at the
 * first send, which waits for it, and those behind it in its QP too. A peer that has not come to attach it yet, or whose
 * lane is full, is given time: no datagram is lost because a process did not run for a moment. A peer that took nothing
 * for that long costs the datagrams to it, each at once, until it goes on. Datagrams to a QP of this process are
 * delivered at once.
 *
 * Locks: datagram_lock guards the peers and the sending side of all datagram wires; it is taken under sq locks, and
 * nothing is taken under it but the runtime's own.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/datagram_private.h"
#include "client/soft/grh.h"
#include "client/soft/in_child.h"
#include "client/soft/multicast.h"
#include "client/soft/qp_private.h"

#define PEER_BUCKETS 64u
#define ATTACH_NS    2000000000ull /* for the peer to attach the wire */
#define STALL_NS     1000000000ull /* for the peer to take something */
#define REFUSED_NS   100000000ull  /* before the daemon is asked again for a QP that it did not find */
#define OWN_QKEY     0x80000000u   /* a Q_Key with this bit stands for the QP's own */

pthread_mutex_t datagram_lock = PTHREAD_MUTEX_INITIALIZER;
static struct datagram_peer *peers[PEER_BUCKETS];

void datagram_in_child(void)
{
	pthread_mutex_init(&datagram_lock, NULL);
	memset(peers, 0, sizeof(peers));
}

struct datagram_peer *datagram_peer_get(uint32_t id)
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

void datagram_unwait(struct soft_qp *qp)
{
	struct qp_private *priv = qp->priv;

	if (!priv->dgram_waits)
		return;
	*priv->dgram_prev = priv->dgram_next;
	if (priv->dgram_next)
		priv->dgram_next->priv->dgram_prev = priv->dgram_prev;
	priv->dgram_waits = false;
}

void datagram_wait(struct soft_qp *qp, struct soft_qp **list)
{
	struct qp_private *priv = qp->priv;

	datagram_unwait(qp);
	priv->dgram_waits = true;
	priv->dgram_next = *list;
	priv->dgram_prev = list;
	if (*list)
		(*list)->priv->dgram_prev = &priv->dgram_next;
	*list = qp;
}

void datagram_wake_all(struct soft_qp **list)
{
	while (*list) {
		struct soft_qp *qp = *list;

		datagram_unwait(qp);
		rt_run_later(qp);
	}
}

void datagram_forget(struct soft_qp *qp)
{
	pthread_mutex_lock(&datagram_lock);
	datagram_unwait(qp);
	pthread_mutex_unlock(&datagram_lock);
}

void datagram_attached(uint32_t id, struct wire *wire)
{
	pthread_mutex_lock(&datagram_lock);
	struct datagram_peer *peer = datagram_peer_get(id);

	if (peer) {
		peer->wire = wire;
		peer->sent = 0;
		peer->since = 0;
		peer->state = PEER_READY;
		wire->owner = peer;
		datagram_wake_all(&peer->waiters);
	}
	pthread_mutex_unlock(&datagram_lock);
}

/* That QP was not found; others of the process may be there, and the process may have asked for a wire meanwhile. */
void datagram_refused(uint32_t id)
{
	pthread_mutex_lock(&datagram_lock);
	struct datagram_peer *peer = datagram_peer_get(id);

	if (peer && peer->state == PEER_RESOLVING) {
		peer->state = PEER_NONE;
		peer->refused = peer->asked;
		peer->until = rt_now() + REFUSED_NS;
		datagram_wake_all(&peer->waiters);
	}
	pthread_mutex_unlock(&datagram_lock);
}

void datagram_gone(struct wire *wire)
{
	/* What its process sent before it went is still delivered. */
	for (uint32_t i = 0; datagram_service(wire) && i < wire->req_in.n; i += QP_TURN_WRS)
		;
	pthread_mutex_lock(&datagram_lock);
	struct datagram_peer *peer = wire->owner;

	if (peer && peer->wire == wire) {
		peer->wire = NULL;
		peer->state = PEER_NONE;
		peer->since = 0;
		datagram_wake_all(&peer->waiters);
	}
	wire->owner = NULL;
	pthread_mutex_unlock(&datagram_lock);
	wire_release(wire);
}

void datagram_stop(void)
{
	mcast_stop();
	pthread_mutex_lock(&datagram_lock);
	for (size_t i = 0; i < PEER_BUCKETS; i++) {
		while (peers[i]) {
			struct datagram_peer *peer = peers[i];

			peers[i] = peer->next;
			if (peer->wire)
				wire_release(peer->wire);
			free(peer);
		}
	}
	pthread_mutex_unlock(&datagram_lock);
}

void datagram_wake(struct wire *wire)
{
	pthread_mutex_lock(&datagram_lock);
	struct datagram_peer *peer = wire->owner;

	/* The look also gives back the chunks of what was taken. */
	if (peer && wire_is_open(wire) && wire->req_out.pos != wire->req_out.taken &&
		wire_req_space(wire) < 0)
		wire->broken = true;
	if (peer && peer->waiters && wire_is_open(wire))
		datagram_wake_all(&peer->waiters);
	pthread_mutex_unlock(&datagram_lock);
}

/* --- building ---------------------------------------------------------------------------------------------------------- */

const Vsd__Port *datagram_port(const struct soft_qp *qp)
{
	const Vsd__Device *info = qp->ctx->info;

	for (size_t i = 0; info && i < info->n_ports; i++) {
		if (info->ports[i]->number == qp->attr.port_num)
			return info->ports[i];
	}
	return NULL;
}

void datagram_head(const struct soft_qp *qp, const struct swqe *w, struct vsd_req *head)
{
	const Vsd__Port *port = datagram_port(qp);

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
			.dlid = port && port->link_layer == IBV_LINK_LAYER_INFINIBAND ? w->ud.ah.dlid : 0,
			.link_layer = port ? (uint8_t)port->link_layer : 0,
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

int datagram_payload(struct soft_qp *qp, const struct swqe *w, uint8_t *to)
{
	if (w->ud.ah.is_global) {
		grh_build(datagram_port(qp), &w->ud.ah, w->length, to);
		to += QP_GRH;
	}
	return swqe_gather(qp, w, 0, to, w->length);
}

/* --- sending ----------------------------------------------------------------------------------------------------------- */

int datagram_sent(struct soft_qp *qp, struct swqe *w, bool dropped)
{
	qp->priv->dgram_at = 0;
	w->state = SWQE_DONE;
	if (dropped)
		rt_count(VSD_COUNT_DROPPED, 1);
	return 1;
}

bool datagram_patient(struct soft_qp *qp, uint64_t taken, uint64_t patience)
{
	struct qp_private *priv = qp->priv;
	uint64_t now = rt_now();

	if (!priv->dgram_at || priv->dgram_taken != taken) {
		priv->dgram_taken = taken;
		priv->dgram_at = now + patience;
		return true;
	}
	return now < priv->dgram_at;
}

bool datagram_hold(struct soft_qp *qp, struct datagram_peer *peer)
{
	const struct lane_out *lane = &peer->wire->req_out;
	bool open = wire_is_open(peer->wire);
	uint64_t now = rt_now();

	datagram_wait(qp, &peer->waiters);
	/* The lane is empty, and chunks are with other QPs of the pair: that says nothing about the peer. */
	if (open && lane->taken == lane->pos)
		return datagram_patient(qp, lane->pos, STALL_NS);
	if (!peer->since || peer->seen != lane->taken) {
		peer->since = now;
		peer->seen = lane->taken;
	}
	qp->priv->dgram_taken = lane->taken;
	qp->priv->dgram_at = peer->since + (open ? STALL_NS : ATTACH_NS);
	return now < qp->priv->dgram_at;
}

static int send_here(struct soft_qp *qp, struct swqe *w)
{
	uint8_t payload[QP_GRH + QP_UD_MTU];
	struct vsd_req head;
	struct soft_qp *dst = rt_qp_get(w->ud.qpn);
	int err;

	if (!dst)
		return datagram_sent(qp, w, true);
	datagram_head(qp, w, &head);
	err = datagram_payload(qp, w, payload);
	if (err == 0)
		datagram_deliver(dst, &head, payload);
	rt_qp_put(dst);
	return err < 0 ? err : datagram_sent(qp, w, false);
}

static bool wire_usable(struct wire *wire)
{
	if (!wire_is_open(wire))
		wire_look(wire);
	return wire_is_open(wire) && !wire_is_closed(wire) && !wire->broken;
}

static int put(struct soft_qp *qp, struct swqe *w, struct datagram_peer *peer)
{
	struct wire *wire = peer->wire;
	uint8_t inline_payload[VSD_INLINE_UD];
	struct vsd_req head;
	int chunk = -1, err;
	void *to = inline_payload;

	datagram_head(qp, w, &head);
	head.msn = (uint32_t)peer->sent;
	head.slots = head.len <= VSD_INLINE_UD ? wire_req_slots(wire, &head, head.len) : 0;
	bool inlined = head.slots != 0;

	if (!inlined)
		head.slots = 1;
	int space = wire_req_space(wire);

	if (space >= 0 && space < head.slots) {
		wire_want_space(wire, WIRE_WANT_REQ);
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
	err = datagram_payload(qp, w, to);
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

int datagram_put(struct soft_qp *qp, struct swqe *w, struct datagram_peer *peer)
{
	int rc = wire_usable(peer->wire) ? put(qp, w, peer) : 0;

	if (rc > 0)
		peer->since = 0;
	return rc;
}

/* Asks the daemon for the wire, once; what it refused a moment ago is dropped. */
static int resolve(struct soft_qp *qp, struct swqe *w, struct datagram_peer *peer, bool *ask)
{
	if (peer->state == PEER_NONE) {
		if (w->ud.qpn == peer->refused && rt_now() < peer->until)
			return datagram_sent(qp, w, true);
		*ask = true;
		peer->state = PEER_RESOLVING;
		peer->asked = w->ud.qpn;
	}
	datagram_wait(qp, &peer->waiters);
	if (datagram_patient(qp, ~0ull, DATAGRAM_RESOLVE_NS))
		return 0;
	peer->state = PEER_NONE; /* asked again by the next one */
	return datagram_sent(qp, w, true);
}

/* The peers' lock is held. *@ask: the daemon is to be asked for the wire. */
static int send_there(struct soft_qp *qp, struct swqe *w, struct datagram_peer *peer, bool *ask)
{
	if (peer->state != PEER_READY)
		return resolve(qp, w, peer, ask);

	int rc = datagram_put(qp, w, peer);

	if (rc)
		return rc < 0 ? rc : datagram_sent(qp, w, false);
	return datagram_hold(qp, peer) ? 0 : datagram_sent(qp, w, true);
}

/* An address that no single port has: nobody at it has a QP of that number. */
static bool is_group(const struct soft_qp *qp, const struct swqe *w)
{
	const Vsd__Port *port = datagram_port(qp);
	struct mcast_name name;

	return port && w->ud.ah.is_global &&
	       mcast_name((uint8_t)port->link_layer, &w->ud.ah.grh.dgid, w->ud.ah.dlid, &name);
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
	if (w->ud.qpn == MCAST_QPN)
		return mcast_send(qp, w);
	if (!owner || is_group(qp, w))
		return datagram_sent(qp, w, true);
	if (owner == rt_peer_id())
		return send_here(qp, w);

	pthread_mutex_lock(&datagram_lock);
	struct datagram_peer *peer = datagram_peer_get(owner);

	rc = peer ? send_there(qp, w, peer, &ask) : datagram_sent(qp, w, true);
	if (rc)
		datagram_unwait(qp);
	pthread_mutex_unlock(&datagram_lock);
	if (ask)
		rt_resolve(qp->ctx, w->ud.qpn, owner, w->ud.ah.dlid,
			w->ud.ah.is_global ? &w->ud.ah.grh.dgid : NULL);
	return rc;
}
