/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ibv_import_device(), ibv_import_pd(), ibv_import_mr() and their ends, in the process that has the originals and in one
 * that was handed the fd. One case a run (see ends.h).
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "client/verbsd.h"
#include "tests/e2e/counted.h"
#include "tests/e2e/ends.h"

#define SIZE 65536u

static struct ibv_context *import(const struct ibv_context *ctx)
{
	int fd = fcntl(ctx->cmd_fd, F_DUPFD_CLOEXEC, 0);
	struct ibv_context *imported;

	NEED(fd >= 0);
	imported = ibv_import_device(fd);
	NEED(imported);
	NEED(imported->cmd_fd == fd); /* ours until it is closed */
	return imported;
}

static bool is_readable(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	return poll(&poll_fd, 1, 0) == 1 && poll_fd.revents == POLLIN;
}

/* --- contexts ------------------------------------------------------------------------------------------------------- */

static void a_context_here(void)
{
	struct ibv_context *keeper = end_device(); /* so that the runtime's fds are there before and after */
	unsigned before = open_fds();
	struct ibv_context *ctx = end_device(), *imported = import(ctx);
	struct ibv_device_attr attr;
	struct ibv_port_attr port;

	NEED(imported != ctx && imported->device == ctx->device && imported->ops.post_send == ctx->ops.post_send);
	NEED(imported->async_fd >= 0 && imported->async_fd != ctx->async_fd);
	NEED(is_readable(imported->cmd_fd) && !is_readable(imported->async_fd));
	NEED(ibv_query_device(imported, &attr) == 0 && ibv_query_port(imported, 1, &port) == 0);
	/* The import stays when the original is closed, and can be imported in turn. */
	NEED(ibv_close_device(ctx) == 0);
	ctx = import(imported);
	NEED(ibv_close_device(imported) == 0);
	NEED(ibv_query_device(ctx, &attr) == 0);

	struct ibv_pd *pd = ibv_alloc_pd(ctx);

	NEED(pd && ibv_dealloc_pd(pd) == 0);
	NEED(ibv_close_device(ctx) == 0);
	NEED(open_fds() == before);
	NEED(ibv_close_device(keeper) == 0);
}

static int file_of(const void *bytes, size_t n, int seals)
{
	int fd = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	NEED(fd >= 0 && write(fd, bytes, n) == (ssize_t)n && fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

/* Each is refused with @error, and stays the caller's. */
static void refused(int fd, int error)
{
	REFUSED(ibv_import_device(fd), error);
	NEED(fcntl(fd, F_GETFD) >= 0);
	close(fd);
}

static void what_is_no_context(void)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	uint8_t nonce[33] = { 1, 2, 3 };
	struct verbsd_mr_attr attr = { .size = SIZE };
	int fds[2];
	struct end end;

	end_open(&end);

	struct ibv_mr *mr = verbsd_alloc_mr(end.pd, &attr);

	NEED(mr);
	REFUSED(ibv_import_device(-1), EBADF);
	REFUSED(ibv_import_device(999999), EBADF);
	NEED(pipe(fds) == 0);
	refused(fds[0], EINVAL);
	refused(fds[1], EINVAL);
	refused(open("/etc/passwd", O_RDONLY), EINVAL);
	refused(open("/", O_RDONLY | O_DIRECTORY), EINVAL);
	refused(file_of(nonce, 32, 0), EINVAL);
	refused(file_of(nonce, 32, F_SEAL_SHRINK | F_SEAL_GROW), EINVAL);
	refused(file_of(nonce, 31, seals), EINVAL);
	refused(file_of(nonce, 33, seals), EINVAL);
	/* Of the right kind, but nobody's. */
	refused(file_of(nonce, 32, seals), EACCES);
	refused(verbsd_export_mr_fd(mr, 0), EACCES);
	REFUSED(verbsd_import_mr_fd(end.pd, end.ctx->cmd_fd, 0), EACCES);
	/* A device, but not one of RDMA: the real library's to refuse. */
	NEED(!ibv_import_device(open("/dev/null", O_RDONLY)));
	NEED(ibv_dereg_mr(mr) == 0);

	/* A context that is closed is nobody's either. */
	int stale = fcntl(end.ctx->cmd_fd, F_DUPFD_CLOEXEC, 0);
	struct ibv_context *other = end_device();

	end_close(&end);
	refused(stale, EACCES);
	NEED(ibv_close_device(other) == 0);
}

/* --- PDs ------------------------------------------------------------------------------------------------------------ */

static struct ibv_mr *reg(struct ibv_pd *pd, void *memory)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, SIZE, ALL_ACCESS);

	NEED(mr);
	return mr;
}

