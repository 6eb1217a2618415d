/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each call that makes or finds memory, with the first, second, ... allocation or mapping in it failing: it fails with
 * ENOMEM, leaves nothing behind, here or in the daemon, and works the next time. One case a run (see ends.h).
 *
 * A function that a program defines is found before that of the C library, by a preloaded library too.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "client/verbsd.h"
#include "tests/e2e/counted.h"
#include "tests/e2e/ends.h"

#define SIZE ((size_t)1 << 20)

static __thread unsigned countdown; /* 0: nothing fails */
static __thread bool failed;

void *__libc_calloc(size_t n, size_t size);

static bool fails(void)
{
	if (countdown == 0 || --countdown)
		return false;
	failed = true;
	errno = ENOMEM;
	return true;
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
	return fails() ? NULL : __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *mmap(void *addr, size_t size, int prot, int flags, int fd, off_t offset)
{
	static __typeof__(&mmap) next;

	if (!next)
		next = (__typeof__(&mmap))dlsym(RTLD_NEXT, "mmap");
	return fails() ? MAP_FAILED : next(addr, size, prot, flags, fd, offset);
}

/* --- calls: each undoes what it did; false: it failed --------------------------------------------------------------- */

static struct ibv_context *ctx, *imported;
static struct ibv_pd *pd, *same;
static struct ibv_mr *region, *plain;
static struct ibv_dm *dm;
static uint8_t memory[4096];
static int capability, file;
static const char *const name = "e2e/faults";

static bool mr_done(struct ibv_mr *mr)
{
	unsigned left = countdown;

	countdown = 0;
	NEED(!mr || ibv_dereg_mr(mr) == 0);
	countdown = left;
	return mr;
}

static bool call_alloc(void)
{
	const struct verbsd_mr_attr attr = { .size = SIZE };

	return mr_done(verbsd_alloc_mr(pd, &attr));
}

static bool call_attach_new(void)
{
	const struct verbsd_mr_attr attr = { .size = SIZE };
	struct ibv_mr *mr = verbsd_attach_mr(pd, "e2e/faults.new", &attr, VERBSD_EXPORT_PERSIST, NULL);

	if (mr)
		NEED(verbsd_release_mr(ctx, "e2e/faults.new") == 0);
	return mr_done(mr);
}

static bool call_attach(void)
{
	const struct verbsd_mr_attr attr = { .size = SIZE };

	return mr_done(verbsd_attach_mr(pd, name, &attr, 0, NULL));
}

static bool call_import_name(void)
{
	return mr_done(verbsd_import_mr(pd, name, ALL_ACCESS));
}

static bool call_import_fd(void)
{
	return mr_done(verbsd_import_mr_fd(pd, capability, ALL_ACCESS));
}

static bool call_export_fd(void)
{
	int fd = verbsd_export_mr_fd(region, 0);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static bool call_import_device(void)
{
	int fd = fcntl(ctx->cmd_fd, F_DUPFD_CLOEXEC, 0);
	struct ibv_context *c = ibv_import_device(fd);
	int error = errno;

	if (c)
		NEED(ibv_close_device(c) == 0);
	else
		close(fd); /* it stayed ours */
	errno = error;
	return c;
}

static bool call_open(void)
{
	struct ibv_context *c = ibv_open_device(ctx->device);

	if (c)
		NEED(ibv_close_device(c) == 0);
	return c;
}

static bool call_import_pd(void)
{
	struct ibv_pd *p = ibv_import_pd(imported, pd->handle);

	if (p)
		ibv_unimport_pd(p);
	return p;
}

static bool call_import_mr(void)
{
	struct ibv_mr *mr = ibv_import_mr(same, plain->handle);

	if (mr)
		ibv_unimport_mr(mr);
	return mr;
}

static bool call_reg(void)
{
	return mr_done(ibv_reg_mr(pd, memory, sizeof(memory), ALL_ACCESS));
}

static bool call_null(void)
{
	return mr_done(ibv_alloc_null_mr(pd));
}

static bool call_dmabuf(void)
{
	return mr_done(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, file, ALL_ACCESS));
}

static bool call_dm(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 64, .log_align_req = 16 };
	struct ibv_dm *d = ibv_alloc_dm(ctx, &attr);
	unsigned left = countdown;

	countdown = 0;
	NEED(!d || ibv_free_dm(d) == 0);
	countdown = left;
	return d;
}

static bool call_import_dm(void)
{
	struct ibv_dm *d = ibv_import_dm(imported, dm->handle);

	if (d)
		ibv_unimport_dm(d);
	return d;
}

static bool call_reg_dm(void)
{
	return mr_done(ibv_reg_dm_mr(pd, dm, 0, 64, ALL_ACCESS | IBV_ACCESS_ZERO_BASED));
}

