/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: several modules make a few calls each, all of the same form. Guarantees: no attribute is written behind the end of the
 * command.
 */
#include "daemon/uverbs_call.h"

#include <assert.h>
#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <string.h>
#include <sys/ioctl.h>

static int real_ioctl(int fd, void *command)
{
	return ioctl(fd, RDMA_VERBS_IOCTL, command) < 0 ? -errno : 0;
}

int (*uverbs_call_ioctl)(int fd, void *command) = real_ioctl;

void uverbs_call_init(struct uverbs_call *call, unsigned object, unsigned method, uint32_t driver)
{
	memset(call, 0, sizeof(*call));
	call->command.head.length = sizeof(call->command.head);
	call->command.head.object_id = (uint16_t)object;
	call->command.head.method_id = (uint16_t)method;
	call->command.head.driver_id = driver;
}

static struct ib_uverbs_attr *add(struct uverbs_call *call, unsigned id, size_t n)
{
	struct ib_uverbs_ioctl_hdr *head = &call->command.head;
	struct ib_uverbs_attr *attr = &head->attrs[head->num_attrs];

	assert(head->num_attrs < UVERBS_CALL_ATTRS);
	head->num_attrs++;
	head->length = (uint16_t)(head->length + sizeof(*attr));
	attr->attr_id = (uint16_t)id;
	attr->len = (uint16_t)n;
	attr->flags = UVERBS_ATTR_F_MANDATORY;
	return attr;
}

void uverbs_call_value(struct uverbs_call *call, unsigned id, uint64_t value, size_t n)
{
	add(call, id, n)->data = value;
}

void uverbs_call_in(struct uverbs_call *call, unsigned id, const void *bytes, size_t n)
{
	uint64_t value = 0;

	/* What is that short is in the attribute itself. */
	if (n <= sizeof(value)) {
		memcpy(&value, bytes, n);
		uverbs_call_value(call, id, value, n);
	} else {
		add(call, id, n)->data = (uintptr_t)bytes;
	}
}

void uverbs_call_out(struct uverbs_call *call, unsigned id, void *bytes, size_t n)
{
	add(call, id, n)->data = (uintptr_t)bytes;
}

void uverbs_call_handle(struct uverbs_call *call, unsigned id, uint32_t handle)
{
	add(call, id, 0)->data = handle;
}

void uverbs_call_new_fd(struct uverbs_call *call, unsigned id)
{
	add(call, id, 0)->data_s64 = -1;
}

void uverbs_call_optional(struct uverbs_call *call)
{
	call->command.head.attrs[call->command.head.num_attrs - 1].flags = 0;
}

int uverbs_call_fd(const struct uverbs_call *call, unsigned id)
{
	const struct ib_uverbs_ioctl_hdr *head = &call->command.head;

	for (unsigned i = 0; i < head->num_attrs; i++) {
		if (head->attrs[i].attr_id == id)
			return (int)head->attrs[i].data_s64;
	}
	return -1;
}

int uverbs_call_make(struct uverbs_call *call, int fd)
{
	return uverbs_call_ioctl(fd, &call->command);
}

int uverbs_invoke(int fd, uint32_t driver, unsigned command, const void *in, size_t n_in, void *out, size_t n_out)
{
	struct uverbs_call call;

	uverbs_call_init(&call, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, driver);
	uverbs_call_in(&call, UVERBS_ATTR_CORE_IN, in, n_in);
	if (n_out)
		uverbs_call_out(&call, UVERBS_ATTR_CORE_OUT, out, n_out);
	uverbs_call_value(&call, UVERBS_ATTR_WRITE_CMD, command, sizeof(uint64_t));
	return uverbs_call_make(&call, fd);
}
