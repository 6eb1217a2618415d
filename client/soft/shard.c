/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which thread has which shard. One that ends gives its own back in a destructor of a thread-specific value; should it count in
 * a later destructor, it takes one anew, and in the last round of them it keeps it: then nobody else has it, unless a thread of
 * the same place in memory comes.
 */
#include "client/soft/shard.h"

#include <pthread.h>

#include "client/soft/in_child.h"

_Atomic(void *) shard_owners[VSD_PAGE_SHARDS];
struct shard_line shard_lines[VSD_PAGE_SHARDS];

static _Atomic bool granted;
static bool has_key; /* also in a child, whose key is its parent's */
static pthread_key_t key;

static void give_back(void *self)
{
	for (unsigned i = 0; i < VSD_PAGE_SHARDS; i++) {
		void *owner = self;

		atomic_compare_exchange_strong(&shard_owners[i], &owner, NULL);
	}
}

static void forget_owners(void)
{
	for (unsigned i = 0; i < VSD_PAGE_SHARDS; i++)
		atomic_store_explicit(&shard_owners[i], NULL, memory_order_relaxed);
}

void shard_init(bool by_daemon)
{
	if (!has_key)
		has_key = pthread_key_create(&key, give_back) == 0;
	atomic_store(&granted, by_daemon && has_key);
}

/* The key goes, too: the library may be unloaded before its threads end. */
void shard_deinit(void)
{
	atomic_store(&granted, false);
	forget_owners();
	if (has_key)
		pthread_key_delete(key);
	has_key = false;
}

void shard_in_child(void)
{
	atomic_store(&granted, false);
	forget_owners();
	for (unsigned i = 0; i < VSD_PAGE_SHARDS * SHARD_NAMES; i++)
		atomic_store_explicit(&shard_lines[i / SHARD_NAMES].names[i % SHARD_NAMES], NULL, memory_order_relaxed);
}

bool shard_named(const void *what)
{
	td_barrier_heavy();
	for (unsigned i = 0; i < VSD_PAGE_SHARDS * SHARD_NAMES; i++)
		if (atomic_load_explicit(&shard_lines[i / SHARD_NAMES].names[i % SHARD_NAMES], memory_order_acquire) == what)
			return true;
	return false;
}

/* A handler of a signal may come in between and take one, too: then both are this thread's. */
static bool take(unsigned i, void *self)
{
	void *none = NULL;

	if (!atomic_compare_exchange_strong(&shard_owners[i], &none, self))
		return false;
	if (pthread_setspecific(key, self) == 0)
		return true;
	atomic_store(&shard_owners[i], NULL);
	return false;
}

int shard_find(void *self)
{
	unsigned home = shard_home(self);

	for (unsigned n = 0; n < VSD_PAGE_SHARDS; n++) {
		unsigned i = home ^ n;

		if (atomic_load_explicit(&shard_owners[i], memory_order_relaxed) == self)
			return (int)i;
	}
	for (unsigned n = 0; n < VSD_PAGE_SHARDS && atomic_load_explicit(&granted, memory_order_relaxed); n++) {
		unsigned i = home ^ n;

		if (!atomic_load_explicit(&shard_owners[i], memory_order_relaxed) && take(i, self))
			return (int)i;
	}
	return -1;
}
