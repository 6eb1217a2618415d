/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: who sends to a group must reach every process that has a member, without asking for each datagram. Guarantees: a
 * change of a group's members is counted in the map page before its verb returns, so whoever sends after that asks
 * again; groups end at the domain; a QP that is gone is in no group.
 */
#include "daemon/multicast.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/context.h"
#include "daemon/item.h"
#include "daemon/process.h"
#include "daemon/qp.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/wire_pair.h"

#define LID_FIRST 0xc000u /* multicast LIDs; the last LID of all is the permissive one */
#define LID_LAST  0xfffeu
#define NAMED	  4u
#define TRIES	  256u /* processes in a row that can have no wire, in one request */

struct mcast_share {
	struct list link;
	struct context *context;
	unsigned count;
};

struct mcast_seat {
	struct list link;
	struct process *process;
	unsigned count; /* QPs of it in the group */
};

struct mcast_member {
	struct list in_group, in_qp;
	struct mcast_group *group;
	struct mcast_share *share;
	struct mcast_seat *seat;
	struct qp *qp;
	struct charge charge;
};

int mcast_init(struct mcast *mcast)
{
	for (unsigned i = 0; i < VSD_MAP_MCAST; i++)
		list_init(&mcast->buckets[i]);
	list_init(&mcast->all);
	mcast->last = 0;
	return getrandom(mcast->seed, sizeof(mcast->seed), 0) == sizeof(mcast->seed) ? 0 : -EIO;
}

/* ---- groups ---- */

static bool is_multicast(const uint8_t gid[GID_SIZE])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return gid[0] == 0xff || (memcmp(gid, mapped, sizeof(mapped)) == 0 && gid[12] >> 4 == 0xe);
}

static int key_make(const struct domain *domain, const struct device *device, const uint8_t gid[GID_SIZE], uint32_t lid,
	struct mcast_key *key)
{
	if (!is_multicast(gid))
		return refuse(-EINVAL, "not the GID of a multicast group");
	memset(key, 0, sizeof(*key));
	key->domain = domain;
	key->link_layer = device->config.link_layer;
	memcpy(key->gid, gid, GID_SIZE);
	if (key->link_layer != LINK_INFINIBAND)
		return 0;
	if (lid < LID_FIRST || lid > LID_LAST)
		return refuse(-EINVAL, "LID 0x%x is not of a multicast group", lid);
	key->lid = lid;
	return 0;
}

static bool key_equal(const struct mcast_key *a, const struct mcast_key *b)
{
	return a->domain == b->domain && a->link_layer == b->link_layer && a->lid == b->lid &&
	       memcmp(a->gid, b->gid, GID_SIZE) == 0;
}

static uint32_t bucket_of(const struct mcast *mcast, const struct mcast_key *key)
{
	uint64_t words[2], hash = mcast->seed[0] ^ (uintptr_t)key->domain;

	memcpy(words, key->gid, sizeof(words));
	for (unsigned i = 0; i < 2; i++) {
		hash = (hash ^ words[i]) * (mcast->seed[1] | 1);
		hash ^= hash >> 29;
	}
	hash = (hash ^ key->lid ^ (uint64_t)key->link_layer << 32) * (mcast->seed[1] | 1);
	return (uint32_t)(hash >> 48) % VSD_MAP_MCAST;
}

static struct mcast_group *group_find(const struct mcast *mcast, const struct mcast_key *key)
{
	list_for_each (pos, &mcast->buckets[bucket_of(mcast, key)]) {
		struct mcast_group *group = container_of(pos, struct mcast_group, link);

		if (key_equal(&group->key, key))
			return group;
	}
	return NULL;
}

static struct mcast_group *group_new(struct mcast *mcast, const struct mcast_key *key)
{
	struct mcast_group *group = calloc(1, sizeof(*group));

	if (!group)
		return NULL;
	group->key = *key;
	group->bucket = bucket_of(mcast, key);
	group->number = ++mcast->last;
	inet_ntop(AF_INET6, key->gid, group->name, sizeof(group->name));
	list_init(&group->members);
	list_init(&group->shares);
	list_init(&group->seats);
	list_append(&mcast->buckets[group->bucket], &group->link);
	list_append(&mcast->all, &group->all);
	return group;
}

static void group_check(struct mcast_group *group)
{
	if (group->n_members)
		return;
	list_remove(&group->link);
	list_remove(&group->all);
	free(group);
}

/* Whoever knows its members asks again. */
static void group_changed(struct server *server, const struct mcast_group *group)
{
	atomic_fetch_add_explicit(&server->map.map->mcast[group->bucket], 1, memory_order_release);
}

/* ---- members ---- */

