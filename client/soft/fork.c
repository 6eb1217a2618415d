/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Children. A word on a page that the kernel wipes in a child says "child" after fork, vfork and clone alike, at the
 * price of one load; our mapped pages are not there then. The atfork handler only tidies: the child closes its copies
 * of our fds, so that no peer waits for them.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/control/control.h"
#include "client/soft/rt_private.h"

static _Atomic uint64_t *parent_word; /* 1 in the process that started the runtime, 0 in its children */

bool rt_is_child(void)
{
	return parent_word && atomic_load_explicit(parent_word, memory_order_relaxed) == 0;
}

static void child_tidy(void)
{
	int *fds[] = { &rt.events, &rt.kick, &rt.epoll, &rt.wake, &rt.timer };

	if (!rt_is_child() || !atomic_load(&rt.running))
		return;
	atomic_store(&rt.running, false);
	control_forget();
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
	for (struct pair *pair = rt.pairs; pair; pair = pair->priv->next) {
		close(pair->pidfd);
		close(pair->kick);
		pair->pidfd = pair->kick = -1;
	}
}

int fork_init(void)
{
	static bool registered;

	if (!parent_word) {
		void *page = mmap(NULL, (size_t)getpagesize(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (page == MAP_FAILED)
			return -errno;
		if (madvise(page, (size_t)getpagesize(), MADV_WIPEONFORK) < 0) {
			int r = -errno;

			munmap(page, (size_t)getpagesize());
			return r;
		}
		parent_word = page;
		atomic_store(parent_word, 1);
	}
	if (!registered && pthread_atfork(NULL, NULL, child_tidy) != 0)
		return -ENOMEM;
	registered = true;
	return 0;
}
