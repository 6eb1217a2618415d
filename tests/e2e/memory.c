/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What can be registered, and how it can be changed: memfds by their fds, addresses of one's own choice, the null region,
 * access flags, and every way to call ibv_rereg_mr(). One case a run (see ends.h).
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/e2e/ends.h"

#define SIZE 65536u
#define PAGE 4096u

static void *pages(size_t n, int prot)
{
	void *memory = mmap(NULL, n, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(memory != MAP_FAILED);
	return memory;
}

/* Two connected QPs of one PD. */
struct both {
	struct end a, b;
	struct ibv_pd *pd;
};

static void both_open(struct both *both)
{
	both->a.ctx = both->b.ctx = end_device();
	both->pd = both->a.pd = both->b.pd = ibv_alloc_pd(both->a.ctx);
	NEED(both->pd);
	end_pair(&both->a, &both->b);
}

/* After an error: both QPs anew. */
static void both_again(struct both *both)
{
	end_qp_destroy(&both->a);
	end_qp_destroy(&both->b);
	end_pair(&both->a, &both->b);
}

static void both_close(struct both *both)
{
	end_qp_destroy(&both->a);
	end_qp_destroy(&both->b);
	NEED(ibv_dealloc_pd(both->pd) == 0);
	NEED(ibv_close_device(both->a.ctx) == 0);
}

/* --- by fd ---------------------------------------------------------------------------------------------------------- */

static int memfd(size_t size, int seals)
{
	int fd = memfd_create("buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	NEED(fd >= 0 && ftruncate(fd, (off_t)size) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

static void a_memfd(void)
{
	struct both both;
	int fd = memfd(SIZE, F_SEAL_SHRINK);
	uint8_t *view = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *memory = pages(SIZE, PROT_READ | PROT_WRITE);
	const uint64_t iova = 0x700000000000, offset = PAGE + 128;

	NEED(view != MAP_FAILED);
	both_open(&both);

	struct ibv_mr *plain = ibv_reg_mr(both.pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(both.pd, offset, 8192, iova + 128, fd, ALL_ACCESS | IBV_ACCESS_RELAXED_ORDERING);

	NEED(plain && mr && mr->length == 8192 && (uintptr_t)mr->addr == offset && mr->lkey == mr->rkey);
	close(fd); /* the region does not need it */
	memset(memory, 7, 8192);
	NEED(end_work(&both.a, &(struct work){ IBV_WR_RDMA_WRITE, (uintptr_t)memory, 8192, plain->lkey, iova + 128,
				 mr->rkey }) == IBV_WC_SUCCESS);
	NEED(view[offset - 1] == 0 && view[offset] == 7 && view[offset + 8191] == 7 && view[offset + 8192] == 0);
	/* As a local buffer. */
	NEED(end_work(&both.a, &(struct work){ IBV_WR_RDMA_READ, iova + 128 + 4096, 64, mr->lkey, iova + 128, mr->rkey }) ==
		IBV_WC_SUCCESS);
	NEED(end_work(&both.a, &(struct work){ IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)memory, 8, plain->lkey, iova + 128,
				 mr->rkey, 1 }) == IBV_WC_SUCCESS);
	NEED(view[offset] == 8);
	/* PD and access may change, its place may not. */
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 4096, 0) == IBV_REREG_MR_ERR_INPUT &&
		errno == EINVAL);
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ) == 0);
	NEED(end_work(&both.a, &(struct work){ IBV_WR_RDMA_READ, (uintptr_t)memory, 64, plain->lkey, iova + 128, mr->rkey }) ==
		IBV_WC_SUCCESS);
	NEED(end_work(&both.a, &(struct work){ IBV_WR_RDMA_WRITE, (uintptr_t)memory, 64, plain->lkey, iova + 128,
				 mr->rkey }) == IBV_WC_REM_ACCESS_ERR);
	NEED(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(plain) == 0);
	both_close(&both);
}