static void *memory_new(void)
{
	void *memory = aligned_alloc(4096, SIZE);

	NEED(memory);
	memset(memory, 0, SIZE);
	return memory;
}

static enum ibv_wc_status write_from(struct end *end, const struct ibv_mr *from, const void *memory, const void *to, uint32_t rkey)
{
	return end_work(end, &(struct work){ IBV_WR_RDMA_WRITE, (uintptr_t)memory, SIZE, from->lkey, (uintptr_t)to, rkey });
}

/* One PD by two pointers: MRs of either go with QPs of either, whose own are dereg'd and destroyed where they came from. */
static void a_pd_here(void)
{
	struct ibv_context *ctx = end_device(), *imported = import(ctx);
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *same = ibv_import_pd(imported, pd->handle);
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	struct end a = { .ctx = ctx, .pd = pd }, b = { .ctx = imported, .pd = same };
	uint8_t *first = memory_new(), *second = memory_new();

	NEED(same && same != pd && same->handle == pd->handle && same->context == imported && other);
	REFUSED(ibv_import_pd(imported, 0), EINVAL);
	REFUSED(ibv_import_pd(imported, 99999), EINVAL);
	end_pair(&a, &b);

	/* Each by the other's QP: the lkey on one side, the rkey on the other. */
	struct ibv_mr *here = reg(pd, first), *there = reg(same, second), *wrong = reg(other, first);

	REFUSED(ibv_import_pd(imported, here->handle), EINVAL);
	memset(first, 1, SIZE);
	NEED(write_from(&b, here, first, second, there->rkey) == IBV_WC_SUCCESS);
	NEED(second[0] == 1 && second[SIZE - 1] == 1);
	memset(second, 2, SIZE);
	NEED(write_from(&a, there, second, first, here->rkey) == IBV_WC_SUCCESS);
	NEED(first[0] == 2 && first[SIZE - 1] == 2);
	/* Another PD is another PD still. */
	NEED(write_from(&a, there, second, first, wrong->rkey) == IBV_WC_REM_ACCESS_ERR);
	/* By either pointer it is in use. */
	NEED(ibv_dealloc_pd(pd) == EBUSY && ibv_dealloc_pd(same) == EBUSY);
	NEED(ibv_dereg_mr(here) == 0 && ibv_dereg_mr(wrong) == 0);
	end_qp_destroy(&a);
	NEED(ibv_dealloc_pd(pd) == EBUSY);
	end_qp_destroy(&b);
	NEED(ibv_dereg_mr(there) == 0);
	NEED(ibv_dealloc_pd(other) == 0);
	/* Whoever is the last destroys it; the other only lets go. */
	NEED(ibv_dealloc_pd(same) == 0);
	NEED(ibv_dealloc_pd(pd) == EINVAL);
	ibv_unimport_pd(pd);
	NEED(ibv_close_device(ctx) == 0 && ibv_close_device(imported) == 0);
	free(first);
	free(second);
}

