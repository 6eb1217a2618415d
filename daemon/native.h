/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Real devices that clients have open: each is one file of the kernel's, of which the daemon keeps a dup as long as the
 * client has it or lives.
 */
#ifndef DAEMON_NATIVE_H
#define DAEMON_NATIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/account.h"
#include "daemon/config.h"
#include "daemon/gate.h"
#include "daemon/list.h"
#include "daemon/loop.h"
#include "daemon/node.h"
#include "proto/fdlist.h"

struct call;
struct later;
struct native_domain;
struct real_device;
struct server;
struct session;

enum native_mode {
	NATIVE_RDWR = 1, /* the daemon opened it */
	NATIVE_PATH = 2, /* the client does */
};

struct native {
	struct list link;   /* in the session's, */
	struct list everyone; /* and in the server's */
	struct session *session;
	uint32_t id;
	char device[64]; /* "rdma_cm": the connection manager */
	uint32_t index, driver;
	uid_t uid;
	char grant[CONFIG_NAME_MAX + 1];
	enum native_mode mode;
	bool reported;	  /* the client has opened its node */
	struct node node; /* until then */
	struct gate gate;
	int failed; /* why there is no process at its gate */
	struct timer late;
	int fd; /* our dup; -1: none */
	struct later *waiter; /* a request that is answered when we have it, or never will */
	uint64_t memlock;    /* of the grant */
	struct list regions; /* struct native_region, registered by us or not */
	struct native_domain *shared; /* whose file it is; NULL: its own */
	struct charge charge, fds_charge;
};

/* What a client may open; @device is NULL for rdma_cm. */
struct native_want {
	const struct real_device *device;
	dev_t rdev;
	const struct device_grant *grant;
	bool rdwr; /* it cannot open a node */
	int fd;	   /* the device, open, and the caller's; unless it needs a node */
	struct native_domain *shared; /* a file that there is; NULL: a new one */
};

/* Whether the client has to open it itself, by a node. */
bool native_needs_node(const struct native_want *want);
/* Opens a device by a node that is made in @nodes, or by the host's at @path. For threads. The fd or a negative errno. */
int native_open_file(const char *nodes, const char *path, dev_t rdev);
/* Opens for @session; @fds gets what the client needs. 0 or a negative errno. */
int native_open(struct session *session, const struct native_want *want, struct fdlist *fds, struct native **native);
struct native *native_get(const struct session *session, uint32_t id);
/*
 * A handler's end: the answer is what @later's finish() makes of it (its drop() frees it) when something becomes of @native: the
 * process at its gate is there, its file has come, or it is gone. What the handler returns.
 */
int native_await(struct call *call, struct native *native, struct later *later);
/* The same: the answer comes when the client's file has come, or will not come any more. */
int native_wait(struct call *call, struct native *native);
/* The client closed it, or is gone. */
void native_close(struct native *native);
/* The configuration is another one: nodes that are still out, and no longer granted, are taken back. */
void native_recheck(struct server *server);
/* Raises the limit of locked memory of its process, if its grant says so. Whether that is enough for @bytes. */
bool native_raise_memlock(const struct native *native, uint64_t bytes);
/* How many of @device, all clients together. */
unsigned native_count(const struct server *server, const char *device);

#endif