static void a_memfd_to_read(void)
{
	struct both both;
	int fd = memfd(SIZE, F_SEAL_SHRINK), ro;
	char path[64];
	uint8_t *memory = pages(SIZE, PROT_READ | PROT_WRITE);

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ro = open(path, O_RDONLY);
	NEED(ro >= 0 && pwrite(fd, "hello", 5, 0) == 5);
	both_open(&both);
	REFUSED(ibv_reg_dmabuf_mr(both.pd, 0, SIZE, 0, ro, IBV_ACCESS_LOCAL_WRITE), EACCES);

	struct ibv_mr *mr = ibv_reg_dmabuf_mr(both.pd, 0, SIZE, 0, ro, IBV_ACCESS_REMOTE_READ);
	struct ibv_mr *plain = ibv_reg_mr(both.pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);

	NEED(mr && plain);
	NEED(end_work(&both.a, &(struct work){ IBV_WR_RDMA_READ, (uintptr_t)memory, 5, plain->lkey, 0, mr->rkey }) ==
		IBV_WC_SUCCESS);
	NEED(memcmp(memory, "hello", 5) == 0);
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) == IBV_REREG_MR_ERR_INPUT &&
		errno == EACCES);
	NEED(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(plain) == 0);
	/* Sealed against writing: good for reading, if the kernel maps it so at all. */
	munmap(memory, SIZE);
	close(ro);
	close(fd);
	fd = memfd(SIZE, F_SEAL_SHRINK | F_SEAL_WRITE);
	REFUSED(ibv_reg_dmabuf_mr(both.pd, 0, SIZE, 0, fd, IBV_ACCESS_LOCAL_WRITE), EACCES);
	close(fd);
	both_close(&both);
}

static void fds_are_checked(void)
{
	static const struct {
		uint64_t offset, length, iova;
		int access, error;
	} bad[] = {
		{ 0, 0, 0, 0, EINVAL },
		{ 0, SIZE + 1, 0, 0, EINVAL },
		{ 1, SIZE, 1, 0, EINVAL },
		{ SIZE, 1, 0, 0, EINVAL },
		{ UINT64_MAX - 4095, 8192, 0, 0, EINVAL },
		{ 0, 4096, UINT64_MAX - 4095, 0, EINVAL },
		{ 64, 64, 65, 0, EINVAL },
		{ 64, 64, 0, 0, EINVAL },
		{ 0, 64, 0, IBV_ACCESS_REMOTE_WRITE, EINVAL },
		{ 0, 64, 0, IBV_ACCESS_REMOTE_ATOMIC, EINVAL },
		{ 0, 64, 0, IBV_ACCESS_MW_BIND, EINVAL },
		{ 0, 64, 0, IBV_ACCESS_ZERO_BASED, EINVAL },
		{ 0, 64, 0, IBV_ACCESS_ON_DEMAND, EINVAL },
		{ 0, 64, 0, IBV_ACCESS_HUGETLB, EINVAL },
	};
	int fd = memfd(SIZE, F_SEAL_SHRINK), open_end = memfd(SIZE, 0), fds[2], file = open("/etc/passwd", O_RDONLY);
	struct both both;

	both_open(&both);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		REFUSED(ibv_reg_dmabuf_mr(both.pd, bad[i].offset, bad[i].length, bad[i].iova, fd, bad[i].access),
			bad[i].error);
	REFUSED(ibv_reg_dmabuf_mr(both.pd, 0, SIZE, 0, open_end, 0), EINVAL);
	REFUSED(ibv_reg_dmabuf_mr(both.pd, 0, SIZE, 0, -1, 0), EBADF);
	REFUSED(ibv_reg_dmabuf_mr(both.pd, 0, SIZE, 0, 99999, 0), EBADF);
	NEED(pipe(fds) == 0);
	REFUSED(ibv_reg_dmabuf_mr(both.pd, 0, SIZE, 0, fds[0], 0), EOPNOTSUPP);
	REFUSED(ibv_reg_dmabuf_mr(both.pd, 0, 64, 0, file, 0), EOPNOTSUPP);
	both_close(&both);
}

/* --- addresses and access ------------------------------------------------------------------------------------------- */