/* "All verbs that get a protection domain": each keeps it busy, and what belongs together works together. */
static void all_that_a_pd_is_for(void)
{
	struct ibv_context *ctx = end_device(), *imported = import(ctx);
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *same = ibv_import_pd(imported, pd->handle);
	struct end a = { .ctx = imported, .pd = same };
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_alloc_dm_attr dm_init = { .length = 64 };
	struct ibv_port_attr port;
	uint8_t *memory = memory_new();

	NEED(same && ibv_query_port(imported, 1, &port) == 0);

	struct ibv_ah_attr ah_init = { .dlid = port.lid, .port_num = 1 };
	struct ibv_mr *mr = reg(pd, memory), *null = ibv_alloc_null_mr(same);
	struct ibv_mw *mw = ibv_alloc_mw(same, IBV_MW_TYPE_2);
	struct ibv_ah *ah = ibv_create_ah(same, &ah_init);
	struct ibv_srq *srq = ibv_create_srq(same, &srq_init);
	struct ibv_dm *dm = ibv_alloc_dm(imported, &dm_init);

	NEED(null && mw && ah && srq && dm && ah->pd == same && srq->pd == same && mw->pd == same);

	struct ibv_mr *on_dm = ibv_reg_dm_mr(same, dm, 0, 64, ALL_ACCESS | IBV_ACCESS_ZERO_BASED);
	struct ibv_cq *cq = ibv_create_cq(imported, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr qp_init = { .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 } };
	struct ibv_qp *qp = cq ? ibv_create_qp(same, &qp_init) : NULL;

	NEED(on_dm && qp && qp->pd == same && on_dm->pd == same);

	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 5 };
	struct ibv_sge to = { (uintptr_t)memory + 64, 48, mr->lkey }, from = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = &to, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { ah, qp->qp_num, 5 } }, *bad_send;

	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY) == 0);
	attr.qp_state = IBV_QPS_RTR;
	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	attr.qp_state = IBV_QPS_RTS;
	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
	/* A datagram to itself: QP, SRQ and AH of the import, memory of the original. */
	memset(memory, 9, 8);
	NEED(ibv_post_srq_recv(srq, &recv, &bad_recv) == 0 && ibv_post_send(qp, &send, &bad_send) == 0);
	a.cq = cq;
	NEED(end_wait(&a) == IBV_WC_SUCCESS && end_wait(&a) == IBV_WC_SUCCESS && memory[64 + 40] == 9);
	NEED(ibv_destroy_qp(qp) == 0 && ibv_dealloc_pd(pd) == EBUSY);
	NEED(ibv_destroy_srq(srq) == 0 && ibv_dealloc_pd(pd) == EBUSY);
	NEED(ibv_destroy_ah(ah) == 0 && ibv_dealloc_pd(pd) == EBUSY);
	NEED(ibv_dealloc_mw(mw) == 0 && ibv_dealloc_pd(pd) == EBUSY);
	NEED(ibv_dereg_mr(on_dm) == 0 && ibv_dealloc_pd(pd) == EBUSY);
	NEED(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == EBUSY);
	NEED(ibv_dereg_mr(null) == 0 && ibv_dealloc_pd(pd) == 0);
	ibv_unimport_pd(same);
	NEED(ibv_free_dm(dm) == 0 && ibv_destroy_cq(cq) == 0);
	NEED(ibv_close_device(ctx) == 0 && ibv_close_device(imported) == 0);
	free(memory);
}

/* As rdma-core's own test does it: the pointer goes before what stands on it. */
static void a_pd_is_let_go_while_in_use(void)
{
	struct ibv_context *ctx = end_device(), *imported = import(ctx);
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *same = ibv_import_pd(imported, pd->handle);
	struct end a = { .ctx = ctx, .pd = pd }, b = { .ctx = imported, .pd = same };
	uint8_t *first = memory_new(), *second = memory_new();

	NEED(same);
	end_pair(&a, &b);

	struct ibv_mr *here = reg(pd, first), *there = reg(same, second);

	ibv_unimport_pd(same);
	memset(first, 3, SIZE);
	NEED(write_from(&a, here, first, second, there->rkey) == IBV_WC_SUCCESS);
	NEED(second[SIZE - 1] == 3);
	end_qp_destroy(&b);
	NEED(ibv_dereg_mr(there) == 0);
	NEED(ibv_close_device(imported) == 0);
	end_qp_destroy(&a);
	NEED(ibv_dereg_mr(here) == 0);
	NEED(ibv_dealloc_pd(pd) == 0);
	NEED(ibv_close_device(ctx) == 0);
	free(first);
	free(second);
}

