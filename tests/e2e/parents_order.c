/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Destroying in every legal order, with all that is illegal tried at each step; limits of TDs; closing a context under
 * its objects; who is in the way.
 */
#include "parents.h"

#include <stdlib.h>

struct ibv_td *td_make(struct ibv_context *ctx)
{
	struct ibv_td_init_attr attr = { .comp_mask = 0 };
	struct ibv_td *td = ibv_alloc_td(ctx, &attr);

	NEED(td);
	return td;
}

/* One object of each type. Those with a PD may stand on the PD itself or on the parent domain. */
enum type { TD, PD, PARENT, MR, MW, CQ, SRQ, QP, AH, CHANNEL, TYPES };

struct world {
	struct ibv_context *ctx;
	struct ibv_td *td;
	struct ibv_pd *pd, *parent;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	struct ibv_comp_channel *channel;
	bool on_parent[TYPES];
	bool bound;
	bool gone[TYPES];
};

static uint8_t memory[4096];

static struct ibv_pd *pd_for(const struct world *w, enum type type)
{
	return w->on_parent[type] ? w->parent : w->pd;
}

/* @on: a bit a type. */
static void world_make(struct world *w, struct ibv_context *ctx, unsigned on, bool bound)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_ah_attr ah = { .dlid = 1, .port_num = 1, .is_global = 1 };
	struct ibv_cq_init_attr_ex cq = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };

	*w = (struct world){ .ctx = ctx, .bound = bound };
	for (unsigned i = 0; i < TYPES; i++)
		w->on_parent[i] = on >> i & 1;
	w->td = td_make(ctx);
	NEED(w->pd = ibv_alloc_pd(ctx));
	w->parent = parent_make(w->pd, w->td, NULL);
	NEED(w->channel = ibv_create_comp_channel(ctx));
	NEED(w->mr = ibv_reg_mr(pd_for(w, MR), memory, sizeof(memory), KIT_ACCESS));
	NEED(w->mw = ibv_alloc_mw(pd_for(w, MW), IBV_MW_TYPE_2));
	NEED(w->ah = ibv_create_ah(pd_for(w, AH), &ah));
	NEED(w->srq = ibv_create_srq(pd_for(w, SRQ), &srq));
	cq.channel = w->channel;
	if (w->on_parent[CQ]) {
		cq.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
		cq.parent_domain = w->parent;
	}
	NEED(w->cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(ctx, &cq)));
	w->qp = kit_qp(pd_for(w, QP), w->cq, w->srq);
	if (bound) {
		kit_connect(w->qp, w->qp);
		NEED(kit_bind(w->qp, w->mw, w->mr) == IBV_WC_SUCCESS);
	}
}

static int destroy(struct world *w, enum type type)
{
	switch (type) {
	case TD:
		return ibv_dealloc_td(w->td);
	case PD:
		return ibv_dealloc_pd(w->pd);
	case PARENT:
		return ibv_dealloc_pd(w->parent);
	case MR:
		return ibv_dereg_mr(w->mr);
	case MW:
		return ibv_dealloc_mw(w->mw);
	case CQ:
		return ibv_destroy_cq(w->cq);
	case SRQ:
		return ibv_destroy_srq(w->srq);
	case QP:
		return ibv_destroy_qp(w->qp);
	case AH:
		return ibv_destroy_ah(w->ah);
	case CHANNEL:
		return ibv_destroy_comp_channel(w->channel);
	case TYPES:
		break;
	}
	return EINVAL;
}

/* What the pages of the verbs say: something stands on it. */
static bool busy(const struct world *w, enum type type)
{
	static const enum type with_pd[] = { MR, MW, SRQ, QP, AH };

	for (unsigned i = 0; (type == PD || type == PARENT) && i < sizeof(with_pd) / sizeof(with_pd[0]); i++)
		if (!w->gone[with_pd[i]] && w->on_parent[with_pd[i]] == (type == PARENT))
			return true;
	switch (type) {
	case PARENT:
		return w->on_parent[CQ] && !w->gone[CQ];
	case TD:
	case PD:
		return !w->gone[PARENT];
	case CQ:
	case SRQ:
		return !w->gone[QP];
	case MR:
		return w->bound && !w->gone[MW];
	case CHANNEL:
		return !w->gone[CQ];
	default:
		return false;
	}
}

