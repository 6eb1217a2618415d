/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: memory that outlives the process that filled it, and that others find without asking it. Guarantees: a region's
 * pages are touched by nobody here, so that no request takes time in proportion to its size; it is charged to its
 * domain until it is gone; who may not write it never gets an fd that can, nor one that could be opened again for that.
 */
#include "daemon/region.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "daemon/domain.h"
#include "daemon/fd.h"
#include "daemon/item.h"
#include "daemon/nonce.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/watch.h"
#include "daemon/window.h"
#include "daemon/worker.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#define MFD_HUGE_1GB (30U << 26)
#endif

#define SIZE_2M (2ull << 20)
#define SIZE_1G (1ull << 30)

/* ---- all of them ---- */

void regions_init(struct regions *regions, struct lease_pool *keys)
{
	*regions = (struct regions){ .names = NULL };
	list_init(&regions->all);
	list_init(&regions->capabilities);
	region_space_init(&regions->space, keys);
}

void regions_deinit(struct regions *regions)
{
	list_for_each_safe (pos, &regions->all) {
		struct region *region = container_of(pos, struct region, link);

		assert(region->users == 0);
		region_release(region);
	}
	assert(!regions->names && !regions->mrs && !regions->heaps);
	region_space_deinit(&regions->space);
}

/* Numbers rise; when they have all been given, the free ones come again. */
static void number(struct regions *regions, struct region *region)
{
	struct list *before;

	do {
		region->number = ++regions->last;
		for (before = regions->all.prev; before != &regions->all; before = before->prev) {
			if (container_of(before, struct region, link)->number <= region->number)
				break;
		}
	} while (region->number == 0 || region->number == UINT32_MAX ||
		 (before != &regions->all &&
			 container_of(before, struct region, link)->number == region->number));
	list_append(before->next, &region->link);
	regions->count++;
	regions->bytes += region->size;
}

static int name_compare(const void *a, const void *b)
{
	const struct region *x = a, *y = b;

	if (x->domain != y->domain)
		return (uintptr_t)x->domain < (uintptr_t)y->domain ? -1 : 1;
	return strcmp(x->name, y->name);
}

struct region *region_find(struct server *server, const struct domain *domain, const char *name)
{
	struct region key = { .domain = (struct domain *)domain };
	void *node;

	if (strlen(name) > REGION_NAME_MAX)
		return NULL;
	memcpy(key.name, name, strlen(name) + 1);
	node = tfind(&key, &server->regions.names, name_compare);
	return node ? *(struct region **)node : NULL;
}

/* ---- one ---- */

static int number_compare(const void *a, const void *b)
{
	const struct region *x = a, *y = b;

	return x->number == y->number ? 0 : x->number < y->number ? -1 : 1;
}

static void tear_down(struct region *region)
{
	struct server *server = region->server;

	if (region->heap_pid)
		tdelete(region, &server->regions.heaps, number_compare);

	for (unsigned i = 0; i < 2; i++) {
		list_remove(&region->capabilities[i].link);
		explicit_bzero(region->capabilities[i].nonce, VSD_NONCE_SIZE);
	}
	region_range_give(&server->regions.space, &region->range);
	if (region->key)
		region_key_give(&server->regions.space, region->key >> 8);
	if (region->number) {
		list_remove(&region->link);
		server->regions.count--;
		server->regions.bytes -= region->size;
	}
	window_unref(region->window);
	worker_close(server->worker, region->memfd);
	charge_release(&region->charge);
	charge_release(&region->bytes);
	charge_release(&region->fds);
	domain_unref(region->domain);
	free(region);
}

static int take_charges(struct region *region)
{
	struct account *account = &region->domain->account;
	int r = charge_take(&region->charge, account, SLOT_REGIONS, 1);

	if (r == 0)
		r = charge_take(&region->bytes, account, SLOT_REGION_BYTES, region->size);
	if (r == 0)
		r = charge_take(&region->fds, account, SLOT_FDS, 1);
	return r;
}

