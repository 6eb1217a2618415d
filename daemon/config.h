/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The configuration as values. config_read() parses, options.c has the table of keys. A configuration is built whole
 * and then replaces the old one, or is thrown away.
 */
#ifndef DAEMON_CONFIG_H
#define DAEMON_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/account.h"
#include "daemon/log.h"

#define CONFIG_DEVICES_MAX 32
#define CONFIG_NAME_MAX    63
#define CONFIG_NETDEV_MAX  15
#define CONFIG_GRANTS_MAX  32
#define CONFIG_PATTERNS_MAX 512

enum link_layer {
	LINK_INFINIBAND = 1, /* IBV_LINK_LAYER_* */
	LINK_ETHERNET = 2,
};

enum atomics {
	ATOMICS_DEVICE = 1, /* IBV_ATOMIC_* */
	ATOMICS_GLOBAL = 2,
};

struct device_config {
	char name[CONFIG_NAME_MAX + 1];
	uint64_t guid;
	uint64_t gid_prefix;
	uint32_t lid;
	enum link_layer link_layer;
	enum atomics atomics; /* what is said of them */
	uint32_t mtu;	      /* bytes */
	bool active;
	char netdev[CONFIG_NETDEV_MAX + 1]; /* of Ethernet: an interface, "auto" or "none" */
	uint32_t nth_ethernet;		    /* among the devices of that kind */
};

/* Limits of one user; only what is in @set differs from [limits]. */
struct user_limits {
	uid_t uid;
	uint64_t limit[SLOT_N];
	uint32_t set; /* bit per slot */
};

struct id_list {
	uint32_t *ids;
	unsigned n;
	bool set; /* named in a file at all */
	bool any; /* "*" */
};

/* Who may have which real devices, and how. */
struct device_grant {
	char name[CONFIG_NAME_MAX + 1];
	struct id_list users, groups;	   /* either admits */
	char cgroups[CONFIG_PATTERNS_MAX]; /* patterns, one of which must fit as well; "": any will do */
	char devices[CONFIG_PATTERNS_MAX]; /* patterns: NAME, or NAME/PORT */
	uint32_t contexts;		   /* of one user at a time */
	uint64_t memlock;		   /* RLIMIT_MEMLOCK is raised to this; 0: is left alone */
	bool rdma_cm;
	bool domain_contexts; /* members of one trust domain may share a context */
};

struct config {
	struct device_config devices[CONFIG_DEVICES_MAX];
	unsigned n_devices;
	uint64_t limit[SLOT_N];
	struct user_limits *users;
	unsigned n_users;
	struct id_list connect_users, connect_groups;
	struct device_grant grants[CONFIG_GRANTS_MAX]; /* in the order of the files */
	unsigned n_grants;
	enum log_level log_level;
	uint32_t domain_share;    /* per cent of a user's limits that one domain may have */
	uint32_t max_connections; /* of all users together */
	bool cma;
	bool device_events; /* real devices are observed */
	bool connect_any;    /* QPs of different domains may connect */
	uint32_t lane_slots; /* 0: by queue depth */
};

/* What holds without any file: one soft device soft0. */
struct config *config_new(void);
/* The @n-th device, with nothing said about it. */
void device_default(struct device_config *device, const char *name, unsigned n);
/* A grant that grants nothing yet. */
void grant_default(struct device_grant *grant, const char *name);
struct config *config_free(struct config *config);
/* As soon as a file names a grant, only those that are named hold. */
void config_grants_drop(struct config *config);
bool id_list_has(const struct id_list *list, uint32_t id);
/* Limits of @uid: [limits USER] over [limits]. @limit has SLOT_N entries. */
void config_limits(const struct config *config, uid_t uid, uint64_t *limit);
/* Whether [connect] lets this one in. */
bool config_admits(const struct config *config, uid_t uid, const gid_t *groups, unsigned n_groups);

/*
 * Reads @path and the *.conf files of @path's folder's conf.d, in the order of their names. 0 and a new configuration, or a
 * negative errno with "file:line: reason" in @error. With @optional a missing @path is no error.
 */
int config_read(
	const char *path, bool optional, struct config **config, char *error, unsigned size);

#endif
