/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/unit/fake_kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/uverbs_call.h"
#include "tests/lib/harness.h"

struct fake_kernel kernel = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* As the kernel reads an attribute: what is short stands in it. */
static void attribute(const struct ib_uverbs_ioctl_hdr *command, unsigned id, void *to, size_t size)
{
	for (unsigned i = 0; i < command->num_attrs; i++) {
		const struct ib_uverbs_attr *attr = &command->attrs[i];

		if (attr->attr_id != id)
			continue;
		ck_assert_uint_eq(attr->len, size);
		memcpy(to, size <= sizeof(attr->data) ? (const void *)&attr->data : (const void *)(uintptr_t)attr->data, size);
		return;
	}
	ck_abort_msg("no attribute %u", id);
}

static void answer(const struct ib_uverbs_ioctl_hdr *command, const struct ib_uverbs_reg_mr_resp *response)
{
	for (unsigned i = 0; i < command->num_attrs; i++) {
		if (command->attrs[i].attr_id == UVERBS_ATTR_CORE_OUT)
			memcpy((void *)(uintptr_t)command->attrs[i].data, response, sizeof(*response));
	}
}

static int kernel_reg(const struct ib_uverbs_ioctl_hdr *command)
{
	struct ib_uverbs_reg_mr request;
	struct ib_uverbs_reg_mr_resp response;
	const uint8_t *memory;

	attribute(command, UVERBS_ATTR_CORE_IN, &request, sizeof(request));
	if (kernel.hold && !kernel.held) {
		kernel.held = true;
		pthread_cond_broadcast(&kernel.changed);
		while (kernel.hold)
			pthread_cond_wait(&kernel.changed, &kernel.lock);
		kernel.held = false;
	}
	if (kernel.fail)
		return kernel.fail;
	if (request.pd_handle != KERNEL_PD || (request.start ^ request.hca_va) & 4095)
		return -EINVAL;
	memory = (const void *)(uintptr_t)request.start;
	if (kernel.old && madvise((void *)(uintptr_t)request.start, request.length, MADV_POPULATE_WRITE) != 0)
		return -EFAULT;
	kernel.first = memory[0];
	kernel.iova = request.hca_va;
	kernel.length = request.length;
	kernel.access = request.access_flags;
	kernel.driver = command->driver_id;
	kernel.registered++;
	kernel.there[++kernel.next] = true;
	response.mr_handle = kernel.next;
	response.lkey = kernel.next << 8;
	response.rkey = kernel.next << 8 | 1;
	answer(command, &response);
	return 0;
}

static int kernel_dereg(const struct ib_uverbs_ioctl_hdr *command)
{
	struct ib_uverbs_dereg_mr request;

	attribute(command, UVERBS_ATTR_CORE_IN, &request, sizeof(request));
	if (kernel.fail_dereg)
		return kernel.fail_dereg;
	if (request.mr_handle > kernel.next || !kernel.there[request.mr_handle])
		return -EINVAL;
	kernel.there[request.mr_handle] = false;
	kernel.registered--;
	return 0;
}

static int kernel_list(const struct ib_uverbs_ioctl_hdr *command)
{
	for (unsigned i = 0; i < command->num_attrs; i++) {
		if (command->attrs[i].attr_id == UVERBS_ATTR_INFO_TOTAL_HANDLES)
			memset((void *)(uintptr_t)command->attrs[i].data, 0, sizeof(uint32_t));
	}
	pthread_mutex_lock(&kernel.lock);
	kernel.lists++;
	pthread_mutex_unlock(&kernel.lock);
	return 0;
}

static int fake_ioctl(int fd, void *command)
{
	const struct ib_uverbs_ioctl_hdr *head = command;
	uint64_t what;
	int r;

	ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
	ck_assert_uint_eq(head->object_id, UVERBS_OBJECT_DEVICE);
	if (head->method_id == UVERBS_METHOD_INFO_HANDLES)
		return kernel_list(head);
	ck_assert_uint_eq(head->method_id, UVERBS_METHOD_INVOKE_WRITE);
	attribute(head, UVERBS_ATTR_WRITE_CMD, &what, sizeof(what));
	pthread_mutex_lock(&kernel.lock);
	r = what == IB_USER_VERBS_CMD_REG_MR ? kernel_reg(head) : kernel_dereg(head);
	pthread_cond_broadcast(&kernel.changed);
	pthread_mutex_unlock(&kernel.lock);
	return r;
}

unsigned kernel_registered(void)
{
	unsigned n;

	pthread_mutex_lock(&kernel.lock);
	n = kernel.registered;
	pthread_mutex_unlock(&kernel.lock);
	return n;
}

uint32_t kernel_made(void)
{
	uint32_t n;

	pthread_mutex_lock(&kernel.lock);
	n = kernel.next;
	pthread_mutex_unlock(&kernel.lock);
	return n;
}

void kernel_use(void)
{
	kernel.registered = kernel.next = 0;
	memset(kernel.there, 0, sizeof(kernel.there));
	kernel.fail = kernel.fail_dereg = 0;
	kernel.old = false;
	kernel.lists = 0;
	kernel.hold = kernel.held = false;
	uverbs_call_ioctl = fake_ioctl;
}

void kernel_wait_held(void)
{
	pthread_mutex_lock(&kernel.lock);
	while (!kernel.held)
		pthread_cond_wait(&kernel.changed, &kernel.lock);
	pthread_mutex_unlock(&kernel.lock);
}

bool kernel_is_held(void)
{
	bool held;

	pthread_mutex_lock(&kernel.lock);
	held = kernel.held;
	pthread_mutex_unlock(&kernel.lock);
	return held;
}

void kernel_go_on(void)
{
	pthread_mutex_lock(&kernel.lock);
	kernel.hold = false;
	pthread_cond_broadcast(&kernel.changed);
	pthread_mutex_unlock(&kernel.lock);
}