static int make_memory(struct region *region)
{
	unsigned huge = region->huge & REGION_HUGE_1G   ? MFD_HUGETLB | MFD_HUGE_1GB
			: region->huge & REGION_HUGE_2M ? MFD_HUGETLB | MFD_HUGE_2MB
							: 0;
	int fd = memfd_open("verbsd-region", region->size, huge);

	if (huge && (fd == -ENODEV || fd == -EINVAL || fd == -ENOSYS))
		return refuse(-ENOMEM, "this machine has no pages of %llu MiB",
			(unsigned long long)region->page_size >> 20);
	if (fd < 0)
		return fd;
	region->memfd = fd;
	return 0;
}

static int set_up(struct region *region)
{
	struct region_space *space = &region->server->regions.space;
	uint64_t align = region->page_size > SIZE_2M ? region->page_size : SIZE_2M;
	uint32_t index;
	int r = take_charges(region);

	if (r == 0) {
		r = region_range_take(space, region->size, align, &region->range);
		if (r == -ENOSPC)
			r = refuse(-ENOMEM, "no addresses left for 0x%llx bytes",
				(unsigned long long)region->size);
	}
	if (r == 0)
		r = make_memory(region);
	if (r == 0) {
		r = region_key_take(space, &index);
		if (r == 0)
			region->key = index << 8;
	}
	return r;
}

static uint64_t page_size(uint32_t flags)
{
	return flags & REGION_HUGE_1G   ? SIZE_1G
	       : flags & REGION_HUGE_2M ? SIZE_2M
					: (uint64_t)sysconf(_SC_PAGESIZE);
}

int region_new(struct session *session, uint64_t size, uint32_t flags, struct region **region)
{
	uint64_t page = page_size(flags);
	struct region *made;
	int r;

	if ((flags & REGION_HUGE) == REGION_HUGE)
		return refuse(-EINVAL, "pages of two sizes");
	if (size == 0 || size > REGION_SPACE_END - REGION_SPACE_FIRST)
		return refuse(-EINVAL, "size 0x%llx", (unsigned long long)size);
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	*made = (struct region){
		.server = session->server,
		.domain = domain_ref(session->domain),
		.memfd = -1,
		.size = (size + page - 1) & ~(page - 1),
		.page_size = page,
		.huge = flags & REGION_HUGE,
		.creator = session->id,
	};
	list_init(&made->link);
	list_init(&made->range.link);
	list_init(&made->link_heap);
	for (unsigned i = 0; i < 2; i++) {
		list_init(&made->capabilities[i].link);
		made->capabilities[i].region = made;
		made->capabilities[i].writable = i;
	}
	r = set_up(made);
	if (r < 0) {
		tear_down(made);
		return r;
	}
	number(&session->server->regions, made);
	made->key |= made->number & 0xff;
	*region = made;
	return 0;
}

void region_announce(struct region *region)
{
	region->announced = true;
	watch_region(region, true);
}

/* Its name came or went: who knows it hears of it once more, as it is now. */
static void announce_again(const struct region *region)
{
	if (region->announced)
		watch_region(region, true);
}

void region_check(struct region *region)
{
	if (region->users > 0 || region->persistent)
		return;
	if (region->announced)
		watch_region(region, false);
	region_unname(region);
	tear_down(region);
}

void region_ref(struct region *region)
{
	region->users++;
}

void region_unref(struct region *region)
{
	assert(region->users > 0);
	region->users--;
	region_check(region);
}

/* ---- heaps ---- */

int heap_new(struct session *session, uint64_t size, struct region **region)
{
	struct region *made;
	int r = region_new(session, size, 0, &made);

	if (r < 0)
		return r;
	if (!tsearch(made, &session->server->regions.heaps, number_compare)) {
		region_check(made);
		return -ENOMEM;
	}
	made->heap_pid = session->pid;
	list_append(&session->heaps, &made->link_heap);
	region_ref(made);
	region_announce(made);
	*region = made;
	return 0;
}

static void give(struct region *region)
{
	list_remove(&region->link_heap);
	region_unref(region);
}

