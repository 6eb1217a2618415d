/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device as clients see it: name, port 1, numbers, limits. Shared by its contexts; one that the configuration drops
 * lives on, unlisted, until its last context is closed.
 */
#ifndef DAEMON_DEVICE_H
#define DAEMON_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/backend.h"
#include "daemon/config.h"
#include "daemon/gid.h"
#include "daemon/list.h"

struct device {
	struct list link; /* the server's, as long as it is configured */
	unsigned refs;
	uint32_t index;
	struct device_config config;
	struct gid_table gids; /* of port 1 */
	struct device_attr attr;
	const struct backend *backend;
	unsigned contexts; /* open now */
};

int device_new(const struct backend *backend, const struct device_config *config, uint32_t index,
	struct device **device);
struct device *device_ref(struct device *device);
struct device *device_unref(struct device *device);

/* Whether a device made of @config now would be no other than this one; its port may be up or down. */
bool device_unchanged(const struct device *device, const struct device_config *config);
/* Whether an address vector (LID, and GID unless NULL) leads to this device's port. */
bool device_has_address(const struct device *device, uint32_t lid, const uint8_t *gid);

#endif