static void addresses_of_ones_own(void)
{
	struct both both;
	uint8_t *memory = pages(SIZE, PROT_READ | PROT_WRITE);
	const uint64_t iova = 0x123456789000;

	both_open(&both);

	struct ibv_mr *mr = ibv_reg_mr_iova(both.pd, memory + 64, 4096, iova + 64, ALL_ACCESS);
	struct ibv_mr *zero = ibv_reg_mr(both.pd, memory + 8192, 4096, ALL_ACCESS | IBV_ACCESS_ZERO_BASED);
	struct ibv_mr *none = ibv_reg_mr_iova2(both.pd, memory + 16384 + 8, 4096, 0, ALL_ACCESS | IBV_ACCESS_RELAXED_ORDERING);
	struct ibv_mr *last = ibv_reg_mr_iova(both.pd, memory, 4096, UINT64_MAX - 4095 - 4096, ALL_ACCESS);

	NEED(mr && zero && none && last && mr->addr == memory + 64);
	REFUSED(ibv_reg_mr_iova(both.pd, memory, 4096, iova + 1, 0), EINVAL);
	REFUSED(ibv_reg_mr_iova(both.pd, memory + 1, 4096, iova, 0), EINVAL);
	REFUSED(ibv_reg_mr_iova(both.pd, memory, 8192, UINT64_MAX - 4095, 0), EINVAL);
	memory[64] = 1;
	NEED(end_work(&both.a, &(struct work){ IBV_WR_RDMA_WRITE, iova + 64, 1, mr->lkey, 5, zero->rkey }) == IBV_WC_SUCCESS);
	NEED(memory[8192 + 5] == 1);
	NEED(end_work(&both.a, &(struct work){ IBV_WR_RDMA_WRITE, 5, 1, zero->lkey, 6, none->rkey }) == IBV_WC_SUCCESS);
	NEED(memory[16384 + 8 + 6] == 1);
	memory[4095] = 9;
	NEED(end_work(&both.a, &(struct work){ IBV_WR_RDMA_READ, 0, 1, none->lkey, UINT64_MAX - 4096, last->rkey }) ==
		IBV_WC_SUCCESS);
	NEED(memory[16384 + 8] == 9);
	/* The address in this process says nothing to a peer then. */
	NEED(end_work(&both.a, &(struct work){ IBV_WR_RDMA_WRITE, iova + 64, 1, mr->lkey, (uintptr_t)memory + 64, mr->rkey }) ==
		IBV_WC_REM_ACCESS_ERR);
	NEED(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(zero) == 0 && ibv_dereg_mr(none) == 0 && ibv_dereg_mr(last) == 0);
	both_close(&both);
}

/* Each set of flags: whether it may be, and then each kind of work on it. */
static void access_flags(void)
{
	static const int flags[] = { IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
		IBV_ACCESS_REMOTE_ATOMIC };
	struct both both;
	uint8_t *memory = pages(SIZE, PROT_READ | PROT_WRITE);
	uint64_t at = (uintptr_t)memory;

	both_open(&both);

	struct ibv_mr *from = ibv_reg_mr(both.pd, memory + 8192, 4096, IBV_ACCESS_LOCAL_WRITE);

	NEED(from);
	for (unsigned set = 0; set < 16; set++) {
		int access = 0;

		for (unsigned i = 0; i < 4; i++)
			access |= set & 1u << i ? flags[i] : 0;

		struct ibv_mr *mr = ibv_reg_mr(both.pd, memory, 4096, access);

		if (set & 10 && !(set & 1)) {
			NEED(!mr && errno == EINVAL);
			continue;
		}
		NEED(mr);

		const struct {
			struct work work;
			bool allowed;
			enum ibv_wc_status otherwise;
		} works[] = {
			{ { IBV_WR_RDMA_WRITE, at + 8192, 8, from->lkey, at, mr->rkey }, set & 2, IBV_WC_REM_ACCESS_ERR },
			{ { IBV_WR_RDMA_READ, at + 8192, 8, from->lkey, at, mr->rkey }, set & 4, IBV_WC_REM_ACCESS_ERR },
			{ { IBV_WR_ATOMIC_FETCH_AND_ADD, at + 8192, 8, from->lkey, at, mr->rkey, 1 }, set & 8,
				IBV_WC_REM_ACCESS_ERR },
		};

		for (size_t i = 0; i < 3; i++) {
			enum ibv_wc_status status = end_work(&both.a, &works[i].work);

			NEED(status == (works[i].allowed ? IBV_WC_SUCCESS : works[i].otherwise));
			if (status)
				both_again(&both);
		}
		/* Local reads are always allowed, local writes if it says so. */
		end_recv(&both.b, at, 8, mr->lkey);
		NEED((end_work(&both.a, &(struct work){ IBV_WR_SEND, at, 8, mr->lkey, 0, 0 }) == IBV_WC_SUCCESS) == (set & 1));
		NEED((end_wait(&both.b) == IBV_WC_SUCCESS) == (set & 1));
		if (!(set & 1))
			both_again(&both);
		NEED(ibv_dereg_mr(mr) == 0);
	}
	REFUSED(ibv_reg_mr(both.pd, memory, 4096, 1 << 15), EINVAL);
	REFUSED(ibv_reg_mr(both.pd, NULL, 4096, 0), EFAULT);
	REFUSED(ibv_reg_mr(both.pd, memory, SIZE_MAX, 0), EINVAL);
	NEED(mprotect(memory, SIZE, PROT_READ) == 0);
	REFUSED(ibv_reg_mr(both.pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE), EACCES);
	NEED(ibv_dereg_mr(from) == 0);
	both_close(&both);
}

