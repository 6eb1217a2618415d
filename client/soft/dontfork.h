/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What children do not get: the library's own mappings, always; and, once ibv_fork_init() asked for it, registered memory.
 * One tracker for the process, since the real library's registrations come here too. Thread-safe; no fork() happens while
 * one of these is at work.
 */
#ifndef SOFT_DONTFORK_H
#define SOFT_DONTFORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The bytes of a registration that are counted; {0}: none. */
struct dontfork_range {
	uintptr_t start, end;
};

/*
 * From now on registered memory is taken from children. 0, also when it is so already; -EINVAL: memory was registered before;
 * -ENOSYS: the kernel cannot do it.
 */
int dontfork_start(void);
/* True after dontfork_start(). */
bool dontfork_on(void);
/* True when it cannot be started any more. */
bool dontfork_late(void);

/*
 * Memory that the soft device registers or deregisters. Only pages that lie wholly within registered memory go, since whatever
 * else is on a page is the child's as well; and a child could do no harm with what it keeps, so nothing here fails.
 */
void dontfork_take(struct dontfork_range *range, const void *addr, size_t length);
void dontfork_put(struct dontfork_range *range);

/* Memory that a real device registers or deregisters: every page that it touches. 0 or a negative errno. */
int dontfork_take_real(const void *addr, size_t length);
int dontfork_put_real(const void *addr, size_t length);

/*
 * mmap() and munmap() of the library's own memory, which no child ever has, and no core dump shows. Whatever the program
 * registered and forgot at that address changes nothing of that. MAP_FAILED with errno.
 */
void *dontfork_mmap(void *addr, size_t size, int prot, int flags, int fd, off_t offset);
void dontfork_munmap(void *addr, size_t size);

#endif