static void a_parent_domain_on_it(void)
{
	struct ibv_context *ctx = end_device(), *imported = import(ctx);
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *same = ibv_import_pd(imported, pd->handle);
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_td *td = ibv_alloc_td(imported, &td_attr);
	struct ibv_parent_domain_init_attr attr = { .pd = same, .td = td };
	struct ibv_pd *domain = ibv_alloc_parent_domain(imported, &attr);
	struct end a = { .ctx = ctx, .pd = pd }, b = { .ctx = imported, .pd = domain };
	uint8_t *first = memory_new(), *second = memory_new();

	NEED(same && td && domain);
	REFUSED(ibv_import_pd(imported, domain->handle), EINVAL);
	end_pair(&a, &b);

	struct ibv_mr *here = reg(pd, first), *there = reg(domain, second);

	memset(second, 4, SIZE);
	NEED(write_from(&b, there, second, first, here->rkey) == IBV_WC_SUCCESS);
	NEED(first[SIZE - 1] == 4);
	NEED(ibv_dereg_mr(here) == 0 && ibv_dereg_mr(there) == 0);
	end_qp_destroy(&a);
	end_qp_destroy(&b);
	NEED(ibv_dealloc_pd(same) == EBUSY);
	NEED(ibv_dealloc_pd(domain) == 0 && ibv_dealloc_td(td) == 0);
	ibv_unimport_pd(same);
	NEED(ibv_dealloc_pd(pd) == 0);
	NEED(ibv_close_device(ctx) == 0 && ibv_close_device(imported) == 0);
	free(first);
	free(second);
}

/* The PD is the context's: it does not go with the process's way to it. */
static void the_original_is_closed(void)
{
	unsigned before;
	struct ibv_context *keeper = end_device(), *ctx = end_device(), *imported = import(ctx);
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *same = ibv_import_pd(imported, pd->handle);
	struct end a = { .ctx = imported, .pd = same }, b = a;
	uint8_t *memory = memory_new();

	NEED(same);
	before = open_fds();
	NEED(ibv_close_device(ctx) == 0);
	NEED(open_fds() < before);
	end_pair(&a, &b);

	struct ibv_mr *mr = reg(same, memory);

	NEED(end_work(&a, &(struct work){ IBV_WR_RDMA_WRITE, (uintptr_t)memory, 8, mr->lkey, (uintptr_t)memory + 8,
				 mr->rkey }) == IBV_WC_SUCCESS);
	end_qp_destroy(&a);
	end_qp_destroy(&b);
	NEED(ibv_dereg_mr(mr) == 0);
	/* Programs that deallocate what they closed the device of are answered, too. */
	NEED(ibv_dealloc_pd(pd) == 0);
	NEED(ibv_dealloc_pd(same) == 0);
	NEED(ibv_close_device(imported) == 0);
	NEED(ibv_close_device(keeper) == 0);
	free(memory);
}

/* --- MRs ------------------------------------------------------------------------------------------------------------ */

