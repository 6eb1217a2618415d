/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The states of queue pairs over their whole product: each type, each state it can be in, each state asked for, and masks
 * of attributes with each required one missing, each other one added, and some at random. What is refused changes nothing.
 */
#include "states.h"

#include <fcntl.h>
#include <stdlib.h>

#define MASK_BITS   27 /* the attributes, up to IBV_QP_RATE_LIMIT, and one that nobody knows */
#define RANDOM_MASKS 32

static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV };

/* --- a QP --------------------------------------------------------------------------------------------------------------- */

static struct ibv_qp *create(struct subject *s, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex init = {
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = type,
		.pd = s->pd,
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
	};

	if (type == IBV_QPT_XRC_RECV) {
		struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
			.fd = -1, .oflags = O_CREAT };

		s->xrcd = ibv_open_xrcd(s->ctx, &attr);
		if (!s->xrcd)
			return NULL;
		init = (struct ibv_qp_init_attr_ex){ .qp_type = type, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = s->xrcd };
	}
	if (type == IBV_QPT_XRC_SEND) {
		init.recv_cq = NULL;
		init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
	}
	return ibv_create_qp_ex(s->ctx, &init);
}

bool subject_open(struct subject *s, enum ibv_qp_type type)
{
	memset(s, 0, sizeof(*s));
	s->ctx = kit_open();
	s->pd = ibv_alloc_pd(s->ctx);
	s->cq = kit_cq(s->ctx, 64);
	NEED(s->pd);
	s->here = kit_address(s->ctx);
	errno = 0;
	s->qp = create(s, type);
	if (!s->qp) {
		NEED(errno == EOPNOTSUPP);
		subject_close(s);
		return false;
	}

	struct ibv_ah_attr av = { .dlid = s->here.lid, .port_num = 1, .is_global = 1, .grh.dgid = s->here.gid };

	s->ah = ibv_create_ah(s->pd, &av);
	s->mr = ibv_reg_mr(s->pd, s->memory, sizeof(s->memory), KIT_ACCESS);
	NEED(s->ah && s->mr);
	return true;
}

void subject_close(struct subject *s)
{
	NEED(!s->qp || ibv_destroy_qp(s->qp) == 0);
	NEED(!s->xrcd || ibv_close_xrcd(s->xrcd) == 0);
	NEED(!s->ah || ibv_destroy_ah(s->ah) == 0);
	NEED(!s->mr || ibv_dereg_mr(s->mr) == 0);
	NEED(ibv_destroy_cq(s->cq) == 0 && ibv_dealloc_pd(s->pd) == 0 && ibv_close_device(s->ctx) == 0);
}

struct ibv_qp_attr subject_values(const struct subject *s)
{
	struct ibv_ah_attr av = { .dlid = s->here.lid, .port_num = 1, .is_global = 1, .grh.dgid = s->here.gid };

	return (struct ibv_qp_attr){
		.path_mtu = IBV_MTU_1024,
		.path_mig_state = IBV_MIG_MIGRATED,
		.qkey = KIT_QKEY,
		.rq_psn = 7,
		.sq_psn = 7,
		.dest_qp_num = s->qp->qp_num,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		.ah_attr = av,
		.alt_ah_attr = av,
		.alt_port_num = 1,
		.max_rd_atomic = 2,
		.max_dest_rd_atomic = 2,
		.min_rnr_timer = 1,
		.port_num = 1,
		.timeout = 14,
		.retry_cnt = 2,
		.rnr_retry = 2,
	};
}

int subject_state(const struct subject *s)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	NEED(ibv_query_qp(s->qp, &attr, IBV_QP_STATE, &init) == 0);
	NEED(s->qp->state == attr.qp_state);
	return attr.qp_state;
}

int subject_send(struct subject *s, uint64_t wr_id, uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge = { (uintptr_t)s->memory, length, lkey };
	struct ibv_send_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED }, *bad = NULL;

	if (s->qp->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = s->ah;
		wr.wr.ud.remote_qpn = s->qp->qp_num;
		wr.wr.ud.remote_qkey = KIT_QKEY;
	}

	int r = ibv_post_send(s->qp, &wr, &bad);

	NEED(r == 0 || bad == &wr);
	return r;
}

int subject_recv(struct subject *s, uint64_t wr_id, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)s->memory + 2048, length, s->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	int r = ibv_post_recv(s->qp, &wr, &bad);

	NEED(r == 0 || bad == &wr);
	return r;
}

void subject_expect(struct subject *s, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = kit_wait(s->cq);

	if (wc.wr_id != wr_id || wc.status != status)
		fprintf(stderr, "wr %llu: %s, where wr %llu: %s was to come\n", (unsigned long long)wc.wr_id,
			ibv_wc_status_str(wc.status), (unsigned long long)wr_id, ibv_wc_status_str(status));
	NEED(wc.wr_id == wr_id && wc.status == status && wc.qp_num == s->qp->qp_num);
}

