/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ibv_import_mr() in another process than the one that registered, by the memory that the region is on. One case a run (see
 * ends.h).
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/e2e/ends.h"

#define SIZE	65536u
#define AT	4096u  /* of the region in its file */
#define LENGTH	16384u /* of the region */
#define HALF	(LENGTH / 2)

/* What one process tells the other of a region. */
struct told {
	uint32_t pd, handle, lkey, rkey;
	uint64_t iova;
	int want; /* 0, or why it cannot be imported */
};

/* A region, the memory that it is on as its process sees it, and where its first byte is for the verbs. */
struct original {
	struct ibv_mr *mr;
	uint8_t *memory;
	uint64_t iova;
};

/* --- the process that imports --------------------------------------------------------------------------------------- */

static enum ibv_wc_status work(struct end *end, enum ibv_wr_opcode opcode, const struct told *told, const struct ibv_mr *mr)
{
	return end_work(end, &(struct work){ opcode, told->iova, 64, mr->lkey, told->iova + HALF, told->rkey });
}

/* The imported keys are both the local and, with a QP of its own, the remote end. */
static void use(int fd, struct end *end, const struct told *told, struct ibv_mr *mr)
{
	struct end mine = { .ctx = end->ctx, .pd = end->pd }, other = mine;

	NEED(!mr->addr && mr->length == LENGTH && mr->lkey == told->lkey && mr->rkey == told->rkey);
	NEED(mr->handle == told->handle && mr->context == end->ctx && mr->pd == end->pd);
	end_qp(end);
	end_meet(end, fd);
	/* From the memory by the lkey to the same by the peer's rkey: what the peer wrote first. */
	NEED(work(end, IBV_WR_RDMA_WRITE, told, mr) == IBV_WC_SUCCESS);
	nod(fd);
	nod_wait(fd);
	/* Between two QPs of this process: nobody but the import has that rkey here. */
	end_pair(&mine, &other);
	NEED(end_work(&mine, &(struct work){ IBV_WR_RDMA_READ, told->iova + 128, 64, mr->lkey, told->iova, mr->rkey }) ==
		IBV_WC_SUCCESS);
	NEED(end_work(&mine, &(struct work){ IBV_WR_RDMA_WRITE, told->iova, 64, mr->lkey, told->iova + LENGTH - 32,
				     mr->rkey }) == IBV_WC_REM_ACCESS_ERR);
	end_qp_destroy(&mine);
	end_qp_destroy(&other);
	nod(fd);
	nod_wait(fd);
}

