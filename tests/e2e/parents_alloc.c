/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * F6 of the field reports. Allocators of parent domains: asked for the exact size, alignment and type, believed
 * whatever they answer, and given back exactly what they gave, whatever went wrong meanwhile.
 */
#include "parents.h"

#include <stdlib.h>

/* As verbsd-parent-domain(7) has them. */
#define TYPE_CQ	 0x765300000001u
#define TYPE_QP	 0x765300000002u
#define TYPE_SRQ 0x765300000003u
#define ALIGN	 64
#define GUARD	 64

struct allocation {
	struct allocation *next;
	uint8_t *base, *ptr; /* guards, the program's own, lie before and behind */
	size_t size;
	uint64_t type;
	struct ibv_mr *mr;
};

static uint8_t fill; /* what memory is filled with; by the page it is 0 */

static bool guards_whole(const struct allocation *allocation)
{
	for (size_t i = 0; i < GUARD; i++)
		if (allocation->ptr[-1 - (long)i] != 0x5a || allocation->ptr[allocation->size + i] != 0x5a)
			return false;
	return true;
}

static void *give(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	struct allocator *allocator = context;
	struct allocation *made;

	NEED(pd == allocator->pd || !allocator->pd);
	NEED(alignment == ALIGN && size > 0);
	allocator->allocs++;
	allocator->last_type = type;
	allocator->last_size = size;
	if (allocator->until_null == 0)
		return NULL;
	allocator->until_null -= allocator->until_null > 0;
	if (allocator->answer == ANSWER_NULL)
		return NULL;
	if (allocator->answer == ANSWER_DEFAULT)
		return IBV_ALLOCATOR_USE_DEFAULT;
	NEED(made = calloc(1, sizeof(*made)));
	NEED(made->base = aligned_alloc(ALIGN, (size + 3 * GUARD + ALIGN - 1) / ALIGN * ALIGN));
	made->ptr = made->base + GUARD + (allocator->answer == ANSWER_MISALIGNED ? ALIGN / 2 : 0);
	made->size = size;
	made->type = type;
	memset(made->ptr - GUARD, 0x5a, size + 2 * GUARD);
	memset(made->ptr, fill, size);
	made->next = allocator->list;
	allocator->list = made;
	allocator->live++;
	if (allocator->note)
		made->mr = allocator->note(allocator, made->ptr, size);
	return made->ptr;
}

static void take(struct ibv_pd *pd, void *context, void *ptr, uint64_t type)
{
	struct allocator *allocator = context;
	struct allocation **at = &allocator->list, *found;

	NEED(pd == allocator->pd || !allocator->pd);
	while (*at && (*at)->ptr != ptr)
		at = &(*at)->next;
	found = *at;
	NEED(found);
	NEED(found->type == type);
	NEED(guards_whole(found));
	if (found->mr)
		RETURNS(ibv_dereg_mr(found->mr), 0);
	*at = found->next;
	free(found->base);
	free(found);
	allocator->frees++;
	allocator->live--;
}

struct ibv_pd *parent_make(struct ibv_pd *pd, struct ibv_td *td, struct allocator *allocator)
{
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td };
	struct ibv_pd *parent;

	if (allocator) {
		attr.comp_mask =
			IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
		attr.alloc = give;
		attr.free = take;
		attr.pd_context = allocator;
	}
	parent = ibv_alloc_parent_domain(pd->context, &attr);
	NEED(parent);
	if (allocator)
		allocator->pd = parent;
	return parent;
}

/* A context with a PD and a parent domain on it. */
struct ground {
	struct ibv_context *ctx;
	struct ibv_pd *pd, *parent;
	struct allocator allocator;
};

static void ground_make(struct ground *ground)
{
	*ground = (struct ground){ .allocator.until_null = -1 };
	ground->ctx = kit_open();
	NEED(ground->pd = ibv_alloc_pd(ground->ctx));
	ground->parent = parent_make(ground->pd, NULL, &ground->allocator);
}

/* And nothing of the allocator's is kept. */
static void ground_end(struct ground *ground)
{
	NEED(ground->allocator.live == 0 && !ground->allocator.list);
	RETURNS(ibv_dealloc_pd(ground->parent), 0);
	RETURNS(ibv_dealloc_pd(ground->pd), 0);
	RETURNS(ibv_close_device(ground->ctx), 0);
}

static struct ibv_cq *cq_make(struct ibv_context *ctx, struct ibv_pd *parent, uint32_t cqe)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
		.parent_domain = parent,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(ctx, &attr);

	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

