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
	gid_table_make(config, &made->gids);
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

bool device_unchanged(const struct device *device, const struct device_config *config)
{
	const struct device_config *old = &device->config;
	struct gid_table gids;

	/* The host's addresses are part of it. */
	gid_table_make(config, &gids);
	return memcmp(&gids, &device->gids, sizeof(gids)) == 0 && old->guid == config->guid &&
	       old->lid == config->lid && old->link_layer == config->link_layer &&
	       old->mtu == config->mtu && old->atomics == config->atomics;
}

bool device_has_address(const struct device *device, uint32_t lid, const uint8_t *gid)
{
	if (device->config.link_layer == LINK_INFINIBAND) {
		if (lid != device->config.lid && !(lid == 0 && gid))
			return false;
	} else if (!gid) {
		return false;
	}
	if (!gid)
		return true;
	for (uint32_t i = 0; i < device->gids.n; i++) {
		if (memcmp(device->gids.gids[i].raw, gid, GID_SIZE) == 0)
			return true;
	}
	return false;
}
