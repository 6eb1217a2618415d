/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QPs by number. Two levels, so that a number far out costs no more than one near; a reference keeps a QP from being
 * freed under who found it here.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "client/soft/in_child.h"
#include "client/soft/qp.h"
#include "client/soft/rt_private.h"

#define LEAF_SHIFT 10
#define LEAF (1u << LEAF_SHIFT)
#define LEAVES ((1u << 24) >> LEAF_SHIFT)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct soft_qp **leaves[LEAVES];
static unsigned qps;

void qp_table_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	for (size_t i = 0; i < LEAVES; i++)
		if (leaves[i])
			leaves[i] = NULL;
	qps = 0;
}

int rt_qp_insert(struct soft_qp *qp, uint32_t qpn)
{
	int r = 0;

	if (qpn >> 24)
		return -EINVAL;
	pthread_mutex_lock(&lock);

	struct soft_qp ***leaf = &leaves[qpn >> LEAF_SHIFT];

	if (!*leaf)
		*leaf = calloc(LEAF, sizeof(struct soft_qp *));
	if (!*leaf)
		r = -ENOMEM;
	else if ((*leaf)[qpn % LEAF])
		r = -EEXIST;
	else
		qps++;
	if (r == 0)
		(*leaf)[qpn % LEAF] = qp;
	pthread_mutex_unlock(&lock);
	return r;
}

void rt_qp_remove(uint32_t qpn)
{
	if (qpn >> 24)
		return;
	pthread_mutex_lock(&lock);
	if (leaves[qpn >> LEAF_SHIFT] && leaves[qpn >> LEAF_SHIFT][qpn % LEAF]) {
		leaves[qpn >> LEAF_SHIFT][qpn % LEAF] = NULL;
		qps--;
	}
	pthread_mutex_unlock(&lock);
}

struct soft_qp *rt_qp_get(uint32_t qpn)
{
	struct soft_qp *qp = NULL;

	if (qpn >> 24)
		return NULL;
	pthread_mutex_lock(&lock);
	if (leaves[qpn >> LEAF_SHIFT])
		qp = leaves[qpn >> LEAF_SHIFT][qpn % LEAF];
	if (qp)
		atomic_fetch_add(&qp->refs, 1);
	pthread_mutex_unlock(&lock);
	return qp;
}

void rt_qp_put(struct soft_qp *qp)
{
	atomic_fetch_sub(&qp->refs, 1);
}

bool qp_table_any(void)
{
	pthread_mutex_lock(&lock);

	bool any = qps;

	pthread_mutex_unlock(&lock);
	return any;
}
