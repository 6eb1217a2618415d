/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Entries and gates: what a peer has to find open, with a 64-bit generation, before and while it touches our memory
 * (datapath.md 4). Only this process writes them. A key without an entry is served by its owner, over the lane.
 */
#include "client/soft/page.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "client/soft/in_child.h"
#include "client/soft/mr_private.h"
#include "client/soft/qp.h"
#include "client/soft/region.h"
#include "client/soft/rt_private.h"

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define TABLE_PAGES ((VSD_PAGE_SIZE + 4095) / 4096)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t populated[(TABLE_PAGES + 63) / 64]; /* a bit a page */
static uint64_t last_gen;

void page_keys_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	memset(populated, 0, sizeof(populated));
	last_gen = 0;
}

/* Makes the page of a line present. Lock held. */
static bool line_present(const void *line)
{
	size_t n = (size_t)((const uint8_t *)line - (const uint8_t *)rt.page) / 4096;

	if (populated[n / 64] >> (n % 64) & 1)
		return true;
	if (rt_populate((uint8_t *)rt.page + n * 4096, 4096) < 0)
		return false;
	populated[n / 64] |= 1ull << (n % 64);
	return true;
}

static void key_store(struct vsd_key *entry, const struct soft_mr *mr)
{
	atomic_store_explicit(&entry->key, mr->key, memory_order_relaxed);
	atomic_store_explicit(&entry->addr, (uint64_t)(uintptr_t)mr->mem, memory_order_relaxed);
	atomic_store_explicit(&entry->length, mr->mr.length, memory_order_relaxed);
	atomic_store_explicit(&entry->iova, mr->iova, memory_order_relaxed);
	atomic_store_explicit(&entry->access, mr->access, memory_order_relaxed);
	atomic_store_explicit(&entry->pd, mr->pd->base->number, memory_order_relaxed);
	atomic_store_explicit(&entry->region, mr->region ? mr->region->number : mr->heap, memory_order_relaxed);
	atomic_store_explicit(&entry->gen, ++last_gen, memory_order_release);
}

static bool is_open(const struct soft_mr *mr)
{
	struct key_slot *slot = key_slot_get(mr->key);

	return slot && atomic_load(&slot->object) == (uintptr_t)mr;
}

static void key_open(const struct soft_mr *mr)
{
	if (!rt.page || mr->null || mr->access & IBV_ACCESS_ON_DEMAND)
		return;
	pthread_mutex_lock(&lock);

	struct vsd_key *entry = &rt.page->keys[(mr->key >> 8) % VSD_PAGE_KEYS];

	/* Whoever closes takes the region out of its slot first, and then comes here: its entry is not opened behind it. */
	if (is_open(mr) && line_present(entry) && atomic_load_explicit(&entry->gen, memory_order_relaxed) == 0)
		key_store(entry, mr);
	pthread_mutex_unlock(&lock);
}

void page_key_open(const struct soft_mr *mr)
{
	if (mr->access & REMOTE)
		key_open(mr);
}

static bool is_lent(uint32_t key, uint32_t qpn)
{
	const struct vsd_key *entry = &rt.page->keys[(key >> 8) % VSD_PAGE_KEYS];
	const struct vsd_gate *gate = &rt.page->gates[qpn % VSD_PAGE_GATES];

	return atomic_load_explicit(&entry->gen, memory_order_relaxed) &&
	       atomic_load_explicit(&entry->key, memory_order_relaxed) == key &&
	       atomic_load_explicit(&gate->gen, memory_order_relaxed) &&
	       atomic_load_explicit(&gate->qpn, memory_order_relaxed) == qpn;
}

bool page_key_lend(uint32_t key, uint32_t qpn)
{
	struct key_slot *slot = key_slot_get(key);
	uintptr_t object;

	if (!rt.page || !slot)
		return false;
	if (is_lent(key, qpn))
		return true;
	atomic_fetch_add(&slot->users, 1);
	object = atomic_load(&slot->object);
	if (object && !(object & 1))
		key_open((const struct soft_mr *)object);
	key_slot_leave(slot);
	return is_lent(key, qpn);
}

void page_key_close(uint32_t key)
{
	if (!rt.page)
		return;
	pthread_mutex_lock(&lock);

	struct vsd_key *entry = &rt.page->keys[(key >> 8) % VSD_PAGE_KEYS];

	/* An entry that was never opened is on a page that may not be present: do not touch it. */
	size_t n = (size_t)((const uint8_t *)entry - (const uint8_t *)rt.page) / 4096;

	if (populated[n / 64] >> (n % 64) & 1 && atomic_load_explicit(&entry->key, memory_order_relaxed) == key)
		atomic_store(&entry->gen, 0);
	pthread_mutex_unlock(&lock);
	atomic_thread_fence(memory_order_seq_cst);
}

