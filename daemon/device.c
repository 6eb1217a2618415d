/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: contexts, listings and address checks need one place that knows what a device is. Guarantees: a device stays
 * as long as a context refers to it.
 */
#include "daemon/device.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int device_new(const struct backend *backend, const struct device_config *config, uint32_t index,
	struct device **device)
{
	struct device *made = calloc(1, sizeof(*made));
	int r;

	if (!made)
		return -ENOMEM;
	*made = (struct device){
		.refs = 1, .index = index, .config = *config, .backend = backend
	};
	list_init(&made->link);
	r = backend->open(made, &made->attr);
	if (r < 0) {
		free(made);
		return r;
	}
	*device = made;
	return 0;
}

struct device *device_ref(struct device *device)
{
	device->refs++;
	return device;
}

struct device *device_unref(struct device *device)
{
	if (!device)
		return NULL;
	assert(device->refs > 0);
	if (--device->refs == 0) {
		list_remove(&device->link);
		device->backend->close(device);
		free(device);
	}
	return NULL;
}

static void put_be64(uint8_t *to, uint64_t value)
{
	for (int i = 0; i < 8; i++)
		to[i] = (uint8_t)(value >> (56 - 8 * i));
}

void device_gid(const struct device *device, uint8_t gid[GID_SIZE])
{
	put_be64(gid, device->config.gid_prefix);
	put_be64(gid + 8, device->config.guid);
}

bool device_has_address(const struct device *device, uint32_t lid, const uint8_t *gid)
{
	uint8_t own[GID_SIZE];

	if (device->config.link_layer == LINK_INFINIBAND) {
		if (lid != device->config.lid && !(lid == 0 && gid))
			return false;
	} else if (!gid) {
		return false;
	}
	if (!gid)
		return true;
	device_gid(device, own);
	return memcmp(own, gid, GID_SIZE) == 0;
}
