/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * On-demand paging, as ibv_reg_mr(3) and ibv_advise_mr(3) have it: regions whose memory comes, goes and was never there.
 * Whoever touches what is not there gets an error completion, and no process a signal. One test a run, named by the first
 * argument; status 0, or a line on stderr and status 1.
 */
#include "kit.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define SIZE	((size_t)1 << 20)
#define LARGE	65536
#define DEMAND	(KIT_ACCESS | IBV_ACCESS_ON_DEMAND)
#define READING IBV_ADVISE_MR_ADVICE_PREFETCH
#define WRITING IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
#define WAITING IBV_ADVISE_MR_FLAG_FLUSH

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp, *peer;
	struct ibv_mr *plain, *whole; /* ordinary memory; everything */
	uint8_t *memory;
};

static void side_make(struct side *s)
{
	s->ctx = kit_open();
	NEED(s->pd = ibv_alloc_pd(s->ctx));
	s->cq = kit_cq(s->ctx, 64);
	s->qp = kit_qp(s->pd, s->cq, NULL);
	s->peer = kit_qp(s->pd, s->cq, NULL);
	NEED(s->memory = aligned_alloc(4096, SIZE));
	memset(s->memory, 0x11, SIZE);
	NEED(s->plain = ibv_reg_mr(s->pd, s->memory, SIZE, KIT_ACCESS));
	NEED(s->whole = ibv_reg_mr(s->pd, NULL, SIZE_MAX, DEMAND & ~IBV_ACCESS_MW_BIND));
}

static void side_end(struct side *s)
{
	RETURNS(ibv_destroy_qp(s->qp), 0);
	RETURNS(ibv_destroy_qp(s->peer), 0);
	RETURNS(ibv_dereg_mr(s->plain), 0);
	RETURNS(ibv_dereg_mr(s->whole), 0);
	RETURNS(ibv_destroy_cq(s->cq), 0);
	RETURNS(ibv_dealloc_pd(s->pd), 0);
	RETURNS(ibv_close_device(s->ctx), 0);
	free(s->memory);
}

static uint8_t *pages(int prot)
{
	uint8_t *at = mmap(NULL, SIZE, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	NEED(at != MAP_FAILED);
	return at;
}

/* A range of addresses where nothing is, and where nobody maps anything without being told to. */
static uint8_t *hole(void)
{
	static uintptr_t next = 0x200000000000;
	uint8_t *at = mmap((void *)next, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	NEED(at == (void *)next && munmap(at, SIZE) == 0);
	next += 16 * SIZE;
	return at;
}

static void fill(uint8_t *hole)
{
	NEED(mmap(hole, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == hole);
}

static void drain(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) > 0)
		;
}

/* --- traffic ------------------------------------------------------------------------------------------------------------ */

static const uint32_t lengths[] = { 1, 8, 64, 300, 4096, 5000, LARGE, SIZE / 2 };

/* Each operation between plain memory and @far, at @at of region @mr. */
static void traffic(struct side *s, struct ibv_mr *mr, uint8_t *at)
{
	kit_connect(s->qp, s->peer);
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint32_t n = lengths[i];
		uint8_t *half = s->memory + SIZE / 2;

		memset(s->memory, (int)i + 1, n);
		NEED(kit_run(s->qp, IBV_WR_RDMA_WRITE, s->plain, s->memory, n, (uintptr_t)at, mr->rkey) == IBV_WC_SUCCESS);
		NEED(memcmp(s->memory, at, n) == 0);
		memset(half, 0, n);
		NEED(kit_run(s->qp, IBV_WR_RDMA_READ, s->plain, half, n, (uintptr_t)at, mr->rkey) == IBV_WC_SUCCESS);
		NEED(memcmp(s->memory, half, n) == 0);
		/* Local memory that is on demand, sending and receiving. */
		memset(at, (int)i + 0x40, n);
		kit_message(s->qp, s->peer, mr, at, at + SIZE / 2, n);
		NEED(memcmp(at, at + SIZE / 2, n) == 0);
		NEED(kit_run(s->qp, IBV_WR_RDMA_READ, mr, at, n, (uintptr_t)s->memory, s->plain->rkey) == IBV_WC_SUCCESS);
		NEED(memcmp(s->memory, at, n) == 0);
	}
	*(uint64_t *)(void *)at = 41;
	NEED(kit_run(s->qp, IBV_WR_ATOMIC_FETCH_AND_ADD, s->plain, s->memory, 8, (uintptr_t)at, mr->rkey) == IBV_WC_SUCCESS);
	NEED(*(uint64_t *)(void *)at == 42 && *(uint64_t *)(void *)s->memory == 41);
}