static const struct {
	const char *name;
	bool (*call)(void);
} calls[] = {
	{ "verbsd_alloc_mr", call_alloc },	   { "verbsd_attach_mr, new", call_attach_new },
	{ "verbsd_attach_mr", call_attach },	   { "verbsd_import_mr", call_import_name },
	{ "verbsd_import_mr_fd", call_import_fd }, { "verbsd_export_mr_fd", call_export_fd },
	{ "ibv_import_device", call_import_device }, { "ibv_open_device", call_open },
	{ "ibv_import_pd", call_import_pd },	   { "ibv_import_mr", call_import_mr },
	{ "ibv_reg_mr", call_reg },		   { "ibv_alloc_null_mr", call_null },
	{ "ibv_reg_dmabuf_mr", call_dmabuf },	   { "ibv_alloc_dm", call_dm },
	{ "ibv_import_dm", call_import_dm },	   { "ibv_reg_dm_mr", call_reg_dm },
};

static void world_make(void)
{
	const struct verbsd_mr_attr attr = { .size = SIZE, .access = ALL_ACCESS };
	struct ibv_alloc_dm_attr dm_attr = { .length = 64 };

	ctx = end_device();
	pd = ibv_alloc_pd(ctx);
	imported = ibv_import_device(fcntl(ctx->cmd_fd, F_DUPFD_CLOEXEC, 0));
	same = ibv_import_pd(imported, pd->handle);
	plain = ibv_reg_mr(pd, memory, sizeof(memory), ALL_ACCESS);
	region = verbsd_alloc_mr(pd, &attr);
	NEED(region && verbsd_export_mr(region, name, 0) == 0);
	capability = verbsd_export_mr_fd(region, 0);
	dm = ibv_alloc_dm(ctx, &dm_attr);
	file = memfd_create("buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	NEED(same && plain && capability >= 0 && dm && file >= 0);
	NEED(ftruncate(file, 4096) == 0 && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
}

static void world_end(void)
{
	NEED(ibv_free_dm(dm) == 0 && ibv_dereg_mr(region) == 0 && ibv_dereg_mr(plain) == 0);
	close(capability);
	close(file);
	ibv_unimport_pd(same);
	NEED(ibv_dealloc_pd(pd) == 0);
	NEED(ibv_close_device(imported) == 0 && ibv_close_device(ctx) == 0);
}

/* How often an allocation of the call failed, and the call with it, or did without. */
static unsigned each_failure(bool (*call)(void), const char *what)
{
	unsigned n = 0, refused = 0;

	for (bool done = false; !done;) {
		unsigned before = open_fds();
		int error;
		struct verbsd_mr_info info;
		bool works;

		failed = false;
		countdown = ++n;
		errno = 0;
		works = call();
		error = errno;
		countdown = 0;
		done = !failed;
		if (!works && (done || error != ENOMEM))
			fprintf(stderr, "%s, failure %u: %s\n", what, n, strerror(error));
		NEED(works || (failed && error == ENOMEM));
		NEED(open_fds() == before);
		NEED(verbsd_query_mr(region, &info) == 0 && info.users == 1);
		NEED(verbsd_list_mr(ctx, NULL, 0) == 1);
		NEED(call());
		refused += !works;
	}
	return refused;
}

static void every_allocation_fails_once(void)
{
	world_make();
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		NEED(calls[i].call()); /* what is allocated at the first call only */
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		unsigned refused = each_failure(calls[i].call, calls[i].name);

		/* An fd is all that a capability takes. */
		NEED(refused || calls[i].call == call_export_fd);
	}
	world_end();
}

/* From nothing: the session, the pages, the thread. */
static void opening_fails_anywhere(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = NULL;
	unsigned n = 0;

	NEED(list && list[0]);
	c = ibv_open_device(list[0]);
	NEED(c && ibv_close_device(c) == 0);

	unsigned before = open_fds();

	for (bool done = false; !done;) {
		int error;

		failed = false;
		countdown = ++n;
		errno = 0;
		c = ibv_open_device(list[0]);
		error = errno;
		countdown = 0;
		done = !failed;
		if (!c && (done || error != ENOMEM))
			fprintf(stderr, "failure %u: %s\n", n, strerror(error));
		NEED(c || (failed && error == ENOMEM));
		NEED(!c || ibv_close_device(c) == 0);
		NEED(open_fds() == before);
	}
	NEED(n > 3);
	ibv_free_device_list(list);
}

static const struct end_case cases[] = {
	{ "every-allocation-fails-once", every_allocation_fails_once },
	{ "opening-fails-anywhere", opening_fails_anywhere },
};

int main(int argc, char **argv)
{
	return end_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
