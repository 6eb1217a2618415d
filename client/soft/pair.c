/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pairs: a segment shared with a peer process, what is known of that peer, and its pools. The daemon's word is checked
 * against the sizes of this library all the same. A pair goes when its peer is dead and its last wire is released.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/control/control.h"
#include "client/soft/map.h"
#include "client/soft/dontfork.h"
#include "client/soft/qp.h"
#include "client/soft/pidfd.h"
#include "client/soft/rt_private.h"

#define OWNER_DIED 0x40000000u /* FUTEX_OWNER_DIED */
#define ALL_CHUNKS UINT64_MAX

_Static_assert(VSD_POOL_CHUNKS == 64, "a bit a chunk");

static struct pair_private *private_new(uint32_t n_wires)
{
	struct pair_private *priv = calloc(1, sizeof(*priv));

	if (!priv)
		return NULL;
	priv->wires = calloc(n_wires ? n_wires : 1, sizeof(struct wire *));
	if (!priv->wires) {
		free(priv);
		return NULL;
	}
	priv->n_wires = n_wires;
	for (unsigned kind = 0; kind < 2; kind++)
		atomic_init(&priv->pools[kind].free, ALL_CHUNKS);
	pthread_mutex_init(&priv->pool_lock, NULL);
	priv->waiters_tail = &priv->waiters;
	return priv;
}

static void private_free(struct pair_private *priv)
{
	if (!priv)
		return;
	while (priv->strays) {
		struct pool_stray *next = priv->strays->next;

		free(priv->strays);
		priv->strays = next;
	}
	pthread_mutex_destroy(&priv->pool_lock);
	free(priv->wires);
	free(priv);
}

/* --- loopback ------------------------------------------------------------------------------------------------------ */

/* Pools and lines of the two ends that this process has of itself. Untouched pages cost nothing. */
int pair_loop_init(void)
{
	void *mem = dontfork_mmap(NULL, sizeof(struct vsd_segment), PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		return -errno;
	for (unsigned side = 0; side < 2; side++) {
		struct pair *pair = &rt.loop[side];

		memset(pair, 0, sizeof(*pair));
		pair->side = side;
		pair->peer = rt.peer;
		pair->mem = mem;
		pair->page = rt.page;
		pair->pidfd = pair->kick = -1;
		pair->engines = VSD__ENGINE_RIGHT__ENGINE_STAGE;
		pair->pid = getpid();
		pair->priv = private_new(0);
		if (!pair->priv)
			return -ENOMEM;
	}
	return 0;
}

void pair_loop_deinit(void)
{
	struct vsd_segment *mem = rt.loop[0].mem;

	pthread_mutex_lock(&rt.pairs_lock);
	for (unsigned side = 0; side < 2; side++) {
		if (rt.loop[side].priv)
			map_free(&rt.loop[side]);
		private_free(rt.loop[side].priv);
		memset(&rt.loop[side], 0, sizeof(rt.loop[side]));
	}
	pthread_mutex_unlock(&rt.pairs_lock);
	if (mem)
		dontfork_munmap(mem, sizeof(*mem));
}

/* --- peers ----------------------------------------------------------------------------------------------------------- */

static void pair_free(struct pair *pair)
{
	map_free(pair);
	if (pair->mem)
		dontfork_munmap(pair->mem, pair->priv->size);
	if (pair->page)
		dontfork_munmap((void *)(uintptr_t)pair->page, VSD_PAGE_PEER_SIZE);
	/* Not close(): that is a cancellation point, and a poller comes here with locks. */
	if (pair->pidfd >= 0)
		syscall(SYS_close, pair->pidfd);
	if (pair->kick >= 0)
		syscall(SYS_close, pair->kick);
	private_free(pair->priv);
	free(pair);
}

static int fd_size_at_least(int fd, uint64_t size)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return st.st_size >= 0 && (uint64_t)st.st_size >= size ? 0 : -EPROTO;
}

/* Whoever has an older library, or an older daemon, has other places for what is in there. */
static int pair_layout(const struct pair *pair)
{
	const struct vsd_segment *mem = pair->mem;
	const struct vsd_page *page = pair->page;

	if (mem->magic == VSD_SEGMENT_MAGIC && mem->version == VSD_ABI_VERSION && page->magic == VSD_PAGE_MAGIC &&
	    page->version == VSD_ABI_VERSION)
		return 0;
	control_debug("memory of layout %u from the daemon, of %u from the peer: this library's is %u", mem->version, page->version,
		      VSD_ABI_VERSION);
	return -EPROTO;
}

