/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The drivers of rxe and siw tell the kernel of new work requests by a write() to their device, which the kernel refuses
 * to all but its opener. The same request can be made by an ioctl, which anybody may who has the file. Exactly that one
 * request, of exactly those two drivers, is translated; everything else keeps its error.
 */
#include "client/native/native.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define DEVICES_MAX 64

_Atomic bool doorbell_wanted;

/* Only added to. An entry counts when its driver is there. */
static struct {
	_Atomic dev_t rdev;
	_Atomic uint32_t driver;
} devices[DEVICES_MAX];
static _Atomic unsigned n_devices;

struct request {
	struct ib_uverbs_cmd_hdr head;
	struct ib_uverbs_post_send body;
};

static uint32_t driver_of(dev_t rdev)
{
	for (unsigned i = 0; i < n_devices && i < DEVICES_MAX; i++)
		if (devices[i].driver && devices[i].rdev == rdev)
			return devices[i].driver;
	return 0;
}

void doorbell_note(dev_t rdev, uint32_t driver)
{
	if ((driver != RDMA_DRIVER_RXE && driver != RDMA_DRIVER_SIW) || driver_of(rdev) == driver)
		return;

	unsigned i = atomic_fetch_add(&n_devices, 1);

	if (i >= DEVICES_MAX)
		return;
	devices[i].rdev = rdev;
	devices[i].driver = driver;
	doorbell_wanted = true;
}

/* A command as a write() would make it. */
struct invocation {
	uint64_t command;
	const void *in;
	uint16_t n_in;
	void *out; /* NULL: it answers with nothing */
	uint16_t n_out;
};

/* What is short stands in the attribute itself. */
static struct ib_uverbs_attr attr_in(uint16_t id, const void *bytes, uint16_t n)
{
	struct ib_uverbs_attr attr = { .attr_id = id, .len = n, .flags = UVERBS_ATTR_F_MANDATORY };

	if (n <= sizeof(attr.data))
		memcpy(&attr.data, bytes, n);
	else
		attr.data = (uintptr_t)bytes;
	return attr;
}

/* 0 or a positive errno. */
static int invoke(int fd, uint32_t driver, const struct invocation *what)
{
	/* The header, whose last member are the attributes. */
	union {
		struct ib_uverbs_ioctl_hdr head;
		uint8_t bytes[sizeof(struct ib_uverbs_ioctl_hdr) + 3 * sizeof(struct ib_uverbs_attr)];
	} command;
	struct ib_uverbs_attr *attrs = command.head.attrs;
	unsigned n = 0;

	memset(&command, 0, sizeof(command));
	attrs[n++] = attr_in(UVERBS_ATTR_CORE_IN, what->in, what->n_in);
	if (what->out)
		attrs[n++] = (struct ib_uverbs_attr){ .attr_id = UVERBS_ATTR_CORE_OUT,
			.len = what->n_out,
			.flags = UVERBS_ATTR_F_MANDATORY,
			.data = (uintptr_t)what->out };
	attrs[n++] = attr_in(UVERBS_ATTR_WRITE_CMD, &what->command, sizeof(what->command));
	command.head.length = (uint16_t)(sizeof(command.head) + n * sizeof(attrs[0]));
	command.head.object_id = UVERBS_OBJECT_DEVICE;
	command.head.method_id = UVERBS_METHOD_INVOKE_WRITE;
	command.head.num_attrs = (uint16_t)n;
	command.head.driver_id = driver;
	return ioctl(fd, RDMA_VERBS_IOCTL, &command) < 0 ? errno : 0;
}

static int ring(int fd, uint32_t driver, const struct request *request)
{
	struct ib_uverbs_post_send_resp response;
	const struct invocation post = { .command = IB_USER_VERBS_CMD_POST_SEND,
		.in = &request->body,
		.n_in = sizeof(request->body),
		.out = &response,
		.n_out = sizeof(response) };

	return invoke(fd, driver, &post);
}

int native_dereg_mr(int fd, uint32_t driver, uint32_t handle)
{
	struct ib_uverbs_dereg_mr request;
	const struct invocation dereg = {
		.command = IB_USER_VERBS_CMD_DEREG_MR, .in = &request, .n_in = sizeof(request)
	};

	memset(&request, 0, sizeof(request));
	request.mr_handle = handle;
	return -invoke(fd, driver, &dereg);
}

ssize_t doorbell_write(int fd, const void *bytes, size_t n)
{
	struct request request;
	struct stat st;
	uint32_t driver;
	int error;

	if (n != sizeof(request))
		goto err_access;
	memcpy(&request, bytes, sizeof(request));
	/* The queue's content is in memory that driver and kernel share: the doorbell itself has none. */
	if (request.head.command != IB_USER_VERBS_CMD_POST_SEND || request.head.in_words != sizeof(request) / 4 ||
		request.body.wr_count != 0 || request.body.sge_count != 0)
		goto err_access;
	if (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode))
		goto err_access;
	driver = driver_of(st.st_rdev);
	if (!driver)
		goto err_access;
	error = ring(fd, driver, &request);
	if (error == 0)
		return (ssize_t)n;
	errno = error;
	return -1;

err_access:
	errno = EACCES;
	return -1;
}