static struct mcast_share *share_find(const struct mcast_group *group, const struct context *context)
{
	list_for_each (pos, &group->shares) {
		struct mcast_share *share = container_of(pos, struct mcast_share, link);

		if (share->context == context)
			return share;
	}
	return NULL;
}

static struct mcast_member *member_find(const struct qp *qp, const struct mcast_key *key)
{
	list_for_each (pos, &qp->groups) {
		struct mcast_member *member = container_of(pos, struct mcast_member, in_qp);

		if (key_equal(&member->group->key, key))
			return member;
	}
	return NULL;
}

static int limits_check(const struct context *context, const struct mcast_share *share)
{
	const struct device_attr *attr = &context->device->attr;

	if (!share && context->mcast_groups >= attr->max_mcast_grp)
		return refuse(-ENOMEM, "it is in %u multicast groups", context->mcast_groups);
	if (share && share->count >= attr->max_mcast_qp_attach)
		return refuse(-ENOMEM, "%u QPs of it are attached to that multicast group", share->count);
	if (context->mcast_attached >= attr->max_total_mcast_qp_attach)
		return refuse(-ENOMEM, "it has attached QPs %u times", context->mcast_attached);
	return 0;
}

static void share_put(struct mcast_share *share)
{
	if (share->count)
		return;
	share->context->mcast_groups--;
	list_remove(&share->link);
	free(share);
}

static struct mcast_share *share_get(struct mcast_group *group, struct context *context)
{
	struct mcast_share *share = share_find(group, context);

	if (share)
		return share;
	share = calloc(1, sizeof(*share));
	if (!share)
		return NULL;
	share->context = context;
	context->mcast_groups++;
	list_append(&group->shares, &share->link);
	return share;
}

static void seat_put(struct mcast_seat *seat)
{
	if (seat->count)
		return;
	list_remove(&seat->link);
	free(seat);
}

/* Its own, or where it would be: looked for from the end, since new processes have the highest ids. */
static struct mcast_seat *seat_get(struct mcast_group *group, struct process *process)
{
	struct list *before = group->seats.prev;
	struct mcast_seat *seat;

	for (; before != &group->seats; before = before->prev) {
		seat = container_of(before, struct mcast_seat, link);
		if (seat->process == process)
			return seat;
		if (seat->process->id < process->id)
			break;
	}
	seat = calloc(1, sizeof(*seat));
	if (!seat)
		return NULL;
	seat->process = process;
	list_append(before->next, &seat->link);
	return seat;
}

static int member_new(struct mcast_group *group, struct qp *qp)
{
	struct context *context = qp->object.context;
	struct mcast_member *member = calloc(1, sizeof(*member));
	int r;

	if (!member)
		return -ENOMEM;
	r = charge_take(&member->charge, &qp->object.owner->domain->account, SLOT_MCASTS, 1);
	if (r == 0) {
		member->share = share_get(group, context);
		member->seat = seat_get(group, qp->process);
		r = member->share && member->seat ? 0 : -ENOMEM;
	}
	if (r < 0) {
		if (member->share)
			share_put(member->share);
		if (member->seat)
			seat_put(member->seat);
		charge_release(&member->charge);
		free(member);
		return r;
	}
	member->group = group;
	member->qp = qp;
	member->share->count++;
	member->seat->count++;
	context->mcast_attached++;
	group->n_members++;
	list_append(&group->members, &member->in_group);
	list_append(&qp->groups, &member->in_qp);
	return 0;
}

static void member_free(struct mcast_member *member)
{
	struct mcast_group *group = member->group;
	struct context *context = member->qp->object.context;

	group_changed(context->server, group);
	list_remove(&member->in_group);
	list_remove(&member->in_qp);
	member->share->count--;
	share_put(member->share);
	member->seat->count--;
	seat_put(member->seat);
	context->mcast_attached--;
	group->n_members--;
	charge_release(&member->charge);
	free(member);
	group_check(group);
}

static struct qp *named(struct attachment *attachment, uint32_t handle, const uint8_t gid[GID_SIZE], uint32_t lid,
	struct mcast_key *key)
{
	struct qp *qp = (struct qp *)object_get(attachment, OBJECT_QP, handle);

	if (!qp || key_make(attachment->domain, attachment->context->device, gid, lid, key) < 0)
		return NULL;
	if (qp->attr.type != QP_UD) {
		refuse(0, "QP 0x%x is no UD QP", qp->attr.qpn);
		return NULL;
	}
	return qp;
}

