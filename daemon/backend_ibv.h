/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The host's real RDMA devices, as the kernel shows them: found at the start and whenever the kernel says that one came
 * or went. What moves bytes is their drivers, in the kernel and in the clients; here is who they are and how to open them.
 */
#ifndef DAEMON_BACKEND_IBV_H
#define DAEMON_BACKEND_IBV_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/gid.h"
#include "daemon/loop.h"

#define REAL_DEVICES_MAX 64
#define REAL_PORTS_MAX	 8 /* whose state is shown */
#define REAL_GIDS_MAX	 4 /* of a port, that are shown */

struct real_device {
	char name[64]; /* rxe0 */
	char node[32]; /* uverbs0 */
	dev_t rdev;
	uint32_t index, driver; /* 0: not known */
	uint32_t node_type, transport, n_ports;
	uint64_t guid; /* host order */
};

/* What is remembered of a device that may be gone. */
struct real_seen {
	char name[64];
	uint32_t index, n_ports;
	dev_t rdev;
};

struct real_port {
	uint32_t state, lid, sm_lid, link_layer;
	uint32_t pkey;
	struct gid gids[REAL_GIDS_MAX];
	uint32_t gid_index[REAL_GIDS_MAX];
	uint32_t n_gids;
};

struct real_devices {
	char sysfs[128]; /* where /sys/class is; tests have their own */
	int netlink;	 /* of rdma_nl.h; -1: none */
	struct real_device list[REAL_DEVICES_MAX];
	unsigned n;
	dev_t rdma_cm; /* 0: there is none */
	/* Hot plug. */
	int uevents;
	struct watch watch;
	struct timer settle;
	void (*changed)(void *data);
	void *data;
};

/* Finds what is there. Without devices, and without netlink, the list is empty: that is no error. */
void real_devices_init(struct real_devices *devices, const char *sysfs);
/* From now on @changed is called when the list may be another one. 0 or a negative errno. */
int real_devices_follow(
	struct real_devices *devices, struct loop *loop, void (*changed)(void *data), void *data);
void real_devices_deinit(struct real_devices *devices);
void real_devices_scan(struct real_devices *devices);

/* By name, or by node; NULL: none. */
const struct real_device *real_device_find(const struct real_devices *devices, const char *name);
const struct real_device *real_device_by_node(const struct real_devices *devices, const char *node);
/* A port of the device with that name, as it is now; its driver is asked, so this is for threads. 0 or a negative errno. */
int real_port_read(const char *sysfs, const char *name, uint32_t number, struct real_port *port);

/* Whether the device's driver in the client has to write() to it, which the kernel lets only its opener do. */
bool real_device_needs_opener(const struct real_device *device);

/* Whether a message of the kernel's is about RDMA devices. */
bool uevent_is_rdma(const char *bytes, size_t n);

#endif
