/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memfds of programs that regions are on. The daemon takes no fds, so who imports such a region finds its file where
 * the process that registered it has it.
 */
#ifndef CLIENT_ABI_FILE_H
#define CLIENT_ABI_FILE_H

#include <stdbool.h>
#include <stdint.h>

struct soft_mr;

/* A part of a memfd, and how a region is on it. */
struct abi_buffer {
	int fd;
	uint64_t offset, length, iova;
	unsigned access;
};

/*
 * Maps the pages that the buffer is on, and finds its first byte there: @mr->mem. -EBADF; -EOPNOTSUPP: no memfd; -EINVAL: not
 * sealed against shrinking, or shorter than that; -EACCES: it is to be written and cannot be.
 */
int abi_buffer_map(struct soft_mr *mr, const struct abi_buffer *buffer);

/* An fd of that file that stays open until it is put, however often the program closes its own; one for a file. */
struct abi_file;
int abi_file_keep(int fd, struct abi_file **file);
/* NULL does nothing. */
void abi_file_put(struct abi_file *file);

/*
 * The memfd that [@addr, @addr + @length) of the process behind @pidfd is a shared mapping of, and where in it. -EOPNOTSUPP, and
 * a debug line: it is none, or this process may not look.
 */
int abi_file_find(int pidfd, uint64_t addr, uint64_t length, bool write, int *fd, uint64_t *offset);

#endif
