/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts and attachments. A context is an open device with its objects; sessions attach to it, the opener at once,
 * others by its capability. An attachment has what belongs to one process in it: objects and leases.
 */
#ifndef DAEMON_CONTEXT_H
#define DAEMON_CONTEXT_H

#include <stdint.h>

#include "daemon/device.h"
#include "daemon/domain.h"
#include "daemon/handle.h"
#include "daemon/lease.h"
#include "daemon/list.h"
#include "daemon/notice.h"
#include "daemon/object.h"
#include "proto/limits.h"

struct server;
struct session;

struct context {
	struct list link; /* the server's */
	struct server *server;
	struct device *device;
	struct list attachments;
	struct list shared; /* objects that are no process's: PDs and DMs */
	uint64_t dm_bytes;
	uint32_t mcast_groups, mcast_attached;
	struct handle_table objects;
	uint32_t vacant; /* of those, handles that are set aside */
	uint32_t count[OBJECT_TYPES];
	uint8_t nonce[VSD_NONCE_SIZE];
};

struct attachment {
	struct list link_session; /* of its session, or of the server's dying ones */
	struct list link_context;
	struct session *session;
	struct context *context;
	struct domain *domain;
	uint32_t id; /* within the session */
	struct list objects[OBJECT_TYPES];
	struct list places; /* struct mr: those that its process registers by itself, whether they are there or not */
	struct list leases[LEASE_KIND_KEY + 1];
	struct charge charge;
	struct notice notice; /* of the port */
};

/* Opens @device for @session. 0, or a negative errno. */
int context_open(struct session *session, struct device *device, struct attachment **attachment);
/* Attaches @session to the context with this nonce; compared in constant time. -EACCES when there is none. */
int context_attach(struct session *session, const uint8_t nonce[VSD_NONCE_SIZE],
	struct attachment **attachment);
/* A sealed memfd with the nonce, a new one each time. */
int context_capability(const struct context *context);

/* Whoever is attached to a context of this device is told how its port is. */
void contexts_port_changed(struct server *server, const struct device *device);

struct attachment *attachment_get(const struct session *session, uint32_t id);
/*
 * Ends an attachment: its id is free at once, its QPs leave their wires, and the rest is destroyed in slices from the
 * server's reaper. The context goes with its last attachment.
 */
void attachment_close(struct attachment *attachment);
/* Destroys at most *@budget objects, which is counted down. True when the attachment is freed. */
bool attachment_reap(struct attachment *attachment, unsigned *budget);

#endif