static struct ibv_srq *srq_make(struct ibv_pd *pd, bool extended)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 16, .max_sge = 2 } };
	struct ibv_srq_init_attr_ex ex = {
		.attr = attr.attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE,
		.srq_type = IBV_SRQT_BASIC,
		.pd = pd,
	};

	return extended ? ibv_create_srq_ex(pd->context, &ex) : ibv_create_srq(pd, &attr);
}

static struct ibv_qp *qp_make(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq, bool extended)
{
	struct ibv_qp_init_attr init = kit_qp_init(cq, srq, IBV_QPT_RC);
	struct ibv_qp_init_attr_ex ex = {
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.cap = init.cap,
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
	};

	return extended ? ibv_create_qp_ex(pd->context, &ex) : ibv_create_qp(pd, &init);
}

/* Each kind of traffic, more of it than there are places in the queues. */
static void traffic(struct ibv_pd *pd, struct ibv_qp *qp, struct ibv_qp *peer)
{
	static uint64_t memory[512];
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), KIT_ACCESS);
	uint8_t *to = (uint8_t *)memory + sizeof(memory) / 2;

	NEED(mr);
	kit_connect(qp, peer);
	for (unsigned i = 0; i < 100; i++) {
		memset(memory, (int)i, sizeof(memory) / 2);
		kit_message(qp, peer, mr, memory, to, sizeof(memory) / 2);
		NEED(memcmp(memory, to, sizeof(memory) / 2) == 0);
		memset(to, 0, sizeof(memory) / 2);
		NEED(kit_run(qp, IBV_WR_RDMA_WRITE, mr, memory, 1000, (uintptr_t)to, mr->rkey) == IBV_WC_SUCCESS);
		NEED(kit_run(qp, IBV_WR_RDMA_READ, mr, to + 1000, 1000, (uintptr_t)memory, mr->rkey) == IBV_WC_SUCCESS);
		NEED(memcmp(memory, to, 2000) == 0);
		NEED(kit_run(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, mr, memory + 3, 8, (uintptr_t)to, mr->rkey) ==
			IBV_WC_SUCCESS);
		NEED(*(uint64_t *)(void *)to == 0x0101010101010101ull * i + 1);
	}
	RETURNS(ibv_dereg_mr(mr), 0);
}

/* One more allocation, of that type; or none. */
static void asked(struct allocator *allocator, unsigned *allocs, uint64_t type)
{
	NEED(allocator->allocs == *allocs + (type != 0));
	NEED(!type || allocator->last_type == type);
	*allocs = allocator->allocs;
}

static void exact(bool extended)
{
	struct ground ground;
	struct allocator *allocator = &ground.allocator;
	struct ibv_ah_attr ah_attr = { .dlid = 1, .port_num = 1, .is_global = 1 };
	unsigned allocs = 0;
	struct ibv_cq *cq, *plain;
	struct ibv_srq *srq;
	struct ibv_qp *qp, *peer, *other;
	struct ibv_mw *mw;
	struct ibv_ah *ah;
	size_t size;

	ground_make(&ground);
	NEED(cq = cq_make(ground.ctx, ground.parent, 10));
	asked(allocator, &allocs, TYPE_CQ);
	plain = kit_cq(ground.ctx, 10);
	asked(allocator, &allocs, 0);
	NEED(srq = srq_make(ground.parent, extended));
	asked(allocator, &allocs, TYPE_SRQ);
	NEED(qp = qp_make(ground.parent, cq, NULL, extended));
	asked(allocator, &allocs, TYPE_QP);
	size = allocator->last_size;
	NEED(other = qp_make(ground.parent, cq, NULL, extended));
	asked(allocator, &allocs, TYPE_QP);
	NEED(allocator->last_size == size);
	NEED(peer = qp_make(ground.parent, cq, srq, extended));
	asked(allocator, &allocs, TYPE_QP);
	NEED(allocator->last_size < size); /* its receives are the SRQ's */
	RETURNS(ibv_destroy_qp(other), 0);
	NEED(other = qp_make(ground.pd, plain, NULL, extended));
	NEED(ah = ibv_create_ah(ground.parent, &ah_attr));
	NEED(mw = ibv_alloc_mw(ground.parent, IBV_MW_TYPE_1));
	traffic(ground.parent, qp, peer);
	asked(allocator, &allocs, 0);
	NEED(allocator->live == 4 && allocator->frees == 1);
	RETURNS(ibv_destroy_qp(other), 0);
	RETURNS(ibv_destroy_qp(qp), 0);
	NEED(allocator->live == 3);
	RETURNS(ibv_destroy_qp(peer), 0);
	RETURNS(ibv_destroy_srq(srq), 0);
	RETURNS(ibv_destroy_cq(cq), 0);
	RETURNS(ibv_destroy_cq(plain), 0);
	RETURNS(ibv_dealloc_mw(mw), 0);
	RETURNS(ibv_destroy_ah(ah), 0);
	ground_end(&ground);
}

