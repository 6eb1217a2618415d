/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asynchronous events of a context. An event stays in the list after it was delivered, until it is acknowledged: so
 * the list is also the count that destroying an object waits for, and objects need no counters for it.
 */
#include "client/soft/async.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/control/control.h"
#include "client/soft/count.h"
#include "client/soft/in_child.h"
#include "client/soft/objects.h"

struct soft_async_event {
	struct soft_async_event *next;
	enum ibv_event_type type;
	void *object;
	int port;
	bool delivered;
};

/* All contexts, for what the daemon has to say to one of them. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct soft_async *list;

void async_in_child(void)
{
	pthread_mutex_init(&list_lock, NULL);
	list = NULL;
}

int soft_async_init(struct soft_async *async)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);

	if (fd < 0)
		return -errno;
	async->fd = control_fd_high(fd);
	if (async->fd < 0)
		return async->fd;
	pthread_mutex_init(&async->lock, NULL);
	pthread_cond_init(&async->acked, NULL);
	async->head = NULL;
	async->tail = &async->head;
	pthread_mutex_lock(&list_lock);
	async->next = list;
	list = async;
	pthread_mutex_unlock(&list_lock);
	return 0;
}

void soft_async_deinit(struct soft_async *async)
{
	struct soft_async_event *event = async->head;

	pthread_mutex_lock(&list_lock);
	for (struct soft_async **at = &list; *at; at = &(*at)->next)
		if (*at == async) {
			*at = async->next;
			break;
		}
	pthread_mutex_unlock(&list_lock);
	while (event) {
		struct soft_async_event *next = event->next;

		free(event);
		event = next;
	}
	async->head = NULL;
	async->tail = &async->head;
	close(async->fd);
	async->fd = -1;
	pthread_cond_destroy(&async->acked);
	pthread_mutex_destroy(&async->lock);
}

void soft_async_raise(struct soft_async *async, enum ibv_event_type type, void *object, int port)
{
	struct soft_async_event *event = calloc(1, sizeof(*event));

	if (!event) {
		control_debug("an asynchronous event (%d) is lost: no memory", type);
		return;
	}
	event->type = type;
	event->object = object;
	event->port = port;
	pthread_mutex_lock(&async->lock);
	*async->tail = event;
	async->tail = &event->next;
	count_add(async->fd);
	pthread_mutex_unlock(&async->lock);
}

/* Whoever hears of it, and asks then, finds the port as it is now. */
static void port_follow(const Vsd__Device *info, enum ibv_event_type type, int number)
{
	uint32_t state = type == IBV_EVENT_PORT_ACTIVE ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;

	if (type != IBV_EVENT_PORT_ACTIVE && type != IBV_EVENT_PORT_ERR)
		return;
	for (size_t i = 0; info && i < info->n_ports; i++)
		if (info->ports[i]->number == (uint32_t)number)
			__atomic_store_n(&info->ports[i]->state, state, __ATOMIC_RELAXED);
}

void soft_async_raise_context(uint32_t context, enum ibv_event_type type, int port)
{
	pthread_mutex_lock(&list_lock);
	for (struct soft_async *async = list; async; async = async->next) {
		struct soft_context *ctx = soft_container(async, struct soft_context, async);

		if (ctx->id != context)
			continue;
		port_follow(ctx->info, type, port);
		soft_async_raise(async, type, NULL, port);
	}
	pthread_mutex_unlock(&list_lock);
}

/* Delivers the first event that was not; false: there is none, its object was destroyed meanwhile. */
static bool deliver_next(struct soft_async *async, struct ibv_async_event *event)
{
	struct soft_async_event *next;

	pthread_mutex_lock(&async->lock);
	next = async->head;
	while (next && next->delivered)
		next = next->next;
	if (next) {
		next->delivered = true;
		event->event_type = next->type;
		if (next->object)
			event->element.qp = next->object; /* all members are pointers, but port_num */
		else
			event->element.port_num = next->port;
	}
	pthread_mutex_unlock(&async->lock);
	return next;
}

int soft_async_get(struct soft_async *async, struct ibv_async_event *event)
{
	uint64_t one;

	/* A plain read: EINTR, SA_RESTART, O_NONBLOCK and cancellation are the kernel's. */
	do {
		if (read(async->fd, &one, sizeof(one)) < 0)
			return -1;
	} while (!deliver_next(async, event));
	return 0;
}

/* Unlinks the event at @at. Lock held. */
static void unlink_event(struct soft_async *async, struct soft_async_event **at)
{
	struct soft_async_event *event = *at;

	*at = event->next;
	if (async->tail == &event->next)
		async->tail = at;
	free(event);
}

static bool names_object(const struct soft_async_event *event, const struct ibv_async_event *ack)
{
	if (!event->delivered || event->type != ack->event_type)
		return false;
	return event->object ? event->object == (void *)ack->element.qp : event->port == ack->element.port_num;
}

void soft_async_ack(struct soft_async *async, const struct ibv_async_event *event)
{
	pthread_mutex_lock(&async->lock);
	for (struct soft_async_event **at = &async->head; *at; at = &(*at)->next)
		if (names_object(*at, event)) {
			unlink_event(async, at);
			pthread_cond_broadcast(&async->acked);
			break;
		}
	pthread_mutex_unlock(&async->lock);
}

static bool object_unacked(const struct soft_async *async, const void *object)
{
	for (const struct soft_async_event *event = async->head; event; event = event->next)
		if (event->object == object)
			return true;
	return false;
}

void soft_async_drop(struct soft_async *async, void *object)
{
	pthread_mutex_lock(&async->lock);
	for (struct soft_async_event **at = &async->head; *at;)
		if ((*at)->object == object && !(*at)->delivered) {
			unlink_event(async, at);
			count_take(async->fd);
		} else {
			at = &(*at)->next;
		}
	while (object_unacked(async, object))
		pthread_cond_wait(&async->acked, &async->lock);
	pthread_mutex_unlock(&async->lock);
}
