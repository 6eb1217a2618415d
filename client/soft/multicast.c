/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast. A datagram to a group goes once to each process with members, which gives it to all of its QPs there; the
 * daemon says which processes those are, and a count in the map page that they changed. Members of this process are
 * served at once. A process that takes nothing for as long as datagram.c waits loses what is sent to the group until it
 * takes more; the others get everything.
 *
 * Locks: datagram_lock guards the groups that are sent to. table_lock guards the ones that QPs are attached to; under it
 * only the table of QPs is looked at.
 */
#include "client/soft/multicast.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/datagram_private.h"
#include "client/soft/grh.h"
#include "client/soft/in_child.h"

#define BUCKETS	   64u
#define GROUPS_MAX 1024u /* that are sent to: idle ones are forgotten then */
#define LID_FIRST  0xc000u
#define LID_LAST   0xfffeu

/* --- names -------------------------------------------------------------------------------------------------------------- */

bool mcast_gid(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return gid->raw[0] == 0xff ||
	       (memcmp(gid->raw, mapped, sizeof(mapped)) == 0 && gid->raw[12] >> 4 == 0xe);
}

bool mcast_name(uint8_t link_layer, const union ibv_gid *gid, uint16_t lid, struct mcast_name *name)
{
	if (!mcast_gid(gid))
		return false;
	memset(name, 0, sizeof(*name));
	name->link_layer = link_layer;
	name->gid = *gid;
	if (link_layer == IBV_LINK_LAYER_ETHERNET)
		return true;
	name->lid = lid;
	return lid >= LID_FIRST && lid <= LID_LAST;
}

static bool name_equal(const struct mcast_name *a, const struct mcast_name *b)
{
	return a->link_layer == b->link_layer && a->lid == b->lid && memcmp(&a->gid, &b->gid, sizeof(a->gid)) == 0;
}

static unsigned bucket_of(const struct mcast_name *name)
{
	unsigned hash = name->lid;

	for (size_t i = 0; i < sizeof(name->gid.raw); i++)
		hash = hash * 31 + name->gid.raw[i];
	return hash % BUCKETS;
}

/* --- members of this process -------------------------------------------------------------------------------------------- */

struct attached {
	struct attached *next;
	struct mcast_name name;
	unsigned n, size;
	uint32_t *qpns; /* rising */
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct attached *table[BUCKETS];

static struct attached **attached_find(const struct mcast_name *name)
{
	struct attached **at = &table[bucket_of(name)];

