/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion channels. The list of CQs and the count of the eventfd change together under the channel's lock, so
 * "readable" means that an event is there, and whoever pops an event finds its count.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/control/control.h"
#include "client/soft/count.h"
#include "client/soft/cq.h"
#include "client/soft/cq_private.h"
#include "client/soft/in_child.h"
#include "client/soft/rt.h"

/*
 * For those who wait until a CQ's events are acknowledged. Rare, so one for all. Who acknowledges takes the lock only for one
 * that waits: either it sees the waiter, or the waiter sees what it acknowledged.
 */
static pthread_mutex_t ack_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ack_cond = PTHREAD_COND_INITIALIZER;
static _Atomic unsigned ack_waiters;

void channel_in_child(void)
{
	pthread_mutex_init(&ack_lock, NULL);
	pthread_cond_init(&ack_cond, NULL);
	atomic_store(&ack_waiters, 0);
}

int soft_channel_init(struct soft_channel *channel)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);

	if (fd < 0)
		return -errno;
	fd = control_fd_high(fd);
	if (fd < 0)
		return fd;
	channel->channel.fd = fd;
	channel->channel.refcnt = 0;
	channel->head = NULL;
	channel->tail = &channel->head;
	soft_lock_init(&channel->lock, NULL);
	return 0;
}

void soft_channel_deinit(struct soft_channel *channel)
{
	close(channel->channel.fd);
	channel->channel.fd = -1;
}

/* Lock held. */
static void list_append(struct soft_channel *channel, struct soft_cq *cq)
{
	cq->event_next = NULL;
	cq->event_prev = channel->tail;
	*channel->tail = cq;
	channel->tail = &cq->event_next;
}

/* Lock held. */
static void list_remove(struct soft_channel *channel, struct soft_cq *cq)
{
	*cq->event_prev = cq->event_next;
	if (cq->event_next)
		cq->event_next->event_prev = cq->event_prev;
	else
		channel->tail = cq->event_prev;
	cq->event_prev = NULL;
}

void channel_fire(struct soft_channel *channel, struct soft_cq *cq)
{
	soft_lock(&channel->lock);
	if (cq->queued++ == 0)
		list_append(channel, cq);
	count_add(channel->channel.fd);
	soft_unlock(&channel->lock);
}

static struct soft_cq *channel_pop(struct soft_channel *channel)
{
	struct soft_cq *cq;

	soft_lock(&channel->lock);
	cq = channel->head;
	if (cq) {
		list_remove(channel, cq);
		if (--cq->queued)
			list_append(channel, cq);
		atomic_fetch_add(&cq->events, 1);
		count_take(channel->channel.fd);
	}
	soft_unlock(&channel->lock);
	return cq;
}

int soft_channel_get(struct soft_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	for (;;) {
		struct soft_cq *found = channel_pop(channel);

		if (found) {
			*cq = &found->v.cq;
			*cq_context = found->v.cq.cq_context;
			return 0;
		}
		if (rt_progress())
			continue;

		int flags = fcntl(channel->channel.fd, F_GETFL);

		if (flags < 0)
			return -1;
		if (flags & O_NONBLOCK) {
			found = channel_pop(channel);
			if (found) {
				*cq = &found->v.cq;
				*cq_context = found->v.cq.cq_context;
				return 0;
			}
			errno = EAGAIN;
			return -1;
		}
		if (rt_block(channel->channel.fd) < 0)
			return -1;
	}
}

void soft_cq_ack(struct soft_cq *cq, unsigned n)
{
	unsigned events = atomic_load(&cq->events);

	/* Those of the program, of which there may be fewer than it says. */
	while (!atomic_compare_exchange_weak(&cq->events, &events, events - (n < events ? n : events)))
		;
	/* After the last of them the CQ may be gone. */
	if (atomic_load(&ack_waiters) == 0)
		return;
	pthread_mutex_lock(&ack_lock);
	pthread_cond_broadcast(&ack_cond);
	pthread_mutex_unlock(&ack_lock);
}

void soft_cq_drain_events(struct soft_cq *cq)
{
	struct soft_channel *channel = cq->channel;

	if (!channel)
		return;
	soft_lock(&channel->lock);
	if (cq->queued)
		list_remove(channel, cq);
	for (; cq->queued; cq->queued--)
		count_take(channel->channel.fd);
	soft_unlock(&channel->lock);
	pthread_mutex_lock(&ack_lock);
	atomic_fetch_add(&ack_waiters, 1);
	while (atomic_load(&cq->events))
		pthread_cond_wait(&ack_cond, &ack_lock);
	atomic_fetch_sub(&ack_waiters, 1);
	pthread_mutex_unlock(&ack_lock);
}
