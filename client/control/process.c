/* SPDX-License-Identifier: BSD-2-Clause */
/* Telling a child from its parent, and what happens in the library when a process forks. */
#include "client/control/process.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#define HOOKS_MAX 8
#define BUSY	  UINT64_MAX /* a thread is forgetting the parent's */

static _Atomic uint64_t unwatched; /* the word before there is a page for it: always 0 */
_Atomic uint64_t *_Atomic process_word = &unwatched;

static _Atomic uint64_t epochs; /* the last one given, in this process or one above it */
static _Atomic pid_t pid;	/* of the process that has the epoch */
static const struct process_hooks *_Atomic hooks[HOOKS_MAX];

static void run_prepare(void)
{
	for (size_t i = HOOKS_MAX; i-- > 0;)
		if (hooks[i] && hooks[i]->prepare)
			hooks[i]->prepare();
}

static void run_parent(void)
{
	for (size_t i = 0; i < HOOKS_MAX && hooks[i]; i++)
		if (hooks[i]->parent)
			hooks[i]->parent();
}

static void run_child(void)
{
	for (size_t i = 0; i < HOOKS_MAX && hooks[i]; i++)
		if (hooks[i]->child)
			hooks[i]->child();
}

static void run_forget(void)
{
	for (size_t i = 0; i < HOOKS_MAX && hooks[i]; i++)
		if (hooks[i]->forget)
			hooks[i]->forget();
}

void process_hooks_add(const struct process_hooks *add)
{
	for (size_t i = 0; i < HOOKS_MAX; i++) {
		const struct process_hooks *none = NULL;

		if (atomic_compare_exchange_strong(&hooks[i], &none, add) || none == add)
			return;
	}
}

bool process_borrowed(void)
{
	return process_epoch() && getpid() != pid;
}

static int watch_result;

static void watch(void)
{
	size_t size = (size_t)getpagesize();
	void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED) {
		watch_result = -errno;
		return;
	}
	if (madvise(page, size, MADV_WIPEONFORK) < 0)
		watch_result = -errno;
	else
		watch_result = -pthread_atfork(run_prepare, run_parent, run_child);
	if (watch_result < 0)
		munmap(page, size);
	else
		process_word = page;
}

int process_enter(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	uint64_t epoch = process_epoch();

	if (epoch && epoch != BUSY)
		return getpid() == pid ? 0 : -ENOTCONN;
	pthread_once(&once, watch);
	if (watch_result < 0)
		return watch_result;
	epoch = 0;
	if (!atomic_compare_exchange_strong(process_word, &epoch, BUSY)) {
		while (process_epoch() == BUSY)
			sched_yield();
		return 0;
	}
	if (epochs)
		run_forget();
	pid = getpid();
	atomic_store(process_word, ++epochs);
	return 0;
}