	while (*at && !name_equal(&(*at)->name, name))
		at = &(*at)->next;
	return at;
}

/* Where @qpn is, or belongs. */
static unsigned place_of(const struct attached *group, uint32_t qpn)
{
	unsigned from = 0, to = group->n;

	while (from < to) {
		unsigned mid = (from + to) / 2;

		if (group->qpns[mid] < qpn)
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

static bool has(const struct attached *group, uint32_t qpn)
{
	unsigned place = place_of(group, qpn);

	return place < group->n && group->qpns[place] == qpn;
}

static int add(struct attached **at, const struct mcast_name *name, uint32_t qpn)
{
	struct attached *group = *at ? *at : calloc(1, sizeof(*group));

	if (!group)
		return -ENOMEM;
	if (group->n == group->size) {
		unsigned size = group->size ? group->size * 2 : 4;
		uint32_t *qpns = reallocarray(group->qpns, size, sizeof(*qpns));

		if (!qpns) {
			if (!*at)
				free(group);
			return -ENOMEM;
		}
		group->qpns = qpns;
		group->size = size;
	}
	group->name = *name;
	*at = group;

	unsigned place = place_of(group, qpn);

	memmove(group->qpns + place + 1, group->qpns + place, (group->n - place) * sizeof(*group->qpns));
	group->qpns[place] = qpn;
	group->n++;
	return 0;
}

int soft_mcast_attach(struct soft_qp *qp, const struct mcast_name *name)
{
	int r = 0;

	pthread_mutex_lock(&table_lock);

	struct attached **at = attached_find(name);

	if (!*at || !has(*at, qp->v.qp.qp_num)) {
		r = add(at, name, qp->v.qp.qp_num);
		qp->priv->groups += r == 0;
	}
	pthread_mutex_unlock(&table_lock);
	return r;
}

void soft_mcast_detach(struct soft_qp *qp, const struct mcast_name *name)
{
	pthread_mutex_lock(&table_lock);

	struct attached **at = attached_find(name), *group = *at;

	if (group && has(group, qp->v.qp.qp_num)) {
		unsigned place = place_of(group, qp->v.qp.qp_num);

		group->n--;
		memmove(group->qpns + place, group->qpns + place + 1, (group->n - place) * sizeof(*group->qpns));
		qp->priv->groups--;
		if (!group->n) {
			*at = group->next;
			free(group->qpns);
			free(group);
		}
	}
	pthread_mutex_unlock(&table_lock);
}

bool soft_mcast_attached(const struct soft_qp *qp, const struct mcast_name *name)
{
	pthread_mutex_lock(&table_lock);

	const struct attached *group = *attached_find(name);
	bool is = group && has(group, qp->v.qp.qp_num);

	pthread_mutex_unlock(&table_lock);
	return is;
}

unsigned soft_mcast_groups(const struct soft_qp *qp)
{
	pthread_mutex_lock(&table_lock);

	unsigned n = qp->priv->groups;

	pthread_mutex_unlock(&table_lock);
	return n;
}

/* The attached QP with the smallest number above *@after, with a reference. */
static struct soft_qp *next_member(const struct mcast_name *name, uint32_t *after)
{
	struct soft_qp *qp = NULL;

	pthread_mutex_lock(&table_lock);

	const struct attached *group = *attached_find(name);

	for (unsigned i = group ? place_of(group, *after + 1) : 0; group && i < group->n && !qp; i++) {
		*after = group->qpns[i];
		qp = rt_qp_get(*after);
	}
	pthread_mutex_unlock(&table_lock);
	return qp;
}

bool mcast_deliver(const struct mcast_name *name, const struct vsd_req *head, const uint8_t *payload,
	const struct soft_qp *not)
{
	uint32_t after = 0;
	struct soft_qp *qp;
	bool any = false;

	while ((qp = next_member(name, &after))) {
		if (qp != not) {
			datagram_deliver(qp, head, payload);
			any = true;
		}
		rt_qp_put(qp);
	}
	return any;
}

bool mcast_arrived(const struct vsd_req *head, const uint8_t *payload)
{
	struct mcast_name name;
	union ibv_gid gid;

	if (!(head->flags & VSD_F_GRH))
		return false;
	grh_destination(head->ud.link_layer, payload, &gid);
	return mcast_name(head->ud.link_layer, &gid, head->ud.dlid, &name) && mcast_deliver(&name, head, payload, NULL);
}

/* --- groups that are sent to -------------------------------------------------------------------------------------------- */

struct mcast_group {
	struct mcast_group *next;
	struct mcast_name name;
	enum peer_state state;
	uint64_t until; /* FAILED: nobody is asked before */
	uint32_t bucket, generation;
	struct datagram_peer **peers; /* rising */
	unsigned n, size;
	struct soft_qp *waiters;
};

static struct mcast_group *groups[BUCKETS];
static unsigned n_groups;

void mcast_in_child(void)
{
	pthread_mutex_init(&table_lock, NULL);
	memset(table, 0, sizeof(table));
	memset(groups, 0, sizeof(groups));
	n_groups = 0;
}

static struct mcast_group *group_find(const struct mcast_name *name)
{
	struct mcast_group *group = groups[bucket_of(name)];

	while (group && !name_equal(&group->name, name))
		group = group->next;
	return group;
}

/* Those that nobody waits for; all of them at the end. */
static void groups_forget(bool all)
{
	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct mcast_group **at = &groups[i]; *at;) {
			struct mcast_group *group = *at;

			if (!all && (group->waiters || group->state == PEER_RESOLVING)) {
				at = &group->next;
				continue;
			}
			*at = group->next;
			n_groups--;
			free(group->peers);
			free(group);
		}
	}
}

static struct mcast_group *group_get(const struct mcast_name *name)
{
	struct mcast_group *group = group_find(name);

