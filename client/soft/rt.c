/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The runtime's start and stop: JOIN, the process page, the map page, the progress thread. One per process, however
 * many contexts are open. A process that ends with QPs open is left as it is: other threads may be polling.
 */
#include "client/soft/rt.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/control/control.h"
#include "client/soft/count.h"
#include "client/soft/dontfork.h"
#include "client/soft/in_child.h"
#include "client/soft/map.h"
#include "client/soft/page.h"
#include "client/soft/qp.h"
#include "client/soft/rt_private.h"
#include "client/soft/td.h"
#include "client/soft/xrc.h"

#define THREAD_STACK (512u << 10)
#define ENTER_TRIES 200u

#define RT_INIT                                               \
	{                                                     \
		.events = -1,                                 \
		.kick = -1,                                   \
		.epoll = -1,                                  \
		.wake = -1,                                   \
		.timer = -1,                                  \
		.pairs_lock = PTHREAD_MUTEX_INITIALIZER,      \
		.loop_lock = PTHREAD_MUTEX_INITIALIZER,       \
		.run_lock = PTHREAD_MUTEX_INITIALIZER,        \
		.run_tail = &rt.run_head,                     \
		.watch_lock = PTHREAD_MUTEX_INITIALIZER,      \
		.garbage_lock = PTHREAD_MUTEX_INITIALIZER,    \
		.state_lock = PTHREAD_MUTEX_INITIALIZER,      \
		.arm_lock = PTHREAD_MUTEX_INITIALIZER,        \
	}

struct rt rt = RT_INIT;

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

void rt_in_child(void)
{
	static const struct rt fresh = RT_INIT;

	memcpy(&rt, &fresh, sizeof(rt));
	pthread_mutex_init(&start_lock, NULL);
	atomic_store(&rt_progress_self, NULL);
}

_Static_assert(sizeof(pthread_mutex_t) <= VSD_LINE, "the liveness word is a mutex on one line");

bool rt_enter(void)
{
	if (rt_inside())
		return false;
	/* A poller holds the lock most of the time, and lets it go all the time. Keeping it out is the last resort: it would
	 * stand still until this thread is scheduled. */
	for (unsigned i = 0; i < ENTER_TRIES; i++) {
		if (rt_try_enter())
			return true;
		sched_yield();
	}
	atomic_fetch_add(&rt.waiters, 1);
	soft_mutex_lock(&rt.progress);
	atomic_fetch_sub(&rt.waiters, 1);
	atomic_store_explicit(&rt.holder, __builtin_thread_pointer(), memory_order_relaxed);
	return true;
}

void rt_owe(void)
{
	if (rt_inside())
		atomic_store_explicit(&rt.owes, true, memory_order_relaxed);
}

void rt_pay(void)
{
	if (rt_inside())
		atomic_store_explicit(&rt.owes, false, memory_order_release);
}

void *rt_map(int fd, size_t size, bool write)
{
	void *mem = dontfork_mmap(NULL, size, write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);

	return mem == MAP_FAILED ? NULL : mem;
}

int rt_populate(void *addr, size_t size)
{
	while (madvise(addr, size, MADV_POPULATE_WRITE) < 0) {
		if (errno == EINVAL) /* before Linux 5.14: a fault is all there is */
			return 0;
		if (errno != EINTR && errno != EAGAIN)
			return -errno;
	}
	return 0;
}

struct vsd_page *rt_page(void)
{
	return rt.page;
}

bool rt_watched(void)
{
	return rt.map && atomic_load_explicit(&rt.map->watched, memory_order_relaxed);
}

uint32_t rt_peer_id(void)
{
	return rt.peer;
}

uint32_t rt_qpn_owner(uint32_t qpn)
{
	if (!rt.map || qpn >> 24)
		return 0;
	return atomic_load_explicit(&rt.map->owner[qpn >> VSD_MAP_SHIFT], memory_order_acquire);
}

uint32_t rt_mcast_generation(uint32_t bucket)
{
	if (!rt.map)
		return 0;
	return atomic_load_explicit(&rt.map->mcast[bucket % VSD_MAP_MCAST], memory_order_acquire);
}

