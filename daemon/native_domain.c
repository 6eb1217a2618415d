/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a pool that a hundred processes use is registered a hundred times, each of which takes a minute where it is large.
 * Guarantees: members are of one trust domain; what is registered for them goes with its last user, the file with its last
 * member. What a member made there itself and did not destroy stays as long: the kernel does not say whose it is.
 */
#include "daemon/native_domain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/fd.h"
#include "daemon/native.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/worker.h"

struct native_domain *native_domain_find(
	const struct server *server, const struct domain *domain, const char *device)
{
	list_for_each (pos, &server->native_domains) {
		struct native_domain *shared = container_of(pos, struct native_domain, link);

		if (shared->domain == domain && strcmp(shared->device, device) == 0)
			return shared;
	}
	return NULL;
}

int native_domain_offer(struct native *native, uint32_t pd)
{
	struct native_domain *shared = calloc(1, sizeof(*shared));

	if (!shared)
		return -ENOMEM;
	*shared = (struct native_domain){ .domain = native->session->domain, .pd = pd };
	shared->fd = fd_admit(fcntl(native->fd, F_DUPFD_CLOEXEC, 0));
	if (shared->fd < 0) {
		int r = shared->fd;

		free(shared);
		return r;
	}
	snprintf(shared->device, sizeof(shared->device), "%s", native->device);
	list_init(&shared->mrs);
	list_init(&shared->link);
	list_append(&native->session->server->native_domains, &shared->link);
	native_domain_join(shared, native);
	return 0;
}

void native_domain_join(struct native_domain *shared, struct native *native)
{
	shared->members++;
	native->shared = shared;
}

void native_domain_leave(struct native *native)
{
	struct native_domain *shared = native->shared;

	native->shared = NULL;
	if (!shared || --shared->members > 0)
		return;
	list_remove(&shared->link);
	worker_close(native->session->server->worker, shared->fd);
	free(shared);
}

struct native_domain_mr *native_domain_mr_get(
	struct native_domain *shared, const struct region *region, uint32_t access)
{
	list_for_each (pos, &shared->mrs) {
		struct native_domain_mr *mr = container_of(pos, struct native_domain_mr, link);

		if (mr->region == region && mr->access == access) {
			mr->users++;
			return mr;
		}
	}
	return NULL;
}

struct native_domain_mr *native_domain_mr_new(struct native_domain *shared, const struct native_domain_mr *like)
{
	struct native_domain_mr *mr = malloc(sizeof(*mr));

	if (!mr)
		return NULL;
	*mr = *like;
	mr->users = 1;
	list_init(&mr->link);
	list_append(&shared->mrs, &mr->link);
	return mr;
}

bool native_domain_mr_put(struct native_domain_mr *mr)
{
	if (--mr->users > 0)
		return false;
	list_remove(&mr->link);
	free(mr);
	return true;
}
