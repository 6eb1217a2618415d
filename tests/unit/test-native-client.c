/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Real devices by way of a daemon that is a thread of this test, with /dev/null in the place of a device.
 */
#include "client/native/native.h"

#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "proto/sock.h"
#include "tests/lib/harness.h"
#include "tests/unit/fake_daemon.h"

static struct fake_daemon fake;

/* What the daemon does, and what it saw. */
static struct {
	_Atomic uint32_t driver;
	_Atomic bool path;	     /* it hands out nodes, */
	const char *_Atomic node; /* this one */
	_Atomic int status;
	_Atomic int report;	     /* its end of the socket for the report; -1: none */
	_Atomic unsigned opens, rdwr_opens, closes;
} plan;

static bool list_devices(int fd, const struct frame_header *header)
{
	Vsd__DeviceListReply reply = VSD__DEVICE_LIST_REPLY__INIT;
	Vsd__Device device = VSD__DEVICE__INIT, *list = &device;

	device.name = (char *)(uintptr_t) "rxe7";
	device.node = (char *)(uintptr_t) "uverbs7";
	device.has_rdev = true;
	device.rdev = makedev(1, 3);
	reply.devices = &list;
	reply.n_devices = 1;
	reply.has_rdma_cm = true;
	reply.rdma_cm = makedev(1, 5);
	return fake_reply(fd, header, 0, &reply.base, NULL);
}

static bool hand_out(int fd, const struct frame_header *header, bool rdwr)
{
	Vsd__NativeReply reply = VSD__NATIVE_REPLY__INIT;
	struct fdlist fds = FDLIST_NULL;
	const char *node = plan.node;
	int pair[2];

	reply.native = plan.opens;
	reply.driver = plan.driver;
	reply.mode = plan.path && !rdwr ? VSD__NATIVE_MODE__NATIVE_PATH : VSD__NATIVE_MODE__NATIVE_RDWR;
	if (reply.mode == VSD__NATIVE_MODE__NATIVE_RDWR) {
		fdlist_consume(&fds, open("/dev/null", O_RDWR | O_CLOEXEC));
	} else if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
		fdlist_consume(&fds, open(node ? node : fake.path, O_PATH | O_CLOEXEC));
		fdlist_consume(&fds, pair[1]);
		if (plan.report >= 0)
			close(plan.report);
		plan.report = pair[0];
	}

	bool sent = fake_reply(fd, header, 0, &reply.base, &fds);

	fdlist_deinit(&fds);
	return sent;
}

static bool handle(struct fake_daemon *f, int fd, const struct frame_header *header, const void *body)
{
	Vsd__NativeOpenRequest *request;
	bool rdwr;

	switch (header->opcode) {
	case VSD__OP__OP_DEVICE_LIST:
		return list_devices(fd, header);
	case VSD__OP__OP_NATIVE_CLOSE:
		plan.closes++;
		return fake_reply(fd, header, 0, NULL, NULL);
	case VSD__OP__OP_NATIVE_OPEN:
		request = vsd__native_open_request__unpack(NULL, header->length, body);
		rdwr = request && request->rdwr;
		vsd__native_open_request__free_unpacked(request, NULL);
		plan.opens++;
		plan.rdwr_opens += rdwr;
		if (plan.status)
			return fake_reply(fd, header, plan.status, NULL, NULL);
		return hand_out(fd, header, rdwr);
	default:
		return false;
	}
}

static void setup(void)
{
	plan.driver = RDMA_DRIVER_RXE;
	plan.path = false;
	plan.node = "/dev/null";
	plan.status = 0;
	plan.report = -1;
	plan.opens = plan.rdwr_opens = plan.closes = 0;
	fake_start(&fake, handle);
}

static void teardown(void)
{
	if (plan.report >= 0)
		close(plan.report);
	fake_stop(&fake);
}

static bool is_null(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
}

