/* SPDX-License-Identifier: BSD-2-Clause */
/* Extended completions, and what this device does not have: each is refused when it is asked for. */
#include "calls.h"

#include <fcntl.h>
#include <stdlib.h>
#include <time.h>

struct rig {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static void rig_open(struct rig *r)
{
	r->ctx = kit_open();
	r->pd = ibv_alloc_pd(r->ctx);
	NEED(r->pd);
	r->cq = kit_cq(r->ctx, 4);
	r->qp = kit_qp(r->pd, r->cq, NULL);
}

static void rig_close(struct rig *r)
{
	NEED(ibv_destroy_qp(r->qp) == 0 && ibv_destroy_cq(r->cq) == 0);
	NEED(ibv_dealloc_pd(r->pd) == 0 && ibv_close_device(r->ctx) == 0);
}

/* --- extended completions ---------------------------------------------------------------------------------------------------- */

#define ALL_FIELDS                                                                                                      \
	(IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP |                 \
		IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL | IBV_WC_EX_WITH_DLID_PATH_BITS |                               \
		IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

/* The clock that completions are stamped with, in its ticks; that of the wall, in nanoseconds. */
static uint64_t raw_clock(struct ibv_context *ctx, uint64_t khz)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };

	RETURNS(ibv_query_rt_values_ex(ctx, &values), 0);
	NEED(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK);

	uint64_t ns = (uint64_t)values.raw_clock.tv_sec * 1000000000 + (uint64_t)values.raw_clock.tv_nsec;

	return ns / 1000000 * khz + ns % 1000000 * khz / 1000000; /* five hours of nanoseconds times kHz are all that 64 bits hold */
}

