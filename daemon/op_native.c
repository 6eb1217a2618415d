/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Real devices: who may have which, and handing them out.
 */
#include "daemon/op.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/backend_ibv.h"
#include "daemon/later.h"
#include "daemon/log.h"
#include "daemon/native.h"
#include "daemon/native_domain.h"
#include "daemon/native_region.h"
#include "daemon/policy.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/uverbs.h"

/* What it may open under that name. */
static int resolve(const struct call *call, const char *node, struct native_want *want)
{
	const struct server *server = call->server;
	struct policy_client client;
	char name[64];
	bool cm = strcmp(node, "rdma_cm") == 0;

	want->device = cm ? NULL : real_device_by_node(&server->real, node);
	want->rdev = cm ? server->real.rdma_cm : want->device ? want->device->rdev : 0;
	if (!want->rdev)
		return refuse(-ENOENT, "node '%s'", log_escape(name, sizeof(name), node, strlen(node)));
	if (policy_client_init(&client, call->session) < 0)
		return -ENOMEM;
	want->grant = cm ? policy_rdma_cm(server->config, &client.who)
			 : policy_device(server->config, &client.who, want->device->name, want->device->n_ports);
	policy_client_deinit(&client);
	if (!want->grant)
		return refuse(-EACCES, "no grant of %s", cm ? "rdma_cm" : want->device->name);
	return 0;
}

static int say(struct call *call, const struct native *native)
{
	Vsd__NativeReply *reply;

	/* Nothing is wrong with it, so it does not count among the lines about its domain. */
	log_debug("client %llu (pid %d, uid %u): opens %s (%s, by grant %s)", (unsigned long long)call->session->id,
		(int)call->session->pid, call->session->uid, native->device,
		native->mode == NATIVE_PATH ? "its own node" : "our file", native->grant);
	reply = call_alloc(call, sizeof(*reply));
	vsd__native_reply__init(reply);
	reply->native = native->id;
	reply->mode = (Vsd__NativeMode)native->mode;
	reply->driver = native->driver;
	call->reply = &reply->base;
	return 0;
}

/* A node whose gate is being started. */
struct offering {
	struct later later;
	uint32_t native;
	struct fdlist fds; /* for the client */
};

static int offer_finish(struct later *later, struct call *call)
{
	struct offering *offering = container_of(later, struct offering, later);
	const struct native *native = native_get(call->session, offering->native);

	if (!native)
		return refuse(-EACCES, "its node was taken back");
	if (native->failed)
		return refuse(native->failed, "no process for its gate");
	call->fds = offering->fds;
	offering->fds = (struct fdlist)FDLIST_NULL;
	return say(call, native);
}

static void offer_drop(struct later *later)
{
	struct offering *offering = container_of(later, struct offering, later);

	fdlist_deinit(&offering->fds);
	free(offering);
}

static int offer_later(struct call *call, struct native *native)
{
	struct offering *offering = calloc(1, sizeof(*offering));

	if (!offering) {
		native_close(native);
		return -ENOMEM;
	}
	offering->later.finish = offer_finish;
	offering->later.drop = offer_drop;
	offering->native = native->id;
	offering->fds = call->fds;
	call->fds = (struct fdlist)FDLIST_NULL;
	return native_await(call, native, &offering->later);
}

static int give(struct call *call, const struct native_want *want)
{
	struct native *native;
	int r = native_open(call->session, want, &call->fds, &native);

	if (r < 0)
		return r;
	return native->gate.starting ? offer_later(call, native) : say(call, native);
}

/* A device that is opened in a thread. */
struct opening {
	struct later later;
	char nodes[96], node[32], path[64];
	dev_t rdev;
	int fd; /* or a negative errno */
};

static void open_run(struct later *later)
{
	struct opening *opening = container_of(later, struct opening, later);

	opening->fd = native_open_file(opening->nodes, opening->path, opening->rdev);
}

/* Policy is asked again: it may be another one by now, and so may the device. */
static int open_finish(struct later *later, struct call *call)
{
	struct opening *opening = container_of(later, struct opening, later);
	struct native_want want = { .rdwr = true };
	int r;

	if (opening->fd < 0)
		return refuse(opening->fd, "%s: %s", opening->path, strerror(-opening->fd));
	r = resolve(call, opening->node, &want);
	if (r < 0)
		return r;
	if (want.rdev != opening->rdev)
		return refuse(-ENODEV, "%s is another device now", opening->node);
	want.fd = opening->fd;
	return give(call, &want);
}