/* Memory that came after it was registered, was exchanged for other memory, and goes. */
static void explicit(int argc, char **argv)
{
	struct side s;
	uint8_t *at;
	struct ibv_mr *mr;

	(void)argc, (void)argv;
	side_make(&s);
	at = hole();
	NEED(mr = ibv_reg_mr(s.pd, at, SIZE, DEMAND));
	NEED(!ibv_reg_mr(s.pd, at, SIZE, KIT_ACCESS) && errno == EFAULT);
	fill(at);
	traffic(&s, mr, at);
	fill(at);
	traffic(&s, mr, at);
	RETURNS(ibv_dereg_mr(mr), 0);
	munmap(at, SIZE);
	side_end(&s);
}

static void implicit(int argc, char **argv)
{
	struct side s;
	uint8_t *at = pages(PROT_READ | PROT_WRITE), *stack = alloca(2 * SIZE), *heap = malloc(SIZE);
	int access[] = { IBV_ACCESS_HUGETLB, IBV_ACCESS_MW_BIND };

	(void)argc, (void)argv;
	side_make(&s);
	traffic(&s, s.whole, at);
	NEED(heap);
	traffic(&s, s.whole, heap);
	traffic(&s, s.whole, (uint8_t *)(((uintptr_t)stack + 7) & ~(uintptr_t)7));
	REFUSED(ibv_reg_mr(s.pd, NULL, SIZE_MAX, KIT_ACCESS), EINVAL);
	REFUSED(ibv_reg_mr_iova(s.pd, NULL, SIZE_MAX, 4096, DEMAND & ~IBV_ACCESS_MW_BIND), EINVAL);
	for (unsigned i = 0; i < 2; i++)
		REFUSED(ibv_reg_mr(s.pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND | access[i]), EINVAL);
	munmap(at, SIZE);
	free(heap);
	side_end(&s);
}

static void of_huge_pages(struct side *s, uint8_t *at, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(s->pd, at, SIZE, access | IBV_ACCESS_HUGETLB);

	NEED(mr);
	traffic(s, mr, at);
	RETURNS(ibv_dereg_mr(mr), 0);
}

/* A hint for the page tables of an adapter: taken of any memory. Where the host has huge pages, of those too. */
static void hugetlb(int argc, char **argv)
{
	struct side s;
	uint8_t *at = pages(PROT_READ | PROT_WRITE);
	size_t length = (size_t)2 << 20;
	void *huge = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	(void)argc, (void)argv;
	side_make(&s);
	of_huge_pages(&s, at, KIT_ACCESS);
	of_huge_pages(&s, at, DEMAND);
	if (huge != MAP_FAILED) {
		of_huge_pages(&s, huge, KIT_ACCESS);
		of_huge_pages(&s, huge, DEMAND);
		munmap(huge, length);
	}
	munmap(at, SIZE);
	side_end(&s);
}

/* --- what is not there --------------------------------------------------------------------------------------------------- */

static void remote_fails(struct side *s, enum ibv_wr_opcode opcode, uint32_t n, const void *at, struct ibv_mr *mr)
{
	enum ibv_wc_status status;

	kit_connect(s->qp, s->peer);
	status = kit_run(s->qp, opcode, s->plain, s->memory, n, (uintptr_t)at, mr->rkey);
	if (status != IBV_WC_REM_ACCESS_ERR) {
		fprintf(stderr, "opcode %d of %u bytes at %p: %s\n", opcode, n, at, ibv_wc_status_str(status));
		_exit(1);
	}
	drain(s->cq);
}