static const struct {
	const char *path;
	int error;
	const char *node;
} paths[] = {
	{ "/dev/infiniband/uverbs0", EACCES, "uverbs0" },
	{ "/dev/infiniband/uverbs123", EPERM, "uverbs123" },
	{ "/dev/infiniband/uverbs0", ENOENT, "uverbs0" },
	{ "/dev/infiniband/uverbs0", ENXIO, "uverbs0" },
	{ "/dev/infiniband/uverbs0", EMFILE, NULL },
	{ "/dev/infiniband/uverbs0", EBUSY, NULL },
	{ "/dev/infiniband/rdma_cm", EACCES, "rdma_cm" },
	{ "/dev/infiniband/umad0", EACCES, NULL },
	{ "/dev/infiniband/uverbs", EACCES, NULL },
	{ "/dev/infiniband/uverbsx", EACCES, NULL },
	{ "/dev/infiniband/uverbs0x", EACCES, NULL },
	{ "/dev/infiniband/uverbs0/", EACCES, NULL },
	{ "/dev/infiniband/uverbs01234567890123456789", EACCES, NULL },
	{ "/dev/infiniband/", EACCES, NULL },
	{ "/dev/null", EACCES, NULL },
	{ "/dev/char/1:3", EACCES, "uverbs7" },
	{ "/dev/char/1:5", ENOENT, "rdma_cm" },
	{ "/dev/char/1:7", EACCES, NULL },
	{ "/dev/char/", EACCES, NULL },
	{ "/dev/char/1", EACCES, NULL },
};

START_TEST(few_paths_are_ours)
{
	char node[32];
	const char *got;

	errno = ELOOP;
	got = native_node(paths[_i].path, paths[_i].error, node);
	ck_assert_int_eq(errno, ELOOP);
	if (paths[_i].node)
		ck_assert_str_eq(got, paths[_i].node);
	else
		ck_assert_ptr_null(got);
}
END_TEST

START_TEST(what_is_granted_has_a_number)
{
	dev_t rdev = 0;

	ck_assert(native_granted("uverbs7", &rdev));
	ck_assert_uint_eq(rdev, makedev(1, 3));
	ck_assert(native_granted("rdma_cm", &rdev));
	ck_assert_uint_eq(rdev, makedev(1, 5));
	ck_assert(!native_granted("uverbs8", &rdev));
	ck_assert(!native_denied("uverbs7"));
	ck_assert(native_denied("uverbs8"));
	/* Devices of other kinds are nothing that we could know about. */
	ck_assert(!native_denied(""));
	ck_assert(!native_denied("0000:03:00.0"));
}
END_TEST

START_TEST(the_daemons_file_is_the_programs)
{
	int fd = native_open("uverbs7", O_RDWR | O_CLOEXEC, EACCES);

	ck_assert(is_null(fd));
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
	native_closed(fd);
	ck_assert_uint_eq(plan.closes, 1);
	native_closed(fd);
	ck_assert_uint_eq(plan.closes, 1);
	fd = native_open("uverbs7", O_RDWR | O_NONBLOCK, EACCES);
	ck_assert_int_eq(fcntl(fd, F_GETFD), 0);
	ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
	close(fd);
}
END_TEST

/* A program that closes the number itself gets it again: the daemon is told then, at the latest. */
START_TEST(a_number_that_is_given_again_is_another_file)
{
	for (unsigned i = 0; i < 20; i++)
		close(native_open("uverbs7", O_RDWR | O_CLOEXEC, EACCES));
	/* The daemon's thread is in this process, and takes numbers as well: a few are in turn. */
	ck_assert_uint_ge(plan.closes, 10);
}
END_TEST

START_TEST(a_node_is_opened_and_shown)
{
	struct fdlist fds = FDLIST_NULL;
	size_t length;
	char byte;
	int fd;

	plan.path = true;
	fd = native_open("uverbs7", O_RDWR | O_CLOEXEC, EACCES);
	ck_assert(is_null(fd));
	ck_assert_int_eq(sock_recv(plan.report, &byte, 1, true, &fds, &length), 0);
	ck_assert_uint_eq(fds.n, 1);
	ck_assert(is_null(fds.fds[0]));
	fdlist_deinit(&fds);
	/* And nothing after it. */
	ck_assert_int_eq(recv(plan.report, &byte, 1, 0), 0);
	close(fd);
	native_closed(fd);
	ck_assert_uint_eq(plan.closes, 1);
	ck_assert_uint_eq(plan.rdwr_opens, 0);
}
END_TEST

