/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Parts of the runtime that are not written yet, so that the library links. This file shrinks to nothing.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "client/soft/copy.h"
#include "client/soft/cq.h"
#include "client/soft/mr.h"
#include "client/soft/qp.h"
#include "client/soft/rt.h"
#include "client/soft/wire.h"

int rt_start(void) { return -ENOSYS; }
void rt_stop(void) {}
bool rt_is_child(void) { return false; }
struct vsd_page *rt_page(void) { return NULL; }
uint32_t rt_peer_id(void) { return 0; }
uint32_t rt_qpn_owner(uint32_t qpn) { return 0; }
void rt_count(enum vsd_counter counter, uint64_t n) {}
bool rt_progress(void) { return false; }
void rt_idle_poll(void) {}
bool rt_in_progress_thread(void) { return false; }
void rt_run_later(struct soft_qp *qp) {}
void rt_forget_qp(struct soft_qp *qp) {}
void rt_timer_set(struct soft_timer *timer, uint64_t deadline) {}
void rt_timer_clear(struct soft_timer *timer) {}
void rt_timer_cancel(struct soft_timer *timer) {}
uint64_t rt_now(void) { return 0; }
int rt_block(int fd) { return 0; }
int rt_qp_insert(struct soft_qp *qp, uint32_t qpn) { return 0; }
void rt_qp_remove(uint32_t qpn) {}
struct soft_qp *rt_qp_get(uint32_t qpn) { return NULL; }
void rt_qp_put(struct soft_qp *qp) {}
void rt_resolve(struct soft_context *ctx, uint32_t qpn, uint32_t peer, uint16_t dlid, const union ibv_gid *dgid) {}

void wire_look(struct wire *wire) {}
int wire_req_space(struct wire *wire) { return 0; }
void wire_req_put(struct wire *wire, const struct vsd_req *head, const void *payload, int chunk) {}
unsigned wire_req_slots(const struct wire *wire, const struct vsd_req *head, size_t len) { return 0; }
int wire_req_peek(struct wire *wire, struct vsd_req *head) { return 0; }
const void *wire_req_payload(struct wire *wire, const struct vsd_req *head, void *buf) { return buf; }
void wire_req_consume(struct wire *wire, const struct vsd_req *head) {}
int wire_resp_space(struct wire *wire) { return 0; }
void wire_resp_put(struct wire *wire, const struct vsd_resp *resp, int chunk) {}
int wire_resp_peek(struct wire *wire, struct vsd_resp *resp) { return 0; }
const void *wire_resp_payload(struct wire *wire, const struct vsd_resp *resp) { return resp->data; }
void wire_resp_consume(struct wire *wire) {}
void wire_ack(struct wire *wire, uint64_t acked) {}
void wire_resp_ack(struct wire *wire) {}
uint64_t wire_acked(const struct wire *wire) { return 0; }
void wire_want_space(struct wire *wire) {}
void wire_notify(struct wire *wire) {}
void wire_notify_space(struct wire *wire) {}
void wire_kick(struct wire *wire) {}
int pair_chunk_get(struct pair *pair, enum pool_kind kind, struct soft_qp *waiter) { return -1; }
void pair_chunk_put(struct pair *pair, enum pool_kind kind, int chunk) {}
void *pair_chunk(struct pair *pair, enum pool_kind kind, int chunk) { return NULL; }
void pair_forget_waiter(struct soft_qp *qp) {}
struct vsd_hazard *pair_hazard_enter(struct pair *pair, uint32_t key, uint32_t peer_qpn) { return NULL; }
void pair_hazard_leave(struct pair *pair, struct vsd_hazard *hazard) {}
bool pair_hazards_clear(uint32_t key, uint32_t qpn) { return true; }
void wire_close(struct wire *wire) {}
void wire_release(struct wire *wire) {}

int mr_open(struct soft_mr *mr) { return 0; }
int mr_close(struct soft_mr *mr) { return 0; }
int mr_probe(const void *addr, size_t length, bool write) { return 0; }
int mr_ref(uint32_t key, const struct soft_pd *pd, const struct soft_qp *qp, uint64_t addr, uint64_t length,
	   unsigned access, bool remote, struct mr_ref *ref, void **ptr) { return -EINVAL; }
void mr_unref(struct mr_ref *ref) {}
int mw_open(struct soft_mw *mw) { return 0; }
int mw_close(struct soft_mw *mw) { return 0; }
int mw_bind(struct soft_mw *mw, struct soft_qp *qp, uint32_t rkey, const struct ibv_mw_bind_info *info) { return -EINVAL; }
int key_invalidate(uint32_t key, const struct soft_qp *qp, bool remote) { return -EINVAL; }
int mr_peer_check(const struct vsd_page *page, uint32_t rkey, uint64_t addr, uint64_t length, unsigned access,
		  uint32_t peer_qpn, uint32_t my_qpn, uint64_t *remote_addr) { return -EINVAL; }
void qp_gate_open(uint32_t qpn, unsigned access, uint32_t pd_handle, uint32_t peer_qpn) {}
void qp_gate_close(uint32_t qpn) {}

int soft_cq_init(struct soft_cq *cq, uint32_t cqe, bool single_threaded) { return -ENOSYS; }
void soft_cq_deinit(struct soft_cq *cq) {}
int soft_cq_resize(struct soft_cq *cq, uint32_t cqe) { return -ENOSYS; }
int soft_cq_fill_ex(struct soft_cq *cq, uint64_t wc_flags) { return -ENOSYS; }
void soft_cq_push(struct soft_cq *cq, const struct soft_cqe *cqe) {}
void soft_cq_purge(struct soft_cq *cq, const struct soft_qp *qp) {}
int soft_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc) { return 0; }
int soft_req_notify_cq(struct ibv_cq *cq, int solicited_only) { return 0; }
int soft_channel_init(struct soft_channel *channel) { return -ENOSYS; }
void soft_channel_deinit(struct soft_channel *channel) {}
int soft_channel_get(struct soft_channel *channel, struct ibv_cq **cq, void **cq_context) { return -1; }
void soft_cq_ack(struct soft_cq *cq, unsigned n) {}
void soft_cq_drain_events(struct soft_cq *cq) {}

int soft_async_init(struct soft_async *async) { return -ENOSYS; }
void soft_async_deinit(struct soft_async *async) {}
void soft_async_raise(struct soft_async *async, enum ibv_event_type type, void *object, int port) {}
int soft_async_get(struct soft_async *async, struct ibv_async_event *event) { return -1; }
void soft_async_drop(struct soft_async *async, void *object) {}
void soft_async_ack(struct soft_async *async, const struct ibv_async_event *event) {}

int copy_to_program(void *dst, const void *src, size_t n) { memcpy(dst, src, n); return 0; }
int copy_from_program(void *dst, const void *src, size_t n) { memcpy(dst, src, n); return 0; }
void copy_ordered(void *dst, const void *src, size_t n) { memcpy(dst, src, n); }