static void local_fails(struct side *s, enum ibv_wr_opcode opcode, uint32_t n, void *at, struct ibv_mr *mr)
{
	enum ibv_wc_status status;

	kit_connect(s->qp, s->peer);
	kit_post_recv(s->peer, s->plain, s->memory + SIZE / 2, SIZE / 2);
	status = kit_run(s->qp, opcode, mr, at, n, (uintptr_t)s->memory, s->plain->rkey);
	if (status != IBV_WC_LOC_PROT_ERR) {
		fprintf(stderr, "opcode %d from %u bytes at %p: %s\n", opcode, n, at, ibv_wc_status_str(status));
		_exit(1);
	}
	drain(s->cq);
}

static void all_fail(struct side *s, uint8_t *at, struct ibv_mr *mr, bool readable)
{
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		remote_fails(s, IBV_WR_RDMA_WRITE, lengths[i], at, mr);
		local_fails(s, IBV_WR_RDMA_READ, lengths[i], at, mr);
		if (readable)
			continue;
		remote_fails(s, IBV_WR_RDMA_READ, lengths[i], at, mr);
		local_fails(s, IBV_WR_RDMA_WRITE, lengths[i], at, mr);
	}
	remote_fails(s, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, at, mr);
	remote_fails(s, IBV_WR_ATOMIC_CMP_AND_SWP, 8, at, mr);
	remote_fails(s, IBV_WR_ATOMIC_WRITE, 8, at, mr);
}

/* Nothing there, something that may not be touched or only read, the last page missing, the end of the world. */
static void absent(int argc, char **argv)
{
	struct side s;
	uint8_t *at = hole(), *none = pages(PROT_NONE), *reading = pages(PROT_READ), *half = pages(PROT_READ | PROT_WRITE);
	struct ibv_mr *mr[4];

	(void)argc, (void)argv;
	side_make(&s);
	NEED(munmap(half + SIZE / 2, SIZE / 2) == 0);
	NEED(mr[0] = ibv_reg_mr(s.pd, at, SIZE, DEMAND));
	NEED(mr[1] = ibv_reg_mr(s.pd, none, SIZE, DEMAND));
	NEED(mr[2] = ibv_reg_mr(s.pd, reading, SIZE, DEMAND));
	NEED(mr[3] = ibv_reg_mr(s.pd, half, SIZE, DEMAND));
	for (unsigned i = 0; i < 2; i++) {
		all_fail(&s, at, i ? s.whole : mr[0], false);
		all_fail(&s, none, i ? s.whole : mr[1], false);
		all_fail(&s, reading, i ? s.whole : mr[2], true);
		remote_fails(&s, IBV_WR_RDMA_WRITE, LARGE, half + SIZE / 2 - LARGE / 2, i ? s.whole : mr[3]);
		remote_fails(&s, IBV_WR_RDMA_READ, LARGE, half + SIZE / 2 - LARGE / 2, i ? s.whole : mr[3]);
		local_fails(&s, IBV_WR_RDMA_WRITE, LARGE, half + SIZE / 2 - LARGE / 2, i ? s.whole : mr[3]);
	}
	remote_fails(&s, IBV_WR_RDMA_WRITE, 8, NULL, s.whole);
	remote_fails(&s, IBV_WR_RDMA_READ, 8, (void *)-9L, s.whole);
	remote_fails(&s, IBV_WR_RDMA_WRITE, 4096, (void *)-5000L, s.whole);
	/* The range is the region's still. */
	remote_fails(&s, IBV_WR_RDMA_WRITE, 8, at + SIZE - 4, mr[0]);
	/* And it has lost nothing: there again, it serves. */
	fill(at);
	traffic(&s, mr[0], at);
	for (unsigned i = 0; i < 4; i++)
		RETURNS(ibv_dereg_mr(mr[i]), 0);
	side_end(&s);
}

