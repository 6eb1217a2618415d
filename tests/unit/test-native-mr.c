/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared regions and domain contexts on a real device, between two fakes: a daemon that is a thread of this test, and in
 * the place of the real library a provider that can import, or not.
 */
#include "client/verbsd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_verbs.h>

#include "client/abi/real.h"
#include "client/native/native.h"
#include "tests/lib/harness.h"
#include "tests/unit/fake_daemon.h"

#define SIZE	  (1u << 20)
#define PD_HANDLE 7u
#define MR_HANDLE 70u

static struct fake_daemon fake;

static struct {
	_Atomic bool registers, has_domain;
	_Atomic int domain_status, reg_status;
	_Atomic unsigned regions, regs, releases, opens, closes, offers, joins, exports;
	_Atomic uint32_t pd, native, access;
} daemon_side;

static struct {
	bool imports;
	unsigned opened, closed, imported, pds, unimported_pds, dealloced, regs, deregs, mrs, unimported_mrs;
} library;

/* --- a daemon -------------------------------------------------------------------------------------------------------- */

static bool give_region(int fd, const struct frame_header *header, const void *body)
{
	Vsd__NativeRegionRequest *request = vsd__native_region_request__unpack(NULL, header->length, body);
	Vsd__NativeRegionReply reply = VSD__NATIVE_REGION_REPLY__INIT;
	struct fdlist fds = FDLIST_NULL;
	int memory = memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	bool sent;

	ck_assert_ptr_nonnull(request);
	ck_assert_int_eq(ftruncate(memory, SIZE), 0);
	ck_assert_int_eq(fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	fdlist_consume(&fds, memory);
	daemon_side.native = request->has_native ? request->native : 0;
	daemon_side.access = request->access;
	reply.handle = ++daemon_side.regions;
	reply.iova = HARNESS_BASE;
	reply.size = SIZE;
	reply.access = request->access;
	reply.region = reply.handle;
	reply.created = true;
	reply.registers = daemon_side.registers && request->has_native;
	vsd__native_region_request__free_unpacked(request, NULL);
	sent = fake_reply(fd, header, 0, &reply.base, &fds);
	fdlist_deinit(&fds);
	return sent;
}

static bool give_keys(int fd, const struct frame_header *header, const void *body)
{
	Vsd__NativeRegRequest *request = vsd__native_reg_request__unpack(NULL, header->length, body);
	Vsd__NativeRegReply reply = VSD__NATIVE_REG_REPLY__INIT;

	ck_assert_ptr_nonnull(request);
	daemon_side.regs++;
	daemon_side.pd = request->pd;
	vsd__native_reg_request__free_unpacked(request, NULL);
	if (daemon_side.reg_status)
		return fake_reply(fd, header, daemon_side.reg_status, NULL, NULL);
	reply.mr = MR_HANDLE;
	reply.lkey = 71;
	reply.rkey = 72;
	return fake_reply(fd, header, 0, &reply.base, NULL);
}

static bool give_file(int fd, const struct frame_header *header, const ProtobufCMessage *reply)
{
	struct fdlist fds = FDLIST_NULL;
	bool sent;

	fdlist_consume(&fds, open("/dev/null", O_RDWR | O_CLOEXEC));
	sent = fake_reply(fd, header, 0, reply, &fds);
	fdlist_deinit(&fds);
	return sent;
}

static bool give_domain(int fd, const struct frame_header *header, const void *body)
{
	Vsd__NativeDomainRequest *request = vsd__native_domain_request__unpack(NULL, header->length, body);
	Vsd__NativeDomainReply reply = VSD__NATIVE_DOMAIN_REPLY__INIT;
	bool offers;

	ck_assert_ptr_nonnull(request);
	offers = request->has_native;
	if (offers)
		ck_assert_uint_eq(request->pd, PD_HANDLE);
	vsd__native_domain_request__free_unpacked(request, NULL);
	if (daemon_side.domain_status)
		return fake_reply(fd, header, daemon_side.domain_status, NULL, NULL);
	if (offers) {
		daemon_side.offers++;
		daemon_side.has_domain = true;
		return fake_reply(fd, header, 0, NULL, NULL);
	}
	if (!daemon_side.has_domain)
		return fake_reply(fd, header, ENOENT, NULL, NULL);
	daemon_side.joins++;
	reply.native = 100 + daemon_side.joins;
	reply.driver = RDMA_DRIVER_MLX5;
	reply.pd = PD_HANDLE;
	return give_file(fd, header, &reply.base);
}

static bool handle(struct fake_daemon *f, int fd, const struct frame_header *header, const void *body)
{
	Vsd__NativeReply opened = VSD__NATIVE_REPLY__INIT;
	Vsd__DeviceListReply none = VSD__DEVICE_LIST_REPLY__INIT;

	(void)f;
	switch (header->opcode) {
	case VSD__OP__OP_DEVICE_LIST:
		return fake_reply(fd, header, 0, &none.base, NULL);
	case VSD__OP__OP_NATIVE_OPEN:
		opened.native = ++daemon_side.opens;
		opened.mode = VSD__NATIVE_MODE__NATIVE_RDWR;
		opened.driver = RDMA_DRIVER_MLX5;
		return give_file(fd, header, &opened.base);
	case VSD__OP__OP_NATIVE_REGION:
		return give_region(fd, header, body);
	case VSD__OP__OP_NATIVE_REG:
		return give_keys(fd, header, body);
	case VSD__OP__OP_NATIVE_DOMAIN:
		return give_domain(fd, header, body);
	case VSD__OP__OP_NATIVE_RELEASE:
		daemon_side.releases++;
		return fake_reply(fd, header, 0, NULL, NULL);
	case VSD__OP__OP_NATIVE_CLOSE:
		daemon_side.closes++;
		return fake_reply(fd, header, 0, NULL, NULL);
	case VSD__OP__OP_REGION_EXPORT:
		daemon_side.exports++;
		return fake_reply(fd, header, 0, NULL, NULL);
	case VSD__OP__OP_REGION_PERSIST:
		return fake_reply(fd, header, 0, NULL, NULL);
	default:
		return false;
	}
}

/* --- a library with a provider --------------------------------------------------------------------------------------- */

static struct ibv_device device = { .name = "mlx5_0", .dev_name = "uverbs0" };

static struct ibv_context *context_new(int fd)
{
	struct ibv_context *ctx = calloc(1, sizeof(*ctx));

	ctx->device = &device;
	ctx->cmd_fd = fd;
	return ctx;
}

static struct ibv_context *lib_open_device(struct ibv_device *dev)
{
	ck_assert_ptr_eq(dev, &device);
	library.opened++;
	return context_new(native_open("uverbs0", O_RDWR | O_CLOEXEC, EACCES));
}

static int lib_close_device(struct ibv_context *ctx)
{
	library.closed++;
	close(ctx->cmd_fd);
	free(ctx);
	return 0;
}

static struct ibv_context *lib_import_device(int fd)
{
	if (!library.imports) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	library.imported++;
	return context_new(fd);
}

static struct ibv_pd *pd_new(struct ibv_context *ctx, uint32_t number)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	*pd = (struct ibv_pd){ .context = ctx, .handle = number };
	library.pds++;
	return pd;
}