/* A word at an address that nobody can guess: process_vm_readv() of it proves that a pid is still this process. */
static int guard_init(void)
{
	uint64_t random[2];
	size_t size = (size_t)getpagesize();

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -EIO;

	void *hint = (void *)(uintptr_t)((random[0] & 0x3fffffff000ull) + 0x100000000ull);
	void *page = dontfork_mmap(hint, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return -errno;
	rt.guard = page;
	*rt.guard = random[1];
	rt.page->guard_addr = (uint64_t)(uintptr_t)rt.guard;
	rt.page->guard_value = random[1];
	return 0;
}

static int page_map(const struct control_process *process)
{
	rt.page = rt_map(process->page, VSD_PAGE_SIZE, true);
	if (!rt.page)
		return -errno;

	int r = rt_populate(rt.page, offsetof(struct vsd_page, gates));

	if (r < 0)
		return r;
	rt.page->magic = VSD_PAGE_MAGIC;
	rt.page->version = VSD_ABI_VERSION;
	rt.page->peer = process->peer;
	shard_init(control_offers(VSD_FEATURE_SHARDS));
	rt.page->can = pull_can();
	rt.map = rt_map(process->map, VSD_MAP_SIZE, false);
	if (!rt.map)
		return -errno;
	if (rt.map->magic == VSD_MAP_MAGIC && rt.map->version == VSD_ABI_VERSION)
		return 0;
	control_debug("the daemon's memory is of layout %u, this library's of %u", rt.map->version, VSD_ABI_VERSION);
	return -EPROTO;
}

static pthread_mutex_t *alive_mutex(void)
{
	return (pthread_mutex_t *)(void *)&rt.page->alive;
}

static int alive_init(void)
{
	pthread_mutexattr_t attr;
	int r;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	r = pthread_mutex_init(alive_mutex(), &attr);
	pthread_mutexattr_destroy(&attr);
	return -r;
}

static int thread_start(void)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int r;

	pthread_attr_init(&attr);
	if (pthread_attr_setstacksize(&attr, THREAD_STACK) != 0)
		pthread_attr_setstacksize(&attr, 8u << 20);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&rt.thread, &attr, sleep_thread, alive_mutex());
	if (r == EINVAL) /* large static TLS: the default stack has room */
		r = pthread_create(&rt.thread, NULL, sleep_thread, alive_mutex());
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (r == 0)
		pthread_setname_np(rt.thread, "verbsd");
	return -r;
}

static void fd_drop(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void teardown(void)
{
	bool entered = rt_enter();

	datagram_stop();
	wire_collect();
	pair_remove_all();
	pair_loop_deinit();
	events_deinit();
	map_stop();
	page_forget();
	memset(&rt.hot, 0, sizeof(rt.hot));
	rt_leave(entered);
	pthread_mutex_lock(&rt.arm_lock);
	sleep_deinit();
	pthread_mutex_unlock(&rt.arm_lock);
	fd_drop(&rt.events);
	fd_drop(&rt.kick);
	if (rt.guard)
		dontfork_munmap(rt.guard, (size_t)getpagesize());
	if (rt.map)
		dontfork_munmap((void *)(uintptr_t)rt.map, VSD_MAP_SIZE);
	shard_deinit();
	if (rt.page)
		dontfork_munmap(rt.page, VSD_PAGE_SIZE);
	rt.guard = NULL;
	rt.map = NULL;
	rt.page = NULL;
	rt.peer = 0;
}

static int start(void)
{
	struct control_process process = { -1, -1, -1, -1, 0 };
	cpu_set_t cpus;
	int r = control_join(&process);

	if (r < 0)
		return r;
	rt.peer = process.peer;
	rt.events = process.events;
	rt.kick = control_fd_high(process.kick);
	r = rt.kick < 0 ? -EBADF : page_map(&process);
	fd_drop(&process.page);
	fd_drop(&process.map);
	if (r == 0)
		fcntl(rt.kick, F_SETFL, fcntl(rt.kick, F_GETFL) | O_NONBLOCK);
	rt.many_cpus = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) > 1;
	spin_init(&rt.spin, sysconf(_SC_NPROCESSORS_ONLN) > 1);
	if (r == 0)
		r = guard_init();
	td_init();
	if (r == 0)
		r = alive_init();
	if (r == 0)
		r = pair_loop_init();
	if (r == 0)
		r = sleep_init();
	if (r == 0) {
		atomic_store(&rt.stop, false);
		atomic_store(&rt.running, true);
		r = thread_start();
	}
	if (r < 0) {
		atomic_store(&rt.running, false);
		teardown();
	}
	return r;
}

int rt_start(void)
{
	int r = process_enter();

	if (r < 0)
		return r;
	fork_init();
	pthread_mutex_lock(&start_lock);
	if (!atomic_load(&rt.running))
		r = start();
	pthread_mutex_unlock(&start_lock);
	return r;
}

void rt_stop(void)
{
	pthread_mutex_lock(&start_lock);
	if (atomic_load(&rt.running))
		xrc_stop();
	if (atomic_load(&rt.running) && !qp_table_any()) {
		atomic_store(&rt.stop, true);
		count_add(rt.wake);
		pthread_join(rt.thread, NULL);
		atomic_store(&rt.running, false);
		teardown();
	}
	pthread_mutex_unlock(&start_lock);
}
