/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A call of the kernel's uverbs interface, attribute by attribute. For threads as well: nothing here is shared.
 */
#ifndef DAEMON_UVERBS_CALL_H
#define DAEMON_UVERBS_CALL_H

#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UVERBS_CALL_ATTRS 6

struct uverbs_call {
	/* The header's last member are the attributes. */
	union {
		struct ib_uverbs_ioctl_hdr head;
		uint8_t bytes[sizeof(struct ib_uverbs_ioctl_hdr) + UVERBS_CALL_ATTRS * sizeof(struct ib_uverbs_attr)];
	} command;
};

/* @driver is the device's enum rdma_driver_id, or the kernel refuses. */
void uverbs_call_init(struct uverbs_call *call, unsigned object, unsigned method, uint32_t driver);
void uverbs_call_in(struct uverbs_call *call, unsigned id, const void *bytes, size_t n);
void uverbs_call_out(struct uverbs_call *call, unsigned id, void *bytes, size_t n);
/* Up to 8 bytes by value; the handle of an object; a new fd, which uverbs_call_fd() then gives. */
void uverbs_call_value(struct uverbs_call *call, unsigned id, uint64_t value, size_t n);
void uverbs_call_handle(struct uverbs_call *call, unsigned id, uint32_t handle);
void uverbs_call_new_fd(struct uverbs_call *call, unsigned id);
/* The last attribute is one that the kernel may not know. */
void uverbs_call_optional(struct uverbs_call *call);
int uverbs_call_fd(const struct uverbs_call *call, unsigned id);

/* 0 or a negative errno. */
int uverbs_call_make(struct uverbs_call *call, int fd);
/* A command of the older kind (enum ib_uverbs_write_cmds), which as a write() only the file's opener may make. */
int uverbs_invoke(
	int fd, uint32_t driver, unsigned command, const void *in, size_t n_in, void *out, size_t n_out);

/* The system call below, for tests. */
extern int (*uverbs_call_ioctl)(int fd, void *command);

#endif