static struct ibv_pd *lib_alloc_pd(struct ibv_context *ctx)
{
	return pd_new(ctx, PD_HANDLE);
}

static struct ibv_pd *lib_import_pd(struct ibv_context *ctx, uint32_t number)
{
	return pd_new(ctx, number);
}

static int lib_dealloc_pd(struct ibv_pd *pd)
{
	library.dealloced++;
	library.pds--;
	free(pd);
	return 0;
}

static void lib_unimport_pd(struct ibv_pd *pd)
{
	library.unimported_pds++;
	library.pds--;
	free(pd);
}

static struct ibv_mr *mr_new(struct ibv_pd *pd, void *addr, size_t length)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	*mr = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = addr, .length = length, .lkey = 81, .rkey = 82 };
	return mr;
}

static struct ibv_mr *lib_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	ck_assert_uint_eq(iova, HARNESS_BASE);
	ck_assert_uint_eq(access & IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE);
	library.regs++;
	return mr_new(pd, addr, length);
}

static int lib_dereg_mr(struct ibv_mr *mr)
{
	library.deregs++;
	free(mr);
	return 0;
}

static struct ibv_mr *lib_import_mr(struct ibv_pd *pd, uint32_t number)
{
	ck_assert_uint_eq(number, MR_HANDLE);
	library.mrs++;
	return mr_new(pd, NULL, 0);
}

