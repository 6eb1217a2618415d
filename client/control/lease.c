/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Leased numbers: a queue, so that a number comes back only after every other free one of the lease was used. A stale
 * key or QP number then matches something new as late as possible.
 */
#include "client/control/control.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct lease {
	pthread_mutex_t lock;
	uint32_t context;
	Vsd__LeaseKind kind;
	uint32_t total; /* leased so far; the next request asks for as many again */
	uint32_t *ring;
	size_t size, head, count;
};

static const uint32_t first_count[] = {
	[VSD__LEASE_KIND__LEASE_QPN] = VSD_LEASE_QPNS,
	[VSD__LEASE_KIND__LEASE_KEY] = VSD_LEASE_KEYS,
};

struct lease *lease_new(uint32_t context, Vsd__LeaseKind kind)
{
	struct lease *lease = calloc(1, sizeof(*lease));

	if (!lease)
		return NULL;
	pthread_mutex_init(&lease->lock, NULL);
	lease->context = context;
	lease->kind = kind;
	return lease;
}

struct lease *lease_free(struct lease *lease)
{
	if (!lease)
		return NULL;
	pthread_mutex_destroy(&lease->lock);
	free(lease->ring);
	free(lease);
	return NULL;
}

static int ring_grow(struct lease *lease, size_t more)
{
	if (more > UINT32_MAX - lease->total)
		return -EPROTO;

	size_t size = lease->total + more;
	uint32_t *ring = calloc(size, sizeof(*ring));

	if (!ring)
		return -ENOMEM;
	for (size_t i = 0; i < lease->count; i++)
		ring[i] = lease->ring[(lease->head + i) % lease->size];
	free(lease->ring);
	lease->ring = ring;
	lease->size = size;
	lease->head = 0;
	return 0;
}

static void ring_put(struct lease *lease, uint32_t number)
{
	lease->ring[(lease->head + lease->count) % lease->size] = number;
	lease->count++;
}

/* Asks the daemon for more. Held over the call: two threads at an empty lease need one answer, not two. */
static int lease_more(struct lease *lease)
{
	Vsd__LeaseRequest request = VSD__LEASE_REQUEST__INIT;
	ProtobufCMessage *message = NULL;

	request.context = lease->context;
	request.kind = lease->kind;
	request.count = lease->total ? lease->total : first_count[lease->kind];

	int r = control_call(VSD__OP__OP_LEASE, &request.base, &vsd__lease_reply__descriptor,
		&message, NULL);

	if (r < 0)
		return r;

	Vsd__LeaseReply reply = *(Vsd__LeaseReply *)message;

	protobuf_c_message_free_unpacked(message, NULL);
	if (reply.count == 0 || reply.first == 0 || reply.count > 1u << 24 ||
		reply.first > (1u << 24) - reply.count)
		return -EPROTO;
	r = ring_grow(lease, reply.count);
	if (r < 0)
		return r;
	lease->total += reply.count;
	for (uint32_t i = 0; i < reply.count; i++)
		ring_put(lease, reply.first + i);
	return 0;
}

int lease_take(struct lease *lease, uint32_t *number)
{
	pthread_mutex_lock(&lease->lock);

	int r = lease->count ? 0 : lease_more(lease);

	if (r == 0) {
		*number = lease->ring[lease->head];
		lease->head = (lease->head + 1) % lease->size;
		lease->count--;
	}
	pthread_mutex_unlock(&lease->lock);
	return r;
}

void lease_put(struct lease *lease, uint32_t number)
{
	pthread_mutex_lock(&lease->lock);
	if (lease->count < lease->size)
		ring_put(lease, number);
	pthread_mutex_unlock(&lease->lock);
}
