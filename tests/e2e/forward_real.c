/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A stand-in for the real libibverbs with one device, built by forward.sh: it shows what reaches the real library, and
 * calls its own exports as the real one does, through its PLT.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#undef ibv_query_port
#undef ibv_reg_mr

/* Of the interface to providers. */
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);

#define HANDLE 0x5ea1

static struct ibv_device device = { .node_type = IBV_NODE_CA, .name = "fake0" };

struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	list[0] = &device;
	if (n)
		*n = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *dev)
{
	return dev->name;
}

int ibv_get_device_index(struct ibv_device *dev)
{
	return 77;
}

__be64 ibv_get_device_guid(struct ibv_device *dev)
{
	return htobe64(0xfa4e);
}

struct ibv_context *ibv_open_device(struct ibv_device *dev)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n); /* goes to whoever stands in front */
	struct verbs_context *v = calloc(1, sizeof(*v));

	if (n != 1 || list[0] != &device || dev != &device) {
		fprintf(stderr, "inside, the list is not the real one\n");
		exit(3);
	}
	ibv_free_device_list(list);
	v->context.device = dev;
	v->context.abi_compat = NULL; /* as a provider of old: every call is by symbol */
	return &v->context;
}

int ibv_close_device(struct ibv_context *context)
{
	free((char *)context - offsetof(struct verbs_context, context));
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	pd->context = context;
	pd->handle = HANDLE;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

/* --- fork: the kernel does not copy registered pages; who stands in front tracks the ranges --------------------------- */

static int fork_safe;

int ibv_fork_init(void)
{
	fork_safe = 1;
	return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return fork_safe ? IBV_FORK_ENABLED : IBV_FORK_DISABLED;
}

int ibv_dontfork_range(void *base, size_t size)
{
	fprintf(stderr, "a range that only the real library knows\n");
	exit(3);
}

int ibv_dofork_range(void *base, size_t size)
{
	return ibv_dontfork_range(base, size);
}

/* --- memory ---------------------------------------------------------------------------------------------------------- */

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *mr;

	if (ibv_dontfork_range(addr, length))
		return NULL;
	mr = calloc(1, sizeof(*mr));
	mr->addr = addr;
	mr->length = length;
	mr->context = pd->context;
	mr->pd = pd;
	mr->lkey = HANDLE;
	return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	return ibv_reg_mr(pd, addr, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	ibv_dofork_range(mr->addr, mr->length);
	free(mr);
	return 0;
}

int ibv_query_port(
	struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	if (port != 1)
		return EINVAL;
	((struct ibv_port_attr *)attr)->lid = HANDLE;
	return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	memset(gid, 0x55, sizeof(*gid));
	return 0;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return "the real words";
}