/* One step with exactly what the specification requires. */
static int step(struct subject *s, int from, int to)
{
	struct ibv_qp_attr attr = subject_values(s);

	attr.qp_state = (enum ibv_qp_state)to;
	return ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | spec_required(s->qp->qp_type, from, to));
}

bool subject_to(struct subject *s, int state)
{
	static const int up[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };
	bool datagrams = s->qp->qp_type == IBV_QPT_UD;
	int way = state == IBV_QPS_ERR ? IBV_QPS_INIT : state > IBV_QPS_RTS ? IBV_QPS_RTS : state;

	if (state == IBV_QPS_SQE && !datagrams && s->qp->qp_type != IBV_QPT_UC)
		return false;
	RETURNS(step(s, subject_state(s), IBV_QPS_RESET), 0);
	for (int i = 1; i <= way; i++)
		RETURNS(step(s, up[i - 1], up[i]), 0);
	if (state == IBV_QPS_SQD || state == IBV_QPS_ERR)
		RETURNS(step(s, way, state), 0);
	if (state == IBV_QPS_SQE) {
		RETURNS(subject_send(s, 99, 8, s->mr->lkey + 1), 0);
		subject_expect(s, 99, IBV_WC_LOC_PROT_ERR);
	}
	NEED(subject_state(s) == state);
	return true;
}

/* --- the product ---------------------------------------------------------------------------------------------------------- */

static void query(const struct subject *s, struct ibv_qp_attr *attr)
{
	struct ibv_qp_init_attr init;

	memset(attr, 0, sizeof(*attr));
	NEED(ibv_query_qp(s->qp, attr, 0, &init) == 0);
}

/* The QP is in @from, and is there again afterwards. */
static void try_mask(struct subject *s, int from, int to, int mask)
{
	enum ibv_qp_type type = s->qp->qp_type;
	struct ibv_qp_attr attr = subject_values(s), before, after;
	int want = spec_errno(type, from, to, mask), got;

	query(s, &before);
	attr.qp_state = (enum ibv_qp_state)to;
	attr.cur_qp_state = (enum ibv_qp_state)from;
	got = ibv_modify_qp(s->qp, &attr, mask);
	query(s, &after);
	if (got != want || (got && memcmp(&before, &after, sizeof(before)) != 0) ||
		(!got && (after.qp_state != (enum ibv_qp_state)to || s->qp->state != (enum ibv_qp_state)to))) {
		fprintf(stderr, "type %d, %d -> %d, mask 0x%x: %d, not %d; then in state %d\n", type, from, to, (unsigned)mask,
			got, want, after.qp_state);
		_exit(1);
	}
	if (!got && to != from)
		subject_to(s, from);
}

static unsigned tried;

static void cell(struct subject *s, int from, int to)
{
	int required = spec_required(s->qp->qp_type, from, to), optional = spec_optional(s->qp->qp_type, from, to);
	int mask = IBV_QP_STATE | required;

	try_mask(s, from, to, mask);
	try_mask(s, from, to, mask | (optional & ~SPEC_MIGRATION));
	if (from == to)
		try_mask(s, from, to, required & ~IBV_QP_STATE);
	for (int bit = 0; bit < MASK_BITS; bit++)
		if (1 << bit != IBV_QP_STATE)
			try_mask(s, from, to, mask ^ 1 << bit);
	for (int i = 0; i < RANDOM_MASKS; i++) {
		int some = (int)random() & (int)random() & ((1 << MASK_BITS) - 1);

		/* With all that is required, half of the time. */
		try_mask(s, from, to, IBV_QP_STATE | (i & 1 ? required : 0) | some);
	}
	tried += MASK_BITS + RANDOM_MASKS + 1;
}

static void product(enum ibv_qp_type type)
{
	struct subject s;

	if (!subject_open(&s, type)) {
		printf("no QPs of type %d\n", type);
		exit(77);
	}
	for (int from = IBV_QPS_RESET; from <= IBV_QPS_ERR; from++) {
		if (!subject_to(&s, from))
			continue;
		for (int to = IBV_QPS_RESET; to <= IBV_QPS_UNKNOWN + 1; to++)
			cell(&s, from, to);
		cell(&s, from, -1);
	}
	printf("%u masks\n", tried);
	subject_close(&s);
}

static void product_rc(int argc, char **argv)
{
	product(IBV_QPT_RC);
}

static void product_uc(int argc, char **argv)
{
	product(IBV_QPT_UC);
}

static void product_ud(int argc, char **argv)
{
	product(IBV_QPT_UD);
}

static void product_xrc_send(int argc, char **argv)
{
	product(IBV_QPT_XRC_SEND);
}