static void the_null_region(void)
{
	struct both both;
	uint8_t *memory = pages(SIZE, PROT_READ | PROT_WRITE);

	both_open(&both);

	struct ibv_mr *null = ibv_alloc_null_mr(both.pd), *mr = ibv_reg_mr(both.pd, memory, SIZE, ALL_ACCESS);

	NEED(null && mr && null->length == SIZE_MAX && !null->addr && null->rkey == 0);
	memset(memory, 5, SIZE);
	/* Reads as zeros, wherever; swallows what is written. */
	NEED(end_work(&both.a, &(struct work){ IBV_WR_RDMA_WRITE, 0xdead0000, SIZE, null->lkey, (uintptr_t)memory, mr->rkey }) ==
		IBV_WC_SUCCESS);
	for (unsigned i = 0; i < SIZE; i++)
		NEED(memory[i] == 0);
	NEED(end_work(&both.a, &(struct work){ IBV_WR_RDMA_READ, 0xdead0000, SIZE, null->lkey, (uintptr_t)memory, mr->rkey }) ==
		IBV_WC_SUCCESS);
	end_recv(&both.b, 123, 4096, null->lkey);
	NEED(end_work(&both.a, &(struct work){ IBV_WR_SEND, (uintptr_t)memory, 4096, mr->lkey, 0, 0 }) == IBV_WC_SUCCESS);
	NEED(end_wait(&both.b) == IBV_WC_SUCCESS);
	/* It has no rkey: its lkey is none. */
	NEED(end_work(&both.a, &(struct work){ IBV_WR_RDMA_READ, (uintptr_t)memory, 8, mr->lkey, 0, null->lkey }) ==
		IBV_WC_REM_ACCESS_ERR);
	both_again(&both);
	NEED(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT && errno == EINVAL);

	struct ibv_mw *mw = ibv_alloc_mw(both.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = { .bind_info = { null, 0, 64, IBV_ACCESS_REMOTE_READ }, .send_flags = IBV_SEND_SIGNALED };

	NEED(mw);
	NEED(ibv_bind_mw(both.b.qp, mw, &bind) != 0 || end_wait(&both.b) != IBV_WC_SUCCESS);
	NEED(ibv_dealloc_mw(mw) == 0);
	NEED(ibv_dereg_mr(null) == 0 && ibv_dereg_mr(mr) == 0);
	both_close(&both);
}

/* --- rereg ---------------------------------------------------------------------------------------------------------- */

/* Values of each argument, good ones first; NULL and 0 among them. */
struct arguments {
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	int access;
};

struct rereg_world {
	struct both both;
	struct ibv_pd *other, *foreign;
	struct ibv_context *far;
	uint8_t *old, *memory, *read_only;
};

static bool is_good(const struct rereg_world *w, int flags, const struct arguments *to, int access_now)
{
	int access = flags & IBV_REREG_MR_CHANGE_ACCESS ? to->access : access_now;
	const uint8_t *addr = flags & IBV_REREG_MR_CHANGE_TRANSLATION ? to->addr : w->old;

	if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED)
		return false;
	if (flags & IBV_REREG_MR_CHANGE_PD && (!to->pd || to->pd == w->foreign))
		return false;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION && (!to->addr || !to->length))
		return false;
	if (to->access && !(flags & IBV_REREG_MR_CHANGE_ACCESS))
		return false;
	if (access == IBV_ACCESS_REMOTE_WRITE) /* without local write */
		return false;
	return !(addr == w->read_only && access & IBV_ACCESS_LOCAL_WRITE);
}

