/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stands for <infiniband/verbs.h> of rdma-core 65: what version 44 has, and what came since that client/abi/ defines or must
 * refuse, declared as there.
 */
#include_next <infiniband/verbs.h>

#ifndef NEWER_VERBS_H
#define NEWER_VERBS_H

#define IBV_WR_FLUSH		     14
#define IBV_QP_EX_WITH_FLUSH	     (1u << 11)
#define IBV_ACCESS_FLUSH_GLOBAL	     (1u << 8)
#define IBV_ACCESS_FLUSH_PERSISTENT  (1u << 9)

struct ibv_buf;
struct ibv_comp_cntr {
	struct ibv_context *context;
};
struct ibv_comp_cntr_caps {
	uint64_t max_value;
	uint32_t max_counters, supported_qp_attach_ops;
};
struct ibv_comp_cntr_init_attr {
	uint32_t comp_mask;
};
struct ibv_dmah {
	struct ibv_context *context;
};
struct ibv_dmah_init_attr {
	uint32_t comp_mask;
};
struct ibv_mr_init_attr {
	size_t length;
};
struct ibv_qp_attach_comp_cntr_attr {
	uint32_t comp_mask, op_mask;
};

struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *init);
struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct ibv_dmah_init_attr *attr);
int ibv_dealloc_dmah(struct ibv_dmah *dmah);
int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm);
int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *port_speed);
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
void ibv_free_buf(struct ibv_buf *buf);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length, int access);
int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf);
int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps, size_t caps_size);
struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context, struct ibv_comp_cntr_init_attr *attr);
int ibv_destroy_comp_cntr(struct ibv_comp_cntr *comp_cntr);
int ibv_inc_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t amount);
int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t amount);
int ibv_qp_attach_comp_cntr(
	struct ibv_qp *qp, struct ibv_comp_cntr *comp_cntr, struct ibv_qp_attach_comp_cntr_attr *attr);
int ibv_read_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t *value);
int ibv_read_err_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t *value);
int ibv_set_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t value);
int ibv_set_err_comp_cntr(struct ibv_comp_cntr *comp_cntr, uint64_t value);

#endif
