/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory: how it is had, copied to and from, registered, imported, and what happens to it when processes go. One
 * case a run (see ends.h).
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/e2e/ends.h"

#define SIZE 65536u

static struct ibv_dm *alloc(struct ibv_context *ctx, size_t length)
{
	struct ibv_alloc_dm_attr attr = { .length = length };
	struct ibv_dm *dm = ibv_alloc_dm(ctx, &attr);

	NEED(dm && dm->context == ctx && dm->comp_mask == IBV_DM_MASK_HANDLE);
	return dm;
}

static size_t max_size(struct ibv_context *ctx)
{
	struct ibv_device_attr_ex attr;

	NEED(ibv_query_device_ex(ctx, NULL, &attr) == 0);
	return attr.max_dm_size;
}

static void it_is_had_and_given_back(void)
{
	struct ibv_context *ctx = end_device();
	size_t max = max_size(ctx);
	struct ibv_alloc_dm_attr attr = { .length = max };
	static const struct ibv_alloc_dm_attr bad[] = { { .length = 0 }, { .length = SIZE_MAX }, { 64, .comp_mask = 1 },
		{ 64, .log_align_req = 22 }, { 64, .log_align_req = UINT32_MAX } };

	NEED(max >= SIZE);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		attr = bad[i];
		REFUSED(ibv_alloc_dm(ctx, &attr), EINVAL);
	}
	attr = (struct ibv_alloc_dm_attr){ .length = max + 1 };
	REFUSED(ibv_alloc_dm(ctx, &attr), EINVAL);

	struct ibv_dm *all = alloc(ctx, max);

	attr.length = 4;
	REFUSED(ibv_alloc_dm(ctx, &attr), ENOMEM);
	NEED(ibv_free_dm(all) == 0);
	for (uint32_t log = 0; log <= 21; log++) {
		attr.log_align_req = log;
		NEED(ibv_free_dm(ibv_alloc_dm(ctx, &attr)) == 0);
	}
	NEED(ibv_close_device(ctx) == 0);
}

static void copies_are_checked(void)
{
	static const struct {
		uint64_t offset;
		size_t length;
		int want;
	} cases[] = { { 0, 100, 0 }, { 96, 4, 0 }, { 100, 0, 0 }, { 4, 0, 0 },
		/* not by fours, whichever of the two */
		{ 1, 4, EINVAL }, { 2, 4, EINVAL }, { 0, 3, EINVAL }, { 0, 1, EINVAL }, { 96, 2, EINVAL }, { 3, 5, EINVAL },
		{ 99, 0, EINVAL },
		/* past the end, by fours or not */
		{ 100, 4, EFAULT }, { 0, 104, EFAULT }, { 104, 0, EFAULT }, { 98, 4, EFAULT }, { 96, 5, EFAULT },
		{ UINT64_MAX - 3, 4, EFAULT }, { 4, SIZE_MAX - 3, EFAULT } };
	struct ibv_context *ctx = end_device();
	struct ibv_dm *dm = alloc(ctx, 100);
	uint8_t bytes[104] = { 0 }, back[104], want[104] = { 0 };

	NEED(ibv_memcpy_from_dm(back, dm, 0, 100) == 0 && memcmp(back, bytes, 100) == 0); /* zeros at first */
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memset(bytes, (int)i + 1, sizeof(bytes));
		NEED(ibv_memcpy_to_dm(dm, cases[i].offset, bytes, cases[i].length) == cases[i].want);
		memset(back, 0, sizeof(back));
		NEED(ibv_memcpy_from_dm(back, dm, cases[i].offset, cases[i].length) == cases[i].want);
		/* What is refused copies nothing, either way. */
		if (cases[i].want == 0)
			memcpy(want + cases[i].offset, bytes, cases[i].length);
		for (size_t k = cases[i].want ? 0 : cases[i].length; k < sizeof(back); k++)
			NEED(back[k] == 0);
		NEED(cases[i].want || memcmp(back, bytes, cases[i].length) == 0);
		NEED(ibv_memcpy_from_dm(back, dm, 0, 100) == 0 && memcmp(back, want, 100) == 0);
	}
	/* The host's address may be any. */
	memset(bytes, 77, sizeof(bytes));
	NEED(ibv_memcpy_to_dm(dm, 4, bytes + 1, 96) == 0 && ibv_memcpy_from_dm(back + 3, dm, 4, 96) == 0);
	NEED(memcmp(back + 3, bytes, 96) == 0);
	NEED(ibv_free_dm(dm) == 0);
	NEED(ibv_close_device(ctx) == 0);
}

