/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What each verb refuses of its arguments, and with which errno. Nothing is left behind, and the same call with sound
 * arguments succeeds.
 */
#include <sys/mman.h>

#include "kit.h"

struct rig {
	struct ibv_context *ctx, *other;
	struct ibv_pd *pd, *other_pd;
	struct ibv_cq *cq, *other_cq;
	struct kit_address here;
	uint8_t memory[4096];
};

static void rig_open(struct rig *r)
{
	r->ctx = kit_open();
	r->other = kit_open();
	r->pd = ibv_alloc_pd(r->ctx);
	r->other_pd = ibv_alloc_pd(r->other);
	NEED(r->pd && r->other_pd);
	r->cq = kit_cq(r->ctx, 4);
	r->other_cq = kit_cq(r->other, 4);
	r->here = kit_address(r->ctx);
}

static void rig_close(struct rig *r)
{
	NEED(ibv_destroy_cq(r->cq) == 0 && ibv_destroy_cq(r->other_cq) == 0);
	NEED(ibv_dealloc_pd(r->pd) == 0 && ibv_dealloc_pd(r->other_pd) == 0);
	NEED(ibv_close_device(r->ctx) == 0 && ibv_close_device(r->other) == 0);
}

/* --- queue pairs ---------------------------------------------------------------------------------------------------------- */

static struct ibv_qp_init_attr_ex qp_attr(const struct rig *r)
{
	return (struct ibv_qp_init_attr_ex){
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		/* With the PD alone the header's inline function calls ibv_create_qp(). */
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.pd = r->pd,
	};
}

enum qp_fault {
	QP_RAW_PACKET, QP_DRIVER, QP_TYPE_0, QP_NO_PD, QP_PD_MASK, QP_OTHER_PD, QP_NO_CQ, QP_OTHER_SEND_CQ, QP_OTHER_RECV_CQ,
	QP_OTHER_SRQ, QP_UC_SRQ, QP_MASK, QP_FLAGS, QP_OPS, QP_OPS_OF_TYPE, QP_FAULTS
};

/* The errno, after @a was spoilt. */
static int qp_spoil(struct rig *r, struct ibv_qp_init_attr_ex *a, enum qp_fault fault, struct ibv_srq *srq,
	struct ibv_srq *other_srq)
{
	switch (fault) {
	case QP_RAW_PACKET:
		a->qp_type = IBV_QPT_RAW_PACKET;
		return EOPNOTSUPP;
	case QP_DRIVER:
		a->qp_type = IBV_QPT_DRIVER;
		return EOPNOTSUPP;
	case QP_TYPE_0:
		a->qp_type = (enum ibv_qp_type)0;
		return EOPNOTSUPP;
	case QP_NO_PD:
		a->pd = NULL;
		return EINVAL;
	case QP_PD_MASK:
		a->comp_mask = IBV_QP_INIT_ATTR_CREATE_FLAGS;
		return EINVAL;
	case QP_OTHER_PD:
		a->pd = r->other_pd;
		return EINVAL;
	case QP_NO_CQ:
		a->send_cq = NULL;
		return EINVAL;
	case QP_OTHER_SEND_CQ:
		a->send_cq = r->other_cq;
		return EINVAL;
	case QP_OTHER_RECV_CQ:
		a->recv_cq = r->other_cq;
		return EINVAL;
	case QP_OTHER_SRQ:
		a->srq = other_srq;
		return EINVAL;
	case QP_UC_SRQ: /* ibv_create_qp(3): of a type other than RC or UD */
		a->srq = srq;
		a->qp_type = IBV_QPT_UC;
		return EINVAL;
	case QP_MASK:
		a->comp_mask |= 1u << 30;
		return EOPNOTSUPP;
	case QP_FLAGS:
		a->create_flags = 1u << 30;
		return EOPNOTSUPP;
	case QP_OPS:
		a->comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		a->send_ops_flags = 1ull << 40;
		return EOPNOTSUPP;
	default:
		a->comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		a->send_ops_flags = IBV_QP_EX_WITH_RDMA_READ;
		a->qp_type = IBV_QPT_UD;
		return EOPNOTSUPP;
	}
}

