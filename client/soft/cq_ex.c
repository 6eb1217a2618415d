/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Extended polling. The CQE is copied out and the CQ's lock let go before start_poll() returns: programs post between
 * start_poll() and end_poll(), and a post may queue a completion. poll_lock keeps two pollers apart, where
 * the program did not promise that there is one.
 */
#include <errno.h>
#include <time.h>

#include "client/soft/cq.h"
#include "client/soft/cq_private.h"
#include "client/soft/rt.h"

static struct soft_cq *of(struct ibv_cq_ex *current)
{
	return soft_container(current, struct soft_cq, v.cq_ex);
}

static void show_current(struct soft_cq *cq)
{
	cq->v.cq_ex.status = cq->current.wc.status;
	cq->v.cq_ex.wr_id = cq->current.wc.wr_id;
}

static int start_poll(struct ibv_cq_ex *current, struct ibv_poll_cq_attr *attr)
{
	struct soft_cq *cq = of(current);

	if (attr->comp_mask)
		return EINVAL;
	if (rt_foreign(cq->ctx))
		return EIO;
	if (!cq->single)
		soft_lock(&cq->poll_lock);
	if (!cq_pop_progress(cq, &cq->current)) {
		if (!cq->single)
			soft_unlock(&cq->poll_lock);
		return ENOENT;
	}
	show_current(cq);
	return 0;
}

static int next_poll(struct ibv_cq_ex *current)
{
	struct soft_cq *cq = of(current);

	if (rt_foreign(cq->ctx)) /* forked between the two */
		return EIO;
	if (!cq_pop(cq, &cq->current))
		return ENOENT;
	show_current(cq);
	return 0;
}

static void end_poll(struct ibv_cq_ex *current)
{
	struct soft_cq *cq = of(current);

	if (!cq->single && !rt_foreign(cq->ctx))
		soft_unlock(&cq->poll_lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *current)
{
	return of(current)->current.wc.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *current)
{
	return of(current)->current.wc.vendor_err;
}

static unsigned read_wc_flags(struct ibv_cq_ex *current)
{
	return of(current)->current.wc.wc_flags;
}

static uint32_t read_byte_len(struct ibv_cq_ex *current)
{
	return of(current)->current.wc.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *current)
{
	return of(current)->current.wc.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *current)
{
	return of(current)->current.wc.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *current)
{
	return of(current)->current.wc.src_qp;
}

static uint32_t read_slid(struct ibv_cq_ex *current)
{
	return of(current)->current.wc.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *current)
{
	return of(current)->current.wc.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *current)
{
	return of(current)->current.wc.dlid_path_bits;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *current)
{
	return of(current)->current.timestamp;
}

/* The timestamp is of the raw clock; the wall clock is what it shows now, less the time that passed since. */
static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *current)
{
	struct timespec wall, raw;

	clock_gettime(CLOCK_MONOTONIC_RAW, &raw);
	clock_gettime(CLOCK_REALTIME, &wall);

	uint64_t age = (uint64_t)raw.tv_sec * 1000000000u + (uint64_t)raw.tv_nsec - of(current)->current.timestamp;

	return (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec - age;
}

/* The tag is the program's own where nothing was matched. */
static void read_tm_info(struct ibv_cq_ex *current, struct ibv_wc_tm_info *info)
{
	const struct soft_cqe *cqe = &of(current)->current;
	bool matched = cqe->wc.opcode == IBV_WC_TM_RECV && cqe->wc.wc_flags & IBV_WC_TM_MATCH;

	info->tag = matched ? cqe->tag : 0;
	info->priv = matched ? cqe->wc.src_qp : 0;
}

int soft_cq_fill_ex(struct soft_cq *cq, uint64_t wc_flags)
{
	struct ibv_cq_ex *ex = &cq->v.cq_ex;
	const uint64_t known = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK | IBV_WC_EX_WITH_TM_INFO;

	if (wc_flags & ~known)
		return -EOPNOTSUPP;
	cq->wc_flags = wc_flags;
	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_wc_flags = read_wc_flags;
	ex->read_byte_len = wc_flags & IBV_WC_EX_WITH_BYTE_LEN ? read_byte_len : NULL;
	/* Also the invalidated rkey, which has no flag of its own. */
	ex->read_imm_data = read_imm_data;
	ex->read_qp_num = wc_flags & IBV_WC_EX_WITH_QP_NUM ? read_qp_num : NULL;
	ex->read_src_qp = wc_flags & IBV_WC_EX_WITH_SRC_QP ? read_src_qp : NULL;
	ex->read_slid = wc_flags & IBV_WC_EX_WITH_SLID ? read_slid : NULL;
	ex->read_sl = wc_flags & IBV_WC_EX_WITH_SL ? read_sl : NULL;
	ex->read_dlid_path_bits = wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS ? read_dlid_path_bits : NULL;
	ex->read_completion_ts = wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP ? read_completion_ts : NULL;
	ex->read_completion_wallclock_ns = wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK ?
						   read_completion_wallclock_ns : NULL;
	ex->read_tm_info = wc_flags & IBV_WC_EX_WITH_TM_INFO ? read_tm_info : NULL;
	return 0;
}
