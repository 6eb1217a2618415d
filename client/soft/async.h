/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asynchronous events of a context: a queue and a semaphore eventfd (the context's async_fd), one count per queued
 * event. Destroying an object waits until its events that were delivered are acknowledged, and drops those that
 * were not (ibv_get_async_event(3)).
 */
#ifndef SOFT_ASYNC_H
#define SOFT_ASYNC_H

#include <pthread.h>
#include <stdint.h>

#include <infiniband/verbs.h>

struct soft_async_event;

struct soft_async {
	pthread_mutex_t lock;
	pthread_cond_t acked;
	struct soft_async_event *head, **tail;
	int fd;
	struct soft_async *next; /* of all contexts */
};

int soft_async_init(struct soft_async *async);
void soft_async_deinit(struct soft_async *async);
/* @object is the ibv_qp, ibv_cq, ibv_srq pointer, NULL for a port event. Never blocks. */
void soft_async_raise(struct soft_async *async, enum ibv_event_type type, void *object, int port);
/* The same for the context that the daemon calls @context, if it is open. */
void soft_async_raise_context(uint32_t context, enum ibv_event_type type, int port);
/* ibv_get_async_event() and ibv_ack_async_event() for this context; 0 or -1 with errno. */
int soft_async_get(struct soft_async *async, struct ibv_async_event *event);
/* Drops the object's queued events, then waits until those that were delivered are acknowledged. */
void soft_async_drop(struct soft_async *async, void *object);
void soft_async_ack(struct soft_async *async, const struct ibv_async_event *event);

#endif
