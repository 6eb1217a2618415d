/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Public functions that came after version 44 of rdma-core, up to IBVERBS_1.18. All are declared here as the newer headers
 * declare them, so that one source serves both: with older headers their structs are names without contents, with newer ones
 * these are the same declarations once more.
 */
#ifndef CLIENT_ABI_NEWER_H
#define CLIENT_ABI_NEWER_H

#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

struct ibv_buf;
struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wredundant-decls"

/* IBVERBS_1.15 */
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *init);
struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct ibv_dmah_init_attr *init);
int ibv_dealloc_dmah(struct ibv_dmah *dmah);

/* IBVERBS_1.16 */
int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm);
int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed);

/* IBVERBS_1.17 */
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
void ibv_free_buf(struct ibv_buf *buf);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length, int access);

/* IBVERBS_1.18 */
int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf);
int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct ibv_comp_cntr_caps *caps, size_t size);
struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context, struct ibv_comp_cntr_init_attr *init);
int ibv_destroy_comp_cntr(struct ibv_comp_cntr *counter);
int ibv_inc_comp_cntr(struct ibv_comp_cntr *counter, uint64_t n);
int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t n);
int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct ibv_comp_cntr *counter, struct ibv_qp_attach_comp_cntr_attr *attr);
int ibv_read_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);
int ibv_read_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value);
int ibv_set_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);
int ibv_set_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value);

#pragma GCC diagnostic pop

#endif
