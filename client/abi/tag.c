/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tag matching SRQs: a basic one, with the list of tags beside it. Its QPs are RC and of its own PD, and take no thread
 * domain: a message is matched by whichever thread serves its QP.
 */
#include "client/abi/abi.h"
#include "client/soft/tag.h"

#define MASK                                                                                                            \
	((uint32_t)(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM))

void abi_tag_caps(struct ibv_tm_caps *caps)
{
	*caps = (struct ibv_tm_caps){
		.max_rndv_hdr_size = TAG_HEADER_MAX,
		.max_num_tags = VSD_TAGS_MAX,
		.flags = IBV_TM_CAP_RC,
		.max_ops = TAG_OPS_MAX,
		.max_sge = TAG_SGES,
	};
}

static int check(const struct ibv_context *c, const struct ibv_srq_init_attr_ex *attr)
{
	if (attr->comp_mask & ~MASK)
		return -EOPNOTSUPP;
	if ((attr->comp_mask & MASK) != MASK || !attr->pd || attr->pd->context != c || !attr->cq ||
		attr->cq->context != c)
		return -EINVAL;
	if (!attr->tm_cap.max_num_tags || attr->tm_cap.max_num_tags > VSD_TAGS_MAX || !attr->tm_cap.max_ops ||
		attr->tm_cap.max_ops > TAG_OPS_MAX)
		return -EINVAL;
	/* Its CQ gets completions from whoever serves a QP; a parent domain's SRQ would do without locks. */
	if (soft_lock_td(&soft_cq_of(attr->cq)->lock) || abi_pd_single(soft_pd_of(attr->pd)))
		return -EOPNOTSUPP;
	return 0;
}

struct ibv_srq *abi_create_tag_srq(struct ibv_context *c, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq_init_attr basic = { .srq_context = attr->srq_context, .attr = attr->attr };
	int r = check(c, attr);
	struct ibv_srq *srq;

	if (r < 0)
		return abi_null(-r);
	srq = ibv_create_srq(attr->pd, &basic);
	if (!srq)
		return NULL;
	r = abi_srq_charge(soft_srq_of(srq), basic.attr.max_wr, attr->tm_cap.max_num_tags);
	if (r == 0)
		r = soft_tag_init(soft_srq_of(srq), soft_cq_of(attr->cq), attr->tm_cap.max_num_tags, attr->tm_cap.max_ops);
	if (r < 0) {
		ibv_destroy_srq(srq);
		return abi_null(-r);
	}
	soft_cq_of(attr->cq)->users++;
	attr->attr = basic.attr;
	return srq;
}

void abi_tag_let_go(struct soft_srq *srq)
{
	if (!srq->tags)
		return;
	srq->tags->cq->users--;
	soft_tag_deinit(srq);
}