static void importer(int fd, void *arg)
{
	struct end end = { 0 };
	struct told told;
	struct ibv_mr *mr, *again, *fresh;
	uint8_t *memory;

	end.ctx = ibv_import_device(fd_hear(fd));
	hear(fd, &told, sizeof(told));
	NEED(end.ctx);
	end.pd = ibv_import_pd(end.ctx, told.pd);
	NEED(end.pd);
	errno = 0;
	mr = ibv_import_mr(end.pd, told.handle);
	if (told.want) {
		NEED(!mr && errno == told.want);
	} else {
		NEED(mr);
		again = ibv_import_mr(end.pd, told.handle); /* another pointer */
		NEED(again && again->lkey == mr->lkey);
		ibv_unimport_mr(again);
		use(fd, &end, &told, mr);
		/* Its own keys are others, whoever's that one is. */
		memory = malloc(SIZE);
		fresh = ibv_reg_mr(end.pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
		NEED(fresh && fresh->lkey != mr->lkey && ibv_dereg_mr(fresh) == 0);
		free(memory);
		ibv_unimport_mr(mr);
		end_qp_destroy(&end);
	}
	nod(fd);
	nod_wait(fd);
	ibv_unimport_pd(end.pd);
	NEED(ibv_close_device(end.ctx) == 0);
	(void)arg;
}

/* --- the process that has it ---------------------------------------------------------------------------------------- */

static void tell(int fd, const struct end *end, const struct original *original, int want)
{
	struct told told = { end->pd->handle, original->mr->handle, original->mr->lkey, original->mr->rkey, original->iova, want };

	fd_say(fd, end->ctx->cmd_fd);
	say(fd, &told, sizeof(told));
}

/* It is written here and there, and each sees what the other did. */
static void shared_with(struct child *child, struct end *end, struct original *original)
{
	uint8_t *memory = original->memory;

	memset(memory, 1, LENGTH);
	memset(memory, 2, 64);
	tell(child->fd, end, original, 0);
	end_meet(end, child->fd);
	nod_wait(child->fd);
	NEED(memory[HALF] == 2 && memory[HALF + 63] == 2 && memory[HALF + 64] == 1);
	memset(memory, 3, 64);
	nod(child->fd);
	nod_wait(child->fd);
	NEED(memory[128] == 3 && memory[191] == 3 && memory[192] == 1);
	nod(child->fd);
	nod_wait(child->fd);
	nod(child->fd);
	child_end(child);
}

static void refused_to(struct child *child, const struct end *end, const struct original *original)
{
	tell(child->fd, end, original, EOPNOTSUPP);
	nod_wait(child->fd);
	nod(child->fd);
	child_end(child);
}

static int memfd(unsigned flags, int seals)
{
	int fd = memfd_create("imported", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

	NEED(fd >= 0 && ftruncate(fd, SIZE) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

static uint8_t *map(int fd, int flags)
{
	uint8_t *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, fd, 0);

	NEED(memory != MAP_FAILED);
	return memory;
}

static void original_reg(struct original *original, const struct end *end, uint8_t *memory)
{
	original->memory = memory;
	original->mr = ibv_reg_mr(end->pd, memory, LENGTH, ALL_ACCESS);
	original->iova = (uintptr_t)memory;
	NEED(original->mr);
}

/* A region on LENGTH bytes of @memory, in a process of its own and in this one. */
static void plain(uint8_t *(*get)(void), bool shared)
{
	struct child child = child_start(importer, NULL);
	struct original original;
	struct end end;
	uint8_t *memory = get();

	end_open(&end);
	original_reg(&original, &end, memory + AT);
	if (shared)
		shared_with(&child, &end, &original);
	else
		refused_to(&child, &end, &original);
	NEED(ibv_dereg_mr(original.mr) == 0);
	munmap(memory, SIZE);
	end_close(&end);
}

static uint8_t *sealed(void)
{
	return map(memfd(0, F_SEAL_SHRINK), MAP_SHARED);
}

static void a_shared_mapping(void)
{
	plain(sealed, true);
}

static uint8_t *in_stretches(void)
{
	uint8_t *memory = sealed();

	/* The region begins in one mapping and ends in another. */
	NEED(madvise(memory + AT + HALF, 4096, MADV_DONTFORK) == 0);
	return memory;
}

static void a_mapping_in_stretches(void)
{
	plain(in_stretches, true);
}

/* As ibv_fork_init() has it: what is registered is a mapping of its own. */
static void under_fork_init(void)
{
	struct child child = child_start(importer, NULL);
	struct original original;
	uint8_t *memory = sealed();
	struct end end;

	NEED(ibv_fork_init() == 0);
	end_open(&end);

	struct ibv_mr *within = ibv_reg_mr(end.pd, memory + AT + 4096, 4096, 0);

	NEED(within);
	original_reg(&original, &end, memory + AT);
	shared_with(&child, &end, &original);
	NEED(ibv_dereg_mr(original.mr) == 0 && ibv_dereg_mr(within) == 0);
	munmap(memory, SIZE);
	end_close(&end);
}

/* --- what is not to be had ------------------------------------------------------------------------------------------ */

static uint8_t *unsealed(void)
{
	return map(memfd(0, 0), MAP_SHARED);
}

static uint8_t *closed(void)
{
	int fd = memfd(0, F_SEAL_SHRINK);
	uint8_t *memory = map(fd, MAP_SHARED);

	close(fd);
	return memory;
}

static uint8_t *anonymous(void)
{
	return map(-1, MAP_PRIVATE | MAP_ANONYMOUS);
}

static uint8_t *anonymous_shared(void)
{
	return map(-1, MAP_SHARED | MAP_ANONYMOUS);
}

static uint8_t *copied_on_write(void)
{
	return map(memfd(0, F_SEAL_SHRINK), MAP_PRIVATE);
}

static uint8_t *on_disk(void)
{
	char path[] = "/tmp/verbsd-imported-XXXXXX";
	int fd = mkstemp(path);

	NEED(fd >= 0 && unlink(path) == 0 && ftruncate(fd, SIZE) == 0);
	return map(fd, MAP_SHARED);
}

/* The region goes on behind the file's mapping. */
static uint8_t *half_of_it(void)
{
	uint8_t *memory = sealed();

	NEED(mmap(memory + AT + HALF, SIZE - AT - HALF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
		MAP_FAILED);
	return memory;
}

/* Not where the mapping says that it is. */
static uint8_t *out_of_order(void)
{
	int fd = memfd(0, F_SEAL_SHRINK);
	uint8_t *memory = map(fd, MAP_SHARED);

	NEED(mmap(memory + AT + HALF, HALF, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
	return memory;
}

static void what_is_private_is_refused(void)
{
	plain(anonymous, false);
}

#define REFUSED_CASE(name, get)   \
	static void name(void)    \
	{                         \
		plain(get, false); \
	}

REFUSED_CASE(a_file_that_may_shrink_is_refused, unsealed)
REFUSED_CASE(a_file_that_was_closed_is_refused, closed)
REFUSED_CASE(shared_memory_without_a_file_is_refused, anonymous_shared)
REFUSED_CASE(a_private_mapping_is_refused, copied_on_write)
REFUSED_CASE(a_file_on_disk_is_refused, on_disk)
REFUSED_CASE(half_a_mapping_is_refused, half_of_it)
REFUSED_CASE(a_mapping_out_of_order_is_refused, out_of_order)

/* Whose memory nobody may look at. */
static void who_hides_is_refused(void)
{
	if (geteuid() == 0)
		end_skip("uid 0 may look everywhere");

	struct child child = child_start(importer, NULL);
	struct original original;
	uint8_t *memory = sealed();
	struct end end;

	end_open(&end);
	NEED(prctl(PR_SET_DUMPABLE, 0) == 0);
	original_reg(&original, &end, memory + AT);
	refused_to(&child, &end, &original);
	NEED(ibv_dereg_mr(original.mr) == 0);
	munmap(memory, SIZE);
	end_close(&end);
}

static void what_has_no_memory_is_refused(void)
{
	struct child child = child_start(importer, NULL);
	struct end end;

	end_open(&end);

	struct original original = { ibv_alloc_null_mr(end.pd), NULL, 0 };

	NEED(original.mr);
	refused_to(&child, &end, &original);
	NEED(ibv_dereg_mr(original.mr) == 0);
	end_close(&end);
}

/* --- buffers and device memory -------------------------------------------------------------------------------------- */

static void on_a_buffer(unsigned flags, uint64_t iova)
{
	struct child child = child_start(importer, NULL);
	struct original original;
	struct end end;
	int fd = memfd(flags, F_SEAL_SHRINK);
	uint8_t *memory = map(fd, MAP_SHARED);

	end_open(&end);
	original = (struct original){ ibv_reg_dmabuf_mr(end.pd, AT, LENGTH, iova, fd, ALL_ACCESS), memory + AT, iova };
	NEED(original.mr);
	/* It need not be open any more: the region keeps what it is on. */
	close(fd);
	shared_with(&child, &end, &original);
	NEED(ibv_dereg_mr(original.mr) == 0);
	munmap(memory, SIZE);
	end_close(&end);
}

static void a_buffer(void)
{
	on_a_buffer(0, AT);
}

static void a_buffer_with_an_iova(void)
{
	on_a_buffer(0, 0x7000000000);
}

static bool has_file(const char *name)
{
	char path[64], target[64];
	bool found = false;

	for (int fd = 0; fd < 4096 && !found; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);

		ssize_t n = readlink(path, target, sizeof(target) - 1);

		target[n < 0 ? 0 : n] = 0;
		found = strstr(target, name) != NULL;
	}
	return found;
}

/* One fd for the file, however many regions are on it, and none in children. */
static void a_buffer_is_kept_open_once(void)
{
	struct end end;
	int fd = memfd(0, F_SEAL_SHRINK), before;
	struct ibv_mr *mrs[8];
	int status;
	pid_t pid;

	end_open(&end);
	before = fcntl(fd, F_DUPFD_CLOEXEC, 512);
	NEED(before >= 0 && close(before) == 0);
	for (unsigned i = 0; i < 8; i++)
		NEED((mrs[i] = ibv_reg_dmabuf_mr(end.pd, 0, 4096, 0, fd, ALL_ACCESS)));
	NEED(fcntl(fd, F_DUPFD_CLOEXEC, 512) == before + 1 && close(before + 1) == 0);
	close(fd);
	NEED(has_file("memfd:imported"));
	pid = fork();
	NEED(pid >= 0);
	if (pid == 0)
		_exit(has_file("memfd:imported"));
	NEED(waitpid(pid, &status, 0) == pid && status == 0);
	for (unsigned i = 0; i < 8; i++)
		NEED(ibv_dereg_mr(mrs[i]) == 0);
	NEED(!has_file("memfd:imported"));
	end_close(&end);
}

static void device_memory(void)
{
	struct child child = child_start(importer, NULL);
	struct ibv_alloc_dm_attr attr = { .length = AT + LENGTH };
	struct told told;
	struct end end;
	uint8_t bytes[64];

	end_open(&end);

	struct ibv_dm *dm = ibv_alloc_dm(end.ctx, &attr);
	struct ibv_mr *mr = dm ? ibv_reg_dm_mr(end.pd, dm, AT, LENGTH, ALL_ACCESS | IBV_ACCESS_ZERO_BASED) : NULL;

	NEED(mr);
	memset(bytes, 2, sizeof(bytes));
	NEED(ibv_memcpy_to_dm(dm, AT, bytes, sizeof(bytes)) == 0);
	told = (struct told){ end.pd->handle, mr->handle, mr->lkey, mr->rkey, 0, 0 };
	fd_say(child.fd, end.ctx->cmd_fd);
	say(child.fd, &told, sizeof(told));
	end_meet(&end, child.fd);
	nod_wait(child.fd);
	NEED(ibv_memcpy_from_dm(bytes, dm, AT + HALF, sizeof(bytes)) == 0 && bytes[0] == 2 && bytes[63] == 2);
	memset(bytes, 3, sizeof(bytes));
	NEED(ibv_memcpy_to_dm(dm, AT, bytes, sizeof(bytes)) == 0);
	/* The other's region is on it, too. */
	NEED(ibv_dereg_mr(mr) == 0 && ibv_free_dm(dm) == EBUSY);
	nod(child.fd);
	nod_wait(child.fd);
	NEED(ibv_memcpy_from_dm(bytes, dm, AT + 128, sizeof(bytes)) == 0 && bytes[0] == 3 && bytes[63] == 3);
	nod(child.fd);
	nod_wait(child.fd);
	NEED(ibv_free_dm(dm) == 0);
	nod(child.fd);
	child_end(&child);
	end_close(&end);
}

/* --- who registered it is gone --------------------------------------------------------------------------------------- */

static void opener(int fd, void *arg)
{
	struct end end;
	struct original original;

	end_open(&end);
	original_reg(&original, &end, sealed() + AT);
	memset(original.memory, 7, LENGTH);
	tell(fd, &end, &original, 0);
	(void)arg;
	(void)pause();
}

/* The import is of its own process, and so is its mapping: it stays. */
static void after_its_process_was_killed(void)
{
	struct child child = child_start(opener, NULL);
	struct end a = { .ctx = ibv_import_device(fd_hear(child.fd)) }, b;
	struct told told;

	hear(child.fd, &told, sizeof(told));
	NEED(a.ctx);
	a.pd = ibv_import_pd(a.ctx, told.pd);
	NEED(a.pd);

	struct ibv_mr *mr = ibv_import_mr(a.pd, told.handle);
	uint8_t *memory = calloc(1, LENGTH);

	NEED(mr && memory);
	child_kill(&child);
	b = a;
	end_pair(&a, &b);

	struct ibv_mr *own = ibv_reg_mr(a.pd, memory, LENGTH, ALL_ACCESS);

	NEED(own);
	NEED(end_work(&a, &(struct work){ IBV_WR_RDMA_READ, (uintptr_t)memory, LENGTH, own->lkey, told.iova, mr->rkey }) ==
		IBV_WC_SUCCESS);
	NEED(memory[0] == 7 && memory[LENGTH - 1] == 7);
	/* Its access can be changed, its place cannot. */
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, LENGTH, 0) == IBV_REREG_MR_ERR_INPUT);
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) == 0);
	NEED(end_work(&a, &(struct work){ IBV_WR_RDMA_READ, (uintptr_t)memory, 8, own->lkey, told.iova, mr->rkey }) ==
		IBV_WC_REM_ACCESS_ERR);
	NEED(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(own) == 0);
	end_qp_destroy(&a);
	end_qp_destroy(&b);
	NEED(ibv_dealloc_pd(a.pd) == 0);
	NEED(ibv_close_device(a.ctx) == 0);
	free(memory);
}

static const struct end_case cases[] = {
	{ "a-shared-mapping", a_shared_mapping },
	{ "a-mapping-in-stretches", a_mapping_in_stretches },
	{ "under-fork-init", under_fork_init },
	{ "what-is-private-is-refused", what_is_private_is_refused },
	{ "a-file-that-may-shrink-is-refused", a_file_that_may_shrink_is_refused },
	{ "a-file-that-was-closed-is-refused", a_file_that_was_closed_is_refused },
	{ "shared-memory-without-a-file-is-refused", shared_memory_without_a_file_is_refused },
	{ "a-private-mapping-is-refused", a_private_mapping_is_refused },
	{ "a-file-on-disk-is-refused", a_file_on_disk_is_refused },
	{ "half-a-mapping-is-refused", half_a_mapping_is_refused },
	{ "a-mapping-out-of-order-is-refused", a_mapping_out_of_order_is_refused },
	{ "who-hides-is-refused", who_hides_is_refused },
	{ "what-has-no-memory-is-refused", what_has_no_memory_is_refused },
	{ "a-buffer", a_buffer },
	{ "a-buffer-with-an-iova", a_buffer_with_an_iova },
	{ "a-buffer-is-kept-open-once", a_buffer_is_kept_open_once },
	{ "device-memory", device_memory },
	{ "after-its-process-was-killed", after_its_process_was_killed },
};

int main(int argc, char **argv)
{
	return end_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