static uint64_t wall_clock(void)
{
	struct timespec now;

	NEED(clock_gettime(CLOCK_REALTIME, &now) == 0);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int next(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { .comp_mask = 0 };
	int r;

	while ((r = ibv_start_poll(cq, &attr)) == ENOENT)
		;
	return r;
}

void extended_completions(int argc, char **argv)
{
	static const uint64_t refused[] = { IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG };
	struct ibv_modify_cq_attr moderate = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { 4, 10 } };
	struct rig r;

	rig_open(&r);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct ibv_cq_init_attr_ex attr = { .cqe = 4, .wc_flags = ALL_FIELDS | refused[i] };

		REFUSED(ibv_create_cq_ex(r.ctx, &attr), EOPNOTSUPP);
	}

	struct ibv_cq_init_attr_ex attr = { .cqe = 4, .wc_flags = ALL_FIELDS, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(r.ctx, &attr);
	struct ibv_qp *a = cq ? kit_qp(r.pd, ibv_cq_ex_to_cq(cq), NULL) : NULL, *b = kit_qp(r.pd, r.cq, NULL);
	struct ibv_device_attr_ex device;
	uint8_t memory[64] = { 0 };
	struct ibv_mr *mr = ibv_reg_mr(r.pd, memory, sizeof(memory), KIT_ACCESS);
	struct ibv_mw *mw = ibv_alloc_mw(r.pd, IBV_MW_TYPE_2);
	struct ibv_send_wr wr = { .wr_id = 7, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = 0x55 }, *bad;

	NEED(ibv_query_device_ex(r.ctx, NULL, &device) == 0);
	NEED(device.cq_mod_caps.max_cq_count >= 4 && device.cq_mod_caps.max_cq_period >= 10);
	NEED(a && mr && mw && ibv_modify_cq(ibv_cq_ex_to_cq(cq), &moderate) == 0);
	kit_connect(a, b);
	kit_post_recv(a, mr, memory, 64);

	uint64_t wall = wall_clock(), raw = raw_clock(r.ctx, device.hca_core_clock);

	RETURNS(ibv_post_send(b, &wr, &bad), 0);
	NEED(next(cq) == 0 && cq->wr_id == 1 && cq->status == IBV_WC_SUCCESS);
	NEED(ibv_wc_read_opcode(cq) == IBV_WC_RECV && ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_IMM);
	NEED(ibv_wc_read_imm_data(cq) == 0x55 && ibv_wc_read_byte_len(cq) == 0 && ibv_wc_read_qp_num(cq) == a->qp_num);
	NEED(ibv_wc_read_vendor_err(cq) == 0);
	/* Both stamps are of the time between. */
	NEED(ibv_wc_read_completion_ts(cq) >= raw && ibv_wc_read_completion_ts(cq) <= raw_clock(r.ctx, device.hca_core_clock));
	NEED(ibv_wc_read_completion_wallclock_ns(cq) >= wall && ibv_wc_read_completion_wallclock_ns(cq) <= wall_clock());
	NEED(ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
	/* A window of A's QP, invalidated from afar. */
	struct ibv_send_wr bind = { .wr_id = 8, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = mw, .rkey = ibv_inc_rkey(mw->rkey),
			.bind_info = { mr, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_READ } } };

	RETURNS(ibv_post_send(a, &bind, &bad), 0);
	NEED(next(cq) == 0 && cq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(cq) == IBV_WC_BIND_MW);
	ibv_end_poll(cq);
	kit_post_recv(a, mr, memory, 64);
	wr.opcode = IBV_WR_SEND_WITH_INV;
	wr.invalidate_rkey = bind.bind_mw.rkey;
	RETURNS(ibv_post_send(b, &wr, &bad), 0);
	NEED(next(cq) == 0 && cq->status == IBV_WC_SUCCESS && ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_INV);
	NEED(ibv_wc_read_invalidated_rkey(cq) == bind.bind_mw.rkey);
	ibv_end_poll(cq);
	NEED(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0 && ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
	NEED(ibv_dealloc_mw(mw) == 0 && ibv_dereg_mr(mr) == 0);
	rig_close(&r);
}

/* What a datagram says of where it comes from; it has no GRH, and came by the port's one LID. */
void extended_completions_of_datagrams(int argc, char **argv)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 4, .wc_flags = ALL_FIELDS };
	uint8_t memory[128] = { 0 };
	struct rig r;

	rig_open(&r);

	struct kit_address here = kit_address(r.ctx);
	struct ibv_cq_ex *cq = ibv_create_cq_ex(r.ctx, &attr);
	struct ibv_qp_init_attr to_init = kit_qp_init(cq ? ibv_cq_ex_to_cq(cq) : NULL, NULL, IBV_QPT_UD);
	struct ibv_qp_init_attr from_init = kit_qp_init(r.cq, NULL, IBV_QPT_UD);
	struct ibv_qp *to = cq ? ibv_create_qp(r.pd, &to_init) : NULL, *from = ibv_create_qp(r.pd, &from_init);
	struct ibv_mr *mr = ibv_reg_mr(r.pd, memory, sizeof(memory), KIT_ACCESS);
	struct ibv_ah_attr av = { .dlid = here.lid, .sl = 5, .port_num = 1 };
	struct ibv_ah *ah = ibv_create_ah(r.pd, &av);

	NEED(to && from && mr && ah);
	kit_connect(to, to);
	kit_connect(from, from);
	kit_post_recv(to, mr, memory, sizeof(memory));

	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1,
		.wr.ud = { ah, to->qp_num, KIT_QKEY } }, *bad;

	RETURNS(ibv_post_send(from, &wr, &bad), 0);
	NEED(next(cq) == 0 && cq->wr_id == 1 && cq->status == IBV_WC_SUCCESS);
	NEED(ibv_wc_read_opcode(cq) == IBV_WC_RECV && ibv_wc_read_byte_len(cq) == 48 && !ibv_wc_read_wc_flags(cq));
	NEED(ibv_wc_read_qp_num(cq) == to->qp_num && ibv_wc_read_src_qp(cq) == from->qp_num);
	NEED(ibv_wc_read_slid(cq) == here.lid && ibv_wc_read_sl(cq) == 5 && ibv_wc_read_dlid_path_bits(cq) == 0);
	ibv_end_poll(cq);
	NEED(ibv_destroy_qp(to) == 0 && ibv_destroy_qp(from) == 0 && ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
	NEED(ibv_destroy_ah(ah) == 0 && ibv_dereg_mr(mr) == 0);
	rig_close(&r);
}

