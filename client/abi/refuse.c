/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Public functions that the soft device does not have. All are defined: one that is missing would reach the real
 * library, which follows a private pointer that our contexts do not have. Objects that only a real device can have
 * given (DMAH, completion counters) always go to the real library. Those newer than version 44
 * are declared in newer.h.
 */
#include "client/abi/abi.h"
#include "client/abi/newer.h"

/* --- memory -------------------------------------------------------------------------------------------------------- */

VERBS_API struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *init)
{
	ABI_ENTER_PTR(pd->context, ibv_reg_mr_ex, "IBVERBS_1.15", pd, init);
	return abi_null(EOPNOTSUPP);
}

VERBS_API struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *c, struct ibv_dmah_init_attr *init)
{
	ABI_ENTER_PTR(c, ibv_alloc_dmah, "IBVERBS_1.15", c, init);
	return abi_null(EOPNOTSUPP);
}

VERBS_API int ibv_dealloc_dmah(struct ibv_dmah *dmah)
{
	return REAL_INT(EOPNOTSUPP, ibv_dealloc_dmah, "IBVERBS_1.15", dmah);
}

VERBS_API int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm)
{
	if (abi_ours(dm->context))
		return abi_minus(EOPNOTSUPP);
	return REAL_INT(abi_minus(EOPNOTSUPP), ibv_dm_export_dmabuf_fd, "IBVERBS_1.16", dm);
}

VERBS_API int ibv_query_port_speed(struct ibv_context *c, uint32_t port, uint64_t *speed)
{
	ABI_ENTER_INT(c, ibv_query_port_speed, "IBVERBS_1.16", c, port, speed);
	return abi_errno(-EOPNOTSUPP);
}

/* --- completion counters ------------------------------------------------------------------------------------------- */

VERBS_API int _ibv_query_comp_cntr_caps(struct ibv_context *c, struct ibv_comp_cntr_caps *caps, size_t size)
{
	ABI_ENTER_INT(c, _ibv_query_comp_cntr_caps, "IBVERBS_1.18", c, caps, size);
	return abi_errno(-EOPNOTSUPP);
}

VERBS_API struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *c, struct ibv_comp_cntr_init_attr *attr)
{
	ABI_ENTER_PTR(c, ibv_create_comp_cntr, "IBVERBS_1.18", c, attr);
	return abi_null(EOPNOTSUPP);
}

VERBS_API int ibv_destroy_comp_cntr(struct ibv_comp_cntr *counter)
{
	return REAL_INT(EOPNOTSUPP, ibv_destroy_comp_cntr, "IBVERBS_1.18", counter);
}

VERBS_API int ibv_inc_comp_cntr(struct ibv_comp_cntr *counter, uint64_t n)
{
	return REAL_INT(EOPNOTSUPP, ibv_inc_comp_cntr, "IBVERBS_1.18", counter, n);
}

VERBS_API int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t n)
{
	return REAL_INT(EOPNOTSUPP, ibv_inc_err_comp_cntr, "IBVERBS_1.18", counter, n);
}

VERBS_API int ibv_qp_attach_comp_cntr(
	struct ibv_qp *qp, struct ibv_comp_cntr *counter, struct ibv_qp_attach_comp_cntr_attr *attr)
{
	ABI_ENTER_INT(qp->context, ibv_qp_attach_comp_cntr, "IBVERBS_1.18", qp, counter, attr);
	return abi_errno(-EOPNOTSUPP);
}

VERBS_API int ibv_read_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value)
{
	return REAL_INT(EOPNOTSUPP, ibv_read_comp_cntr, "IBVERBS_1.18", counter, value);
}

VERBS_API int ibv_read_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t *value)
{
	return REAL_INT(EOPNOTSUPP, ibv_read_err_comp_cntr, "IBVERBS_1.18", counter, value);
}

VERBS_API int ibv_set_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value)
{
	return REAL_INT(EOPNOTSUPP, ibv_set_comp_cntr, "IBVERBS_1.18", counter, value);
}

VERBS_API int ibv_set_err_comp_cntr(struct ibv_comp_cntr *counter, uint64_t value)
{
	return REAL_INT(EOPNOTSUPP, ibv_set_err_comp_cntr, "IBVERBS_1.18", counter, value);
}

/* --- what librdmacm converts kernel structs with; nobody has one without the real library ----------------------------- */

void ibv_copy_ah_attr_from_kern(void *dst, void *src);
void ibv_copy_path_rec_from_kern(void *dst, void *src);
void ibv_copy_path_rec_to_kern(void *dst, void *src);
void ibv_copy_qp_attr_from_kern(void *dst, void *src);

VERBS_API void ibv_copy_ah_attr_from_kern(void *dst, void *src)
{
	REAL_VOID(ibv_copy_ah_attr_from_kern, "IBVERBS_1.1", dst, src);
}

VERBS_API void ibv_copy_path_rec_from_kern(void *dst, void *src)
{
	REAL_VOID(ibv_copy_path_rec_from_kern, "IBVERBS_1.0", dst, src);
}

VERBS_API void ibv_copy_path_rec_to_kern(void *dst, void *src)
{
	REAL_VOID(ibv_copy_path_rec_to_kern, "IBVERBS_1.0", dst, src);
}

VERBS_API void ibv_copy_qp_attr_from_kern(void *dst, void *src)
{
	REAL_VOID(ibv_copy_qp_attr_from_kern, "IBVERBS_1.0", dst, src);
}
