/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The handlers: decode, resolve handles, call the core, encode.
 */
#ifndef DAEMON_OP_H
#define DAEMON_OP_H

#include "daemon/dispatch.h"

/* op_session.c */
op_fn op_hello, op_join;
/* op_device.c */
op_fn op_device_list, op_context_open, op_context_attach, op_context_close, op_lease;
/* op_object.c */
op_fn op_pd_alloc, op_pd_import, op_td_alloc, op_parent_domain_alloc, op_mr_reg, op_mr_rereg, op_mr_places,
	op_dm_alloc, op_dm_import,
	op_cq_create, op_cq_resize, op_srq_create, op_srq_modify, op_ah_create, op_mw_alloc, op_destroy, op_in_use;
/* op_qp.c */
op_fn op_qp_create, op_qp_modify, op_segment_get, op_wire_release, op_peer_resolve,
	op_mcast_attach, op_mcast_detach, op_mcast_resolve;
/* op_xrc.c */
op_fn op_xrcd_open, op_qp_open, op_qp_query, op_xrc_connect, op_xrc_report;
/* op_region.c */
op_fn op_region_create, op_region_export, op_region_import, op_region_persist, op_region_release,
	op_region_grant, op_heap_create, op_heap_destroy, op_region_query, op_mr_import, op_native_region;
/* op_native.c */
op_fn op_native_open, op_native_close, op_native_reg, op_native_release, op_native_domain, op_native_wait;
/* op_counters.c */
op_fn op_device_counters;
/* op_list.c */
op_fn op_status, op_list, op_watch;
/* op_admin.c */
op_fn op_reload, op_disconnect;

#endif