static void product_xrc_recv(int argc, char **argv)
{
	product(IBV_QPT_XRC_RECV);
}

/* --- values ------------------------------------------------------------------------------------------------------------- */

/* The state that the caller believes in is the one that it is in, or nothing happens. */
static void current_state(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct subject s;

		if (!subject_open(&s, types[i]))
			continue;
		for (int believed = IBV_QPS_RESET; believed <= IBV_QPS_UNKNOWN; believed++) {
			struct ibv_qp_attr attr = subject_values(&s);

			subject_to(&s, IBV_QPS_RTS);
			attr.qp_state = IBV_QPS_RTS;
			attr.cur_qp_state = (enum ibv_qp_state)believed;
			RETURNS(ibv_modify_qp(s.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE),
				believed == IBV_QPS_RTS ? 0 : EINVAL);
			NEED(subject_state(&s) == IBV_QPS_RTS);
		}
		subject_close(&s);
	}
}

/* One attribute with a value that no device takes, in the transition that requires it. */
struct bad_value {
	int bit, from, to;
	void (*spoil)(struct ibv_qp_attr *attr, const struct ibv_device_attr *device, const struct ibv_port_attr *port);
	int error;
};

#define SPOIL(name, statement)                                                                                          \
	static void name(struct ibv_qp_attr *a, const struct ibv_device_attr *d, const struct ibv_port_attr *p)        \
	{                                                                                                               \
		(void)d, (void)p;                                                                                       \
		statement;                                                                                              \
	}

SPOIL(port_0, a->port_num = 0)
SPOIL(port_past, a->port_num = (uint8_t)(d->phys_port_cnt + 1))
SPOIL(port_255, a->port_num = 255)
SPOIL(pkey_past, a->pkey_index = p->pkey_tbl_len)
SPOIL(access_unknown, a->qp_access_flags = 1u << 30)
SPOIL(mtu_0, a->path_mtu = (enum ibv_mtu)0)
SPOIL(mtu_past, a->path_mtu = (enum ibv_mtu)(p->max_mtu + 1))
SPOIL(qpn_past, a->dest_qp_num = 1u << 24)
SPOIL(dest_rd_past, a->max_dest_rd_atomic = (uint8_t)(d->max_qp_rd_atom + 1))
SPOIL(rd_past, a->max_rd_atomic = (uint8_t)(d->max_qp_init_rd_atom + 1))
SPOIL(rnr_timer_past, a->min_rnr_timer = 32)
SPOIL(timeout_past, a->timeout = 32)
SPOIL(retry_past, a->retry_cnt = 8)
SPOIL(rnr_retry_past, a->rnr_retry = 8)
SPOIL(av_port_0, a->ah_attr.port_num = 0)
SPOIL(av_port_past, a->ah_attr.port_num = (uint8_t)(d->phys_port_cnt + 1))
SPOIL(av_sl, a->ah_attr.sl = 16)
SPOIL(av_sgid, a->ah_attr.grh.sgid_index = (uint8_t)p->gid_tbl_len)

static const struct bad_value bad_values[] = {
	{ IBV_QP_PORT, IBV_QPS_RESET, IBV_QPS_INIT, port_0, EINVAL },
	{ IBV_QP_PORT, IBV_QPS_RESET, IBV_QPS_INIT, port_past, EINVAL },
	{ IBV_QP_PORT, IBV_QPS_INIT, IBV_QPS_INIT, port_255, EINVAL },
	{ IBV_QP_PKEY_INDEX, IBV_QPS_RESET, IBV_QPS_INIT, pkey_past, EINVAL },
	{ IBV_QP_PKEY_INDEX, IBV_QPS_SQD, IBV_QPS_SQD, pkey_past, EINVAL },
	{ IBV_QP_ACCESS_FLAGS, IBV_QPS_RESET, IBV_QPS_INIT, access_unknown, EINVAL },
	{ IBV_QP_ACCESS_FLAGS, IBV_QPS_RTS, IBV_QPS_RTS, access_unknown, EINVAL },
	{ IBV_QP_PATH_MTU, IBV_QPS_INIT, IBV_QPS_RTR, mtu_0, EINVAL },
	{ IBV_QP_PATH_MTU, IBV_QPS_INIT, IBV_QPS_RTR, mtu_past, EINVAL },
	{ IBV_QP_DEST_QPN, IBV_QPS_INIT, IBV_QPS_RTR, qpn_past, EINVAL },
	{ IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QPS_INIT, IBV_QPS_RTR, dest_rd_past, EINVAL },
	{ IBV_QP_MIN_RNR_TIMER, IBV_QPS_INIT, IBV_QPS_RTR, rnr_timer_past, EINVAL },
	{ IBV_QP_MAX_QP_RD_ATOMIC, IBV_QPS_RTR, IBV_QPS_RTS, rd_past, EINVAL },
	{ IBV_QP_TIMEOUT, IBV_QPS_RTR, IBV_QPS_RTS, timeout_past, EINVAL },
	{ IBV_QP_RETRY_CNT, IBV_QPS_RTR, IBV_QPS_RTS, retry_past, EINVAL },
	{ IBV_QP_RNR_RETRY, IBV_QPS_RTR, IBV_QPS_RTS, rnr_retry_past, EINVAL },
	{ IBV_QP_AV, IBV_QPS_INIT, IBV_QPS_RTR, av_port_0, EINVAL },
	{ IBV_QP_AV, IBV_QPS_INIT, IBV_QPS_RTR, av_port_past, EINVAL },
	{ IBV_QP_AV, IBV_QPS_INIT, IBV_QPS_RTR, av_sl, EINVAL },
	{ IBV_QP_AV, IBV_QPS_INIT, IBV_QPS_RTR, av_sgid, EINVAL },
	{ IBV_QP_AV, IBV_QPS_SQD, IBV_QPS_SQD, av_sgid, EINVAL },
};