static void queue_pairs(int argc, char **argv)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct rig r;

	rig_open(&r);

	struct ibv_srq *srq = ibv_create_srq(r.pd, &srq_attr), *other_srq = ibv_create_srq(r.other_pd, &srq_attr);

	NEED(srq && other_srq);
	for (int fault = 0; fault < QP_FAULTS; fault++) {
		struct ibv_qp_init_attr_ex attr = qp_attr(&r);
		int want = qp_spoil(&r, &attr, (enum qp_fault)fault, srq, other_srq);

		errno = 0;

		struct ibv_qp *qp = ibv_create_qp_ex(r.ctx, &attr);

		if (qp || errno != want)
			fprintf(stderr, "fault %d: %s\n", fault, qp ? "taken" : strerror(errno));
		NEED(!qp && errno == want);
	}

	struct ibv_qp_init_attr_ex attr = qp_attr(&r);
	struct ibv_qp *qp = ibv_create_qp_ex(r.ctx, &attr);

	NEED(qp);
	/* What it stands on stays. */
	RETURNS(ibv_destroy_cq(r.cq), EBUSY);
	RETURNS(ibv_dealloc_pd(r.pd), EBUSY);
	NEED(ibv_qp_to_qp_ex(qp) == NULL);
	NEED(ibv_destroy_qp(qp) == 0);
	attr.srq = srq;
	qp = ibv_create_qp_ex(r.ctx, &attr);
	NEED(qp && ibv_destroy_srq(srq) == EBUSY && ibv_destroy_qp(qp) == 0);
	NEED(ibv_destroy_srq(srq) == 0 && ibv_destroy_srq(other_srq) == 0);
	rig_close(&r);
}

/* --- completion queues ------------------------------------------------------------------------------------------------------ */

