/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * client/abi/{region,import,dm,rereg}.c against a daemon that answers what no daemon of this version would: no fd,
 * another file, a key that is in use. The call fails, and what the daemon says it made is destroyed there.
 */
#include "client/abi/abi.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/verbsd.h"
#include "proto/ring_abi.h"
#include "tests/lib/harness.h"
#include "tests/unit/fake_daemon.h"
#include "tests/unit/files.h"

#define SIZE 65536u
#define BASE 0x200000000000ull

/* How the daemon lies; all zero: it does not. */
struct lie {
	const char *what;
	int status, fds, seals, want;
	uint64_t file, size;
	uint32_t key;
	bool memory; /* it says what the fd is: */
	Vsd__MrMemory of;
	uint64_t at, length;
};

static struct fake_daemon fake;
static struct lie lie;	/* as the test wants it: changed by CHANGE() */
static struct lie told; /* the daemon's copy, for one request */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define CHANGE(what)                          \
	do {                                  \
		pthread_mutex_lock(&lock);    \
		what;                         \
		pthread_mutex_unlock(&lock);  \
	} while (0)
static int events = -1, kick = -1;
static _Atomic unsigned made, destroyed, unpersisted;
static uint32_t next_key = 0x7000;

static bool reply_fds(int fd, const struct frame_header *header, const ProtobufCMessage *reply, struct fdlist *fds)
{
	bool sent = fake_reply(fd, header, 0, reply, fds);

	fdlist_deinit(fds);
	return sent;
}

static uint32_t map_header[2] = { VSD_MAP_MAGIC, VSD_ABI_VERSION };

static int map_new(void)
{
	int fd = file_new(VSD_MAP_SIZE, SEALS);

	ck_assert_int_eq(pwrite(fd, map_header, sizeof(map_header), 0), sizeof(map_header));
	return fd;
}