#define DM_ACCESS (ALL_ACCESS | IBV_ACCESS_ZERO_BASED)

static void regions_on_it(void)
{
	struct end a, b = { 0 };
	uint8_t *memory = aligned_alloc(4096, SIZE), back[4096];

	NEED(memory);
	a.ctx = b.ctx = end_device();
	a.pd = b.pd = ibv_alloc_pd(a.ctx);
	end_pair(&a, &b);

	struct ibv_dm *dm = alloc(a.ctx, SIZE);
	struct ibv_mr *plain = ibv_reg_mr(a.pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE), *none;

	REFUSED(ibv_reg_dm_mr(a.pd, dm, 0, SIZE, ALL_ACCESS), EINVAL); /* not zero-based */
	REFUSED(ibv_reg_dm_mr(a.pd, dm, 0, SIZE + 1, DM_ACCESS), EINVAL);
	REFUSED(ibv_reg_dm_mr(a.pd, dm, 4, SIZE, DM_ACCESS), EINVAL);
	REFUSED(ibv_reg_dm_mr(a.pd, dm, UINT64_MAX, 1, DM_ACCESS), EINVAL);
	REFUSED(ibv_reg_dm_mr(a.pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE), EINVAL);
	REFUSED(ibv_reg_dm_mr(a.pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND), EINVAL);
	none = ibv_reg_dm_mr(a.pd, dm, SIZE, 0, DM_ACCESS);
	NEED(none && ibv_dereg_mr(none) == 0);

	struct ibv_mr *mr = ibv_reg_dm_mr(a.pd, dm, 4096, 8192, DM_ACCESS);

	NEED(plain && mr && mr->length == 8192 && !mr->addr);
	NEED(ibv_free_dm(dm) == EBUSY);
	memset(memory, 3, SIZE);
	NEED(end_work(&a, &(struct work){ IBV_WR_RDMA_WRITE, (uintptr_t)memory, 4096, plain->lkey, 4096, mr->rkey }) ==
		IBV_WC_SUCCESS);
	NEED(ibv_memcpy_from_dm(back, dm, 8192, 4096) == 0 && memcmp(back, memory, 4096) == 0);
	/* As a local buffer, and for atomics. */
	NEED(end_work(&a, &(struct work){ IBV_WR_RDMA_READ, 0, 8, mr->lkey, 4096, mr->rkey }) == IBV_WC_SUCCESS);
	NEED(end_work(&a, &(struct work){ IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)memory, 8, plain->lkey, 0, mr->rkey, 1 }) ==
		IBV_WC_SUCCESS);
	NEED(ibv_memcpy_from_dm(back, dm, 4096, 8) == 0 && back[0] == 4);
	/* PD and access may change, its place may not. */
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 4096, 0) == IBV_REREG_MR_ERR_INPUT);
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_ACCESS) == IBV_REREG_MR_ERR_INPUT);
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_ZERO_BASED) == 0);
	NEED(end_work(&a, &(struct work){ IBV_WR_RDMA_WRITE, (uintptr_t)memory, 8, plain->lkey, 0, mr->rkey }) ==
		IBV_WC_REM_ACCESS_ERR);
	NEED(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(plain) == 0);
	NEED(ibv_free_dm(dm) == 0);
	end_qp_destroy(&a);
	end_qp_destroy(&b);
	NEED(ibv_dealloc_pd(a.pd) == 0 && ibv_close_device(a.ctx) == 0);
	free(memory);
}

static void it_is_imported_here(void)
{
	struct ibv_context *ctx = end_device(), *imported = ibv_import_device(fcntl(ctx->cmd_fd, F_DUPFD_CLOEXEC, 0));
	struct ibv_dm *dm = alloc(ctx, SIZE), *same;
	struct ibv_pd *pd;
	char back[8];

	NEED(imported);
	pd = ibv_alloc_pd(imported);
	same = ibv_import_dm(imported, dm->handle);
	NEED(pd && same && same != dm && same->handle == dm->handle && same->context == imported);
	REFUSED(ibv_import_dm(imported, 99999), EINVAL);
	REFUSED(ibv_import_dm(imported, pd->handle), EINVAL);
	NEED(ibv_memcpy_to_dm(dm, 16, "eight by", 8) == 0);
	NEED(ibv_memcpy_from_dm(back, same, 16, 8) == 0 && memcmp(back, "eight by", 8) == 0);

	struct ibv_mr *mr = ibv_reg_dm_mr(pd, same, 0, SIZE, DM_ACCESS);

	NEED(mr);
	REFUSED(ibv_reg_dm_mr(pd, dm, 0, SIZE, DM_ACCESS), EINVAL); /* of another context */
	NEED(ibv_free_dm(dm) == EBUSY);
	/* Let go while a region is on it; and then freed by the other. */
	ibv_unimport_dm(same);
	NEED(ibv_dereg_mr(mr) == 0);
	memset(back, 0, sizeof(back));
	NEED(ibv_memcpy_from_dm(back, dm, 16, 8) == 0 && memcmp(back, "eight by", 8) == 0);
	same = ibv_import_dm(imported, dm->handle);
	memset(back, 0, sizeof(back));
	NEED(same && ibv_memcpy_from_dm(back, same, 16, 8) == 0 && memcmp(back, "eight by", 8) == 0);
	NEED(ibv_free_dm(same) == 0);
	NEED(ibv_free_dm(dm) == EINVAL);
	ibv_unimport_dm(dm);
	NEED(ibv_dealloc_pd(pd) == 0);
	NEED(ibv_close_device(imported) == 0 && ibv_close_device(ctx) == 0);
}

