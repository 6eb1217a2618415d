/* SPDX-License-Identifier: BSD-2-Clause */
/* A test of the map engine says itself what the daemon knows, wrong things too. */
#include "tests/unit/fake_grants.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/sock.h"
#include "tests/unit/fake_daemon.h"

int fake_region_file(uint64_t size)
{
	int fd = memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return fd;
}

static int fd_for(const struct fake_region *region)
{
	char path[40];

	if (region->fd < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", region->fd);
	return open(path, (region->writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
}

static struct fake_region *region_of(struct fake_grants *grants, uint32_t key)
{
	for (unsigned i = 0; i < grants->n; i++)
		if (grants->regions[i].key == key)
			return &grants->regions[i];
	return NULL;
}

/* False: the client is gone; it may end without the answer. */
static bool answer(struct fake_grants *grants, const struct frame_header *header, uint32_t key)
{
	const struct fake_region *region = region_of(grants, key);
	Vsd__RegionGrantReply reply = VSD__REGION_GRANT_REPLY__INIT;
	struct fdlist fds = FDLIST_NULL;
	int fd = -1;

	if (!region || region->status)
		return fake_reply(grants->events, header, region ? region->status : EACCES, NULL, NULL);
	reply.region = region->number;
	reply.iova = region->base;
	reply.size = region->size;
	reply.writable = region->writable;
	fd = fd_for(region);
	if (fd >= 0)
		fdlist_consume(&fds, fd);

	bool sent = fake_reply(grants->events, header, 0, &reply.base, fd < 0 ? NULL : &fds);

	fdlist_deinit(&fds);
	return sent;
}

static void *grants_main(void *arg)
{
	struct fake_grants *grants = arg;
	uint8_t buf[VSD_REQUEST_MAX];
	struct frame_header header;
	size_t length;
	bool more = true;

	while (more && sock_recv(grants->events, buf, sizeof(buf), true, NULL, &length) == 0 && length &&
		frame_parse(buf, length, &header) == 0) {
		if (header.opcode != VSD__OP__OP_REGION_GRANT)
			continue;
		Vsd__RegionGrantRequest *request =
			vsd__region_grant_request__unpack(NULL, header.length, buf + sizeof(header));

		ck_assert_ptr_nonnull(request);
		pthread_mutex_lock(&grants->lock);
		grants->asked++;
		pthread_cond_broadcast(&grants->cond);
		while (grants->hold)
			pthread_cond_wait(&grants->cond, &grants->lock);
		more = answer(grants, &header, request->key);
		grants->answered++;
		pthread_cond_broadcast(&grants->cond);
		pthread_mutex_unlock(&grants->lock);
		vsd__region_grant_request__free_unpacked(request, NULL);
	}
	return NULL;
}

void grants_start(struct fake_grants *grants, int events)
{
	memset(grants, 0, sizeof(*grants));
	pthread_mutex_init(&grants->lock, NULL);
	pthread_cond_init(&grants->cond, NULL);
	grants->events = fcntl(events, F_DUPFD_CLOEXEC, 0);
	ck_assert_int_ge(grants->events, 0);
	ck_assert_int_eq(pthread_create(&grants->thread, NULL, grants_main, grants), 0);
}

void grants_stop(struct fake_grants *grants)
{
	grants_hold(grants, false);
	pthread_join(grants->thread, NULL);
	close(grants->events);
	pthread_cond_destroy(&grants->cond);
	pthread_mutex_destroy(&grants->lock);
}

void grants_set(struct fake_grants *grants, const struct fake_region *region)
{
	pthread_mutex_lock(&grants->lock);

	struct fake_region *known = region_of(grants, region->key);

	if (!known) {
		ck_assert_uint_lt(grants->n, FAKE_REGIONS);
		known = &grants->regions[grants->n++];
	}
	*known = *region;
	pthread_mutex_unlock(&grants->lock);
}

void grants_hold(struct fake_grants *grants, bool hold)
{
	pthread_mutex_lock(&grants->lock);
	grants->hold = hold;
	pthread_cond_broadcast(&grants->cond);
	pthread_mutex_unlock(&grants->lock);
}

unsigned grants_asked(struct fake_grants *grants)
{
	unsigned n;

	pthread_mutex_lock(&grants->lock);
	n = grants->asked;
	pthread_mutex_unlock(&grants->lock);
	return n;
}

void grants_wait(struct fake_grants *grants, unsigned n)
{
	pthread_mutex_lock(&grants->lock);
	while (grants->answered < n)
		pthread_cond_wait(&grants->cond, &grants->lock);
	pthread_mutex_unlock(&grants->lock);
}