/* Between two processes: the one that owns the memory does nothing but poll, or not even that. */
static void processes(int argc, char **argv)
{
	struct {
		struct kit_address address;
		uint32_t qpn, rkey;
		uint8_t *hole, *there;
	} far, near = { .qpn = 0 };
	int down[2], up[2];
	struct side s;
	pid_t pid;
	int status;
	char ready;

	(void)argc, (void)argv;
	NEED(pipe(down) == 0 && pipe(up) == 0);
	pid = fork();
	NEED(pid >= 0);
	close(pid ? down[0] : down[1]);
	close(pid ? up[1] : up[0]);
	side_make(&s);
	near.address = kit_address(s.ctx);
	near.qpn = s.qp->qp_num;
	near.rkey = s.whole->rkey;
	near.hole = hole();
	near.there = pages(PROT_READ | PROT_WRITE);
	NEED(write(pid ? down[1] : up[1], &near, sizeof(near)) == sizeof(near));
	NEED(read(pid ? up[0] : down[0], &far, sizeof(far)) == sizeof(far));
	kit_connect_to(s.qp, far.qpn, &far.address);
	/* Who may do what the peer refuses waits until the peer is in RTS: a QP that is in error already gets there no more. */
	if (pid)
		NEED(read(up[0], &ready, 1) == 1);
	else
		NEED(write(up[1], "", 1) == 1);
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]) && pid; i++) {
		memset(s.memory, (int)i + 1, lengths[i]);
		memset(s.memory + SIZE / 2, 0, lengths[i]);
		NEED(kit_run(s.qp, IBV_WR_RDMA_WRITE, s.plain, s.memory, lengths[i], (uintptr_t)far.there, far.rkey) ==
			IBV_WC_SUCCESS);
		NEED(kit_run(s.qp, IBV_WR_RDMA_READ, s.plain, s.memory + SIZE / 2, lengths[i], (uintptr_t)far.there,
			     far.rkey) == IBV_WC_SUCCESS);
		NEED(memcmp(s.memory, s.memory + SIZE / 2, lengths[i]) == 0);
	}
	if (pid) {
		enum ibv_wc_status got = kit_run(s.qp, IBV_WR_RDMA_WRITE, s.plain, s.memory, LARGE,
			(uintptr_t)far.hole, far.rkey);

		NEED(got == IBV_WC_REM_ACCESS_ERR);
		close(down[1]);
		NEED(waitpid(pid, &status, 0) == pid && status == 0);
	} else {
		NEED(read(down[0], &far, 1) == 0);
	}
	side_end(&s);
	if (!pid)
		exit(0);
}

/* --- advice -------------------------------------------------------------------------------------------------------------- */

static unsigned resident(uint8_t *at)
{
	static unsigned char vec[SIZE / 4096];
	unsigned n = 0;

	NEED(mincore(at, SIZE, vec) == 0);
	for (unsigned i = 0; i < SIZE / 4096; i++)
		n += vec[i] & 1;
	return n;
}

static int advise(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, const void *at, uint32_t n,
	uint32_t lkey)
{
	struct ibv_sge sge = { (uintptr_t)at, n, lkey };

	return ibv_advise_mr(pd, advice, flags, &sge, 1);
}

static void prefetch(int argc, char **argv)
{
	struct side s;
	uint8_t *at;
	struct ibv_mr *mr;

	(void)argc, (void)argv;
	side_make(&s);
	for (unsigned i = 0; i < 2; i++) {
		at = pages(PROT_READ | PROT_WRITE);
		NEED(mr = ibv_reg_mr(s.pd, at, SIZE, DEMAND));
		NEED(resident(at) == 0);
		/* Without faulting nothing comes that is not there. */
		RETURNS(advise(s.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, WAITING, at, SIZE, mr->lkey), 0);
		NEED(resident(at) == 0);
		RETURNS(advise(s.pd, WRITING, WAITING, at + 4096, 8192, i ? s.whole->lkey : mr->lkey), 0);
		NEED(resident(at) == 2);
		RETURNS(advise(s.pd, WRITING, WAITING, at + 5 * 4096 + 100, 4096, i ? s.whole->lkey : mr->lkey), 0);
		NEED(resident(at) == 4);
		RETURNS(advise(s.pd, i ? WRITING : READING, WAITING, at, SIZE, mr->lkey), 0);
		NEED(resident(at) == SIZE / 4096);
		RETURNS(advise(s.pd, READING, 0, at, SIZE, mr->lkey), 0);
		RETURNS(advise(s.pd, WRITING, WAITING, at, 0, mr->lkey), 0);
		traffic(&s, mr, at);
		/* One in the middle that cannot be had. */
		NEED(mprotect(at + 3 * 4096, 4096, PROT_NONE) == 0);
		RETURNS(advise(s.pd, READING, WAITING, at, SIZE, mr->lkey), EFAULT);
		RETURNS(advise(s.pd, WRITING, WAITING, at, SIZE, mr->lkey), EFAULT);
		RETURNS(advise(s.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, WAITING, at, SIZE, mr->lkey), 0);
		RETURNS(ibv_dereg_mr(mr), 0);
		munmap(at, SIZE);
	}
	side_end(&s);
}