static void completion_queues(int argc, char **argv)
{
	struct rig r;

	rig_open(&r);

	struct ibv_comp_channel *channel = ibv_create_comp_channel(r.ctx), *other = ibv_create_comp_channel(r.other);
	struct ibv_cq_init_attr_ex attr = { .cqe = 1, .channel = channel };
	const struct ibv_cq_init_attr_ex good = attr;
	struct ibv_modify_cq_attr modify = { .attr_mask = 1u << 20 };

	NEED(channel && other);
	attr.comp_mask = 1u << 30;
	REFUSED(ibv_create_cq_ex(r.ctx, &attr), EOPNOTSUPP);
	attr = good;
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	attr.flags = 1u << 30;
	REFUSED(ibv_create_cq_ex(r.ctx, &attr), EOPNOTSUPP);
	attr = good;
	attr.wc_flags = 1ull << 40;
	REFUSED(ibv_create_cq_ex(r.ctx, &attr), EOPNOTSUPP);
	attr = good;
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
	REFUSED(ibv_create_cq_ex(r.ctx, &attr), EINVAL);
	attr.parent_domain = r.pd; /* which is none */
	REFUSED(ibv_create_cq_ex(r.ctx, &attr), EINVAL);
	attr = good;
	attr.channel = other;
	REFUSED(ibv_create_cq_ex(r.ctx, &attr), EINVAL);
	REFUSED(ibv_create_cq(r.ctx, 1, NULL, other, 0), EINVAL);
	attr = good;
	attr.cqe = 0;
	REFUSED(ibv_create_cq_ex(r.ctx, &attr), EINVAL);
	attr = good;

	struct ibv_cq_ex *cq = ibv_create_cq_ex(r.ctx, &attr);

	NEED(cq);
	RETURNS(ibv_destroy_comp_channel(channel), EBUSY);
	RETURNS(ibv_modify_cq(ibv_cq_ex_to_cq(cq), &modify), EINVAL);
	NEED(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
	NEED(ibv_destroy_comp_channel(channel) == 0 && ibv_destroy_comp_channel(other) == 0);
	rig_close(&r);
}

static void shared_receive_queues(int argc, char **argv)
{
	struct rig r;
	struct ibv_srq_init_attr_ex attr = { .attr = { .max_wr = 1, .max_sge = 1 }, .comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE };
	struct ibv_srq_init_attr none = { .attr = { .max_wr = 0, .max_sge = 1 } };

	rig_open(&r);
	REFUSED(ibv_create_srq(r.pd, &none), EINVAL);
	/* No PD. (With both and the basic type the header's inline function calls ibv_create_srq().) */
	attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
	REFUSED(ibv_create_srq_ex(r.ctx, &attr), EINVAL);
	attr.pd = r.pd;
	attr.comp_mask = IBV_SRQ_INIT_ATTR_PD | 1u << 30;
	REFUSED(ibv_create_srq_ex(r.ctx, &attr), EOPNOTSUPP);
	attr.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;
	attr.srq_type = (enum ibv_srq_type)77;
	REFUSED(ibv_create_srq_ex(r.ctx, &attr), EOPNOTSUPP);
	attr.srq_type = IBV_SRQT_BASIC;

	struct ibv_srq *srq = ibv_create_srq_ex(r.ctx, &attr);

	NEED(srq && ibv_dealloc_pd(r.pd) == EBUSY && ibv_destroy_srq(srq) == 0);
	rig_close(&r);
}

/* --- memory -------------------------------------------------------------------------------------------------------------------- */

static void memory_regions(int argc, char **argv)
{
	struct rig r;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	/* As flags that the compiler does not know to be constants. */
	unsigned read_only = 0, write = IBV_ACCESS_LOCAL_WRITE, remote_write = IBV_ACCESS_REMOTE_WRITE,
		 remote_atomic = IBV_ACCESS_REMOTE_ATOMIC, unknown = 1u << 15;

	rig_open(&r);
	NEED(pages != MAP_FAILED && mprotect(pages, page, PROT_READ) == 0 && munmap(pages + page, page) == 0);
	REFUSED(ibv_reg_mr(r.pd, r.memory, 64, (int)unknown), EINVAL);
	REFUSED(ibv_reg_mr(r.pd, r.memory, 64, (int)remote_write), EINVAL);
	REFUSED(ibv_reg_mr(r.pd, r.memory, 64, (int)remote_atomic), EINVAL);
	REFUSED(ibv_reg_mr(r.pd, r.memory, SIZE_MAX, (int)read_only), EINVAL);
	REFUSED(ibv_reg_mr(r.pd, pages, 2 * page, (int)read_only), EFAULT);
	REFUSED(ibv_reg_mr(r.pd, pages, page, (int)write), EACCES);
	REFUSED(ibv_reg_mr_iova(r.pd, r.memory, 64, UINT64_MAX - 8, (int)read_only), EINVAL);

	struct ibv_mr *mr = ibv_reg_mr(r.pd, pages, page, (int)read_only);

	NEED(mr && ibv_dealloc_pd(r.pd) == EBUSY && ibv_dereg_mr(mr) == 0);
	NEED(munmap(pages, page) == 0);
	rig_close(&r);
}

static void memory_windows(int argc, char **argv)
{
	struct rig r;

	rig_open(&r);

	struct ibv_mr *mr = ibv_reg_mr(r.pd, r.memory, sizeof(r.memory), KIT_ACCESS);
	struct ibv_qp *qp = kit_qp(r.pd, r.cq, NULL);
	struct ibv_mw *one = ibv_alloc_mw(r.pd, IBV_MW_TYPE_1), *two = ibv_alloc_mw(r.pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = { .wr_id = 2, .send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = mr, .addr = (uintptr_t)r.memory, .length = 64,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE } };

	NEED(mr && one && two);
	REFUSED(ibv_alloc_mw(r.pd, (enum ibv_mw_type)0), EINVAL);
	REFUSED(ibv_alloc_mw(r.pd, (enum ibv_mw_type)3), EINVAL);
	NEED(ibv_dealloc_pd(r.pd) == EBUSY);
	/* A bind is a work request; type 2 is bound by posting one. */
	RETURNS(ibv_bind_mw(qp, one, &bind), EINVAL);
	kit_connect(qp, qp);
	RETURNS(ibv_bind_mw(qp, two, &bind), EINVAL);
	RETURNS(ibv_bind_mw(qp, one, &bind), 0);
	NEED(kit_wait(r.cq).status == IBV_WC_SUCCESS);
	RETURNS(ibv_dereg_mr(mr), EBUSY);
	NEED(ibv_dealloc_mw(one) == 0 && ibv_dealloc_mw(two) == 0);
	NEED(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
	rig_close(&r);
}

/* --- addresses ------------------------------------------------------------------------------------------------------------------ */

static void addresses(int argc, char **argv)
{
	struct ibv_ah_attr attr, made;
	struct ibv_port_attr port;
	struct ibv_grh grh = { .version_tclass_flow = 0 };
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH };
	union ibv_gid gid;
	struct rig r;

	rig_open(&r);
	NEED(ibv_query_port(r.ctx, 1, &port) == 0);

	const struct ibv_ah_attr good = { .dlid = r.here.lid, .port_num = 1, .is_global = 1, .grh.dgid = r.here.gid };

	attr = good;
	attr.port_num = 0;
	REFUSED(ibv_create_ah(r.pd, &attr), EINVAL);
	attr.port_num = 2;
	REFUSED(ibv_create_ah(r.pd, &attr), EINVAL);
	attr = good;
	attr.sl = 16;
	REFUSED(ibv_create_ah(r.pd, &attr), EINVAL);
	attr = good;
	attr.grh.sgid_index = (uint8_t)port.gid_tbl_len;
	if (port.gid_tbl_len < 256)
		REFUSED(ibv_create_ah(r.pd, &attr), EINVAL);
	/* An entry of the table that is empty. */
	for (int i = 0; i < port.gid_tbl_len && i < 256; i++) {
		static const union ibv_gid zero;

		if (ibv_query_gid(r.ctx, 1, i, &gid) || memcmp(&gid, &zero, sizeof(gid)) != 0)
			continue;
		attr.grh.sgid_index = (uint8_t)i;
		REFUSED(ibv_create_ah(r.pd, &attr), ENODATA);
	}
	/* A completion whose header names no GID of this port, and a port that is none. */
	NEED(ibv_init_ah_from_wc(r.ctx, 1, &wc, &grh, &made) == -1 && errno == EINVAL);
	NEED(ibv_init_ah_from_wc(r.ctx, 2, &wc, &grh, &made) == -1 && errno == EINVAL);
	REFUSED(ibv_create_ah_from_wc(r.pd, &wc, &grh, 2), EINVAL);
	wc.wc_flags = 0;
	wc.slid = r.here.lid;
	NEED(ibv_init_ah_from_wc(r.ctx, 1, &wc, &grh, &made) == 0 && made.dlid == r.here.lid && !made.is_global);

	struct ibv_ah *ah = ibv_create_ah_from_wc(r.pd, &wc, &grh, 1);

	NEED(ah && ibv_dealloc_pd(r.pd) == EBUSY && ibv_destroy_ah(ah) == 0);
	rig_close(&r);
}

/* --- queries, and what only other devices have ----------------------------------------------------------------------------------- */

static void queries(int argc, char **argv)
{
	struct ibv_query_device_ex_input input = { .comp_mask = 1 };
	struct ibv_values_ex values = { .comp_mask = 1u << 20 };
	struct ibv_device_attr_ex attr;
	struct rig r;

	rig_open(&r);
	RETURNS(ibv_query_device_ex(r.ctx, &input, &attr), EINVAL);
	input.comp_mask = 0;
	RETURNS(ibv_query_device_ex(r.ctx, &input, &attr), 0);
	RETURNS(ibv_query_rt_values_ex(r.ctx, &values), EINVAL);
	values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	RETURNS(ibv_query_rt_values_ex(r.ctx, &values), 0);
	NEED(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK && (values.raw_clock.tv_sec || values.raw_clock.tv_nsec));
	rig_close(&r);
}

static void what_other_devices_have(int argc, char **argv)
{
	struct ibv_flow_attr flow = { .num_of_specs = 0, .port = 1, .size = sizeof(flow) };
	struct ibv_flow_action_esp_attr esp = { .comp_mask = 0 };
	struct ibv_wq_init_attr wq = { .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1 };
	struct ibv_rwq_ind_table_init_attr table = { .log_ind_tbl_size = 0 };
	struct rig r;

	rig_open(&r);

	struct ibv_qp *qp = kit_qp(r.pd, r.cq, NULL);

	wq.pd = r.pd;
	wq.cq = r.cq;
	REFUSED(ibv_create_flow(qp, &flow), EOPNOTSUPP);
	REFUSED(ibv_create_flow_action_esp(r.ctx, &esp), EOPNOTSUPP);
	REFUSED(ibv_create_wq(r.ctx, &wq), EOPNOTSUPP);
	REFUSED(ibv_create_rwq_ind_table(r.ctx, &table), EOPNOTSUPP);
	NEED(ibv_destroy_qp(qp) == 0);
	rig_close(&r);
}

int main(int argc, char **argv)
{
	static const struct kit_test tests[] = {
		{ "queue-pairs", queue_pairs },
		{ "completion-queues", completion_queues },
		{ "shared-receive-queues", shared_receive_queues },
		{ "memory-regions", memory_regions },
		{ "memory-windows", memory_windows },
		{ "addresses", addresses },
		{ "queries", queries },
		{ "what-other-devices-have", what_other_devices_have },
		{ NULL, NULL },
	};

	return kit_main(tests, argc, argv);
}