START_TEST(a_node_that_does_not_open_is_given_back)
{
	int fd;

	plan.path = true;
	plan.node = NULL;
	fd = native_open("uverbs7", O_RDWR | O_CLOEXEC, EACCES);
	ck_assert(is_null(fd));
	ck_assert_uint_eq(plan.closes, 1);
	ck_assert_uint_eq(plan.opens, 2);
	ck_assert_uint_eq(plan.rdwr_opens, 1);
	close(fd);
	/* For the connection manager there is no other way. */
	plan.driver = 0;
	ck_assert_int_eq(native_open("rdma_cm", O_RDWR | O_CLOEXEC, EPERM), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_uint_eq(plan.rdwr_opens, 1);
}
END_TEST

START_TEST(a_refusal_leaves_the_kernels_error)
{
	plan.status = EACCES;
	ck_assert_int_eq(native_open("uverbs7", O_RDWR | O_CLOEXEC, ENOENT), -1);
	ck_assert_int_eq(errno, ENOENT);
	plan.status = ENOMEM;
	ck_assert_int_eq(native_open("uverbs7", O_RDWR | O_CLOEXEC, EACCES), -1);
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_uint_eq(plan.opens, 2);
	ck_assert_int_eq(native_open("uverbs7", O_RDONLY, EACCES), -1);
	ck_assert_int_eq(native_open("uverbs7", O_RDWR | O_PATH, EACCES), -1);
	ck_assert_int_eq(errno, EACCES);
	ck_assert_uint_eq(plan.opens, 2);
}
END_TEST

START_TEST(without_a_daemon_the_kernel_has_the_last_word)
{
	char node[32];
	dev_t rdev;

	setenv(VSD_SOCKET_ENV, "/nonexistent/verbsd", 1);
	ck_assert_int_eq(native_open("uverbs7", O_RDWR | O_CLOEXEC, EPERM), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert(!native_granted("uverbs7", &rdev));
	ck_assert_ptr_null(native_node("/dev/char/1:3", ENOENT, node));
	ck_assert_uint_eq(plan.opens, 0);
}
END_TEST

/* --- the doorbell ---------------------------------------------------------------------------------------------------- */

static struct {
	struct ib_uverbs_cmd_hdr head;
	struct ib_uverbs_post_send body;
} doorbell;

static int ring(int fd, size_t n)
{
	errno = 0;
	return doorbell_write(fd, &doorbell, n) < 0 ? errno : 0;
}

START_TEST(only_the_doorbell_is_translated)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	size_t n = sizeof(doorbell);

	memset(&doorbell, 0, sizeof(doorbell));
	doorbell.head.command = IB_USER_VERBS_CMD_POST_SEND;
	doorbell.head.in_words = sizeof(doorbell) / 4;
	/* Nobody was told of a device of that number. */
	ck_assert(!doorbell_wanted);
	ck_assert_int_eq(ring(fd, n), EACCES);
	doorbell_note(makedev(1, 3), RDMA_DRIVER_MLX5);
	ck_assert(!doorbell_wanted);
	doorbell_note(makedev(1, 3), RDMA_DRIVER_RXE);
	ck_assert(doorbell_wanted);
	/* It comes as far as the ioctl, which this device has not. */
	ck_assert_int_eq(ring(fd, n), ENOTTY);
	ck_assert_int_eq(ring(fd, n - 1), EACCES);
	ck_assert_int_eq(ring(fd, 0), EACCES);
	ck_assert_int_eq(ring(-1, n), EACCES);
	doorbell.body.wr_count = 1;
	ck_assert_int_eq(ring(fd, n), EACCES);
	doorbell.body.wr_count = 0;
	doorbell.head.command = IB_USER_VERBS_CMD_DEREG_MR;
	ck_assert_int_eq(ring(fd, n), EACCES);
	doorbell.head.command = IB_USER_VERBS_CMD_POST_SEND;
	close(fd);
	fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(ring(fd, n), EACCES);
	close(fd);
	fd = open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	ck_assert_int_eq(ring(fd, n), EACCES);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("native-client");
	TCase *t = tcase_create("client");

	/* The session lasts as long as the process: its fd is no leak. */
	suite_add_tcase(suite, t);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, few_paths_are_ours, 0, sizeof(paths) / sizeof(paths[0]));
	tcase_add_test(t, what_is_granted_has_a_number);
	tcase_add_test(t, the_daemons_file_is_the_programs);
	tcase_add_test(t, a_number_that_is_given_again_is_another_file);
	tcase_add_test(t, a_node_is_opened_and_shown);
	tcase_add_test(t, a_node_that_does_not_open_is_given_back);
	tcase_add_test(t, a_refusal_leaves_the_kernels_error);
	tcase_add_test(t, without_a_daemon_the_kernel_has_the_last_word);
	t = harness_tcase(suite, "doorbell");
	tcase_add_test(t, only_the_doorbell_is_translated);
	return harness_run(suite);
}