void test_exact(int argc, char **argv)
{
	(void)argc, (void)argv;
	exact(false);
	exact(true);
}

/* A callback that does not zero its memory breaks its word, and nothing else. */
void test_garbage(int argc, char **argv)
{
	for (unsigned i = 0; i < 2; i++) {
		fill = i ? 0xff : 0xa5;
		test_exact(argc, argv);
	}
}

/* The library's own allocator, and both in turn. */
void test_default(int argc, char **argv)
{
	struct ground ground;
	struct ibv_cq *cq[64];
	struct ibv_qp *qp, *peer;

	(void)argc, (void)argv;
	ground_make(&ground);
	ground.allocator.answer = ANSWER_DEFAULT;
	for (unsigned i = 0; i < 64; i++) {
		if (i == 32)
			ground.allocator.answer = ANSWER_MEMORY;
		NEED(cq[i] = cq_make(ground.ctx, ground.parent, 10 + i));
	}
	NEED(ground.allocator.live == 32 && ground.allocator.allocs == 64);
	ground.allocator.answer = ANSWER_DEFAULT;
	NEED(qp = qp_make(ground.parent, cq[0], NULL, true));
	NEED(peer = qp_make(ground.parent, cq[63], NULL, false));
	traffic(ground.pd, qp, peer);
	/* From the one to the other: each goes back where it came from. */
	RETURNS(ibv_resize_cq(cq[63], 200), 0);
	NEED(ground.allocator.live == 31);
	ground.allocator.answer = ANSWER_MEMORY;
	RETURNS(ibv_resize_cq(cq[0], 200), 0);
	NEED(ground.allocator.live == 32);
	traffic(ground.pd, qp, peer);
	RETURNS(ibv_destroy_qp(qp), 0);
	RETURNS(ibv_destroy_qp(peer), 0);
	for (unsigned i = 0; i < 64; i++)
		RETURNS(ibv_destroy_cq(cq[i * 7 % 64]), 0);
	NEED(ground.allocator.frees == 33);
	ground_end(&ground);
}

static void nothing_comes(enum answer answer, unsigned frees)
{
	struct ground ground;
	struct ibv_cq *cq;

	ground_make(&ground);
	cq = kit_cq(ground.ctx, 10);
	ground.allocator.answer = answer;
	REFUSED(cq_make(ground.ctx, ground.parent, 10), ENOMEM);
	for (unsigned extended = 0; extended < 2; extended++) {
		REFUSED(qp_make(ground.parent, cq, NULL, extended), ENOMEM);
		REFUSED(srq_make(ground.parent, extended), ENOMEM);
	}
	NEED(ground.allocator.allocs == 5 && ground.allocator.frees == frees);
	/* The next try works. */
	ground.allocator.answer = ANSWER_MEMORY;
	RETURNS(ibv_destroy_qp(qp_make(ground.parent, cq, NULL, true)), 0);
	RETURNS(ibv_destroy_cq(cq), 0);
	ground_end(&ground);
}

void test_null(int argc, char **argv)
{
	(void)argc, (void)argv;
	nothing_comes(ANSWER_NULL, 0);
}

/* Memory that is not aligned as it was asked for is no memory; it goes back at once. */
void test_misaligned(int argc, char **argv)
{
	(void)argc, (void)argv;
	nothing_comes(ANSWER_MISALIGNED, 5);
}

/* What was made before stays whole when the next allocation fails. */
void test_second_fails(int argc, char **argv)
{
	struct ground ground;
	struct ibv_srq_attr srq_attr = { .max_wr = 100 };
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp, *peer;

	(void)argc, (void)argv;
	ground_make(&ground);
	ground.allocator.until_null = 4;
	NEED(cq = cq_make(ground.ctx, ground.parent, 10));
	NEED(srq = srq_make(ground.parent, false));
	NEED(qp = qp_make(ground.parent, cq, NULL, false));
	NEED(peer = qp_make(ground.parent, cq, srq, false));
	REFUSED(qp_make(ground.parent, cq, NULL, false), ENOMEM);
	REFUSED(cq_make(ground.ctx, ground.parent, 10), ENOMEM);
	RETURNS(ibv_resize_cq(cq, 1000), ENOMEM);
	RETURNS(ibv_modify_srq(srq, &srq_attr, IBV_SRQ_MAX_WR), ENOMEM);
	NEED(cq->cqe == 10);
	NEED(ground.allocator.frees == 0 && ground.allocator.live == 4);
	traffic(ground.pd, qp, peer);
	ground.allocator.until_null = 1;
	RETURNS(ibv_modify_srq(srq, &srq_attr, IBV_SRQ_MAX_WR), 0);
	NEED(ground.allocator.frees == 1 && ground.allocator.live == 4);
	traffic(ground.pd, qp, peer);
	RETURNS(ibv_destroy_qp(qp), 0);
	RETURNS(ibv_destroy_qp(peer), 0);
	RETURNS(ibv_destroy_srq(srq), 0);
	RETURNS(ibv_destroy_cq(cq), 0);
	ground_end(&ground);
}

