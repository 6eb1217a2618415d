/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon's own context on each real device: through it the kernel tells what becomes of the device and its ports, and
 * what its limits are.
 */
#ifndef DAEMON_OBSERVER_H
#define DAEMON_OBSERVER_H

#include <rdma/ib_user_verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/backend_ibv.h"
#include "daemon/job.h"
#include "daemon/list.h"
#include "daemon/log.h"
#include "daemon/loop.h"

struct server;

#define OBSERVER_EVENTS 20 /* enum ibv_event_type that are counted */

/* What the device says of itself. */
struct observed {
	struct ib_uverbs_query_device_resp device;
	struct ib_uverbs_query_port_resp ports[REAL_PORTS_MAX];
	unsigned n_ports;
};

struct observer {
	struct list link;
	struct server *server;
	char name[64];
	dev_t rdev;
	uint32_t index, driver, n_ports;
	int fd, events; /* -1: not open */
	struct watch watch;
	struct looking *looking; /* the job that looks; NULL: none */
	bool again;		 /* look once more when it is over */
	bool known;		 /* @observed is */
	struct observed observed;
	uint64_t counts[REAL_PORTS_MAX + 1][OBSERVER_EVENTS]; /* by port; 0: the device's, and ports behind the last one */
	struct log_limit log_limit;
};

/* Makes those of the devices that there are now, and ends those of devices that have gone. */
void observers_update(struct server *server);
void observers_end(struct server *server);
/* NULL: it is not observed, for its driver or its node do not let us, or not yet. */
const struct observer *observer_find(const struct server *server, const struct real_device *device);
/* How often @event was told of @port, or of the device. */
uint64_t observer_count(const struct observer *observer, uint32_t port, unsigned event);
/* "port-error"; NULL: none that is told. */
const char *observer_event_name(unsigned event);

/* Where the host's nodes are by number, and what came on an events' file: for tests. */
extern const char *observer_folder;
void observer_event(struct observer *observer, const struct ib_uverbs_async_event_desc *event);

#endif