	if (group)
		return group;
	if (n_groups >= GROUPS_MAX)
		groups_forget(false);
	group = calloc(1, sizeof(*group));
	if (!group)
		return NULL;
	group->name = *name;
	group->next = groups[bucket_of(name)];
	groups[bucket_of(name)] = group;
	n_groups++;
	return group;
}

void mcast_stop(void)
{
	pthread_mutex_lock(&datagram_lock);
	groups_forget(true);
	pthread_mutex_unlock(&datagram_lock);
}

static int peers_add(struct mcast_group *group, const Vsd__McastResolveReply *reply)
{
	size_t n = group->n + reply->n_peers;

	if (n > group->size) {
		struct datagram_peer **peers = reallocarray(group->peers, n, sizeof(*peers));

		if (!peers)
			return -ENOMEM;
		group->peers = peers;
		group->size = (unsigned)n;
	}
	for (size_t i = 0; i < reply->n_peers; i++) {
		struct datagram_peer *peer = datagram_peer_get(reply->peers[i]);

		if (!peer)
			return -ENOMEM;
		group->peers[group->n++] = peer;
	}
	return 0;
}

/* True when there is more to ask for, behind *@after. */
static bool group_resolved(struct mcast_group *group, const Vsd__McastResolveReply *reply, uint32_t *after)
{
	if (reply && group->n && reply->generation != group->generation) { /* it changed meanwhile: from the start */
		group->n = 0;
		*after = 0;
		return true;
	}
	if (reply) {
		group->bucket = reply->bucket;
		group->generation = reply->generation;
	}
	if (reply && peers_add(group, reply) == 0) {
		*after = reply->n_peers ? reply->peers[reply->n_peers - 1] : 0;
		if (reply->more && *after)
			return true;
		group->state = PEER_READY;
	} else {
		group->state = PEER_FAILED;
		group->until = rt_now() + QP_LOST_NS;
	}
	datagram_wake_all(&group->waiters);
	return false;
}

void mcast_resolved(const struct mcast_name *name, uint32_t context, const Vsd__McastResolveReply *reply)
{
	uint32_t after = 0;
	bool more = false;

	pthread_mutex_lock(&datagram_lock);

	struct mcast_group *group = group_find(name);

	if (group && group->state == PEER_RESOLVING)
		more = group_resolved(group, reply, &after);
	pthread_mutex_unlock(&datagram_lock);
	if (more)
		rt_mcast_resolve(context, name, after);
}

/* --- sending ------------------------------------------------------------------------------------------------------------ */

/* 1: the members are known; 0: they are waited for; -1: they are not to be had. */
static int members_known(struct soft_qp *qp, struct mcast_group *group, bool *ask)
{
	if (group->state == PEER_READY && group->generation == rt_mcast_generation(group->bucket))
		return 1;
	if (group->state == PEER_FAILED && rt_now() < group->until)
		return -1;
	if (group->state != PEER_RESOLVING) {
		*ask = true;
		group->n = 0;
		group->state = PEER_RESOLVING;
	}
	datagram_wait(qp, &group->waiters);
	if (datagram_patient(qp, ~0ull, DATAGRAM_RESOLVE_NS))
		return 0;
	group->state = PEER_NONE; /* asked again by the next one */
	return -1;
}

/* 1: done with this peer; 0: it is waited for; negative: an error of this side's memory. */
static int to_peer(struct soft_qp *qp, struct swqe *w, struct mcast_group *group, struct datagram_peer *peer)
{
	if (peer->state != PEER_READY) {
		group->state = PEER_NONE; /* its wire is gone: the next one asks */
		rt_count(VSD_COUNT_DROPPED, 1);
		return 1;
	}
	int rc = datagram_put(qp, w, peer);

	if (rc)
		return rc;
	if (datagram_hold(qp, peer))
		return 0;
	rt_count(VSD_COUNT_DROPPED, 1);
	return 1;
}

/* The WR's `off` is behind the id of the last process that it was sent to. */
static int to_members(struct soft_qp *qp, struct swqe *w, struct mcast_group *group, bool *ask)
{
	int rc = group ? members_known(qp, group, ask) : -1;

	if (rc <= 0)
		return rc < 0 ? datagram_sent(qp, w, true) : 0;
	for (unsigned i = 0; i < group->n; i++) {
		struct datagram_peer *peer = group->peers[i];

		if (peer->peer < w->off)
			continue;
		rc = to_peer(qp, w, group, peer);
		if (rc <= 0)
			return rc;
		w->off = (uint64_t)peer->peer + 1;
		qp->priv->dgram_at = 0;
	}
	return datagram_sent(qp, w, false);
}

static int to_own(struct soft_qp *qp, struct swqe *w, const struct mcast_name *name)
{
	bool no_loop = qp->init.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS &&
		       qp->init.create_flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
	uint8_t payload[QP_GRH + QP_UD_MTU];
	struct vsd_req head;
	int err;

	datagram_head(qp, w, &head);
	err = datagram_payload(qp, w, payload);
	if (err < 0)
		return err;
	mcast_deliver(name, &head, payload, no_loop ? qp : NULL);
	return 1;
}

int mcast_send(struct soft_qp *qp, struct swqe *w)
{
	const Vsd__Port *port = datagram_port(qp);
	struct mcast_name name;
	bool ask = false;
	int rc;

	if (!port || !w->ud.ah.is_global ||
		!mcast_name((uint8_t)port->link_layer, &w->ud.ah.grh.dgid, w->ud.ah.dlid, &name))
		return datagram_sent(qp, w, true);
	if (w->off == 0) {
		rc = to_own(qp, w, &name);
		if (rc < 0)
			return rc;
		w->off = 1;
	}
	pthread_mutex_lock(&datagram_lock);
	rc = to_members(qp, w, group_get(&name), &ask);
	if (rc)
		datagram_unwait(qp);
	pthread_mutex_unlock(&datagram_lock);
	if (ask)
		rt_mcast_resolve(qp->ctx->id, &name, 0);
	return rc;
}
