/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the real library exports and we do not implement: its interface to its providers, and what programs of 2005
 * were linked against. A library that is bound at its start (providers are) needs each of these names to exist. The
 * names are lists: I(name) has a result of type int or none, P(name) one that is a pointer.
 */
#ifndef CLIENT_SONAME_FORWARD_H
#define CLIENT_SONAME_FORWARD_H

/* In every IBVERBS_PRIVATE_N, as of version 65; a node may offer more than the real library of that time. */
#define FORWARD_PRIVATE(I, P)                                                                                         \
	I(__ioctl_final_num_attrs) I(__verbs_log) P(_verbs_init_and_alloc_context) I(execute_ioctl)                   \
	I(ibv_cmd_advise_mr) I(ibv_cmd_alloc_dm) I(ibv_cmd_alloc_dmah) I(ibv_cmd_alloc_mw) I(ibv_cmd_alloc_pd)        \
	I(ibv_cmd_attach_mcast) I(ibv_cmd_close_xrcd) I(ibv_cmd_create_ah) I(ibv_cmd_create_comp_cntr)                \
	I(ibv_cmd_create_counters) I(ibv_cmd_create_cq) I(ibv_cmd_create_cq_ex) I(ibv_cmd_create_cq_ex2)              \
	I(ibv_cmd_create_flow) I(ibv_cmd_create_flow_action_esp) I(ibv_cmd_create_qp) I(ibv_cmd_create_qp_ex)         \
	I(ibv_cmd_create_qp_ex2) I(ibv_cmd_create_rwq_ind_table) I(ibv_cmd_create_srq) I(ibv_cmd_create_srq_ex)       \
	I(ibv_cmd_create_wq) I(ibv_cmd_dealloc_mw) I(ibv_cmd_dealloc_pd) I(ibv_cmd_dereg_mr) I(ibv_cmd_destroy_ah)    \
	I(ibv_cmd_destroy_comp_cntr) I(ibv_cmd_destroy_counters) I(ibv_cmd_destroy_cq) I(ibv_cmd_destroy_flow)        \
	I(ibv_cmd_destroy_flow_action) I(ibv_cmd_destroy_qp) I(ibv_cmd_destroy_rwq_ind_table)                         \
	I(ibv_cmd_destroy_srq) I(ibv_cmd_destroy_wq) I(ibv_cmd_detach_mcast) I(ibv_cmd_export_dmabuf_fd)              \
	I(ibv_cmd_free_dm) I(ibv_cmd_free_dmah) I(ibv_cmd_get_context) I(ibv_cmd_inc_comp_cntr)                       \
	I(ibv_cmd_inc_err_comp_cntr) I(ibv_cmd_modify_cq) I(ibv_cmd_modify_flow_action_esp) I(ibv_cmd_modify_qp)      \
	I(ibv_cmd_modify_qp_ex) I(ibv_cmd_modify_srq) I(ibv_cmd_modify_wq) I(ibv_cmd_open_qp) I(ibv_cmd_open_xrcd)    \
	I(ibv_cmd_poll_cq) I(ibv_cmd_post_recv) I(ibv_cmd_post_send) I(ibv_cmd_post_srq_recv)                         \
	I(ibv_cmd_qp_attach_comp_cntr) I(ibv_cmd_query_comp_cntr_caps) I(ibv_cmd_query_context)                       \
	I(ibv_cmd_query_device_any) I(ibv_cmd_query_mr) I(ibv_cmd_query_port) I(ibv_cmd_query_port_speed)             \
	I(ibv_cmd_query_qp) I(ibv_cmd_query_srq) I(ibv_cmd_read_comp_cntr) I(ibv_cmd_read_counters)                   \
	I(ibv_cmd_read_err_comp_cntr) I(ibv_cmd_reg_dm_mr) I(ibv_cmd_reg_dmabuf_mr) I(ibv_cmd_reg_mr)                 \
	I(ibv_cmd_reg_mr_ex) I(ibv_cmd_req_notify_cq) I(ibv_cmd_rereg_mr) I(ibv_cmd_resize_cq)                        \
	I(ibv_cmd_set_comp_cntr) I(ibv_cmd_set_err_comp_cntr) P(ibv_dmabuf_heap_alloc)                                \
	I(ibv_dmabuf_heap_cc_shared_init) I(ibv_dmabuf_heap_destroy) I(ibv_dmabuf_heap_free)                          \
	I(ibv_read_ibdev_sysfs_file) P(ibv_wr_opcode_str) I(verbs_init_cq) P(verbs_open_device) I(verbs_set_ops)      \
	I(verbs_uninit_context)

/* IBVERBS_1.0, hidden: with the structs of 2005. */
#define FORWARD_COMPAT(I, P)                                                                                          \
	I(ibv_ack_async_event) I(ibv_ack_cq_events) P(ibv_alloc_pd) I(ibv_attach_mcast) I(ibv_close_device)           \
	P(ibv_create_ah) P(ibv_create_cq) P(ibv_create_qp) P(ibv_create_srq) I(ibv_dealloc_pd) I(ibv_dereg_mr)        \
	I(ibv_destroy_ah) I(ibv_destroy_cq) I(ibv_destroy_qp) I(ibv_destroy_srq) I(ibv_detach_mcast)                  \
	I(ibv_free_device_list) I(ibv_get_async_event) I(ibv_get_cq_event) P(ibv_get_device_guid)                     \
	P(ibv_get_device_list) P(ibv_get_device_name) I(ibv_modify_qp) I(ibv_modify_srq) P(ibv_open_device)           \
	I(ibv_query_device) I(ibv_query_gid) I(ibv_query_pkey) I(ibv_query_port) I(ibv_query_qp) I(ibv_query_srq)     \
	P(ibv_reg_mr) I(ibv_resize_cq)

#endif