struct region *heap_find(const struct session *session, uint32_t number)
{
	const struct region key = { .number = number };
	void *node = tfind(&key, &session->server->regions.heaps, number_compare);
	struct region *region = node ? *(struct region **)node : NULL;

	return region && region->domain == session->domain && region->heap_pid == session->pid
		       ? region
		       : NULL;
}

int heap_give(struct session *session, uint32_t number)
{
	struct region *region = heap_find(session, number);

	/* Another session of the process may have it, and registrations may be all that is left of it. */
	if (!region || list_empty(&region->link_heap) || region->creator != session->id)
		return refuse(-EINVAL, "no heap %u", number);
	give(region);
	return 0;
}

void heaps_give(struct session *session)
{
	list_for_each_safe (pos, &session->heaps)
		give(container_of(pos, struct region, link_heap));
}

/* ---- names ---- */

int region_name_check(const char *name)
{
	static const char allowed[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-";
	size_t n = strlen(name);

	if (n == 0 || n > REGION_NAME_MAX || strspn(name, allowed) != n)
		return refuse(
			-EINVAL, "a name has 1 to %d of A-Z a-z 0-9 . _ : / -", REGION_NAME_MAX);
	return 0;
}

static int name_set(struct region *region, const struct session *session, const char *name)
{
	int r = domain_pin(region->domain, session->pid, session->pidfd);

	if (r < 0)
		return r;
	memcpy(region->name, name, strlen(name) + 1); /* it was checked */
	if (!tsearch(region, &region->server->regions.names, name_compare)) {
		region->name[0] = '\0';
		domain_unpin(region->domain);
		return -ENOMEM;
	}
	return 0;
}

void region_unname(struct region *region)
{
	region->persistent = false;
	charge_release(&region->persistent_bytes);
	if (!region->name[0])
		return;
	tdelete(region, &region->server->regions.names, name_compare);
	region->name[0] = '\0';
	domain_unpin(region->domain);
}

void region_release(struct region *region)
{
	region->persistent = false;
	charge_release(&region->persistent_bytes);
	/* One that goes is told of with its name. */
	if (region->users > 0 && region->name[0]) {
		region_unname(region);
		announce_again(region);
	}
	region_check(region);
}

static int may_manage(const struct region *region, const struct session *session)
{
	if (region->domain != session->domain)
		return refuse(-EACCES, "region %u is another domain's", region->number);
	return 0;
}

static int export_check(
	const struct region *region, const struct session *session, const char *name)
{
	const struct region *other;
	int r = may_manage(region, session);

	if (r == 0)
		r = region_name_check(name);
	if (r < 0)
		return r;
	other = region_find(region->server, region->domain, name);
	if (other && other != region)
		return refuse(-EEXIST, "region %u has that name", other->number);
	if (!other && region->name[0])
		return refuse(-EBUSY, "region %u has the name %s", region->number, region->name);
	return 0;
}

bool region_is_of_own_user(const struct region *region)
{
	uid_t own = geteuid();

	return own != 0 && own == region->domain->key.uid;
}

/* For real devices on older kernels. */
static struct window *look_through(const struct region *region)
{
	return region_is_of_own_user(region) ? NULL : window_new(region->memfd, region->size);
}

static int seal(struct region *region)
{
	struct window *window;

	if (region->sealed)
		return 0;
	if (region->shared)
		return refuse(-EBUSY, "other processes may write region %u", region->number);
	window = look_through(region);
	if (fcntl(region->memfd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0) {
		int error = errno;

		window_unref(window);
		return error == EPERM ? refuse(-EBUSY, "its creator has put a seal on seals")
				      : refuse(-EOPNOTSUPP, "the kernel has no such seal");
	}
	region->window = window;
	region->sealed = true;
	region->read_only = true;
	return 0;
}

int region_export(
	struct region *region, const struct session *session, const char *name, uint32_t flags)
{
	bool named = region->name[0];
	int r = export_check(region, session, name);

	if (r == 0 && !named)
		r = name_set(region, session, name);
	if (r < 0)
		return r;
	r = region_keep(region, session, flags);
	if (r < 0) {
		if (!named)
			region_unname(region);
		return r;
	}
	region->read_only = flags & (REGION_READ_ONLY | REGION_SEAL);
	if (!named)
		announce_again(region);
	return 0;
}

int region_persist(struct region *region, const struct session *session, bool persist)
{
	int r = may_manage(region, session);

	if (r < 0)
		return r;
	if (!persist) {
		region->persistent = false;
		charge_release(&region->persistent_bytes);
		return 0;
	}
	if (!region->name[0])
		return refuse(-EINVAL, "only what has a name can be found again");
	if (region->domain->key.alone)
		return refuse(-EOPNOTSUPP, "nobody is in this domain but client %llu",
			(unsigned long long)region->domain->key.alone);
	if (region->persistent)
		return 0;
	r = charge_take(&region->persistent_bytes, &region->domain->account, SLOT_PERSISTENT_BYTES,
		region->size);
	if (r == 0)
		region->persistent = true;
	return r;
}

int region_keep(struct region *region, const struct session *session, uint32_t flags)
{
	bool persistent = region->persistent;
	int r = flags & REGION_PERSIST ? region_persist(region, session, true) : 0;

	if (r < 0 || !(flags & REGION_SEAL))
		return r;
	r = seal(region);
	if (r < 0 && !persistent)
		(void)region_persist(region, session, false);
	return r;
}

unsigned regions_release(struct server *server, uint32_t uid, const char *name)
{
	unsigned n = 0;

	list_for_each_safe (pos, &server->regions.all) {
		struct region *region = container_of(pos, struct region, link);

		if (region->domain->key.uid != uid || strcmp(region->name, name) != 0)
			continue;
		region_release(region);
		n++;
	}
	return n;
}

/* ---- who may have it ---- */

/* Who writes to it from now on must not choose its seals. */
static void close_seals(struct region *region)
{
	if (region->shared)
		return;
	/* It fails when the creator did it already. */
	(void)fcntl(region->memfd, F_ADD_SEALS, F_SEAL_SEAL);
	region->shared = true;
}

int region_fd(struct region *region, const struct session *session, bool writable)
{
	/* O_NONBLOCK: a lease that a client of our own uid holds on the file must not stop us. */
	if (!writable || region->sealed)
		return fd_reopen(region->memfd, O_RDONLY | O_NONBLOCK);
	if (session->id != region->creator)
		close_seals(region);
	return fd_admit(fcntl(region->memfd, F_DUPFD_CLOEXEC, 0));
}

int region_capability(struct region *region, bool writable)
{
	struct region_capability *capability = &region->capabilities[writable];

	if (list_empty(&capability->link)) {
		if (getrandom(capability->nonce, VSD_NONCE_SIZE, 0) != VSD_NONCE_SIZE)
			return -EIO;
		list_append(&region->server->regions.capabilities, &capability->link);
	}
	return memfd_const("verbsd-region-capability", capability->nonce, VSD_NONCE_SIZE);
}

struct region *region_open(
	struct server *server, const uint8_t nonce[VSD_NONCE_SIZE], bool *writable)
{
	struct region_capability *found = NULL;

	list_for_each (pos, &server->regions.capabilities) {
		struct region_capability *capability =
			container_of(pos, struct region_capability, link);

		if (!nonce_differs(capability->nonce, nonce))
			found = capability;
	}
	if (!found)
		return NULL;
	*writable = found->writable;
	return found->region;
}

uint32_t region_flags(const struct region *region)
{
	return region->huge | (region->read_only ? REGION_READ_ONLY : 0) |
	       (region->persistent ? REGION_PERSIST : 0) | (region->name[0] ? REGION_NAMED : 0) |
	       (region->sealed ? REGION_SEAL : 0);
}

void region_describe(const struct region *region, struct item *item)
{
	item->region = region->number;
	item->flags = region_flags(region);
	item->users = region->users;
	item->has |= ITEM_REGION | ITEM_FLAGS | ITEM_USERS;
	if (region->name[0])
		item->name = region->name;
	if (region->huge) {
		item->huge = region->page_size;
		item->has |= ITEM_HUGE;
	}
}