/* A CQ that is too small, and whose program does not mind: the newest are there, nothing else happens. */
void overrun_that_is_ignored(int argc, char **argv)
{
	struct rig r;
	struct ibv_cq_init_attr_ex attr = { .cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc[16];

	rig_open(&r);

	struct ibv_cq_ex *cq = ibv_create_cq_ex(r.ctx, &attr);
	struct ibv_qp *qp = cq ? kit_qp(r.pd, ibv_cq_ex_to_cq(cq), NULL) : NULL;

	NEED(qp);
	kit_connect(qp, qp);
	for (unsigned i = 0; i < 16; i++) {
		struct ibv_recv_wr recv = { .wr_id = i }, *bad;

		RETURNS(ibv_post_recv(qp, &recv, &bad), 0);
	}
	RETURNS(ibv_modify_qp(qp, &error, IBV_QP_STATE), 0);
	NEED(ibv_poll_cq(ibv_cq_ex_to_cq(cq), 16, wc) == 4 && wc[0].wr_id == 12 && wc[3].wr_id == 15);
	NEED(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
	rig_close(&r);
}

/* --- what is not there --------------------------------------------------------------------------------------------------------- */

static void qp_refused(struct rig *r, struct ibv_qp_init_attr_ex *attr)
{
	attr->send_cq = attr->recv_cq = r->cq;
	attr->pd = r->pd;
	attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
	attr->cap = (struct ibv_qp_cap){ 1, 1, 1, 1, 0 };
	REFUSED(ibv_create_qp_ex(r->ctx, attr), EOPNOTSUPP);
}

void extras_of_adapters(int argc, char **argv)
{
	static const uint32_t masks[] = { IBV_QP_INIT_ATTR_MAX_TSO_HEADER, IBV_QP_INIT_ATTR_IND_TABLE,
		IBV_QP_INIT_ATTR_RX_HASH };
	static const uint32_t flags[] = { IBV_QP_CREATE_SCATTER_FCS, IBV_QP_CREATE_CVLAN_STRIPPING, IBV_QP_CREATE_SOURCE_QPN,
		IBV_QP_CREATE_PCI_WRITE_END_PADDING };
	struct ibv_counters_init_attr counters = { .comp_mask = 0 };
	struct rig r;

	rig_open(&r);
	for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++)
		qp_refused(&r, &(struct ibv_qp_init_attr_ex){ .qp_type = IBV_QPT_UD, .comp_mask = masks[i] });
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		qp_refused(&r, &(struct ibv_qp_init_attr_ex){ .qp_type = IBV_QPT_UD,
			.comp_mask = IBV_QP_INIT_ATTR_CREATE_FLAGS, .create_flags = flags[i] });
	REFUSED(ibv_create_counters(r.ctx, &counters), EOPNOTSUPP);
	rig_close(&r);
}

void no_negotiation(int argc, char **argv)
{
	struct ibv_ece ece = { .vendor_id = 7, .options = 7, .comp_mask = 1 };
	struct rig r;

	rig_open(&r);
	RETURNS(ibv_set_ece(r.qp, &ece), EINVAL);
	ece.comp_mask = 0;
	RETURNS(ibv_set_ece(r.qp, &ece), 0);
	NEED(ece.options == 0); /* accepted: none */
	ece.options = 7;
	RETURNS(ibv_query_ece(r.qp, &ece), 0);
	NEED(!ece.vendor_id && !ece.options && !ece.comp_mask);
	rig_close(&r);
}

static uint32_t rate_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	RETURNS(ibv_query_qp(qp, &attr, IBV_QP_RATE_LIMIT, &init), 0);
	return attr.rate_limit;
}

void rate_limits(int argc, char **argv)
{
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1000 };
	struct ibv_device_attr_ex device;
	struct ibv_qp *qp;
	struct rig r;

	rig_open(&r);
	RETURNS(ibv_query_device_ex(r.ctx, NULL, &device), 0);
	NEED(device.packet_pacing_caps.supported_qpts & 1u << IBV_QPT_RC);
	qp = kit_qp(r.pd, r.cq, NULL);
	RETURNS(ibv_modify_qp_rate_limit(qp, &rate), EINVAL); /* it does not send */
	kit_connect(qp, qp);
	NEED(rate_of(qp) == 0);
	RETURNS(ibv_modify_qp_rate_limit(qp, &rate), 0);
	NEED(rate_of(qp) == 1000);
	rate = (struct ibv_qp_rate_limit_attr){ .max_burst_sz = 1 };
	RETURNS(ibv_modify_qp_rate_limit(qp, &rate), EINVAL); /* bursts of no rate */
	rate = (struct ibv_qp_rate_limit_attr){ .rate_limit = 5, .comp_mask = 1 };
	RETURNS(ibv_modify_qp_rate_limit(qp, &rate), EINVAL);
	rate = (struct ibv_qp_rate_limit_attr){ .rate_limit = device.packet_pacing_caps.qp_rate_limit_max,
		.max_burst_sz = 4096, .typical_pkt_sz = 1024 };
	RETURNS(ibv_modify_qp_rate_limit(qp, &rate), 0);
	NEED(rate_of(qp) == rate.rate_limit);
	rate = (struct ibv_qp_rate_limit_attr){ .rate_limit = 0 };
	RETURNS(ibv_modify_qp_rate_limit(qp, &rate), 0);
	NEED(rate_of(qp) == 0);
	NEED(ibv_destroy_qp(qp) == 0);
	rig_close(&r);
}