static void lib_unimport_mr(struct ibv_mr *mr)
{
	library.unimported_mrs++;
	free(mr);
}

static const struct {
	const char *name;
	void (*function)(void);
} functions[] = {
#define FUNCTION(name) { "ibv_" #name, (void (*)(void))lib_##name }
	FUNCTION(open_device),	FUNCTION(close_device), FUNCTION(import_device), FUNCTION(alloc_pd),   FUNCTION(import_pd),
	FUNCTION(dealloc_pd),	FUNCTION(unimport_pd),	FUNCTION(reg_mr_iova2),	 FUNCTION(dereg_mr),   FUNCTION(import_mr),
	FUNCTION(unimport_mr),
};

static void *instead(const char *name)
{
	for (unsigned i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		if (strcmp(functions[i].name, name) == 0)
			return (void *)functions[i].function;
	}
	return NULL;
}

/* --- what the library makes of them ---------------------------------------------------------------------------------- */

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static const struct verbsd_mr_attr attr = { .size = SIZE, .access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_RELAXED_ORDERING };

static void setup(void)
{
	memset(&daemon_side, 0, sizeof(daemon_side));
	memset(&library, 0, sizeof(library));
	daemon_side.registers = true;
	library.imports = true;
	real_instead = instead;
	fake_start(&fake, handle);
	ctx = ibv_open_device(&device);
	pd = ibv_alloc_pd(ctx);
	ck_assert_ptr_nonnull(pd);
}

static void teardown(void)
{
	fake_stop(&fake);
}

START_TEST(the_daemon_registers_it)
{
	struct ibv_mr *mr = verbsd_alloc_mr(pd, &attr);

	ck_assert_ptr_nonnull(mr);
	ck_assert_uint_eq(daemon_side.native, 1);
	ck_assert_uint_eq(daemon_side.pd, PD_HANDLE);
	ck_assert_uint_eq(daemon_side.access,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	ck_assert(mr->pd == pd && mr->context == ctx && mr->length == SIZE);
	ck_assert_uint_eq(mr->handle, MR_HANDLE);
	ck_assert_uint_eq(mr->lkey, 71);
	ck_assert_uint_eq(mr->rkey, 72);
	memset(mr->addr, 1, SIZE);
	ck_assert_int_eq(verbsd_export_mr(mr, "pool", 0), 0);
	ck_assert_uint_eq(daemon_side.exports, 1);
	ck_assert_int_ne(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 1), 0);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_uint_eq(daemon_side.releases, 1);
	ck_assert_uint_eq(library.regs + library.deregs, 0);
}
END_TEST

START_TEST(or_the_driver_does)
{
	struct ibv_mr *mr;

	daemon_side.registers = false;
	mr = verbsd_alloc_mr(pd, &attr);
	ck_assert_ptr_nonnull(mr);
	ck_assert_uint_eq(library.regs, 1);
	ck_assert_uint_eq(daemon_side.regs, 0);
	ck_assert_uint_eq(mr->lkey, 81);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_uint_eq(library.deregs, 1);
	ck_assert_uint_eq(daemon_side.releases, 1);
}
END_TEST

/* A device that the program opened by itself. */
START_TEST(without_the_daemons_dup_the_driver_does)
{
	struct ibv_context *own = context_new(open("/dev/null", O_RDWR | O_CLOEXEC));
	struct ibv_pd *own_pd = pd_new(own, PD_HANDLE);
	struct ibv_mr *mr = verbsd_alloc_mr(own_pd, &attr);

	ck_assert_ptr_nonnull(mr);
	ck_assert_uint_eq(daemon_side.native, 0);
	ck_assert_uint_eq(library.regs, 1);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_int_eq(ibv_dealloc_pd(own_pd), 0);
	ck_assert_int_eq(ibv_close_device(own), 0);
}
END_TEST

