/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: XRC is there for processes that share receive QPs; the file that they all can open is how they find each other.
 * Guarantees: only processes of one trust domain share one, whatever inode others name; it goes with the last that has
 * it open.
 */
#include "daemon/xrcd.h"

#include <assert.h>
#include <errno.h>
#include <search.h>
#include <stdlib.h>

#include "daemon/context.h"
#include "daemon/item.h"
#include "daemon/refuse.h"
#include "daemon/server.h"

struct xrcd {
	struct object object;
	struct xrc_domain *domain;
};

static uint32_t xrcd_max(const struct device_attr *attr)
{
	return attr->max_xrcd;
}

static void xrcd_fini(struct object *object)
{
	struct xrcd *xrcd = (struct xrcd *)object;

	xrcd->domain = xrc_domain_unref(xrcd->domain);
}

static void xrcd_describe(const struct object *object, struct item *item)
{
	const struct xrc_domain *domain = ((const struct xrcd *)object)->domain;

	item->number = domain->number;
	item->kind = domain->file.has ? "SHARED" : "PRIVATE";
	item->users = object->n_users;
	item->has |= ITEM_NUMBER | ITEM_USERS;
}

const struct object_class object_xrcd = {
	.name = "xrcd",
	.slot = SLOT_XRCDS,
	.size = sizeof(struct xrcd),
	.max = xrcd_max,
	.fini = xrcd_fini,
	.describe = xrcd_describe,
};

static int by(uint64_t a, uint64_t b)
{
	return a == b ? 0 : a < b ? -1 : 1;
}

static int compare(const void *a, const void *b)
{
	const struct xrc_domain *x = a, *y = b;
	int r = by(x->file.inode, y->file.inode);

	if (r == 0)
		r = by(x->file.device, y->file.device);
	if (r == 0)
		r = by((uintptr_t)x->domain, (uintptr_t)y->domain);
	return r ? r : by((uintptr_t)x->device, (uintptr_t)y->device);
}

static int domain_new(
	struct attachment *attachment, const struct xrcd_file *file, struct xrc_domain **domain)
{
	struct server *server = attachment->context->server;
	struct xrc_domain *made = calloc(1, sizeof(*made));
	int r;

	if (!made)
		return -ENOMEM;
	*made = (struct xrc_domain){
		.server = server,
		.device = attachment->context->device,
		.domain = attachment->domain,
		.file = *file,
		.refs = 1,
	};
	list_init(&made->leases);
	r = handle_insert(&server->xrcd_numbers, OBJECT_XRCD, made, &made->number);
	if (r < 0) {
		free(made);
		return -ENOMEM;
	}
	if (file->has && !tsearch(made, &server->xrc_domains, compare)) {
		handle_remove(&server->xrcd_numbers, made->number, OBJECT_XRCD);
		free(made);
		return -ENOMEM;
	}
	device_ref(made->device);
	domain_ref(made->domain);
	*domain = made;
	return 0;
}

struct xrc_domain *xrc_domain_ref(struct xrc_domain *domain)
{
	domain->refs++;
	return domain;
}

struct xrc_domain *xrc_domain_unref(struct xrc_domain *domain)
{
	if (!domain || --domain->refs > 0)
		return NULL;
	if (domain->file.has)
		tdelete(domain, &domain->server->xrc_domains, compare);
	handle_remove(&domain->server->xrcd_numbers, domain->number, OBJECT_XRCD);
	while (!list_empty(&domain->leases))
		lease_free(container_of(domain->leases.next, struct lease, link));
	device_unref(domain->device);
	domain_unref(domain->domain);
	free(domain);
	return NULL;
}

static int find(
	struct attachment *attachment, const struct xrcd_how *how, struct xrc_domain **domain)
{
	struct xrc_domain key = {
		.device = attachment->context->device,
		.domain = attachment->domain,
		.file = how->file,
	};
	void *node = how->file.has ? tfind(&key, &attachment->context->server->xrc_domains, compare)
				   : NULL;

	if (node && how->exclusive)
		return refuse(-EINVAL, "there is an XRCD of this inode already");
	if (node) {
		*domain = xrc_domain_ref(*(struct xrc_domain **)node);
		return 0;
	}
	if (how->file.has && !how->create)
		return refuse(-EAGAIN, "there is no XRCD of this inode");
	return domain_new(attachment, &how->file, domain);
}

int xrcd_open(struct attachment *attachment, const struct xrcd_how *how, struct object **xrcd)
{
	struct object *made;
	int r = object_new(attachment, OBJECT_XRCD, 0, &made);

	if (r < 0)
		return r;
	r = find(attachment, how, &((struct xrcd *)made)->domain);
	if (r < 0) {
		object_discard(made);
		return r;
	}
	r = object_publish(made);
	if (r == 0)
		*xrcd = made;
	return r;
}

struct xrc_domain *xrcd_domain(const struct object *xrcd)
{
	assert(xrcd->type == OBJECT_XRCD);
	return ((const struct xrcd *)xrcd)->domain;
}

/* Behind the last one that was given: a number that was freed rests as long as it can. */
static int number_free(const struct lease *lease, uint32_t last, uint32_t *number)
{
	for (uint32_t n = 0; n < lease->count; n++) {
		uint32_t i = (last + 1 + n) % lease->count;

		if (!lease->taken || !(lease->taken[i / 64] & 1ull << i % 64)) {
			*number = lease->first + i;
			return 0;
		}
	}
	return -ENOSPC;
}

int xrc_number_take(struct xrc_domain *domain, uint32_t *number)
{
	struct lease *lease;
	int r = -ENOSPC;

	list_for_each (pos, &domain->leases) {
		r = number_free(container_of(pos, struct lease, link), domain->last, number);
		if (r == 0)
			break;
	}
	if (r < 0) {
		r = lease_new(&domain->server->qpns, &domain->domain->account, &domain->leases, 1,
			&lease);
		if (r < 0)
			return r;
		r = number_free(lease, domain->last, number);
	}
	if (r < 0)
		return r;
	domain->last = *number;
	return lease_number_take(&domain->leases, *number);
}

void xrc_number_give(struct xrc_domain *domain, uint32_t number)
{
	lease_number_give(&domain->leases, number);
}
