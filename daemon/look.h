/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What only a driver can tell of a real device, in its own time: how its ports are, and who has what there. A thread asks, one
 * for each device; who wants to know waits for that, but not for a driver that hangs.
 */
#ifndef DAEMON_LOOK_H
#define DAEMON_LOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/rdma_nl.h"

struct call;
struct real_device;
struct real_port;
struct server;

/* So long is waited for a device's answer, the first time; what it said before is what it says meanwhile. */
#define LOOK_MS 500

enum look_kind {
	LOOK_PORTS,
	LOOK_OWNERS, /* of devices that clients have open */
	LOOK_KINDS,
};

/*
 * The end of a handler: asks the devices, and then has @finish make the answer, whose call has a copy of the request's first
 * @size bytes (0: none). What the handler returns.
 */
int look_then(struct call *call, enum look_kind kind, int (*finish)(struct call *call), size_t size);
/* Nobody waits any more. */
void looks_end(struct server *server);

/* NULL: not known, or the device has no such port. */
const struct real_port *look_port(const struct server *server, const struct real_device *device, uint32_t number);
/* What @pid has there; false: nothing, or not known. */
bool look_owner(const struct server *server, const struct real_device *device, uint32_t pid, unsigned n[RDMA_NL_RESOURCES]);

#endif