static void open_drop(struct later *later)
{
	struct opening *opening = container_of(later, struct opening, later);

	/* Nobody has done anything with it. */
	if (opening->fd >= 0)
		close(opening->fd);
	free(opening);
}

static int open_later(struct call *call, const struct native_want *want)
{
	struct opening *opening = calloc(1, sizeof(*opening));

	if (!opening)
		return -ENOMEM;
	*opening = (struct opening){
		.later = { .run = open_run, .finish = open_finish, .drop = open_drop },
		.rdev = want->rdev,
		.fd = -ECANCELED,
	};
	snprintf(opening->nodes, sizeof(opening->nodes), "%s", call->server->nodes);
	snprintf(opening->node, sizeof(opening->node), "%s", want->device->node);
	snprintf(opening->path, sizeof(opening->path), "/dev/infiniband/%s", want->device->node);
	return call_later(call, &opening->later);
}

int op_native_open(struct call *call)
{
	const Vsd__NativeOpenRequest *request = (const void *)call->request;
	struct native_want want = { .rdwr = request->rdwr, .fd = -1 };
	int r = resolve(call, request->node, &want);

	if (r < 0)
		return r;
	if (!want.device && want.rdwr)
		return refuse(-EOPNOTSUPP, "rdma_cm works for its opener only");
	return native_needs_node(&want) ? give(call, &want) : open_later(call, &want);
}

int op_native_close(struct call *call)
{
	const Vsd__NativeCloseRequest *request = (const void *)call->request;
	struct native *native = native_get(call->session, request->native);

	if (!native)
		return refuse(-EINVAL, "no real context %u", request->native);
	native_close(native);
	return 0;
}

int op_native_wait(struct call *call)
{
	const Vsd__NativeWaitRequest *request = (const void *)call->request;
	struct native *native = native_get(call->session, request->native);

	return native ? native_wait(call, native) : refuse(-EINVAL, "no real context %u", request->native);
}

static struct native_region *region_of(const struct call *call, uint32_t handle)
{
	struct native_region *region = native_region_get(call->session, handle);

	if (!region)
		refuse(0, "no native region %u", handle);
	return region;
}

int op_native_reg(struct call *call)
{
	const Vsd__NativeRegRequest *request = (const void *)call->request;
	struct native_region *region = region_of(call, request->handle);

	return region ? native_region_register(call, region, request->pd) : -EINVAL;
}

int op_native_release(struct call *call)
{
	const Vsd__NativeReleaseRequest *request = (const void *)call->request;
	struct native_region *region = region_of(call, request->handle);

	return region ? native_region_release(call, region) : -EINVAL;
}

/* --- domain contexts ------------------------------------------------------------------------------------------------- */

static int offer(const struct call *call, const Vsd__NativeDomainRequest *request, const struct native_want *want)
{
	struct native *native = native_get(call->session, request->native);

	if (!native || native->fd < 0 || strcmp(native->device, want->device->name) != 0 || !request->has_pd)
		return refuse(-EINVAL, "no real context %u of %s with a pd", request->native, want->device->name);
	if (native->shared || !list_empty(&native->regions))
		return refuse(-EBUSY, "real context %u is in use", request->native);
	return native_domain_offer(native, request->pd);
}

int op_native_domain(struct call *call)
{
	const Vsd__NativeDomainRequest *request = (const void *)call->request;
	struct native_want want = { .rdwr = true };
	struct native *native;
	Vsd__NativeDomainReply *reply;
	int r = resolve(call, request->node, &want);

	if (r < 0)
		return r;
	if (!want.device || !uverbs_imports(want.device->driver))
		return refuse(-EOPNOTSUPP, "%s: provider %s cannot import contexts, PDs and MRs", request->node,
			want.device ? uverbs_provider(want.device->driver) : "of rdma_cm");
	if (!want.grant->domain_contexts)
		return refuse(-EACCES, "grant %s has no domain contexts", want.grant->name);
	want.shared = native_domain_find(call->server, call->session->domain, want.device->name);
	if (request->has_native && want.shared)
		return refuse(-EEXIST, "the domain has a context of %s", want.device->name);
	if (request->has_native)
		return offer(call, request, &want);
	if (!want.shared)
		return refuse(-ENOENT, "the domain has no context of %s yet", want.device->name);
	want.fd = want.shared->fd;
	r = native_open(call->session, &want, &call->fds, &native);
	if (r < 0)
		return r;
	reply = call_alloc(call, sizeof(*reply));
	vsd__native_domain_reply__init(reply);
	reply->native = native->id;
	reply->driver = native->driver;
	reply->pd = want.shared->pd;
	call->reply = &reply->base;
	return 0;
}