static bool join(int fd, const struct frame_header *header)
{
	Vsd__JoinReply reply = VSD__JOIN_REPLY__INIT;
	struct fdlist fds = FDLIST_NULL;
	int sockets[2], pipes[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
	events = sockets[0];
	kick = pipes[1];
	fdlist_consume(&fds, sockets[1]);
	fdlist_consume(&fds, file_new(VSD_PAGE_SIZE, SEALS));
	fdlist_consume(&fds, pipes[0]);
	fdlist_consume(&fds, map_new());
	reply.peer = 7;
	reply.page_size = VSD_PAGE_SIZE;
	reply.map_size = VSD_MAP_SIZE;
	return reply_fds(fd, header, &reply.base, &fds);
}

static void device_init(Vsd__Device *device)
{
	static char name[] = "soft0";

	vsd__device__init(device);
	device->name = name;
	device->node_type = IBV_NODE_CA;
	device->transport = IBV_TRANSPORT_IB;
	device->soft = true;
}

static bool context(int fd, const struct frame_header *header)
{
	Vsd__ContextReply reply = VSD__CONTEXT_REPLY__INIT;
	Vsd__Device device;
	struct fdlist fds = FDLIST_NULL;
	uint8_t nonce[VSD_NONCE_SIZE] = { 9 };

	device_init(&device);
	reply.context = 3;
	reply.device = &device;
	fdlist_consume(&fds, capability_new(nonce));
	return reply_fds(fd, header, &reply.base, &fds);
}

static void lie_fds(struct fdlist *fds)
{
	for (int i = 0; i < told.fds; i++)
		fdlist_consume(fds, told.file ? file_new(told.file, told.seals) : open("/dev/null", O_RDWR | O_CLOEXEC));
}

static bool region(int fd, const struct frame_header *header)
{
	Vsd__RegionReply reply = VSD__REGION_REPLY__INIT;
	struct fdlist fds = FDLIST_NULL;

	reply.handle = 100 + made++;
	reply.key = told.key ? told.key : (next_key++ << 8);
	reply.iova = BASE;
	reply.size = told.size;
	reply.access = IBV_ACCESS_LOCAL_WRITE;
	reply.region = made;
	reply.created = true;
	if (told.memory) {
		reply.has_memory = reply.has_at = reply.has_length = true;
		reply.memory = told.of;
		reply.at = told.at;
		reply.length = told.length;
	}
	lie_fds(&fds);
	return reply_fds(fd, header, &reply.base, &fds);
}

static bool device_memory(int fd, const struct frame_header *header)
{
	Vsd__DmReply reply = VSD__DM_REPLY__INIT;
	struct fdlist fds = FDLIST_NULL;

	reply.handle = 100 + made++;
	reply.length = SIZE;
	reply.size = told.size;
	lie_fds(&fds);
	return reply_fds(fd, header, &reply.base, &fds);
}

static bool object(int fd, const struct frame_header *header)
{
	Vsd__ObjectReply reply = VSD__OBJECT_REPLY__INIT;

	reply.handle = 50;
	reply.has_number = true;
	reply.number = 5;
	return fake_reply(fd, header, 0, &reply.base, NULL);
}

static bool lease(int fd, const struct frame_header *header)
{
	Vsd__LeaseReply reply = VSD__LEASE_REPLY__INIT;

	reply.first = 0x100;
	reply.count = 256;
	return fake_reply(fd, header, 0, &reply.base, NULL);
}

static bool device_list(int fd, const struct frame_header *header)
{
	Vsd__DeviceListReply reply = VSD__DEVICE_LIST_REPLY__INIT;
	Vsd__Device device, *list[] = { &device };

	device_init(&device);
	reply.n_devices = 1;
	reply.devices = list;
	return fake_reply(fd, header, 0, &reply.base, NULL);
}

/* What has the key of a region while that is being changed, which cannot be without a mistake of the daemon's. */
static struct soft_mr squatter;

static void squat(void)
{
	pthread_mutex_lock(&lock);
	if (squatter.key)
		ck_assert_int_eq(mr_open(&squatter), 0);
	pthread_mutex_unlock(&lock);
}

static bool handle(struct fake_daemon *f, int fd, const struct frame_header *header, const void *body)
{
	pthread_mutex_lock(&lock);
	told = lie;
	pthread_mutex_unlock(&lock);
	(void)f;
	(void)body;
	switch (header->opcode) {
	case VSD__OP__OP_JOIN:
		return join(fd, header);
	case VSD__OP__OP_DEVICE_LIST:
		return device_list(fd, header);
	case VSD__OP__OP_CONTEXT_OPEN:
		return context(fd, header);
	case VSD__OP__OP_LEASE:
		return lease(fd, header);
	case VSD__OP__OP_PD_ALLOC:
		return object(fd, header);
	case VSD__OP__OP_DESTROY:
		destroyed++;
		return fake_reply(fd, header, 0, NULL, NULL);
	case VSD__OP__OP_REGION_PERSIST:
		unpersisted++;
		return fake_reply(fd, header, 0, NULL, NULL);
	case VSD__OP__OP_CONTEXT_CLOSE:
		return fake_reply(fd, header, 0, NULL, NULL);
	default:
		break;
	}
	if (told.status)
		return fake_reply(fd, header, told.status, NULL, NULL);
	if (header->opcode == VSD__OP__OP_MR_REREG) {
		squat();
		return fake_reply(fd, header, 0, NULL, NULL);
	}
	if (header->opcode == VSD__OP__OP_DM_ALLOC || header->opcode == VSD__OP__OP_DM_IMPORT)
		return device_memory(fd, header);
	if (header->opcode == VSD__OP__OP_REGION_EXPORT) {
		struct fdlist fds = FDLIST_NULL;

		lie_fds(&fds);
		return reply_fds(fd, header, NULL, &fds);
	}
	return region(fd, header);
}

/* --- the tests ----------------------------------------------------------------------------------------------------- */

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *first; /* of the key that a lie gives again */

static const struct lie truth = { .what = "the truth", .fds = 1, .seals = SEALS, .file = SIZE, .size = SIZE };

/* What the real library opens, it keeps: before the fds are counted. */
static void real_open(void)
{
	int n;
	struct ibv_device **list;

	setenv(VSD_SOCKET_ENV, "/nonexistent/verbsd", 1);
	list = ibv_get_device_list(&n);
	if (list)
		ibv_free_device_list(list);
}

static struct ibv_device *soft(struct ibv_device **list)
{
	while (*list && strcmp((*list)->name, "soft0") != 0)
		list++;
	return *list;
}

static void setup(void)
{
	struct ibv_device **list;
	const struct verbsd_mr_attr attr = { .size = SIZE };

	real_open();
	harness_fds_setup();
	CHANGE(lie = truth);
	made = destroyed = unpersisted = 0;
	fake_start(&fake, handle);
	list = ibv_get_device_list(NULL);
	ck_assert_ptr_nonnull(list);
	ctx = ibv_open_device(soft(list));
	ck_assert_ptr_nonnull(ctx);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(ctx);
	ck_assert_ptr_nonnull(pd);
	first = verbsd_alloc_mr(pd, &attr);
	ck_assert_ptr_nonnull(first);
	made = destroyed = 0;
}

static void teardown(void)
{
	ck_assert_int_eq(ibv_dereg_mr(first), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(ctx), 0);
	fake_stop(&fake);
	close(events);
	close(kick);
	harness_fds_teardown();
}

static const struct lie lies[] = {
	{ .what = "refused", .status = EDQUOT, .want = EDQUOT },
	{ .what = "no fd", .fds = 0, .file = SIZE, .size = SIZE, .seals = SEALS, .want = EPROTO },
	{ .what = "two fds", .fds = 2, .file = SIZE, .size = SIZE, .seals = SEALS, .want = EPROTO },
	{ .what = "a device", .fds = 1, .file = 0, .size = SIZE, .want = EPROTO },
	{ .what = "a file that can shrink", .fds = 1, .file = SIZE, .size = SIZE, .seals = F_SEAL_GROW, .want = EPROTO },
	{ .what = "a file that is too short", .fds = 1, .file = SIZE - 1, .size = SIZE, .seals = SEALS, .want = EPROTO },
	{ .what = "nothing", .fds = 1, .file = SIZE, .size = 0, .seals = SEALS, .want = EPROTO },
	{ .what = "all there is", .fds = 1, .file = SIZE, .size = UINT64_MAX, .seals = SEALS, .want = EPROTO },
};

#define N_LIES ((int)(sizeof(lies) / sizeof(lies[0])))

static const struct verbsd_mr_attr attr = { .size = SIZE };

static struct ibv_mr *by_alloc(void)
{
	return verbsd_alloc_mr(pd, &attr);
}

static struct ibv_mr *by_name(void)
{
	return verbsd_import_mr(pd, "name", 0);
}

static struct ibv_mr *by_attach(void)
{
	return verbsd_attach_mr(pd, "name", &attr, VERBSD_EXPORT_PERSIST, NULL);
}

static struct ibv_mr *by_fd(void)
{
	uint8_t nonce[VSD_NONCE_SIZE] = { 1 };
	int fd = capability_new(nonce);
	struct ibv_mr *mr = verbsd_import_mr_fd(pd, fd, 0);
	int error = errno;

	close(fd);
	errno = error;
	return mr;
}

static struct ibv_mr *by_handle(void)
{
	return ibv_import_mr(pd, 77777);
}

static struct ibv_mr *(*const ways[])(void) = { by_alloc, by_name, by_attach, by_fd, by_handle };

#define N_WAYS ((int)(sizeof(ways) / sizeof(ways[0])))

static void refused(struct ibv_mr *(*way)(void), const char *what, int want)
{
	errno = 0;
	ck_assert_msg(!way(), "%s", what);
	ck_assert_msg(errno == want, "%s: %s", what, strerror(errno));
	ck_assert_msg(made == destroyed, "%s: %u made, %u destroyed", what, made, destroyed);
}

START_TEST(what_is_wrong_with_an_answer_is_undone)
{
	for (int i = 0; i < N_LIES; i++) {
		CHANGE(lie = lies[i]);
		refused(ways[_i], lie.what, lie.want);
	}
	/* A key that is in use here. */
	CHANGE(lie = truth);
	CHANGE(lie.key = first->rkey);
	refused(ways[_i], "a key in use", EEXIST);
	CHANGE(lie = truth);

	struct ibv_mr *mr = ways[_i]();

	ck_assert_ptr_nonnull(mr);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_uint_eq(made, destroyed);
}
END_TEST

/* One that was just made, and cannot be had as it was asked for, does not persist under its name. */
START_TEST(a_region_that_failed_does_not_stay)
{
	const struct verbsd_mr_attr numa = { .size = SIZE, .flags = VERBSD_MR_NUMA, .numa_node = 1023 };

	ck_assert_ptr_null(verbsd_attach_mr(pd, "name", &numa, VERBSD_EXPORT_PERSIST, NULL));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_uint_eq(unpersisted, 1);
	ck_assert_uint_eq(made, destroyed);
}
END_TEST

START_TEST(a_capability_is_one_fd)
{
	for (int n = 0; n < 3; n++) {
		CHANGE(lie.fds = n);

		int fd = verbsd_export_mr_fd(first, 0);

		ck_assert_int_eq(fd >= 0, n == 1);
		if (fd >= 0)
			close(fd);
		else
			ck_assert_int_eq(errno, EPROTO);
	}
	CHANGE(lie.fds = 1);
	CHANGE(lie.status = EACCES);
	ck_assert_int_eq(verbsd_export_mr_fd(first, 0), -1);
	ck_assert_int_eq(errno, EACCES);
	ck_assert_int_eq(verbsd_export_mr(first, "name", 0), EACCES);
	ck_assert_int_eq(verbsd_release_mr(ctx, "name"), EACCES);
}
END_TEST

START_TEST(device_memory_is_checked)
{
	struct ibv_alloc_dm_attr dm_attr = { .length = SIZE };

	for (int i = 0; i < N_LIES; i++) {
		CHANGE(lie = lies[i]);
		errno = 0;
		ck_assert_msg(!ibv_alloc_dm(ctx, &dm_attr), "%s", lie.what);
		ck_assert_msg(errno == lie.want, "%s: %s", lie.what, strerror(errno));
		ck_assert_uint_eq(made, destroyed);
	}
	CHANGE(lie = truth);
	CHANGE(lie.size = SIZE - 1); /* less than its length */
	ck_assert_ptr_null(ibv_alloc_dm(ctx, &dm_attr));
	ck_assert_int_eq(errno, EPROTO);
	ck_assert_uint_eq(made, destroyed);
	/* What was imported is somebody else's: it is not destroyed. */
	destroyed = 0;
	ck_assert_ptr_null(ibv_import_dm(ctx, 1));
	ck_assert_uint_eq(destroyed, 0);
}
END_TEST

#define DM	VSD__MR_MEMORY__MR_ON_DM
#define PROCESS VSD__MR_MEMORY__MR_ON_PROCESS

/* What is imported may be on other memory than a region's: nothing else may. */
static const struct {
	const char *what;
	Vsd__MrMemory of;
	uint64_t at, length, file;
	int seals, want;
} memories[] = {
	{ "behind its end", DM, SIZE, 1, SIZE, SEALS, EPROTO },
	{ "over its end", DM, 1, SIZE, SIZE, SEALS, EPROTO },
	{ "around", DM, 4096, UINT64_MAX, SIZE, SEALS, EPROTO },
	{ "from far away", DM, UINT64_MAX, 1, SIZE, SEALS, EPROTO },
	{ "a short file", DM, 0, SIZE, SIZE - 1, SEALS, EPROTO },
	{ "a file that can shrink", DM, 0, SIZE, SIZE, F_SEAL_GROW, EPROTO },
	{ "no process", PROCESS, 0, SIZE, SIZE, SEALS, EOPNOTSUPP },
	{ "no process, nowhere", PROCESS, 0, 0, SIZE, SEALS, EOPNOTSUPP },
	{ "all is well", DM, 4096, SIZE - 4096, SIZE, SEALS, 0 },
};

START_TEST(memory_of_others_is_checked)
{
	const struct lie given = { .what = memories[_i].what, .fds = 1, .size = SIZE, .file = memories[_i].file,
		.seals = memories[_i].seals, .memory = true, .of = memories[_i].of, .at = memories[_i].at,
		.length = memories[_i].length };

	CHANGE(lie = given);
	for (int i = 0; i < N_WAYS; i++)
		if (ways[i] != by_handle)
			refused(ways[i], given.what, EPROTO);
	if (memories[_i].want) {
		refused(by_handle, given.what, memories[_i].want);
		return;
	}

	struct ibv_mr *mr = by_handle();

	ck_assert_ptr_nonnull(mr);
	ck_assert_uint_eq(mr->length, SIZE - 4096);
	ck_assert_ptr_null(mr->addr);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_uint_eq(made, destroyed);
}
END_TEST

/* The results of ibv_rereg_mr(): the old region is valid, or there is none. */
START_TEST(a_change_that_is_refused_or_ends_it)
{
	const int flags = IBV_REREG_MR_CHANGE_ACCESS, access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	uint32_t key = first->rkey;

	CHANGE(lie.status = EDQUOT);
	errno = 0;
	ck_assert_int_eq(ibv_rereg_mr(first, flags, NULL, NULL, 0, access), IBV_REREG_MR_ERR_INPUT);
	ck_assert_int_eq(errno, EDQUOT);
	CHANGE(lie.status = 0);
	ck_assert_int_eq(ibv_rereg_mr(first, flags, NULL, NULL, 0, access), 0);

	struct soft_mr *mr = soft_mr_of(first);

	pthread_mutex_lock(&lock);
	squatter = (struct soft_mr){ .ctx = mr->ctx, .pd = mr->pd, .key = key };
	pthread_mutex_unlock(&lock);
	errno = 0;
	ck_assert_int_eq(ibv_rereg_mr(first, flags, NULL, NULL, 0, access), IBV_REREG_MR_ERR_CMD);
	ck_assert_int_eq(errno, EEXIST);
	/* It is good for deregistering alone, and whoever has its key keeps that. */
	ck_assert_int_eq(ibv_dereg_mr(first), 0);
	ck_assert(key_is_used(key));
	ck_assert_int_eq(mr_close(&squatter), 0);
	ck_assert(!key_is_used(key));
	CHANGE(squatter.key = 0);
	CHANGE(lie = truth);
	first = by_alloc();
	ck_assert_ptr_nonnull(first);
}
END_TEST

/* Magic and version: of an older daemon, or of none. */
START_TEST(another_layout_opens_no_device)
{
	struct ibv_device **list;

	CHANGE(lie = truth);
	map_header[_i] ^= 1;
	real_open();
	fake_start(&fake, handle);
	list = ibv_get_device_list(NULL);
	ck_assert_ptr_nonnull(list);
	errno = 0;
	ck_assert_ptr_null(ibv_open_device(soft(list)));
	ck_assert_int_eq(errno, EPROTO);
	ibv_free_device_list(list);
	fake_stop(&fake);
	close(events);
	close(kick);
	map_header[_i] ^= 1;
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("abi-region");
	TCase *t = tcase_create("lies");

	tcase_set_timeout(t, 10);
	suite_add_tcase(suite, t);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, what_is_wrong_with_an_answer_is_undone, 0, N_WAYS);
	tcase_add_test(t, a_region_that_failed_does_not_stay);
	tcase_add_test(t, a_capability_is_one_fd);
	tcase_add_test(t, device_memory_is_checked);
	tcase_add_loop_test(t, memory_of_others_is_checked, 0, sizeof(memories) / sizeof(memories[0]));
	tcase_add_test(t, a_change_that_is_refused_or_ends_it);
	t = harness_tcase(suite, "layouts");
	tcase_add_loop_test(t, another_layout_opens_no_device, 0, 2);
	return harness_run(suite);
}