static void all_busy_are_refused(struct world *w)
{
	for (unsigned type = 0; type < TYPES; type++) {
		if (w->gone[type] || !busy(w, (enum type)type))
			continue;
		errno = 0;
		RETURNS(destroy(w, (enum type)type), EBUSY);
		NEED(errno == EBUSY);
	}
}

static void step(struct world *w, enum type type)
{
	all_busy_are_refused(w);
	RETURNS(destroy(w, type), 0);
	w->gone[type] = true;
}

/* --- every order ------------------------------------------------------------------------------------------------------- */

static bool order_legal(const struct world *shape, const enum type *order, unsigned n, unsigned *wrong)
{
	struct world w = *shape;

	for (unsigned i = 0; i < n; i++) {
		if (busy(&w, order[i])) {
			*wrong = i;
			return false;
		}
		w.gone[order[i]] = true;
	}
	return true;
}

static void swap(enum type *a, enum type *b)
{
	enum type was = *a;

	*a = *b;
	*b = was;
}

static bool permute(enum type *order, unsigned n)
{
	unsigned i = n - 1, j = n - 1;

	while (i > 0 && order[i - 1] >= order[i])
		i--;
	if (i == 0)
		return false;
	while (order[j] <= order[i - 1])
		j--;
	swap(&order[i - 1], &order[j]);
	for (unsigned k = n - 1; i < k; i++, k--)
		swap(&order[i], &order[k]);
	return true;
}

/*
 * The next legal order, by the alphabet; false: that was the last. What comes behind a wrong place does not matter: the
 * rest is put in falling order, so that all of it is passed over.
 */
static bool order_next(const struct world *shape, enum type *order, unsigned n)
{
	unsigned wrong;

	while (permute(order, n)) {
		if (order_legal(shape, order, n, &wrong))
			return true;
		for (unsigned i = wrong + 1; i < n; i++)
			for (unsigned k = i + 1; k < n; k++)
				if (order[k] > order[i])
					swap(&order[i], &order[k]);
	}
	return false;
}

/* The channel is left out: it triples the number of orders, and stands apart. The other test has it. */
static unsigned every_order(struct ibv_context *ctx, unsigned on, bool bound)
{
	enum type order[CHANNEL];
	unsigned n = 0, wrong;
	struct world w, shape = { .bound = bound };

	for (unsigned i = 0; i < TYPES; i++)
		shape.on_parent[i] = on >> i & 1;
	for (unsigned i = 0; i < CHANNEL; i++)
		order[i] = (enum type)i;
	if (!order_legal(&shape, order, CHANNEL, &wrong) && !order_next(&shape, order, CHANNEL))
		return 0;
	do {
		world_make(&w, ctx, on, bound);
		for (unsigned i = 0; i < CHANNEL; i++)
			step(&w, order[i]);
		step(&w, CHANNEL);
		n++;
	} while (order_next(&shape, order, CHANNEL));
	return n;
}

/* Everything on the parent domain: 120 orders of the six on it, where a QP goes before its CQ and SRQ; TD and PD last. */
void test_every_order(int argc, char **argv)
{
	struct ibv_context *ctx = kit_open();
	unsigned all = ~0u, n;

	(void)argc, (void)argv;
	n = every_order(ctx, all, true);
	printf("%u orders\n", n);
	NEED(n == 240);
	n = every_order(ctx, all, false);
	printf("%u orders\n", n);
	NEED(n == 480);
	RETURNS(ibv_close_device(ctx), 0);
}

void test_random_orders(int argc, char **argv)
{
	unsigned rounds = argc > 0 ? (unsigned)atoi(argv[0]) : 300, seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
	struct ibv_context *ctx = kit_open();

	for (unsigned i = 0; i < rounds; i++) {
		struct world w;
		unsigned left = TYPES;

		world_make(&w, ctx, (unsigned)rand_r(&seed), rand_r(&seed) % 2);
		while (left) {
			enum type type = (enum type)(rand_r(&seed) % TYPES);

			if (w.gone[type] || busy(&w, type))
				continue;
			step(&w, type);
			left--;
		}
	}
	RETURNS(ibv_close_device(ctx), 0);
}

