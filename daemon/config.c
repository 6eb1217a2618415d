/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: what may be configured is decided before anything depends on it. Guarantees: a configuration is complete from
 * its birth; what no file says has its default.
 */
#include "daemon/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/fd.h"
#include "daemon/options.h"

void device_default(struct device_config *device, const char *name, unsigned n)
{
	char why[128];

	memset(device, 0, sizeof(*device));
	strncpy(device->name, name, CONFIG_NAME_MAX);
	for (unsigned i = 0; i < n_options; i++) {
		if (options[i].section == SECTION_DEVICE && options[i].def)
			options[i].apply(&options[i], device, options[i].def, why, sizeof(why));
	}
	device->guid = 0x0256534400000001ull + n;
	device->lid = n + 1;
}

void grant_default(struct device_grant *grant, const char *name)
{
	char why[128];

	memset(grant, 0, sizeof(*grant));
	strncpy(grant->name, name, CONFIG_NAME_MAX);
	for (unsigned i = 0; i < n_options; i++) {
		if (options[i].section == SECTION_GRANT && options[i].def)
			options[i].apply(&options[i], grant, options[i].def, why, sizeof(why));
	}
}

static void grant_free(struct device_grant *grant)
{
	free(grant->users.ids);
	free(grant->groups.ids);
}

/* Real devices are the group's that the kernel's own packages make for them. Where there is none they are nobody's. */
static void grant_group_rdma(struct device_grant *grant)
{
	char why[128];

	grant_default(grant, "rdma");
	option_find(SECTION_GRANT, "groups")
		->apply(option_find(SECTION_GRANT, "groups"), grant, "rdma", why, sizeof(why));
}

void config_grants_drop(struct config *config)
{
	while (config->n_grants > 0)
		grant_free(&config->grants[--config->n_grants]);
}

/* As a tmpfs: what no process has to die for must leave room for processes. */
static uint64_t half_of_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

	return pages > 0 && size > 0 ? (uint64_t)pages / 2 * (uint64_t)size : UINT64_MAX;
}

struct config *config_new(void)
{
	struct config *config = calloc(1, sizeof(*config));

	if (!config)
		return NULL;
	for (unsigned i = 0; i < SLOT_N; i++)
		config->limit[i] = slot_info[i].limit;
	if (config->limit[SLOT_PERSISTENT_BYTES] > half_of_memory())
		config->limit[SLOT_PERSISTENT_BYTES] = half_of_memory();
	options_default(config);
	device_default(&config->devices[0], "soft0", 0);
	config->n_devices = 1;
	grant_group_rdma(&config->grants[0]);
	config->n_grants = 1;
	return config;
}

struct config *config_free(struct config *config)
{
	if (config) {
		config_grants_drop(config);
		free(config->users);
		free(config->connect_users.ids);
		free(config->connect_groups.ids);
		free(config);
	}
	return NULL;
}

void config_limits(const struct config *config, uid_t uid, uint64_t *limit)
{
	memcpy(limit, config->limit, sizeof(config->limit));
	for (unsigned i = 0; i < config->n_users; i++) {
		const struct user_limits *user = &config->users[i];

		for (unsigned slot = 0; user->uid == uid && slot < SLOT_N; slot++) {
			if (user->set & 1u << slot)
				limit[slot] = user->limit[slot];
		}
	}
	/* Whatever is configured, nobody alone can take all that the daemon may open. */
	if (limit[SLOT_FDS] > fd_limit() / 2)
		limit[SLOT_FDS] = fd_limit() / 2;
	/* Nor with regions, which may stay without a process, all that he may: he has to connect to take them away. */
	if (limit[SLOT_REGIONS] > limit[SLOT_FDS] / 2)
		limit[SLOT_REGIONS] = limit[SLOT_FDS] / 2;
}

bool id_list_has(const struct id_list *list, uint32_t id)
{
	if (list->any)
		return true;
	for (unsigned i = 0; i < list->n; i++) {
		if (list->ids[i] == id)
			return true;
	}
	return false;
}

bool config_admits(const struct config *config, uid_t uid, const gid_t *groups, unsigned n_groups)
{
	if (!config->connect_users.set && !config->connect_groups.set)
		return true;
	if (id_list_has(&config->connect_users, uid))
		return true;
	for (unsigned i = 0; i < n_groups; i++) {
		if (id_list_has(&config->connect_groups, groups[i]))
			return true;
	}
	return false;
}
