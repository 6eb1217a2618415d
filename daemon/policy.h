/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which real devices a client may have: the first grant that fits it and what it asks for.
 */
#ifndef DAEMON_POLICY_H
#define DAEMON_POLICY_H

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/config.h"

struct session;

struct policy_who {
	uid_t uid;
	const gid_t *groups;
	unsigned n_groups;
	const char *cgroup; /* "": not known */
};

/* A session as policy sees it. */
struct policy_client {
	struct policy_who who;
	gid_t *groups;
	char cgroup[256];
};

/* 0 or -ENOMEM. */
int policy_client_init(struct policy_client *client, const struct session *session);
void policy_client_deinit(struct policy_client *client);

/*
 * NULL: it may not. A port cannot be kept from who has the device, so a grant of single ports grants the device only
 * when it names all @n_ports of them.
 */
const struct device_grant *policy_device(
	const struct config *config, const struct policy_who *who, const char *device, unsigned n_ports);
const struct device_grant *policy_rdma_cm(const struct config *config, const struct policy_who *who);

#endif
