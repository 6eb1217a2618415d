/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Children. One that only goes on, or executes another program, is rid of its copies of our fds, so that no peer waits for
 * them. One that uses verbs itself forgets what its parent had, and starts anew. In both the parent's objects stay inert.
 */
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/control/process.h"
#include "client/soft/in_child.h"
#include "client/soft/rt_private.h"

#define LOCK_TRIES 1000u

static __thread bool pairs_held; /* over the fork: the list of pairs is whole in the child */

/* The thread that forks may be in a signal handler, inside the lock: it does not wait for ever. */
static void prepare(void)
{
	pairs_held = false;
	for (unsigned i = 0; i < LOCK_TRIES && !pairs_held; i++) {
		pairs_held = pthread_mutex_trylock(&rt.pairs_lock) == 0;
		if (!pairs_held)
			sched_yield();
	}
}

static void parent(void)
{
	if (pairs_held)
		pthread_mutex_unlock(&rt.pairs_lock);
}

/* A program that closed our fds may have others of those numbers. @type: of st_mode, 0 for what has no inode of its own. */
static void fd_drop(int *fd, mode_t type)
{
	struct stat st;

	if (*fd >= 0 && fstat(*fd, &st) == 0 && (st.st_mode & S_IFMT) == type)
		close(*fd);
	*fd = -1;
}

static void child(void)
{
	if (!atomic_load(&rt.running))
		return;
	atomic_store(&rt.running, false);
	fd_drop(&rt.events, S_IFSOCK);
	fd_drop(&rt.kick, S_IFIFO);
	fd_drop(&rt.epoll, 0);
	fd_drop(&rt.wake, 0);
	fd_drop(&rt.timer, 0);
	for (struct pair *pair = pairs_held ? rt.pairs : NULL; pair; pair = pair->priv->next) {
		fd_drop(&pair->pidfd, 0);
		fd_drop(&pair->kick, S_IFIFO);
	}
}

static void forget(void)
{
	rt_in_child();
	async_in_child();
	attach_in_child();
	buf_in_child();
	channel_in_child();
	datagram_in_child();
	events_queue_in_child();
	key_in_child();
	map_in_child();
	mcast_in_child();
	mw_in_child();
	page_keys_in_child();
	qp_table_in_child();
	region_in_child();
	shard_in_child();
	td_in_child();
	timer_in_child();
	xrc_in_child();
}

static const struct process_hooks fork_hooks = { prepare, parent, child, forget };

void fork_init(void)
{
	process_hooks_add(&fork_hooks);
}