int mcast_attach(struct attachment *attachment, uint32_t handle, const uint8_t gid[GID_SIZE], uint32_t lid)
{
	struct server *server = attachment->context->server;
	struct mcast_key key;
	struct qp *qp = named(attachment, handle, gid, lid, &key);
	struct mcast_group *group;
	int r;

	if (!qp)
		return -EINVAL;
	if (member_find(qp, &key))
		return 0;
	group = group_find(&server->mcast, &key);
	r = limits_check(attachment->context, group ? share_find(group, attachment->context) : NULL);
	if (r < 0)
		return r;
	if (!group)
		group = group_new(&server->mcast, &key);
	if (!group)
		return -ENOMEM;
	r = member_new(group, qp);
	if (r == 0)
		group_changed(server, group);
	group_check(group);
	return r;
}

int mcast_detach(struct attachment *attachment, uint32_t handle, const uint8_t gid[GID_SIZE], uint32_t lid)
{
	struct mcast_key key;
	struct qp *qp = named(attachment, handle, gid, lid, &key);
	struct mcast_member *member = qp ? member_find(qp, &key) : NULL;

	if (!qp)
		return -EINVAL;
	if (!member)
		return refuse(-EINVAL, "QP 0x%x is not attached to that group", qp->attr.qpn);
	member_free(member);
	return 0;
}

void mcast_leave(struct qp *qp)
{
	list_for_each_safe (pos, &qp->groups)
		member_free(container_of(pos, struct mcast_member, in_qp));
}

int mcast_busy(const struct qp *qp)
{
	unsigned n = 0;

	list_for_each (pos, &qp->groups)
		n++;
	return n ? refuse(-EBUSY, "QP 0x%x is attached to %u multicast groups", qp->attr.qpn, n) : 0;
}

/* ---- senders ---- */

/* What stands behind those that are known already. */
static struct list *seats_after(struct mcast_group *group, uint32_t after)
{
	struct list *at = group->seats.next;

	while (at != &group->seats && container_of(at, struct mcast_seat, link)->process->id <= after)
		at = at->next;
	return at;
}

/* Work is bounded: by what the answer has room for, and by those that it cannot name. */
static void name_peers(struct process *process, struct mcast_group *group, uint32_t after, struct mcast_answer *answer)
{
	struct list *at = seats_after(group, after);
	unsigned failed = 0;

	for (; at != &group->seats; at = at->next) {
		struct process *peer = container_of(at, struct mcast_seat, link)->process;

		if (peer == process)
			continue;
		if (answer->n == answer->max || failed == TRIES) {
			answer->more = answer->n > 0;
			return;
		}
		if (wire_datagram(process->server, process, peer) == 0)
			answer->peers[answer->n++] = peer->id;
		else
			failed++;
	}
}

int mcast_resolve(struct process *process, const struct context *context, const uint8_t gid[GID_SIZE], uint32_t lid,
	uint32_t after, struct mcast_answer *answer)
{
	struct server *server = process->server;
	struct mcast_group *group;
	struct mcast_key key;
	int r = key_make(process->domain, context->device, gid, lid, &key);

	if (r < 0)
		return r;
	group = group_find(&server->mcast, &key);
	answer->bucket = bucket_of(&server->mcast, &key);
	answer->generation =
		atomic_load_explicit(&server->map.map->mcast[answer->bucket], memory_order_relaxed);
	answer->n = 0;
	answer->more = false;
	if (group)
		name_peers(process, group, after, answer);
	return 0;
}

/* ---- listings ---- */

static void members_say(const struct mcast_group *group, char *text, size_t size)
{
	size_t used = 0;
	unsigned n = 0;

	text[0] = '\0';
	list_for_each (pos, &group->members) {
		const struct qp *qp = container_of(pos, struct mcast_member, in_group)->qp;
		int r;

		if (n == NAMED) {
			snprintf(text + used, size - used, " and %u more", group->n_members - n);
			return;
		}
		r = snprintf(text + used, size - used, "%sqp %u (QPN 0x%x) of client %llu", n++ ? ", " : "",
			qp->object.handle, qp->attr.qpn, (unsigned long long)qp->object.session);
		if (r < 0 || (size_t)r >= size - used)
			return;
		used += (size_t)r;
	}
}

void mcast_describe(const struct mcast_group *group, struct item *item)
{
	*item = (struct item){
		.type = OBJECT_MCAST,
		.handle = group->number,
		.uid = group->key.domain->key.uid,
		.name = group->name,
		.number = group->key.lid,
		.kind = group->key.link_layer == LINK_INFINIBAND ? "infiniband" : "ethernet",
		.users = group->n_members,
		.has = ITEM_USERS,
	};
	if (group->key.lid)
		item->has |= ITEM_NUMBER;
	members_say(group, item->in_use_by, sizeof(item->in_use_by));
}
