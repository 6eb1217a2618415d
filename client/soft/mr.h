/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions and windows by key, and their revocation: after mr_close() returned, no byte is read or written
 * through that key, by any thread of ours or of a peer (datapath.md 4).
 */
#ifndef SOFT_MR_H
#define SOFT_MR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "client/soft/dontfork.h"
#include "client/soft/objects.h"

struct abi_file;
struct soft_qp;

struct soft_mr {
	struct ibv_mr mr; /* lkey == rkey == key */
	struct soft_context *ctx;
	struct soft_pd *pd; /* as given; pd->base decides access */
	uint32_t handle, key;
	uint8_t *mem;  /* the byte at iova, in this process; mr.addr is what the program shall see, which may be nothing */
	uint64_t iova;
	unsigned access;
	bool null;
	struct soft_region *region; /* the shared region that it is on, mem is within; NULL: none */
	uint32_t heap;		    /* or the number of the heap region that it is a part of; 0: of none */
	uint32_t place;		  /* in our page, and one more: the daemon looks there; 0: it was told */
	bool leased;		  /* its key is of the context's lease; a region's own is not */
	bool imported;		  /* from another process: it is this one's own, and goes with its last pointer */
	uint32_t imported_as;	  /* the handle that it was imported by */
	bool mapped;		  /* by the library: it stays where it is */
	bool mapped_writable;
	struct dontfork_range fork; /* what it takes from children, of the program's memory */
	struct soft_dm *dm;	  /* it is on device memory: */
	uint32_t dm_handle;
	uint64_t dm_offset;
	void *map;		  /* made for it alone, map_size bytes: a memfd of the program's, or imported device memory */
	size_t map_size;
	struct abi_file *file;	  /* that memfd, for those who import the region */
	/*
	 * Pointers to one MR: the one that registered it, and those that imported it in this process (`of` is the former;
	 * they have no key of their own). Whichever deregisters it does so for all; each is let go on its own.
	 */
	struct soft_mr *of;
	/* From here on what any thread may change at any moment; all else only who changes the region itself. */
	_Atomic unsigned windows; /* memory windows bound to it */
	_Atomic unsigned refs;	/* of those pointers */
	_Atomic bool gone;	/* deregistered */
};

/* What an MR's pointer stands for. */
static inline struct soft_mr *soft_mr_of(struct ibv_mr *m)
{
	struct soft_mr *mr = soft_container(m, struct soft_mr, mr);

	return mr->of ? mr->of : mr;
}

struct soft_mw {
	struct ibv_mw mw;
	struct soft_context *ctx;
	struct soft_pd *pd;
	uint32_t handle;
	uint32_t index; /* of its key. Who serves looks here: a post may change mw.rkey at any moment */
	/* bound: */
	struct soft_mr *mr;
	uint32_t key; /* mw.rkey is that of the last bind that was posted, which may not have come to pass */
	uint64_t qp; /* type 2: the serial number of the QP */
	uint64_t addr, length;
	unsigned access;
	_Atomic unsigned users;
	struct soft_mw *next; /* of those with the same hash */
};

/*
 * A bind as it waits in a send queue: by keys and numbers, since the window and the region may be gone when it is its turn.
 */
struct mw_bind {
	const struct ibv_context *context; /* of the window, NULL: there is none; compared only */
	uint32_t window;		   /* index of its key */
	uint32_t region;		   /* its key; 0: none */
	uint64_t addr, length;		   /* 0: unbind */
	unsigned access;
};

/* Makes the region usable and publishes its entry for initiators. */
int mr_open(struct soft_mr *mr);
/* Closes it and waits; -EBUSY: a stopped initiator is inside after 10 s (a log line after 1 s), the region is open again. */
int mr_close(struct soft_mr *mr);
/* Whether a region or window has that index, whatever its tag. */
bool key_is_used(uint32_t key);
/* The first open region that @match says yes to, with a reference in refs; NULL: none. Looks at every key. */
struct soft_mr *mr_find(bool (*match)(const struct soft_mr *mr, const void *arg), const void *arg);
/* Probes [addr, addr+length): 0, -EFAULT, -EACCES. Does not populate. */
int mr_probe(const void *addr, size_t length, bool write);
/* The same of whole mappings that exist, page by page of them; -EACCES. */
int mr_maps_allow(uintptr_t from, uintptr_t to, bool write);

/* What a key gives access to: a region or a bound window. */
struct key_slot;
struct mr_ref {
	struct soft_mr *mr;
	struct soft_mw *mw;
	/* how it is held: the key's slot, and that of the region behind a window */
	struct soft_td *td;
	struct key_slot *slots[2];
	bool named[2]; /* by the domain, else counted */
};
/*
 * Looks @key up for @pd and checks [addr, addr+length) and @access (enum ibv_access_flags needed; 0 for a local read).
 * 0: *@ref is held until mr_unref(), *@ptr is the address in this process. -EINVAL, -EACCES, -ERANGE: no.
 * @qp: for windows of type 2; NULL for local access (windows are then refused). A length of 0 needs no key.
 */
int mr_ref(uint32_t key, const struct soft_pd *pd, const struct soft_qp *qp, uint64_t addr, uint64_t length,
	   unsigned access, bool remote, struct mr_ref *ref, void **ptr);
/* The same for who has a thread domain (NULL: has none): a domain names what it holds, which costs no barrier. */
int mr_ref_in(struct soft_td *td, uint32_t key, const struct soft_pd *pd, const struct soft_qp *qp, uint64_t addr,
	      uint64_t length, unsigned access, bool remote, struct mr_ref *ref, void **ptr);
void mr_unref(struct mr_ref *ref);

/* Its memory need not be there: it is reached by copy_to_paged() and its like. */
static inline bool mr_is_paged(const struct mr_ref *ref)
{
	return ref->mr && ref->mr->access & IBV_ACCESS_ON_DEMAND;
}

/* ibv_advise_mr() of one SGE: what its page says is an error, as a negative errno. */
int mr_advise_check(const struct soft_pd *pd, const struct ibv_sge *sge, bool write);
/* Pages in what mr_advise_check() let pass; @wait: and waits for that. -EFAULT: no memory there. */
int mr_prefetch(const struct ibv_sge *sge, bool write, bool wait);

/* Windows: bind, invalidate by key. */
int mw_open(struct soft_mw *mw);
int mw_close(struct soft_mw *mw);
struct mw_bind mw_bind_of(struct ibv_mw *mw, const struct ibv_mw_bind_info *info);
int mw_bind(const struct mw_bind *want, struct soft_qp *qp, uint32_t rkey);
/* How many windows are bound to @mr, and the keys of the first @n. */
unsigned mw_bound_to(const struct soft_mr *mr, uint32_t *keys, unsigned n);
int key_invalidate(uint32_t key, const struct soft_qp *qp, bool remote);

/* A published entry of a peer's, checked as an initiator must (after pair_hazard_enter()); 0 or a negative errno. */
struct vsd_page;
struct wire;
int mr_peer_check(const struct vsd_page *page, uint32_t rkey, uint64_t addr, uint64_t length, unsigned access,
		  const struct wire *wire, uint64_t *remote_addr);
/*
 * The gate of a QP in our own page: opened at RTR, closed at ERR, RESET and destroy. It lets through what comes by
 * @wire, and nothing while that is NULL: a QP that was reset and came back is another connection.
 */
void qp_gate_open(uint32_t qpn, unsigned access, uint32_t pd, uint32_t peer_qpn, const struct wire *wire);
void qp_gate_close(uint32_t qpn);

#endif