START_TEST(a_refusal_leaves_nothing)
{
	daemon_side.reg_status = ENOMEM;
	ck_assert_ptr_null(verbsd_alloc_mr(pd, &attr));
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_uint_eq(daemon_side.releases, 1);
	ck_assert_ptr_null(verbsd_alloc_mr(pd, NULL));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_uint_eq(daemon_side.regions, 1);
}
END_TEST

START_TEST(the_first_member_makes_the_context)
{
	struct ibv_pd *shared = verbsd_domain_pd(&device);
	struct ibv_context *context;

	ck_assert_ptr_nonnull(shared);
	context = shared->context;
	ck_assert_uint_eq(shared->handle, PD_HANDLE);
	ck_assert_uint_eq(daemon_side.offers, 1);
	ck_assert_uint_eq(daemon_side.joins, 1);
	/* What it was made with is gone, but not the PD in it. */
	ck_assert_uint_eq(library.opened, 2);
	ck_assert_uint_eq(library.closed, 1);
	ck_assert_uint_eq(library.unimported_pds, 1);
	ck_assert_uint_eq(library.dealloced, 0);
	ck_assert_uint_eq(daemon_side.closes, 1);
	ibv_unimport_pd(shared);
	ck_assert_uint_eq(library.unimported_pds, 2);
	ck_assert_int_eq(ibv_close_device(context), 0);
}
END_TEST

START_TEST(others_import_it)
{
	struct ibv_pd *shared;
	struct ibv_context *context;
	struct ibv_mr *mr;

	daemon_side.has_domain = true;
	shared = verbsd_domain_pd(&device);
	ck_assert_ptr_nonnull(shared);
	ck_assert_uint_eq(daemon_side.offers, 0);
	ck_assert_uint_eq(library.imported, 1);
	mr = verbsd_alloc_mr(shared, &attr);
	ck_assert_ptr_nonnull(mr);
	ck_assert_uint_eq(daemon_side.native, 101);
	ck_assert_uint_eq(library.mrs, 1);
	ck_assert_uint_eq(mr->length, SIZE);
	memset(mr->addr, 1, SIZE);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_uint_eq(library.unimported_mrs, 1);
	ck_assert_uint_eq(library.deregs, 0);
	ck_assert_uint_eq(daemon_side.releases, 1);
	context = shared->context;
	ibv_unimport_pd(shared);
	ck_assert_int_eq(ibv_close_device(context), 0);
	ck_assert_uint_eq(daemon_side.closes, 1);
}
END_TEST

START_TEST(a_provider_that_cannot_import_leaves_nothing)
{
	library.imports = false;
	daemon_side.has_domain = true;
	ck_assert_ptr_null(verbsd_domain_pd(&device));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_uint_eq(daemon_side.closes, 1);
	daemon_side.domain_status = EACCES;
	ck_assert_ptr_null(verbsd_domain_pd(&device));
	ck_assert_int_eq(errno, EACCES);
	daemon_side.domain_status = EOPNOTSUPP;
	ck_assert_ptr_null(verbsd_domain_pd(&device));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	/* One that comes and goes is not run after for ever. */
	daemon_side.domain_status = EEXIST;
	ck_assert_ptr_null(verbsd_domain_pd(&device));
	ck_assert_int_eq(errno, EEXIST);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("native-mr");
	TCase *t = tcase_create("client");

	/* The session lasts as long as the process: its fd is no leak. */
	suite_add_tcase(suite, t);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, the_daemon_registers_it);
	tcase_add_test(t, or_the_driver_does);
	tcase_add_test(t, without_the_daemons_dup_the_driver_does);
	tcase_add_test(t, a_refusal_leaves_nothing);
	tcase_add_test(t, the_first_member_makes_the_context);
	tcase_add_test(t, others_import_it);
	tcase_add_test(t, a_provider_that_cannot_import_leaves_nothing);
	return harness_run(suite);
}