static void values_out_of_range(int argc, char **argv)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct subject s;

	NEED(subject_open(&s, IBV_QPT_RC));
	NEED(ibv_query_device(s.ctx, &device) == 0 && ibv_query_port(s.ctx, 1, &port) == 0);
	for (size_t i = 0; i < sizeof(bad_values) / sizeof(bad_values[0]); i++) {
		const struct bad_value *bad = &bad_values[i];
		struct ibv_qp_attr attr = subject_values(&s), before, after;
		int mask = IBV_QP_STATE | spec_required(IBV_QPT_RC, bad->from, bad->to) | bad->bit;

		subject_to(&s, bad->from);
		query(&s, &before);
		attr.qp_state = (enum ibv_qp_state)bad->to;
		bad->spoil(&attr, &device, &port);

		int r = ibv_modify_qp(s.qp, &attr, mask);

		query(&s, &after);
		if (r != bad->error || memcmp(&before, &after, sizeof(before)) != 0) {
			fprintf(stderr, "bad value %zu of attribute 0x%x: %d\n", i, (unsigned)bad->bit, r);
			_exit(1);
		}
	}
	subject_close(&s);
}

/* The largest values, and what a query says of them; PSNs have 24 bits, whatever is above is not theirs. */
static void values_at_the_limit(int argc, char **argv)
{
	struct ibv_qp_attr attr, got;
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct subject s;

	NEED(subject_open(&s, IBV_QPT_RC));
	NEED(ibv_query_device(s.ctx, &device) == 0 && ibv_query_port(s.ctx, 1, &port) == 0);
	subject_to(&s, IBV_QPS_INIT);
	attr = subject_values(&s);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = port.max_mtu;
	attr.max_dest_rd_atomic = (uint8_t)device.max_qp_rd_atom;
	attr.min_rnr_timer = 31;
	attr.rq_psn = 0xabcdef12;
	attr.ah_attr.sl = 15;
	RETURNS(ibv_modify_qp(s.qp, &attr, IBV_QP_STATE | spec_required(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR)), 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.max_rd_atomic = (uint8_t)device.max_qp_init_rd_atom;
	attr.timeout = 31;
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.sq_psn = 0xffffffff;
	RETURNS(ibv_modify_qp(s.qp, &attr, IBV_QP_STATE | spec_required(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS)), 0);
	query(&s, &got);
	NEED(got.path_mtu == port.max_mtu && got.max_dest_rd_atomic == device.max_qp_rd_atom);
	NEED(got.min_rnr_timer == 31 && got.max_rd_atomic == device.max_qp_init_rd_atom);
	NEED(got.timeout == 31 && got.retry_cnt == 7 && got.rnr_retry == 7 && got.ah_attr.sl == 15);
	NEED(got.rq_psn == 0xcdef12 && got.sq_psn == 0xffffff);
	subject_close(&s);
}

int main(int argc, char **argv)
{
	static const struct kit_test tests[] = {
		{ "product-rc", product_rc },
		{ "product-uc", product_uc },
		{ "product-ud", product_ud },
		{ "product-xrc-send", product_xrc_send },
		{ "product-xrc-recv", product_xrc_recv },
		{ "current-state", current_state },
		{ "values-out-of-range", values_out_of_range },
		{ "values-at-the-limit", values_at_the_limit },
		{ NULL, NULL },
	};

	srandom(argc > 2 ? (unsigned)atoi(argv[2]) : 1);
	if (argc < 2)
		kit_main(states_posts, argc, argv);
	for (const struct kit_test *t = states_posts; argc > 1 && t->name; t++)
		if (strcmp(t->name, argv[1]) == 0)
			return kit_main(states_posts, argc, argv);
	return kit_main(tests, argc, argv);
}