static void an_mr_here(void)
{
	struct ibv_context *ctx = end_device(), *imported = import(ctx);
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *same = ibv_import_pd(imported, pd->handle), *other = ibv_alloc_pd(imported);
	struct end a = { .ctx = ctx, .pd = pd }, b = { .ctx = imported, .pd = same };
	struct verbsd_mr_attr attr = { .size = SIZE, .access = ALL_ACCESS };
	uint8_t *memory = memory_new();
	struct ibv_mr *mr = reg(pd, memory), *region = verbsd_alloc_mr(pd, &attr);
	struct ibv_mr *again = ibv_import_mr(same, mr->handle), *third = ibv_import_mr(same, mr->handle);
	struct ibv_mr *shared = ibv_import_mr(same, region->handle);

	NEED(again && third && again != mr && again != third);
	NEED(again->lkey == mr->lkey && again->rkey == mr->rkey && again->length == SIZE && !again->addr);
	NEED(again->context == imported && again->pd == same && again->handle == mr->handle);
	/* A region's too: it is the same MR, not another on the same memory. */
	NEED(shared && shared->lkey == region->lkey && shared->rkey == region->rkey && !shared->addr);
	REFUSED(ibv_import_mr(other, mr->handle), EINVAL);
	REFUSED(ibv_import_mr(same, 99999), EINVAL);
	REFUSED(ibv_import_mr(same, pd->handle), EINVAL);
	end_pair(&a, &b);
	memset(memory, 5, SIZE);
	NEED(write_from(&b, again, memory, region->addr, shared->rkey) == IBV_WC_SUCCESS);
	NEED(((uint8_t *)region->addr)[SIZE - 1] == 5);
	/* To let go of a pointer is nothing to the MR: whoever has another uses it on, and so does who has its keys alone. */
	ibv_unimport_mr(third);
	ibv_unimport_mr(shared);
	memset(memory, 6, SIZE);
	NEED(write_from(&b, again, memory, region->addr, region->rkey) == IBV_WC_SUCCESS);
	NEED(((uint8_t *)region->addr)[0] == 6 && ((uint8_t *)region->addr)[SIZE - 1] == 6);
	/* Destroyed through one pointer it is gone for all: those are good for unimporting alone. */
	NEED(ibv_dereg_mr(again) == 0);
	NEED(ibv_dereg_mr(mr) == EINVAL);
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);
	REFUSED(ibv_import_mr(same, mr->handle), EINVAL);
	NEED(write_from(&a, region, region->addr, memory, mr->rkey) == IBV_WC_REM_ACCESS_ERR);
	ibv_unimport_mr(mr);
	end_qp_destroy(&a);
	end_qp_destroy(&b);
	NEED(ibv_dereg_mr(region) == 0);
	NEED(ibv_dealloc_pd(other) == 0);
	ibv_unimport_pd(same);
	NEED(ibv_dealloc_pd(pd) == 0);
	NEED(ibv_close_device(imported) == 0 && ibv_close_device(ctx) == 0);
	free(memory);
}

static void an_imported_mr_is_changed_and_bound(void)
{
	struct ibv_context *ctx = end_device(), *imported = import(ctx);
	struct ibv_pd *pd = ibv_alloc_pd(ctx), *same = ibv_import_pd(imported, pd->handle);
	struct end a = { .ctx = ctx, .pd = pd }, b = { .ctx = imported, .pd = same };
	uint8_t *memory = memory_new();
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE), *again;

	NEED(mr);
	again = ibv_import_mr(same, mr->handle);
	NEED(again);
	end_pair(&a, &b);
	NEED(ibv_rereg_mr(again, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_ACCESS | IBV_ACCESS_MW_BIND) == 0);
	memset(memory, 6, 8);
	NEED(end_work(&a, &(struct work){ IBV_WR_RDMA_WRITE, (uintptr_t)memory, 8, mr->lkey, (uintptr_t)memory + 64,
				 again->rkey }) == IBV_WC_SUCCESS);
	NEED(memory[64] == 6);

	struct ibv_mw *mw = ibv_alloc_mw(same, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.bind_info = { again, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_WRITE },
		.send_flags = IBV_SEND_SIGNALED,
	};

	NEED(mw && ibv_bind_mw(b.qp, mw, &bind) == 0 && end_wait(&b) == IBV_WC_SUCCESS);
	NEED(ibv_dereg_mr(mr) == EBUSY && ibv_dereg_mr(again) == EBUSY);
	NEED(ibv_dealloc_mw(mw) == 0);
	NEED(ibv_dereg_mr(again) == 0);
	ibv_unimport_mr(mr);
	end_qp_destroy(&a);
	end_qp_destroy(&b);
	ibv_unimport_pd(same);
	NEED(ibv_dealloc_pd(pd) == 0);
	NEED(ibv_close_device(imported) == 0 && ibv_close_device(ctx) == 0);
	free(memory);
}