static void advice_refused(int argc, char **argv)
{
	struct side s;
	uint8_t *at = pages(PROT_READ | PROT_WRITE), *none = hole();
	struct ibv_mr *mr, *reading, *away;
	struct ibv_mw *mw;
	struct ibv_pd *other;
	struct ibv_sge sges[2];

	(void)argc, (void)argv;
	side_make(&s);
	NEED(other = ibv_alloc_pd(s.ctx));
	NEED(mr = ibv_reg_mr(s.pd, at, SIZE, DEMAND));
	NEED(away = ibv_reg_mr(s.pd, none, SIZE, DEMAND));
	NEED(reading = ibv_reg_mr(s.pd, at, SIZE, IBV_ACCESS_ON_DEMAND));
	NEED(mw = ibv_alloc_mw(s.pd, IBV_MW_TYPE_2));
	kit_connect(s.qp, s.peer);
	NEED(kit_bind(s.qp, mw, s.plain) == IBV_WC_SUCCESS);

	RETURNS(advise(s.pd, (enum ibv_advise_mr_advice)77, WAITING, at, 64, mr->lkey), ENOTSUP);
	RETURNS(advise(s.pd, READING, 2, at, 64, mr->lkey), EINVAL);
	RETURNS(ibv_advise_mr(s.pd, READING, 0, NULL, 0), EINVAL);
	for (unsigned flags = 0; flags <= WAITING; flags++) {
		RETURNS(advise(s.pd, READING, flags, at + 1, SIZE, mr->lkey), EFAULT);
		RETURNS(advise(s.pd, READING, flags, at - 1, 8, mr->lkey), EFAULT);
		RETURNS(advise(s.pd, READING, flags, at + SIZE, 1, mr->lkey), EFAULT);
		RETURNS(advise(s.pd, READING, flags, none, 64, away->lkey), EFAULT);
		RETURNS(advise(s.pd, READING, flags, none, 64, s.whole->lkey), EFAULT);
		RETURNS(advise(s.pd, READING, flags, NULL, 64, 0), EFAULT);
		RETURNS(advise(s.pd, READING, flags, at, 64, 0x77777700), EFAULT);
		RETURNS(advise(s.pd, READING, flags, at, 64, mr->lkey ^ 1), ENOENT);
		RETURNS(advise(s.pd, READING, flags, s.memory, 64, mw->rkey), EINVAL);
		RETURNS(advise(s.pd, READING, flags, s.memory, 64, s.plain->lkey), EINVAL);
		RETURNS(advise(other, READING, flags, at, 64, mr->lkey), EPERM);
		RETURNS(advise(s.pd, WRITING, flags, at, 64, reading->lkey), EPERM);
		RETURNS(advise(s.pd, READING, flags, at, 64, reading->lkey), 0);
	}
	/* All are looked at before any is paged in. */
	sges[0] = (struct ibv_sge){ (uintptr_t)at + 8192, 8192, mr->lkey };
	sges[1] = (struct ibv_sge){ (uintptr_t)at, 64, s.plain->lkey };
	NEED(madvise(at, SIZE, MADV_DONTNEED) == 0);
	RETURNS(ibv_advise_mr(s.pd, WRITING, WAITING, sges, 2), EINVAL);
	NEED(resident(at) == 0);
	sges[1].lkey = mr->lkey;
	RETURNS(ibv_advise_mr(s.pd, WRITING, WAITING, sges, 2), 0);
	NEED(resident(at) == 3);
	RETURNS(ibv_dealloc_mw(mw), 0);

	uint32_t stale = mr->lkey;

	RETURNS(ibv_dereg_mr(mr), 0);
	RETURNS(advise(s.pd, READING, WAITING, at, 64, stale), EFAULT);
	RETURNS(ibv_dereg_mr(away), 0);
	RETURNS(ibv_dereg_mr(reading), 0);
	RETURNS(ibv_dealloc_pd(other), 0);
	side_end(&s);
}

