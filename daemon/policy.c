/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: whoever is root on a host says who may use its adapters. Guarantees: what no grant names is nobody's; what is
 * asked is decided by the configuration of that moment.
 */
#include "daemon/policy.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/peer.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/stats.h"

/* The next pattern of a list, in @pattern; NULL: there was none. Otherwise where to go on. */
static const char *pattern_next(const char *list, char pattern[CONFIG_PATTERNS_MAX])
{
	size_t n;

	list += strspn(list, " \t,");
	n = strcspn(list, " \t,");
	if (n == 0)
		return NULL;
	memcpy(pattern, list, n);
	pattern[n] = '\0';
	return list + n;
}

/* A pattern for a cgroup stands for what is below it, too. */
static bool in_cgroup(const char *list, const char *cgroup)
{
	char pattern[CONFIG_PATTERNS_MAX];

	if (!*list)
		return true;
	while (*cgroup && (list = pattern_next(list, pattern))) {
		if (fnmatch(pattern, cgroup, FNM_LEADING_DIR) == 0)
			return true;
	}
	return false;
}

static bool names_port(const char *list, const char *device, unsigned port)
{
	char pattern[CONFIG_PATTERNS_MAX];

	while ((list = pattern_next(list, pattern))) {
		char *slash = strchr(pattern, '/');

		if (slash)
			*slash++ = '\0';
		if (fnmatch(pattern, device, 0) != 0)
			continue;
		if (!slash || (unsigned)atoi(slash) == port)
			return true;
	}
	return false;
}

static bool names_device(const struct device_grant *grant, const char *device, unsigned n_ports)
{
	for (unsigned port = 1; port <= n_ports; port++) {
		if (!names_port(grant->devices, device, port))
			return false;
	}
	return n_ports > 0 || names_port(grant->devices, device, 0);
}

static bool admits(const struct device_grant *grant, const struct policy_who *who)
{
	bool found = id_list_has(&grant->users, who->uid);

	for (unsigned i = 0; i < who->n_groups && !found; i++)
		found = id_list_has(&grant->groups, who->groups[i]);
	return found && in_cgroup(grant->cgroups, who->cgroup);
}

const struct device_grant *policy_device(
	const struct config *config, const struct policy_who *who, const char *device, unsigned n_ports)
{
	for (unsigned i = 0; i < config->n_grants; i++) {
		const struct device_grant *grant = &config->grants[i];

		if (admits(grant, who) && names_device(grant, device, n_ports))
			return grant;
	}
	return NULL;
}

const struct device_grant *policy_rdma_cm(const struct config *config, const struct policy_who *who)
{
	for (unsigned i = 0; i < config->n_grants; i++) {
		if (config->grants[i].rdma_cm && admits(&config->grants[i], who))
			return &config->grants[i];
	}
	return NULL;
}

static bool cgroups_count(const struct config *config)
{
	for (unsigned i = 0; i < config->n_grants; i++) {
		if (config->grants[i].cgroups[0])
			return true;
	}
	return false;
}

int policy_client_init(struct policy_client *client, const struct session *session)
{
	*client = (struct policy_client){ .who.uid = session->uid };
	client->groups = peer_groups(session->fd, session->gid, &client->who.n_groups);
	if (!client->groups)
		return -ENOMEM;
	if (cgroups_count(session->server->config)) {
		struct stats_who who;

		stats_who(session, &who);
		snprintf(client->cgroup, sizeof(client->cgroup), "%s", who.cgroup);
	}
	client->who.groups = client->groups;
	client->who.cgroup = client->cgroup;
	return 0;
}

void policy_client_deinit(struct policy_client *client)
{
	free(client->groups);
	client->groups = NULL;
}
