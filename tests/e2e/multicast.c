/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast: who gets what is sent to a group, who does not, and what ends it. One test a run, named by the first argument;
 * status 0, or a line on stderr and status 1. Whether something was *not* delivered is asked after a datagram that was sent
 * behind it has come.
 *
 * A process that does not come to its end of the wire for seconds loses what is sent to it, as datagrams are lost. So between
 * processes greetings are sent until one has come; those that come later are passed over.
 */
#include "kit.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>

#define QPN	  0xffffffu
#define MLID	  0xc001
#define SLOT	  256u /* bytes of a receive */
#define DEPTH	  64u
#define GRH	  40u
#define LAST	  0xffu
#define GREETING  0xeeu

struct member {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq, *send_cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory; /* DEPTH slots, then one to send from */
	bool ethernet;
	bool greeted;
};

static union ibv_gid group(uint8_t n)
{
	return (union ibv_gid){ .raw = { 0xff, 0x0e, [14] = 1, [15] = n } };
}

static void receive_again(struct member *m, uint64_t slot)
{
	struct ibv_sge sge = { (uintptr_t)m->memory + slot * SLOT, SLOT, m->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	RETURNS(ibv_post_recv(m->qp, &wr, &bad), 0);
}

static void member_ready(struct member *m)
{
	struct kit_address address = kit_address(m->ctx);

	kit_connect_to(m->qp, 0, &address);
	for (uint64_t i = 0; i < DEPTH; i++)
		receive_again(m, i);
}

static struct ibv_qp_init_attr_ex qp_init(struct member *m)
{
	return (struct ibv_qp_init_attr_ex){
		.send_cq = m->send_cq,
		.recv_cq = m->cq,
		.cap = { .max_send_wr = 16, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = m->pd,
	};
}

/* @of: whose context it shares; NULL: its own. */
static void member_make(struct member *m, const struct member *of, unsigned create_flags)
{
	struct ibv_port_attr port;

	memset(m, 0, sizeof(*m));
	m->ctx = of ? of->ctx : kit_open();
	NEED(ibv_query_port(m->ctx, 1, &port) == 0);
	m->ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
	if (of)
		m->pd = of->pd;
	else
		NEED(m->pd = ibv_alloc_pd(m->ctx));
	m->cq = kit_cq(m->ctx, DEPTH);
	m->send_cq = kit_cq(m->ctx, 16);

	struct ibv_qp_init_attr_ex init = qp_init(m);

	if (create_flags) {
		init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
		init.create_flags = create_flags;
	}
	NEED(m->qp = ibv_create_qp_ex(m->ctx, &init));
	NEED(m->memory = calloc(DEPTH + 1, SLOT));
	NEED(m->mr = ibv_reg_mr(m->pd, m->memory, (DEPTH + 1) * SLOT, IBV_ACCESS_LOCAL_WRITE));
	member_ready(m);
}

static void member_end(struct member *m, bool all)
{
	RETURNS(ibv_destroy_qp(m->qp), 0);
	RETURNS(ibv_dereg_mr(m->mr), 0);
	RETURNS(ibv_destroy_cq(m->cq), 0);
	RETURNS(ibv_destroy_cq(m->send_cq), 0);
	free(m->memory);
	if (!all)
		return;
	RETURNS(ibv_dealloc_pd(m->pd), 0);
	RETURNS(ibv_close_device(m->ctx), 0);
}

struct to {
	union ibv_gid gid;
	uint16_t lid;
	uint32_t qpn, qkey;
	bool no_grh;
};

static struct to to_group(uint8_t n)
{
	return (struct to){ .gid = group(n), .lid = MLID, .qpn = QPN, .qkey = KIT_QKEY };
}

/* One datagram of @value, waited for. */
static void send_to(struct member *m, const struct to *to, uint8_t value)
{
	struct ibv_ah_attr attr = {
		.dlid = to->lid,
		.port_num = 1,
		.is_global = !to->no_grh,
		.grh = { .dgid = to->gid, .hop_limit = 1, .flow_label = 0x12345, .traffic_class = 7 },
	};
	uint8_t *from = m->memory + (size_t)DEPTH * SLOT;
	struct ibv_ah *ah = ibv_create_ah(m->pd, &attr);
	struct ibv_sge sge = { (uintptr_t)from, 16, m->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = value,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = value,
	};
	struct ibv_send_wr *bad;

	NEED(ah);
	memset(from, value, 16);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = to->qpn;
	wr.wr.ud.remote_qkey = to->qkey;
	RETURNS(ibv_post_send(m->qp, &wr, &bad), 0);
	NEED(kit_wait(m->send_cq).status == IBV_WC_SUCCESS);
	RETURNS(ibv_destroy_ah(ah), 0);
}

static void send_group(struct member *m, uint8_t n, uint8_t value)
{
	struct to to = to_group(n);

	send_to(m, &to, value);
}

static uint8_t take(struct member *m, const struct ibv_wc *wc)
{
	NEED(wc->status == IBV_WC_SUCCESS && wc->opcode == IBV_WC_RECV);
	NEED(wc->byte_len == GRH + 16 && wc->wc_flags & IBV_WC_WITH_IMM);

	const uint8_t *slot = m->memory + wc->wr_id * SLOT;
	uint8_t value = slot[GRH];

	for (unsigned i = 0; i < 16; i++)
		NEED(slot[GRH + i] == value);
	NEED(wc->imm_data == value);
	receive_again(m, wc->wr_id);
	return value;
}

/* What came, but for greetings: its value. The receive is posted again. */
static bool has_come(struct member *m, struct ibv_wc *wc, uint8_t *value)
{
	int n;

	while ((n = ibv_poll_cq(m->cq, 1, wc)) == 1) {
		*value = take(m, wc);
		if (*value != GREETING)
			return true;
		m->greeted = true;
	}
	NEED(n == 0);
	return false;
}

/* The next one, waited for. */
static uint8_t next(struct member *m, struct ibv_wc *wc)
{
	uint8_t value;

	while (!has_come(m, wc, &value))
		;
	return value;
}

static void expect(struct member *m, uint8_t value)
{
	struct ibv_wc wc;
	uint8_t got = next(m, &wc);

	if (got != value)
		fprintf(stderr, "%u came, not %u\n", got, value);
	NEED(got == value);
}

/* Nothing more has come to a QP of this process: what is sent here is delivered when it is sent. */
static void expect_nothing(struct member *m)
{
	struct ibv_wc wc;
	uint8_t value;

	NEED(!has_come(m, &wc, &value));
}

static void attach(struct member *m, uint8_t n)
{
	union ibv_gid gid = group(n);

	RETURNS(ibv_attach_mcast(m->qp, &gid, MLID), 0);
}

static void detach(struct member *m, uint8_t n)
{
	union ibv_gid gid = group(n);

	RETURNS(ibv_detach_mcast(m->qp, &gid, MLID), 0);
}

/* --- one process -------------------------------------------------------------------------------------------------------- */

static void delivery(int argc, char **argv)
{
	struct member a, b, c;
	struct ibv_wc wc;

	(void)argc, (void)argv;
	member_make(&a, NULL, 0);
	member_make(&b, &a, 0);
	member_make(&c, &a, 0);
	send_group(&a, 1, 1); /* nobody is there */
	attach(&b, 1);
	attach(&c, 1);
	send_group(&a, 1, 2);
	NEED(next(&b, &wc) == 2);
	expect(&c, 2);
	expect_nothing(&a);

	const struct ibv_grh *grh = (const void *)(b.memory + wc.wr_id * SLOT);
	struct kit_address address = kit_address(a.ctx);
	union ibv_gid gid = group(1);

	NEED(wc.wc_flags & IBV_WC_GRH && wc.src_qp == a.qp->qp_num && wc.pkey_index == 0);
	NEED(memcmp(&grh->dgid, &gid, sizeof(gid)) == 0);
	NEED(memcmp(&grh->sgid, &address.gid, sizeof(gid)) == 0);
	NEED(grh->hop_limit == 1 && be32toh(grh->version_tclass_flow) == (6u << 28 | 7 << 20 | 0x12345));
	NEED(b.ethernet || wc.slid == address.lid);
	detach(&b, 1);
	send_group(&a, 1, 3);
	expect(&c, 3);
	expect_nothing(&b);
	/* Another group, and one QP in two. */
	attach(&c, 2);
	send_group(&a, 2, 4);
	send_group(&a, 1, 5);
	expect(&c, 4);
	expect(&c, 5);
	detach(&c, 1);
	detach(&c, 2);
	member_end(&c, false);
	member_end(&b, false);
	member_end(&a, true);
}

static void own_copy(int argc, char **argv)
{
	struct member a, b;

	(void)argc, (void)argv;
	member_make(&a, NULL, 0);
	member_make(&b, &a, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
	attach(&a, 1);
	attach(&b, 1);
	send_group(&a, 1, 1);
	expect(&a, 1);
	expect(&b, 1);
	send_group(&b, 1, 2);
	expect(&a, 2);
	expect_nothing(&b);
	detach(&a, 1);
	detach(&b, 1);
	member_end(&b, false);

	struct ibv_qp_init_attr_ex init = qp_init(&a);

	init.send_cq = init.recv_cq = a.send_cq;
	init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	init.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
	init.qp_type = IBV_QPT_RC;
	REFUSED(ibv_create_qp_ex(a.ctx, &init), EOPNOTSUPP);
	init.qp_type = IBV_QPT_UD;
	init.create_flags = IBV_QP_CREATE_SCATTER_FCS;
	REFUSED(ibv_create_qp_ex(a.ctx, &init), EOPNOTSUPP);
	member_end(&a, true);
}

static void attached_twice(int argc, char **argv)
{
	struct member a, b;
	union ibv_gid gid = group(1);

	(void)argc, (void)argv;
	member_make(&a, NULL, 0);
	member_make(&b, &a, 0);
	attach(&b, 1);
	attach(&b, 1);
	send_group(&a, 1, 1);
	expect(&b, 1);
	expect_nothing(&b);
	RETURNS(ibv_destroy_qp(b.qp), EBUSY);
	send_group(&a, 1, 2); /* it is whole */
	expect(&b, 2);
	detach(&b, 1);
	RETURNS(ibv_detach_mcast(b.qp, &gid, MLID), EINVAL);
	send_group(&a, 1, 3);
	expect_nothing(&b);
	member_end(&b, false);
	member_end(&a, true);
}

static void refused(int argc, char **argv)
{
	static const union ibv_gid unicast[] = {
		{ .raw = { 0xfe, 0x80, [15] = 1 } },
		{ .raw = { 0 } },
		{ .raw = { [10] = 0xff, 0xff, 192, 0, 2, 1 } },
	};
	static const union ibv_gid mapped = { .raw = { [10] = 0xff, 0xff, 224, 0, 0, 9 } };
	static const uint16_t wrong[] = { 0, 1, 0xbfff, 0xffff };
	union ibv_gid gid = group(1);
	struct member a;

	(void)argc, (void)argv;
	member_make(&a, NULL, 0);
	for (unsigned i = 0; i < 3; i++) {
		RETURNS(ibv_attach_mcast(a.qp, &unicast[i], MLID), EINVAL);
		RETURNS(ibv_detach_mcast(a.qp, &unicast[i], MLID), EINVAL);
	}
	for (unsigned i = 0; i < 4; i++) {
		RETURNS(ibv_attach_mcast(a.qp, &gid, wrong[i]), a.ethernet ? 0 : EINVAL);
		RETURNS(ibv_detach_mcast(a.qp, &gid, wrong[i]), a.ethernet ? 0 : EINVAL);
	}
	RETURNS(ibv_attach_mcast(a.qp, &gid, 0xc000), 0);
	RETURNS(ibv_attach_mcast(a.qp, &gid, 0xfffe), 0);
	RETURNS(ibv_detach_mcast(a.qp, &gid, 0xfffe), 0);
	/* On Ethernet the LID counts for nothing, so that was one group. */
	RETURNS(ibv_detach_mcast(a.qp, &gid, 0xc000), a.ethernet ? EINVAL : 0);
	RETURNS(ibv_attach_mcast(a.qp, &mapped, MLID), 0);
	RETURNS(ibv_detach_mcast(a.qp, &mapped, MLID), 0);

	struct ibv_qp *rc = kit_qp(a.pd, a.cq, NULL);

	RETURNS(ibv_attach_mcast(rc, &gid, MLID), EINVAL);
	RETURNS(ibv_detach_mcast(rc, &gid, MLID), EINVAL);
	RETURNS(ibv_destroy_qp(rc), 0);
	member_end(&a, true);
}

/* What is dropped, and by whom. */
static void dropped(int argc, char **argv)
{
	struct ibv_qp_attr attr = { .qkey = 0x22222222 };
	struct member a, b, c;
	struct to to;

	(void)argc, (void)argv;
	member_make(&a, NULL, 0);
	member_make(&b, &a, 0);
	member_make(&c, &a, 0);
	attach(&b, 1);
	attach(&c, 1);
	RETURNS(ibv_modify_qp(c.qp, &attr, IBV_QP_QKEY), 0);
	send_group(&a, 1, 1);
	expect(&b, 1);
	expect_nothing(&c);
	to = to_group(1);
	to.qkey = 0x22222222;
	send_to(&a, &to, 2);
	expect(&c, 2);
	expect_nothing(&b);
	to = to_group(1); /* a QP's own number, at the group's address */
	to.qpn = b.qp->qp_num;
	send_to(&a, &to, 3);
	to = to_group(1); /* the group's number, at a port's address */
	to.gid = kit_address(a.ctx).gid;
	to.lid = kit_address(a.ctx).lid;
	send_to(&a, &to, 4);
	to = to_group(1); /* another MLID */
	to.lid = MLID + 1;
	send_to(&a, &to, 5);
	if (b.ethernet)
		expect(&b, 5);
	if (!b.ethernet) { /* there is no multicast without a GRH, nor with a LID of a port */
		to = to_group(1);
		to.no_grh = true;
		send_to(&a, &to, 6);
		to = to_group(1);
		to.lid = kit_address(a.ctx).lid;
		send_to(&a, &to, 7);
	}
	expect_nothing(&b);
	/* A QP that does not listen, and one without receives. */
	attr.qp_state = IBV_QPS_ERR;
	RETURNS(ibv_modify_qp(c.qp, &attr, IBV_QP_STATE), 0);
	for (unsigned i = 0; i < DEPTH; i++)
		NEED(kit_wait(c.cq).status == IBV_WC_WR_FLUSH_ERR);
	send_group(&a, 1, 8);
	expect(&b, 8);
	member_ready(&c);
	send_group(&a, 1, 9);
	expect(&b, 9);
	expect(&c, 9);
	expect_nothing(&c);
	detach(&b, 1);
	detach(&c, 1);
	member_end(&c, false);
	member_end(&b, false);
	member_end(&a, true);
}

/* --- limits ------------------------------------------------------------------------------------------------------------- */

static union ibv_gid numbered(unsigned n)
{
	return (union ibv_gid){ .raw = { 0xff, 0x0e, [12] = 9, [13] = (uint8_t)(n >> 16), [14] = (uint8_t)(n >> 8),
				[15] = (uint8_t)n } };
}

static int enter(struct ibv_qp *qp, unsigned n)
{
	union ibv_gid gid = numbered(n);

	return ibv_attach_mcast(qp, &gid, MLID);
}

static int leave(struct ibv_qp *qp, unsigned n)
{
	union ibv_gid gid = numbered(n);

	return ibv_detach_mcast(qp, &gid, MLID);
}

static void limits(int argc, char **argv)
{
	struct ibv_device_attr device;
	struct member a;

	(void)argc, (void)argv;
	member_make(&a, NULL, 0);
	RETURNS(ibv_query_device(a.ctx, &device), 0);

	unsigned per_group = (unsigned)device.max_mcast_qp_attach, max_groups = (unsigned)device.max_mcast_grp;
	unsigned total = (unsigned)device.max_total_mcast_qp_attach, full = total / per_group;
	struct ibv_qp **qps = calloc(per_group + 1, sizeof(*qps));
	struct ibv_qp_init_attr init = kit_qp_init(a.cq, NULL, IBV_QPT_UD);

	NEED(per_group > 1 && max_groups > 1 && full > 1 && full < max_groups && total % per_group == 0 && qps);
	for (unsigned i = 0; i <= per_group; i++)
		NEED(qps[i] = ibv_create_qp(a.pd, &init));
	/* QPs in one group; attachments of all. */
	for (unsigned g = 0; g < full; g++)
		for (unsigned i = 0; i < per_group; i++)
			RETURNS(enter(qps[i], g), 0);
	RETURNS(enter(qps[per_group], 0), ENOMEM);
	RETURNS(enter(qps[0], full), ENOMEM);
	RETURNS(enter(qps[0], 0), 0); /* is there already */
	RETURNS(leave(qps[0], 1), 0);
	RETURNS(enter(qps[per_group], 1), 0);
	RETURNS(enter(qps[0], full), ENOMEM);
	RETURNS(leave(qps[per_group], 1), 0);
	RETURNS(enter(qps[0], 1), 0);
	for (unsigned g = 0; g < full; g++)
		for (unsigned i = 0; i < per_group; i++)
			RETURNS(leave(qps[i], g), 0);
	/* Groups. */
	for (unsigned g = 0; g < max_groups; g++)
		RETURNS(enter(qps[0], g), 0);
	RETURNS(enter(qps[0], max_groups), ENOMEM);
	RETURNS(enter(qps[1], 0), 0);
	RETURNS(leave(qps[1], 0), 0);
	for (unsigned g = 0; g < max_groups; g++)
		RETURNS(leave(qps[0], g), 0);
	for (unsigned i = 0; i <= per_group; i++)
		RETURNS(ibv_destroy_qp(qps[i]), 0);
	free(qps);
	member_end(&a, true);
}

/* The daemon's limits allow four. */
static void quota(int argc, char **argv)
{
	struct member a;

	(void)argc, (void)argv;
	member_make(&a, NULL, 0);
	for (unsigned g = 0; g < 4; g++)
		RETURNS(enter(a.qp, g), 0);
	RETURNS(enter(a.qp, 4), ENOMEM);
	RETURNS(leave(a.qp, 0), 0);
	RETURNS(enter(a.qp, 4), 0);
	for (unsigned g = 1; g < 5; g++)
		RETURNS(leave(a.qp, g), 0);
	member_end(&a, true);
}

/* --- processes ---------------------------------------------------------------------------------------------------------- */

struct child {
	pid_t pid;
	int to, from; /* a byte each way: an order, and that it was done */
};

/*
 * A process with two members of group 1. Orders: a number up to LAST: both members get the datagrams from 1 up to it; 'A',
 * 'D': the second one attaches again, leaves; 'G': have both been greeted?; 0: the end. Each is answered by 1; a no by 2.
 */
static void serve(int orders, int answers)
{
	struct member a, b;
	uint8_t order, done = 1, no = 2, expected = 1;
	bool both = true;

	member_make(&a, NULL, 0);
	member_make(&b, &a, 0);
	attach(&a, 1);
	attach(&b, 1);
	NEED(write(answers, &done, 1) == 1);
	while (read(orders, &order, 1) == 1 && order) {
		if (order == 'D') {
			detach(&b, 1);
			both = false;
		} else if (order == 'A') {
			attach(&b, 1);
			both = true;
		} else if (order == 'G') {
			expect_nothing(&a);
			expect_nothing(&b);
			if (!a.greeted || !b.greeted) {
				NEED(write(answers, &no, 1) == 1);
				continue;
			}
		} else {
			for (; expected != (uint8_t)(order + 1); expected++) {
				expect(&a, expected);
				if (both)
					expect(&b, expected);
			}
			expect_nothing(&b);
		}
		NEED(write(answers, &done, 1) == 1);
	}
	if (both)
		detach(&b, 1);
	detach(&a, 1);
	member_end(&b, false);
	member_end(&a, true);
	_exit(0);
}

static struct child child_start(void)
{
	struct child child;
	int to[2], from[2];
	uint8_t done;

	NEED(pipe(to) == 0 && pipe(from) == 0);
	child.pid = fork();
	NEED(child.pid >= 0);
	if (child.pid == 0) {
		close(to[1]);
		close(from[0]);
		serve(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	child.to = to[1];
	child.from = from[0];
	NEED(read(child.from, &done, 1) == 1);
	return child;
}

static void child_order(const struct child *child, uint8_t order)
{
	NEED(write(child->to, &order, 1) == 1);
}

static void child_done(const struct child *child)
{
	uint8_t done;

	NEED(read(child->from, &done, 1) == 1);
}

static void child_do(const struct child *child, uint8_t order)
{
	child_order(child, order);
	child_done(child);
}

/* Until it has its end of the wire. */
static void child_greet(const struct child *child, struct member *m)
{
	uint8_t greeted;

	for (;;) {
		send_group(m, 1, GREETING);
		child_order(child, 'G');
		NEED(read(child->from, &greeted, 1) == 1);
		if (greeted == 1)
			return;
		poll(NULL, 0, 100); /* so that no more come than there are receives */
	}
}

static void child_end(struct child *child, int signal)
{
	int status;

	if (signal)
		kill(child->pid, signal);
	else
		child_order(child, 0);
	NEED(waitpid(child->pid, &status, 0) == child->pid);
	NEED(signal ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(child->to);
	close(child->from);
}

static void processes(int argc, char **argv)
{
	struct child children[3];
	struct member a;

	(void)argc, (void)argv;
	for (unsigned i = 0; i < 2; i++)
		children[i] = child_start();
	member_make(&a, NULL, 0);
	attach(&a, 1);
	for (unsigned i = 0; i < 2; i++)
		child_greet(&children[i], &a);
	for (uint8_t value = 1; value <= 40; value++) {
		send_group(&a, 1, value);
		expect(&a, value);
	}
	for (unsigned i = 0; i < 2; i++)
		child_do(&children[i], 40);
	/* Who leaves gets no more, who comes back does. */
	child_do(&children[0], 'D');
	send_group(&a, 1, 41);
	for (unsigned i = 0; i < 2; i++)
		child_do(&children[i], 41);
	child_do(&children[0], 'A');
	send_group(&a, 1, 42);
	for (unsigned i = 0; i < 2; i++)
		child_do(&children[i], 42);
	/* One that dies with its QPs attached; one that comes late. */
	child_end(&children[1], SIGKILL);
	send_group(&a, 1, 43);
	child_do(&children[0], 43);
	child_end(&children[0], 0);
	children[2] = child_start();
	child_greet(&children[2], &a);
	for (uint8_t value = 1; value <= 5; value++)
		send_group(&a, 1, value);
	child_do(&children[2], 5);
	child_end(&children[2], 0);
	detach(&a, 1);
	send_group(&a, 1, 6);
	member_end(&a, true);
}

/* Who takes nothing loses, and nobody else does. */
static void stopped(int argc, char **argv)
{
	struct child slow = child_start(), good = child_start();
	struct member a;

	(void)argc, (void)argv;
	member_make(&a, NULL, 0);
	child_greet(&slow, &a);
	child_greet(&good, &a);
	send_group(&a, 1, 1);
	child_do(&slow, 1);
	child_do(&good, 1);
	kill(slow.pid, SIGSTOP);
	NEED(waitpid(slow.pid, NULL, WUNTRACED) == slow.pid);
	for (unsigned round = 0; round < 10; round++) {
		uint8_t first = (uint8_t)(round * 20 + 2);

		for (uint8_t value = first; value < first + 20; value++)
			send_group(&a, 1, value);
		child_do(&good, (uint8_t)(first + 19));
	}
	child_end(&slow, SIGKILL);
	child_end(&good, 0);
	member_end(&a, true);
}

static void forked(int argc, char **argv)
{
	union ibv_gid gid = group(1);
	struct member a, b;
	int status, heard[2];
	struct ibv_wc wc;
	uint8_t value;

	(void)argc, (void)argv;
	member_make(&a, NULL, 0);
	attach(&a, 1);
	NEED(pipe(heard) == 0);

	pid_t pid = fork();

	if (pid == 0) {
		struct pollfd greeted = { .fd = heard[0], .events = POLLIN };

		RETURNS(ibv_attach_mcast(a.qp, &gid, MLID), ENOTCONN);
		RETURNS(ibv_detach_mcast(a.qp, &gid, MLID), ENOTCONN);
		member_make(&b, NULL, 0);
		do
			send_group(&b, 1, GREETING);
		while (poll(&greeted, 1, 100) == 0);
		/* The parent's memberships are not the child's. */
		send_group(&b, 1, 1);
		expect_nothing(&b);
		attach(&b, 1);
		send_group(&b, 1, 2);
		expect(&b, 2);
		expect_nothing(&b);
		detach(&b, 1);
		member_end(&b, true);
		_exit(0);
	}
	while (!a.greeted)
		NEED(!has_come(&a, &wc, &value));
	NEED(write(heard[1], "", 1) == 1);
	expect(&a, 1);
	expect(&a, 2);
	NEED(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	send_group(&a, 1, 3);
	expect(&a, 3);
	detach(&a, 1);
	member_end(&a, true);
}

/* Is a member, and says so on stdout; until it is killed. */
static void hold(int argc, char **argv)
{
	struct member a;

	(void)argc, (void)argv;
	member_make(&a, NULL, 0);
	attach(&a, 1);
	puts("attached");
	fflush(stdout);
	for (;;)
		pause();
}

static const struct kit_test tests[] = {
	{ "delivery", delivery },
	{ "own-copy", own_copy },
	{ "attached-twice", attached_twice },
	{ "refused", refused },
	{ "dropped", dropped },
	{ "limits", limits },
	{ "processes", processes },
	{ "stopped", stopped },
	{ "forked", forked },
	{ NULL, NULL },
};

static const struct kit_test others[] = {
	{ "hold", hold },
	{ "quota", quota },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	for (unsigned i = 0; argc > 1 && others[i].name; i++)
		if (strcmp(argv[1], others[i].name) == 0)
			return kit_main(others, argc, argv);
	return kit_main(tests, argc, argv);
}