void page_forget(void)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < sizeof(populated) / sizeof(populated[0]); i++)
		populated[i] = 0;
	pthread_mutex_unlock(&lock);
}

static uint64_t wire_name(const struct wire *wire)
{
	return (uint64_t)wire->gen << 32 | wire->index;
}

void qp_gate_open(uint32_t qpn, unsigned access, uint32_t pd, uint32_t peer_qpn, const struct wire *wire)
{
	if (!rt.page)
		return;
	pthread_mutex_lock(&lock);

	struct vsd_gate *gate = &rt.page->gates[qpn % VSD_PAGE_GATES];

	if (line_present(gate) && (atomic_load_explicit(&gate->gen, memory_order_relaxed) == 0 ||
				   atomic_load_explicit(&gate->qpn, memory_order_relaxed) == qpn)) {
		atomic_store(&gate->gen, 0);
		atomic_store_explicit(&gate->qpn, qpn, memory_order_relaxed);
		atomic_store_explicit(&gate->access, access, memory_order_relaxed);
		atomic_store_explicit(&gate->pd, pd, memory_order_relaxed);
		atomic_store_explicit(&gate->peer_qpn, peer_qpn, memory_order_relaxed);
		atomic_store_explicit(&gate->wire, wire ? wire_name(wire) : 0, memory_order_relaxed);
		atomic_store_explicit(&gate->segment, wire ? wire->pair->segment : 0, memory_order_relaxed);
		atomic_store_explicit(&gate->gen, ++last_gen, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
}

void qp_gate_close(uint32_t qpn)
{
	if (!rt.page)
		return;
	pthread_mutex_lock(&lock);

	struct vsd_gate *gate = &rt.page->gates[qpn % VSD_PAGE_GATES];
	size_t n = (size_t)((const uint8_t *)gate - (const uint8_t *)rt.page) / 4096;

	if (populated[n / 64] >> (n % 64) & 1 && atomic_load_explicit(&gate->qpn, memory_order_relaxed) == qpn)
		atomic_store(&gate->gen, 0);
	pthread_mutex_unlock(&lock);
	atomic_thread_fence(memory_order_seq_cst);
}

/* The gate lets @access through; *@pd is its PD. Each load is an acquire: the last look at gen comes after all. */
static bool gate_lets(const struct vsd_page *page, const struct wire *wire, unsigned access, uint32_t *pd)
{
	const struct vsd_gate *gate = &page->gates[wire->peer_qpn % VSD_PAGE_GATES];
	uint64_t gen = atomic_load_explicit(&gate->gen, memory_order_acquire);
	bool lets = gen && atomic_load_explicit(&gate->qpn, memory_order_acquire) == wire->peer_qpn &&
		    atomic_load_explicit(&gate->peer_qpn, memory_order_acquire) == wire->local_qpn &&
		    atomic_load_explicit(&gate->wire, memory_order_acquire) == wire_name(wire) &&
		    atomic_load_explicit(&gate->segment, memory_order_acquire) == wire->pair->segment &&
		    (atomic_load_explicit(&gate->access, memory_order_acquire) & access) == access;

	*pd = atomic_load_explicit(&gate->pd, memory_order_acquire);
	return lets && atomic_load_explicit(&gate->gen, memory_order_acquire) == gen;
}

int mr_peer_check(const struct vsd_page *page, uint32_t rkey, uint64_t addr, uint64_t length, unsigned access,
		  const struct wire *wire, uint64_t *remote_addr)
{
	const struct vsd_key *entry = &page->keys[(rkey >> 8) % VSD_PAGE_KEYS];
	uint64_t gen = atomic_load_explicit(&entry->gen, memory_order_acquire), size, iova, base;
	uint32_t pd;
	bool lets;

	if (!gen || !gate_lets(page, wire, access, &pd))
		return -EACCES;
	lets = atomic_load_explicit(&entry->key, memory_order_acquire) == rkey &&
	       atomic_load_explicit(&entry->pd, memory_order_acquire) == pd &&
	       (atomic_load_explicit(&entry->access, memory_order_acquire) & access) == access;
	base = atomic_load_explicit(&entry->addr, memory_order_acquire);
	size = atomic_load_explicit(&entry->length, memory_order_acquire);
	iova = atomic_load_explicit(&entry->iova, memory_order_acquire);
	if (!lets || atomic_load_explicit(&entry->gen, memory_order_acquire) != gen)
		return -EACCES;
	if (addr < iova || addr - iova > size || length > size - (addr - iova))
		return -ERANGE;
	*remote_addr = base + (addr - iova);
	return 0;
}