/* --- limits -------------------------------------------------------------------------------------------------------------- */

/* To the limit, which is given; then ENOMEM, and what there is works on. */
void test_td_limit(int argc, char **argv)
{
	unsigned limit = argc > 0 ? (unsigned)atoi(argv[0]) : 0;
	struct ibv_td **td = calloc(limit + 1, sizeof(*td));
	struct ibv_td_init_attr attr = { .comp_mask = 0 };
	struct ibv_context *ctx = kit_open();
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *parent;
	struct ibv_cq *cq = kit_cq(ctx, 16);
	struct ibv_qp *qp;
	struct ibv_mr *mr;

	NEED(limit && td && pd);
	for (unsigned i = 0; i < limit; i++)
		td[i] = td_make(ctx);
	for (unsigned i = 0; i < 3; i++)
		REFUSED(ibv_alloc_td(ctx, &attr), ENOMEM);
	/* A place that is free again is given again, and only that one. */
	RETURNS(ibv_dealloc_td(td[limit / 2]), 0);
	td[limit / 2] = td_make(ctx);
	REFUSED(ibv_alloc_td(ctx, &attr), ENOMEM);

	parent = parent_make(pd, td[limit - 1], NULL);
	qp = kit_qp(parent, cq, NULL);
	NEED(mr = ibv_reg_mr(pd, memory, sizeof(memory), KIT_ACCESS));
	kit_connect(qp, qp);
	NEED(kit_run(qp, IBV_WR_RDMA_WRITE, mr, memory, 100, (uintptr_t)memory + 2048, mr->rkey) == IBV_WC_SUCCESS);
	RETURNS(ibv_dealloc_td(td[limit - 1]), EBUSY);
	RETURNS(ibv_destroy_qp(qp), 0);
	RETURNS(ibv_dealloc_pd(parent), 0);
	RETURNS(ibv_dereg_mr(mr), 0);
	for (unsigned i = 0; i < limit; i++)
		RETURNS(ibv_dealloc_td(td[i]), 0);
	RETURNS(ibv_dealloc_pd(pd), 0);
	RETURNS(ibv_destroy_cq(cq), 0);
	RETURNS(ibv_close_device(ctx), 0);
	free(td);
}

/* --- closing ------------------------------------------------------------------------------------------------------------- */

/* Whoever closes first may still destroy: the context goes with the last object. Closing does not wait, nor twice. */
void test_close(int argc, char **argv)
{
	unsigned seed = 7;

	(void)argc, (void)argv;
	for (unsigned i = 0; i < 50; i++) {
		struct ibv_context *ctx = kit_open();
		unsigned left = TYPES;
		struct world w;

		world_make(&w, ctx, (unsigned)rand_r(&seed), rand_r(&seed) % 2);
		RETURNS(ibv_close_device(ctx), 0);
		errno = 0;
		NEED(ibv_close_device(ctx) != 0 && errno == EINVAL);
		while (left) {
			enum type type = (enum type)(rand_r(&seed) % TYPES);

			if (w.gone[type] || busy(&w, type))
				continue;
			step(&w, type);
			left--;
		}
	}
}

/* --- names --------------------------------------------------------------------------------------------------------------- */

/* Makes a world, says what the script must find, tries everything that is busy, and waits for the end of its input. */
void test_named(int argc, char **argv)
{
	struct ibv_context *ctx = kit_open();
	struct world w;
	char c;

	(void)argc, (void)argv;
	world_make(&w, ctx, ~0u, true);
	printf("qp %u QPN 0x%x\n", w.qp->handle, w.qp->qp_num);
	printf("mr %u key 0x%x\n", w.mr->handle, w.mr->rkey);
	printf("mw %u key 0x%x\n", w.mw->handle, w.mw->rkey - 1); /* as it was given; the daemon knows of no bind */
	printf("window 0x%x\n", w.mw->rkey);
	printf("pd %u\nparent_domain %u\ncq %u\nsrq %u\nah %u\n", w.pd->handle, w.parent->handle, w.cq->handle,
		w.srq->handle, w.ah->handle);
	all_busy_are_refused(&w);
	printf("ready\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
	RETURNS(ibv_close_device(ctx), 0);
}