/* With a daemon that allows 3 CQs, SRQs and QPs: it refuses when the memory is there already. */
void test_refused(int argc, char **argv)
{
	enum { LIMIT = 3 };
	struct ground ground;
	struct ibv_cq *cq[LIMIT];
	struct ibv_srq *srq[LIMIT];
	struct ibv_qp *qp[LIMIT];

	(void)argc, (void)argv;
	ground_make(&ground);
	for (unsigned i = 0; i < LIMIT; i++) {
		NEED(cq[i] = cq_make(ground.ctx, ground.parent, 10));
		NEED(srq[i] = srq_make(ground.parent, i % 2));
		NEED(qp[i] = qp_make(ground.parent, cq[i], srq[i], i % 2));
	}
	for (unsigned i = 0; i < 10; i++) {
		REFUSED(cq_make(ground.ctx, ground.parent, 10), ENOMEM);
		REFUSED(srq_make(ground.parent, i % 2), ENOMEM);
		REFUSED(qp_make(ground.parent, cq[0], NULL, i % 2), ENOMEM);
	}
	NEED(ground.allocator.live == 3 * LIMIT && ground.allocator.frees == 30);
	for (unsigned i = 0; i < LIMIT; i++) {
		RETURNS(ibv_destroy_qp(qp[i]), 0);
		RETURNS(ibv_destroy_srq(srq[i]), 0);
		RETURNS(ibv_destroy_cq(cq[i]), 0);
	}
	ground_end(&ground);
}

/* With a daemon that allows 256 MiB of queues, of which a CQ entry takes 64 bytes. */
void test_resize(int argc, char **argv)
{
	enum { BIG = 3 << 20 };
	struct ground ground;
	struct ibv_cq *cq, *other;
	struct ibv_qp *qp, *peer;

	(void)argc, (void)argv;
	ground_make(&ground);
	NEED(cq = cq_make(ground.ctx, ground.parent, 10));
	other = kit_cq(ground.ctx, BIG / 2);
	NEED(qp = qp_make(ground.parent, cq, NULL, false));
	NEED(peer = qp_make(ground.parent, cq, NULL, true));
	/* The daemon refuses: the program's memory is not asked for. */
	ground.allocator.allocs = 0;
	RETURNS(ibv_resize_cq(cq, BIG), ENOMEM);
	NEED(ground.allocator.allocs == 0 && cq->cqe == 10);
	RETURNS(ibv_destroy_cq(other), 0);
	/* The daemon has granted it, and there is no memory here: it takes its grant back, and others can have it. */
	ground.allocator.until_null = 0;
	RETURNS(ibv_resize_cq(cq, BIG), ENOMEM);
	ground.allocator.until_null = -1;
	other = kit_cq(ground.ctx, BIG);
	RETURNS(ibv_destroy_cq(other), 0);
	traffic(ground.pd, qp, peer);
	for (int i = 1; i < 20; i++) {
		RETURNS(ibv_resize_cq(cq, i % 2 ? 5000 * i : 10), 0);
		NEED(cq->cqe == (i % 2 ? 5000 * i : 10) && ground.allocator.live == 3);
		traffic(ground.pd, qp, peer);
	}
	RETURNS(ibv_destroy_qp(qp), 0);
	RETURNS(ibv_destroy_qp(peer), 0);
	RETURNS(ibv_destroy_cq(cq), 0);
	ground_end(&ground);
}

static struct ibv_mr *note(struct allocator *allocator, void *memory, size_t size)
{
	struct ibv_mr *mr = ibv_reg_mr(allocator->pd, memory, size, KIT_ACCESS);

	NEED(mr);
	return mr;
}