static void maker(int fd, void *arg)
{
	struct ibv_context *ctx = end_device();
	struct ibv_dm *dm = alloc(ctx, SIZE);

	NEED(ibv_memcpy_to_dm(dm, 0, "from another", 12) == 0);
	fd_say(fd, ctx->cmd_fd);
	say(fd, &dm->handle, sizeof(dm->handle));
	nod_wait(fd);
	NEED(ibv_close_device(ctx) == 0); /* what is left of it is the importer's */
	nod(fd);
	nod_wait(fd);
	(void)arg;
}

static void it_outlives_its_maker(void)
{
	struct child child = child_start(maker, NULL);
	struct ibv_context *ctx = ibv_import_device(fd_hear(child.fd));
	struct ibv_alloc_dm_attr attr;
	uint32_t handle;
	char back[12];

	NEED(ctx);
	hear(child.fd, &handle, sizeof(handle));

	struct ibv_dm *dm = ibv_import_dm(ctx, handle);

	NEED(dm);
	nod(child.fd);
	nod_wait(child.fd);
	NEED(ibv_memcpy_from_dm(back, dm, 0, 12) == 0 && memcmp(back, "from another", 12) == 0);
	child_kill(&child);
	NEED(ibv_memcpy_to_dm(dm, 0, back, 12) == 0);
	attr = (struct ibv_alloc_dm_attr){ .length = max_size(ctx) };
	REFUSED(ibv_alloc_dm(ctx, &attr), ENOMEM);
	NEED(ibv_free_dm(dm) == 0);
	NEED(ibv_free_dm(alloc(ctx, attr.length)) == 0);
	NEED(ibv_close_device(ctx) == 0);
}

/* A child of fork has its parent's context by its fd, and so its device memory; its parent's own it cannot touch. */
static void children_have_some(void)
{
	struct ibv_context *ctx = end_device();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_dm *dm = alloc(ctx, 64);
	int status;
	char back[8];

	NEED(pd && ibv_memcpy_to_dm(dm, 0, "parental", 8) == 0);
	for (unsigned i = 0; i < 5; i++) {
		fflush(NULL);

		pid_t pid = fork();

		if (pid == 0) {
			NEED(ibv_memcpy_from_dm(back, dm, 0, 8) == ENOTCONN);
			NEED(ibv_free_dm(dm) == ENOTCONN);
			REFUSED(ibv_reg_dm_mr(pd, dm, 0, 64, DM_ACCESS), ENOTCONN);

			struct ibv_dm *own = alloc(ctx, max_size(ctx) / 8);

			NEED(ibv_memcpy_to_dm(own, 0, "children", 8) == 0);
			NEED(ibv_memcpy_from_dm(back, own, 0, 8) == 0 && memcmp(back, "children", 8) == 0);
			REFUSED(ibv_reg_dm_mr(pd, own, 0, 64, DM_ACCESS), ENOTCONN);
			NEED(ibv_free_dm(own) == 0);
			_exit(0);
		}
		NEED(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	}
	NEED(ibv_memcpy_from_dm(back, dm, 0, 8) == 0 && memcmp(back, "parental", 8) == 0);
	NEED(ibv_free_dm(dm) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(ctx) == 0);
}

static const struct end_case cases[] = {
	{ "it-is-had-and-given-back", it_is_had_and_given_back },
	{ "copies-are-checked", copies_are_checked },
	{ "regions-on-it", regions_on_it },
	{ "it-is-imported-here", it_is_imported_here },
	{ "it-outlives-its-maker", it_outlives_its_maker },
	{ "children-have-some", children_have_some },
};

int main(int argc, char **argv)
{
	return end_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