/* --- what else belongs to it ------------------------------------------------------------------------------------------- */

static void caps(int argc, char **argv)
{
	const uint32_t sends = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
	struct ibv_device_attr_ex attr;
	struct ibv_context *ctx = kit_open();

	(void)argc, (void)argv;
	RETURNS(ibv_query_device_ex(ctx, NULL, &attr), 0);
	NEED(attr.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
	NEED(attr.odp_caps.per_transport_caps.rc_odp_caps ==
		(sends | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC));
	NEED(attr.odp_caps.per_transport_caps.uc_odp_caps == (sends | IBV_ODP_SUPPORT_WRITE));
	NEED(attr.odp_caps.per_transport_caps.ud_odp_caps == sends);
	RETURNS(ibv_close_device(ctx), 0);
}

/* It is moved to memory that is not there, and back; what it is it stays. */
static void rereg(int argc, char **argv)
{
	struct side s;
	uint8_t *at = pages(PROT_READ | PROT_WRITE), *none = hole();
	struct ibv_mr *mr;

	(void)argc, (void)argv;
	side_make(&s);
	NEED(mr = ibv_reg_mr(s.pd, at, SIZE, DEMAND));
	traffic(&s, mr, at);
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, none, SIZE, 0) == 0);
	all_fail(&s, none, mr, false);
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, KIT_ACCESS) != 0 && errno == EINVAL);
	NEED(ibv_rereg_mr(s.plain, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, DEMAND) != 0 && errno == EINVAL);
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL, at, SIZE, DEMAND) == 0);
	traffic(&s, mr, at);
	RETURNS(ibv_dereg_mr(mr), 0);
	side_end(&s);
}

/* A window on a region that is paged on demand. */
static void windows(int argc, char **argv)
{
	struct side s;
	uint8_t *at = pages(PROT_READ | PROT_WRITE);
	struct ibv_mr *mr;
	struct ibv_mw *mw;

	(void)argc, (void)argv;
	side_make(&s);
	NEED(mr = ibv_reg_mr(s.pd, at, SIZE, DEMAND));
	NEED(mw = ibv_alloc_mw(s.pd, IBV_MW_TYPE_2));
	kit_connect(s.qp, s.peer);
	NEED(kit_bind(s.peer, mw, mr) == IBV_WC_SUCCESS);
	NEED(kit_run(s.qp, IBV_WR_RDMA_WRITE, s.plain, s.memory, LARGE, (uintptr_t)at, mw->rkey) == IBV_WC_SUCCESS);
	NEED(memcmp(s.memory, at, LARGE) == 0);
	munmap(at, SIZE);
	NEED(kit_run(s.qp, IBV_WR_RDMA_WRITE, s.plain, s.memory, LARGE, (uintptr_t)at, mw->rkey) != IBV_WC_SUCCESS);
	RETURNS(ibv_dealloc_mw(mw), 0);
	RETURNS(ibv_dereg_mr(mr), 0);
	side_end(&s);
}

static const struct kit_test tests[] = {
	{ "explicit", explicit },
	{ "implicit", implicit },
	{ "hugetlb", hugetlb },
	{ "absent", absent },
	{ "processes", processes },
	{ "prefetch", prefetch },
	{ "advice-refused", advice_refused },
	{ "caps", caps },
	{ "rereg", rereg },
	{ "windows", windows },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	return kit_main(tests, argc, argv);
}