/* An allocator that registers what it gives, and one of the parent domain that it serves at that. */
void test_callbacks_call_verbs(int argc, char **argv)
{
	struct ibv_srq_attr srq_attr = { .max_wr = 100 };
	struct ground ground;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp, *peer;

	(void)argc, (void)argv;
	ground_make(&ground);
	ground.allocator.note = note;
	NEED(cq = cq_make(ground.ctx, ground.parent, 10));
	NEED(srq = srq_make(ground.parent, true));
	NEED(qp = qp_make(ground.parent, cq, NULL, false));
	NEED(peer = qp_make(ground.parent, cq, srq, false));
	RETURNS(ibv_resize_cq(cq, 100), 0);
	RETURNS(ibv_modify_srq(srq, &srq_attr, IBV_SRQ_MAX_WR), 0);
	traffic(ground.parent, qp, peer);
	RETURNS(ibv_destroy_qp(qp), 0);
	RETURNS(ibv_destroy_qp(peer), 0);
	RETURNS(ibv_destroy_srq(srq), 0);
	RETURNS(ibv_destroy_cq(cq), 0);
	ground_end(&ground);
}

static void attrs_refused(struct ground *ground)
{
	struct ibv_context *second = kit_open();
	struct ibv_parent_domain_init_attr attr = { .pd = ground->pd };
	struct ibv_td_init_attr td_attr = { .comp_mask = 1 };
	struct ibv_td *td;

	for (unsigned bit = 2; bit < 32; bit++) {
		attr.comp_mask = 1u << bit;
		REFUSED(ibv_alloc_parent_domain(ground->ctx, &attr), EOPNOTSUPP);
	}
	REFUSED(ibv_alloc_td(ground->ctx, &td_attr), EOPNOTSUPP);
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	REFUSED(ibv_alloc_parent_domain(ground->ctx, &attr), EINVAL);
	attr.alloc = give;
	REFUSED(ibv_alloc_parent_domain(ground->ctx, &attr), EINVAL);
	attr.alloc = NULL;
	attr.free = take;
	REFUSED(ibv_alloc_parent_domain(ground->ctx, &attr), EINVAL);
	attr.comp_mask = 0;
	attr.pd = NULL;
	REFUSED(ibv_alloc_parent_domain(ground->ctx, &attr), EINVAL);
	attr.pd = ground->pd;
	REFUSED(ibv_alloc_parent_domain(second, &attr), EINVAL);
	td = td_make(second);
	attr.td = td;
	REFUSED(ibv_alloc_parent_domain(ground->ctx, &attr), EINVAL);
	RETURNS(ibv_dealloc_td(td), 0);
	RETURNS(ibv_close_device(second), 0);
}

static void *without_context(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	(void)pd, (void)size, (void)alignment, (void)type;
	NEED(!context);
	return IBV_ALLOCATOR_USE_DEFAULT;
}

/* What comp_mask does not name does not count. */
void test_masks(int argc, char **argv)
{
	struct ground ground;
	struct ibv_parent_domain_init_attr attr = { .alloc = give, .free = take };
	struct ibv_pd *parent, *nested;
	struct ibv_cq *cq;

	(void)argc, (void)argv;
	ground_make(&ground);
	attrs_refused(&ground);
	attr.pd = ground.pd;
	attr.pd_context = &ground.allocator;
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	NEED(parent = ibv_alloc_parent_domain(ground.ctx, &attr));
	NEED(cq = cq_make(ground.ctx, parent, 10));
	RETURNS(ibv_destroy_cq(cq), 0);
	RETURNS(ibv_dealloc_pd(parent), 0);
	NEED(ground.allocator.allocs == 0);

	attr.alloc = without_context;
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	NEED(parent = ibv_alloc_parent_domain(ground.ctx, &attr));
	NEED(cq = cq_make(ground.ctx, parent, 10));
	RETURNS(ibv_destroy_cq(cq), 0);
	/* A parent domain stands for its PD where another one is made, and gives it nothing of its own. */
	attr.comp_mask = 0;
	attr.pd = parent;
	NEED(nested = ibv_alloc_parent_domain(ground.ctx, &attr));
	RETURNS(ibv_dealloc_pd(parent), 0);
	RETURNS(ibv_dealloc_pd(ground.pd), EBUSY);
	RETURNS(ibv_destroy_cq(cq_make(ground.ctx, nested, 10)), 0);
	RETURNS(ibv_dealloc_pd(nested), 0);
	/* A CQ's parent domain is a parent domain. */
	REFUSED(cq_make(ground.ctx, ground.pd, 10), EINVAL);
	REFUSED(cq_make(ground.ctx, NULL, 10), EINVAL);
	ground_end(&ground);
}