static int pair_map(struct pair *pair, const Vsd__EvSegment *event, int mem, int page)
{
	if (event->side > 1 || event->segment == 0 || event->size < VSD_SEGMENT_WIRES || event->wires > VSD_WIRES ||
	    event->size > 1ull << 40)
		return -EPROTO;

	int r = fd_size_at_least(mem, event->size);

	if (r == 0)
		r = fd_size_at_least(page, VSD_PAGE_PEER_SIZE);
	if (r < 0)
		return r;
	pair->mem = rt_map(mem, event->size, true);
	if (!pair->mem)
		return -errno;
	pair->priv->size = event->size;
	r = rt_populate(pair->mem, offsetof(struct vsd_segment, pools));
	if (r < 0)
		return r;
	pair->page = rt_map(page, VSD_PAGE_PEER_SIZE, false);
	return pair->page ? pair_layout(pair) : -errno;
}

static struct pair *pair_new(const Vsd__EvSegment *event, int pidfd, int kick)
{
	struct pair *pair = calloc(1, sizeof(*pair));

	if (pair)
		pair->priv = private_new(event->wires <= VSD_WIRES ? event->wires : 0);
	if (!pair || !pair->priv) {
		free(pair);
		close(pidfd);
		close(kick);
		return NULL;
	}
	pair->segment = event->segment;
	pair->peer = event->peer;
	pair->side = event->side;
	pair->engines = pair->priv->granted = event->engines;
	pair->pidfd = control_fd_high(pidfd);
	pair->kick = control_fd_high(kick);
	return pair;
}

bool pair_is_kin(const struct pair *pair)
{
	return pair->priv->granted & VSD__ENGINE_RIGHT__ENGINE_MAP;
}

int pair_add(const Vsd__EvSegment *event, int mem, int pidfd, int kick, int page)
{
	struct pair *pair = pair_new(event, pidfd, kick);
	int r = -ENOMEM;

	if (pair)
		r = pair->pidfd < 0 || pair->kick < 0 ? -EBADF : pair_map(pair, event, mem, page);
	close(mem);
	close(page);
	if (r == 0 && pair_find(event->segment, 0))
		r = -EEXIST;
	if (r == 0) {
		struct epoll_event watch = { .events = EPOLLIN, .data.ptr = pair };
		pid_t pid = pidfd_pid_here(pair->pidfd);

		pair->pid = pid > 0 ? pid : 0;
		if (epoll_ctl(rt.epoll, EPOLL_CTL_ADD, pair->pidfd, &watch) < 0)
			r = -errno;
	}
	if (r < 0) {
		control_debug("segment %u cannot be used: %s", event->segment, strerror(-r));
		if (pair)
			pair_free(pair);
		return r;
	}
	pthread_mutex_lock(&rt.pairs_lock);
	pair->priv->next = rt.pairs;
	rt.pairs = pair;
	pthread_mutex_unlock(&rt.pairs_lock);
	return 0;
}

struct pair *pair_find(uint32_t segment, unsigned side)
{
	if (segment == 0)
		return side < 2 && rt.loop[side].mem ? &rt.loop[side] : NULL;
	for (struct pair *pair = rt.pairs; pair; pair = pair->priv->next)
		if (pair->segment == segment)
			return pair;
	return NULL;
}

void pair_died(struct pair *pair)
{
	if (!pair->segment || pair->priv->gone)
		return;
	pair->priv->gone = true;
	atomic_store(&pair->dead, true);
	epoll_ctl(rt.epoll, EPOLL_CTL_DEL, pair->pidfd, NULL);
	map_drop(pair);
	control_debug("the process behind segment %u is gone", pair->segment);
	for (uint32_t i = 0; i < pair->priv->n_wires; i++) {
		struct wire *wire = pair->priv->wires[i];

		if (wire && !atomic_load(&wire->released))
			wire_gone(wire, true);
	}
}

void pair_look_alive(void)
{
	for (struct pair *pair = rt.pairs; pair; pair = pair->priv->next)
		if (pair->priv->attached && !pair->priv->gone &&
		    atomic_load_explicit(&pair->page->alive, memory_order_relaxed) & OWNER_DIED)
			pair_died(pair);
}

bool pair_is_alive(const struct pair *pair)
{
	uint32_t alive = atomic_load_explicit(&pair->page->alive, memory_order_acquire);

	return alive && !(alive & OWNER_DIED) && !atomic_load_explicit(&pair->dead, memory_order_relaxed);
}

static void remove_where(bool all)
{
	struct pair *gone = NULL;

	pthread_mutex_lock(&rt.pairs_lock);
	for (struct pair **at = &rt.pairs; *at;) {
		struct pair *pair = *at;

		if (all || (pair->priv->gone && !pair->priv->attached)) {
			*at = pair->priv->next;
			pair->priv->next = gone;
			gone = pair;
		} else {
			at = &pair->priv->next;
		}
	}
	pthread_mutex_unlock(&rt.pairs_lock);
	while (gone) {
		struct pair *next = gone->priv->next;

		pool_abandon(gone);
		pair_free(gone);
		gone = next;
	}
}

void pair_collect(void)
{
	remove_where(false);
}

void pair_remove_all(void)
{
	remove_where(true);
}
