/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: programs that keep what is hot in a device's own memory run on the soft device too. Guarantees: a context has as
 * much of it as its device says and no more; it cannot go while a region is on it.
 */
#include "daemon/dm.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "daemon/context.h"
#include "daemon/fd.h"
#include "daemon/item.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/worker.h"

struct dm {
	struct object object;
	int memfd;
	uint64_t length, size;
	struct charge bytes, fds;
};

static uint32_t dm_max(const struct device_attr *attr)
{
	return attr->max_dm;
}

static void dm_fini(struct object *object)
{
	struct dm *dm = (struct dm *)object;

	object->context->dm_bytes -= dm->length;
	worker_close(object->context->server->worker, dm->memfd);
	charge_release(&dm->bytes);
	charge_release(&dm->fds);
}

static void dm_describe(const struct object *object, struct item *item)
{
	item->length = ((const struct dm *)object)->length;
	item->users = object->n_users;
	item->has |= ITEM_LENGTH | ITEM_USERS;
}

const struct object_class object_dm = {
	.name = "dm",
	.slot = SLOT_DMS,
	.size = sizeof(struct dm),
	.shared = true,
	.max = dm_max,
	.fini = dm_fini,
	.describe = dm_describe,
};

static int make_memory(struct dm *dm, struct account *account)
{
	int r = charge_take(&dm->bytes, account, SLOT_DM_BYTES, dm->size);

	if (r == 0)
		r = charge_take(&dm->fds, account, SLOT_FDS, 1);
	if (r < 0)
		return r;
	r = memfd_new("verbsd-dm", dm->size);
	if (r < 0)
		return r;
	dm->memfd = r;
	return 0;
}

int dm_new(struct attachment *attachment, uint64_t length, struct object **dm)
{
	struct context *context = attachment->context;
	uint64_t max = context->device->attr.max_dm_size, page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct object *object;
	struct dm *made;
	int r;

	if (length == 0 || length > max)
		return refuse(-EINVAL, "device memory of 0x%llx bytes", (unsigned long long)length);
	if (length > max - context->dm_bytes)
		return refuse(-ENOMEM, "the context has 0x%llx bytes of the device's 0x%llx",
			(unsigned long long)context->dm_bytes, (unsigned long long)max);
	r = object_new(attachment, OBJECT_DM, 0, &object);
	if (r < 0)
		return r;
	made = (struct dm *)object;
	made->memfd = -1;
	made->length = length;
	made->size = (length + page - 1) & ~(page - 1);
	context->dm_bytes += length;
	r = make_memory(made, &attachment->domain->account);
	if (r < 0) {
		dm_fini(object);
		object_discard(object);
		return r;
	}
	r = object_publish(object);
	if (r == 0)
		*dm = object;
	return r;
}

struct object *dm_get(const struct attachment *attachment, uint32_t handle)
{
	return object_get(attachment, OBJECT_DM, handle);
}

uint64_t dm_length(const struct object *dm)
{
	return ((const struct dm *)dm)->length;
}

uint64_t dm_size(const struct object *dm)
{
	return ((const struct dm *)dm)->size;
}

int dm_fd(const struct object *dm)
{
	return fd_admit(fcntl(((const struct dm *)dm)->memfd, F_DUPFD_CLOEXEC, 0));
}