/* --- another process ------------------------------------------------------------------------------------------------ */

struct handles {
	uint32_t pd, plain, region;
	struct verbsd_mr_info info;
};

static struct handles hand_over(int fd, const struct end *end, const struct ibv_mr *plain, struct ibv_mr *region)
{
	struct handles handles = { end->pd->handle, plain->handle, region->handle, { .name = "" } };

	NEED(verbsd_query_mr(region, &handles.info) == 0);
	fd_say(fd, end->ctx->cmd_fd);
	say(fd, &handles, sizeof(handles));
	return handles;
}

static struct handles take_over(int fd, struct end *end)
{
	struct handles handles;

	end->ctx = ibv_import_device(fd_hear(fd));
	NEED(end->ctx);
	hear(fd, &handles, sizeof(handles));
	end->pd = ibv_import_pd(end->ctx, handles.pd);
	NEED(end->pd);
	return handles;
}

/* Imports all that can be, and writes to the parent by what it imported. */
static void importer(int fd, void *arg)
{
	struct end end;
	struct handles handles = take_over(fd, &end);
	struct verbsd_mr_info info;

	REFUSED(ibv_import_mr(end.pd, handles.plain), EOPNOTSUPP);
	REFUSED(ibv_import_mr(end.pd, 99999), EINVAL);

	struct ibv_mr *region = ibv_import_mr(end.pd, handles.region), *again = ibv_import_mr(end.pd, handles.region);

	NEED(region && region->rkey == handles.info.rkey && region->lkey == handles.info.rkey);
	NEED(!region->addr && region->length == SIZE && region->handle == handles.region);
	NEED(again && again->lkey == region->lkey);
	ibv_unimport_mr(again);
	NEED(verbsd_query_mr(region, &info) == 0 && info.base == handles.info.base && info.users == 2);

	uint8_t *memory = (uint8_t *)(uintptr_t)info.base; /* nothing else lies there in this program */

	NEED(memory[0] == 77);
	end_qp(&end);
	end_meet(&end, fd);
	memset(memory, 78, SIZE);
	/* By its own key, the same, within the parent's mapping. */
	NEED(end_work(&end, &(struct work){ IBV_WR_RDMA_WRITE, info.base, 8, region->lkey, info.base + 64, region->rkey }) ==
		IBV_WC_SUCCESS);
	nod(fd);
	nod_wait(fd);
	ibv_unimport_mr(region);
	if (arg) { /* in good order */
		end_qp_destroy(&end);
		ibv_unimport_pd(end.pd);
		NEED(ibv_close_device(end.ctx) == 0);
	}
}

static void importer_orderly(int fd, void *arg)
{
	(void)arg;
	importer(fd, &fd);
}

static void by_another_process(void (*run)(int fd, void *arg))
{
	struct child child = child_start(run, NULL);
	struct verbsd_mr_attr attr = { .size = SIZE, .access = ALL_ACCESS };
	uint8_t *memory = memory_new();
	struct verbsd_mr_info info;
	struct end end;
	int r;

	end_open(&end);

	struct ibv_mr *plain = reg(end.pd, memory), *region = verbsd_alloc_mr(end.pd, &attr);

	NEED(region);
	memset(region->addr, 77, SIZE);
	hand_over(child.fd, &end, plain, region);
	end_meet(&end, child.fd);
	nod_wait(child.fd);
	NEED(((uint8_t *)region->addr)[64] == 78 && ((uint8_t *)region->addr)[SIZE - 1] == 78);
	NEED(verbsd_query_mr(region, &info) == 0 && info.users == 2);
	nod(child.fd);
	child_end(&child);
	NEED(ibv_dereg_mr(region) == 0 && ibv_dereg_mr(plain) == 0);
	end_qp_destroy(&end);
	/* What a process had on the PD that just ended goes a moment after it did; of one that was orderly nothing is left. */
	do
		r = ibv_dealloc_pd(end.pd);
	while (r == EBUSY && run == importer);
	NEED(r == 0 && ibv_close_device(end.ctx) == 0);
	free(memory);
}