static void xrc_connect(struct ibv_qp *sender, struct ibv_qp *target)
{
	struct kit_address here = kit_address(sender->context);

	for (unsigned i = 0; i < 2; i++) {
		struct ibv_qp *qp = i ? target : sender;
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024,
			.dest_qp_num = (i ? sender : target)->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
			.ah_attr = { .dlid = here.lid, .port_num = 1 }, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7 };
		int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
		int rts = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;

		RETURNS(ibv_modify_qp(qp, &attr,
				IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS), 0);
		attr.qp_state = IBV_QPS_RTR;
		RETURNS(ibv_modify_qp(qp, &attr, rtr | (i ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)), 0);
		attr.qp_state = IBV_QPS_RTS;
		RETURNS(ibv_modify_qp(qp, &attr,
				rts | (i ? 0 : IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)), 0);
	}
}

/* An initiator, a target that is opened by its number as well, and an SRQ that is named by its own. */
void reliable_connections_that_share(int argc, char **argv)
{
	struct ibv_xrcd_init_attr xrcd_attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1,
		.oflags = O_CREAT };
	struct ibv_srq_init_attr basic = { .attr = { .max_wr = 4, .max_sge = 1 } };
	uint8_t memory[64] = { 0 };
	uint32_t number;
	struct rig r;

	rig_open(&r);

	struct ibv_xrcd *xrcd = ibv_open_xrcd(r.ctx, &xrcd_attr);
	struct ibv_srq *plain = ibv_create_srq(r.pd, &basic);
	struct ibv_srq_init_attr_ex srq_attr = { .attr = { .max_wr = 4, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC, .pd = r.pd,
		.xrcd = xrcd, .cq = r.cq, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ };
	struct ibv_srq *srq = ibv_create_srq_ex(r.ctx, &srq_attr);
	struct ibv_qp_init_attr_ex target_attr = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd };
	struct ibv_qp_init_attr_ex sender_attr = { .qp_type = IBV_QPT_XRC_SEND, .send_cq = r.cq, .pd = r.pd,
		.cap = { .max_send_wr = 4, .max_send_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND };
	struct ibv_qp *target = ibv_create_qp_ex(r.ctx, &target_attr), *sender = ibv_create_qp_ex(r.ctx, &sender_attr);
	struct ibv_mr *mr = ibv_reg_mr(r.pd, memory, sizeof(memory), KIT_ACCESS);

	NEED(xrcd && plain && srq && target && sender && mr && ibv_get_srq_num(srq, &number) == 0);
	NEED(ibv_get_srq_num(plain, &number) != 0 && ibv_get_srq_num(srq, &number) == 0);

	struct ibv_qp_open_attr open = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = target->qp_num, .xrcd = xrcd, .qp_type = IBV_QPT_XRC_RECV };
	struct ibv_qp *again = ibv_open_qp(r.ctx, &open);

	NEED(again && again->qp_num == target->qp_num);
	xrc_connect(sender, target);
	memcpy(memory, "shared", 6);

	struct ibv_sge sge = { (uintptr_t)memory + 32, 32, mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 9, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(sender);

	RETURNS(ibv_post_srq_recv(srq, &recv, &bad), 0);
	ibv_wr_start(ex);
	ex->wr_id = 3;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_xrc_srqn(ex, number);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 6);
	RETURNS(ibv_wr_complete(ex), 0);
	for (unsigned seen = 0; seen != 3;) {
		struct ibv_wc wc = kit_wait(r.cq);

		NEED(wc.status == IBV_WC_SUCCESS && (wc.wr_id == 3 || (wc.wr_id == 9 && wc.byte_len == 6)));
		seen |= wc.wr_id == 3 ? 1 : 2;
	}
	NEED(memcmp(memory + 32, "shared", 6) == 0);
	NEED(ibv_close_xrcd(xrcd) == EBUSY);
	NEED(ibv_destroy_qp(sender) == 0 && ibv_destroy_qp(again) == 0 && ibv_destroy_qp(target) == 0);
	NEED(ibv_destroy_srq(srq) == 0 && ibv_destroy_srq(plain) == 0 && ibv_close_xrcd(xrcd) == 0);
	NEED(ibv_dereg_mr(mr) == 0);
	rig_close(&r);
}

void no_tags(int argc, char **argv)
{
	struct ibv_srq_init_attr_ex srq = { .attr = { .max_wr = 1, .max_sge = 1 }, .srq_type = IBV_SRQT_TM };
	struct ibv_srq_init_attr basic = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_ops_wr ops = { .opcode = IBV_WR_TAG_SYNC }, *bad;
	struct rig r;

	rig_open(&r);
	srq.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	srq.pd = r.pd;
	REFUSED(ibv_create_srq_ex(r.ctx, &srq), EINVAL); /* without a CQ and the size of its list */

	struct ibv_srq *plain = ibv_create_srq(r.pd, &basic);

	NEED(plain);
	RETURNS(ibv_post_srq_ops(plain, &ops, &bad), EINVAL);
	NEED(ibv_destroy_srq(plain) == 0);
	rig_close(&r);
}