/* One call: it does what it should, or nothing at all. */
static void rereg_once(struct rereg_world *w, int flags, const struct arguments *to)
{
	const int access_now = ALL_ACCESS;
	struct ibv_mr *mr = ibv_reg_mr(w->both.pd, w->old, 4096, access_now);
	struct ibv_mr *from = ibv_reg_mr(w->both.pd, w->memory + 32768, 4096, IBV_ACCESS_LOCAL_WRITE);
	bool good = is_good(w, flags, to, access_now);

	NEED(mr && from);

	uint32_t key = mr->rkey;

	errno = 0;
	NEED(ibv_rereg_mr(mr, flags, to->pd, to->addr, to->length, to->access) == (good ? 0 : IBV_REREG_MR_ERR_INPUT));
	NEED(good || errno == EINVAL || errno == EFAULT || errno == EACCES);
	NEED(mr->rkey == key && mr->lkey == key);

	uint8_t *addr = good && flags & IBV_REREG_MR_CHANGE_TRANSLATION ? to->addr : w->old;
	size_t length = good && flags & IBV_REREG_MR_CHANGE_TRANSLATION ? to->length : 4096;
	int access = good && flags & IBV_REREG_MR_CHANGE_ACCESS ? to->access : access_now;
	struct ibv_pd *pd = good && flags & IBV_REREG_MR_CHANGE_PD ? to->pd : w->both.pd;
	uint64_t base = access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr;
	bool reached = pd == w->both.pd && access & IBV_ACCESS_REMOTE_WRITE;

	NEED(mr->addr == addr && mr->length == length && mr->pd == pd);
	memset(w->memory + 32768, 1, 8);
	memset(w->old, 0, 4096);
	if (addr != w->read_only)
		memset(addr, 0, length);

	struct work write = { IBV_WR_RDMA_WRITE, (uintptr_t)w->memory + 32768, 8, from->lkey, base + length - 8, mr->rkey };

	NEED(end_work(&w->both.a, &write) == (reached ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR));
	NEED(addr == w->read_only || addr[length - 1] == reached);
	if (!reached)
		both_again(&w->both);
	NEED(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(from) == 0);
}

static void every_way_to_change_one(void)
{
	struct rereg_world w;

	both_open(&w.both);
	w.other = ibv_alloc_pd(w.both.a.ctx);
	w.far = end_device();
	w.foreign = ibv_alloc_pd(w.far);
	w.old = pages(8192, PROT_READ | PROT_WRITE);
	w.memory = pages(SIZE, PROT_READ | PROT_WRITE);
	w.read_only = pages(8192, PROT_READ);
	NEED(w.other && w.foreign);

	struct ibv_pd *pds[] = { w.other, w.both.pd, NULL, w.foreign };
	void *addrs[] = { w.memory, w.read_only, NULL };
	static const size_t lengths[] = { 8192, 0 };
	static const int accesses[] = { IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0, IBV_ACCESS_REMOTE_READ,
		IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED };

	for (int flags = 0; flags <= IBV_REREG_MR_FLAGS_SUPPORTED + 1; flags++)
		for (unsigned i = 0; i < 4 * 3 * 2 * 5; i++) {
			const struct arguments to = { pds[i % 4], addrs[i / 4 % 3], lengths[i / 12 % 2], accesses[i / 24] };

			rereg_once(&w, flags, &to);
		}
	NEED(ibv_dealloc_pd(w.other) == 0 && ibv_dealloc_pd(w.foreign) == 0);
	NEED(ibv_close_device(w.far) == 0);
	both_close(&w.both);
}

static void zero_based_and_back(void)
{
	struct both both;
	uint8_t *memory = pages(SIZE, PROT_READ | PROT_WRITE);

	both_open(&both);

	struct ibv_mr *mr = ibv_reg_mr_iova(both.pd, memory + 64, 4096, 0x10040, ALL_ACCESS);
	struct work write = { IBV_WR_RDMA_WRITE, 0x10040, 8, 0, 0x10040 + 64, 0 };

	NEED(mr);
	write.lkey = write.rkey = mr->lkey;
	memory[64] = 1;
	NEED(end_work(&both.a, &write) == IBV_WC_SUCCESS && memory[128] == 1);
	/* What is asked for is a change of access alone: the addresses stay, unless they are part of it. */
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_ACCESS) == 0);
	memory[64] = 2;
	NEED(end_work(&both.a, &write) == IBV_WC_SUCCESS && memory[128] == 2);
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_ACCESS | IBV_ACCESS_ZERO_BASED) == 0);
	write.addr = 0;
	write.raddr = 64;
	memory[64] = 3;
	NEED(end_work(&both.a, &write) == IBV_WC_SUCCESS && memory[128] == 3);
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_ACCESS) == 0);
	write.addr = (uintptr_t)memory + 64;
	write.raddr = (uintptr_t)memory + 128;
	memory[64] = 4;
	NEED(end_work(&both.a, &write) == IBV_WC_SUCCESS && memory[128] == 4);
	NEED(ibv_dereg_mr(mr) == 0);
	both_close(&both);
}

static const struct end_case cases[] = {
	{ "a-memfd", a_memfd },
	{ "a-memfd-to-read", a_memfd_to_read },
	{ "fds-are-checked", fds_are_checked },
	{ "addresses-of-ones-own", addresses_of_ones_own },
	{ "access-flags", access_flags },
	{ "the-null-region", the_null_region },
	{ "every-way-to-change-one", every_way_to_change_one },
	{ "zero-based-and-back", zero_based_and_back },
};

int main(int argc, char **argv)
{
	return end_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