static void by_another_process_in_order(void)
{
	by_another_process(importer_orderly);
}

static void by_another_process_that_just_ends(void)
{
	by_another_process(importer);
}

/* The other way round: the child has it first, and goes. */
static void opener(int fd, void *arg)
{
	struct verbsd_mr_attr attr = { .size = SIZE, .access = ALL_ACCESS };
	uint8_t *memory = memory_new();
	struct end end;

	end_open(&end);
	end_qp_destroy(&end);

	struct ibv_mr *plain = reg(end.pd, memory), *region = verbsd_alloc_mr(end.pd, &attr);

	NEED(region);
	memset(region->addr, 79, SIZE);
	hand_over(fd, &end, plain, region);
	nod_wait(fd);
	if (arg) {
		NEED(ibv_dereg_mr(plain) == 0 && ibv_dereg_mr(region) == 0);
		/* The PD is left to whoever imported it. */
		NEED(ibv_close_device(end.ctx) == 0);
		nod(fd);
		nod_wait(fd);
	} else {
		nod(fd);
		(void)pause();
	}
	free(memory);
}

static void opener_orderly(int fd, void *arg)
{
	(void)arg;
	opener(fd, &fd);
}

static void after_the_opener(bool killed)
{
	struct child child = child_start(killed ? opener : opener_orderly, NULL);
	uint8_t *memory = memory_new();
	struct end a, b;
	struct handles handles = take_over(child.fd, &a);
	struct ibv_mr *region = ibv_import_mr(a.pd, handles.region);
	struct verbsd_mr_info info;

	NEED(region);
	nod(child.fd);
	nod_wait(child.fd);
	if (killed)
		child_kill(&child);
	/* Context, PD and region are still there, the region with its key and contents. */
	b = a;
	end_pair(&a, &b);

	struct ibv_mr *mr = reg(a.pd, memory);

	NEED(end_work(&a, &(struct work){ IBV_WR_RDMA_READ, (uintptr_t)memory, SIZE, mr->lkey, handles.info.base,
				 handles.info.rkey }) == IBV_WC_SUCCESS);
	NEED(memory[0] == 79 && memory[SIZE - 1] == 79);
	/* It goes a moment after the process did. */
	do
		NEED(verbsd_query_mr(region, &info) == 0 && info.users <= 2);
	while (info.users != 1);
	REFUSED(ibv_import_mr(a.pd, handles.plain), EINVAL);
	end_qp_destroy(&a);
	end_qp_destroy(&b);
	NEED(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(region) == 0);
	NEED(ibv_dealloc_pd(a.pd) == 0);
	NEED(ibv_close_device(a.ctx) == 0);
	free(memory);
	if (!killed) {
		nod(child.fd);
		child_end(&child);
	}
}

static void after_the_opener_was_killed(void)
{
	after_the_opener(true);
}

static void after_the_opener_closed_it(void)
{
	after_the_opener(false);
}

static const struct end_case cases[] = {
	{ "a-context-here", a_context_here },
	{ "what-is-no-context", what_is_no_context },
	{ "a-pd-here", a_pd_here },
	{ "all-that-a-pd-is-for", all_that_a_pd_is_for },
	{ "a-pd-is-let-go-while-in-use", a_pd_is_let_go_while_in_use },
	{ "a-parent-domain-on-it", a_parent_domain_on_it },
	{ "the-original-is-closed", the_original_is_closed },
	{ "an-mr-here", an_mr_here },
	{ "an-imported-mr-is-changed-and-bound", an_imported_mr_is_changed_and_bound },
	{ "by-another-process-in-order", by_another_process_in_order },
	{ "by-another-process-that-just-ends", by_another_process_that_just_ends },
	{ "after-the-opener-was-killed", after_the_opener_was_killed },
	{ "after-the-opener-closed-it", after_the_opener_closed_it },
};

int main(int argc, char **argv)
{
	return end_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
