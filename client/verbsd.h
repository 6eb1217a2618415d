/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What verbsd offers beyond verbs: memory regions that processes share. Everything else is <infiniband/verbs.h>.
 *
 * A shared region is memory of the daemon's, with one rkey, mapped by every process that creates, imports or attaches
 * it. It is used as any MR is, and given back with ibv_dereg_mr(). Its addresses in work requests are the region's own:
 * they start at `base` of struct verbsd_mr_info in every process, and so does the mapping (mr->addr), unless something
 * else lies there already.
 *
 * PDs may be a real device's. The region is the same there, but each MR has keys of the device's, and all of its memory
 * is pinned: by the daemon, where that opened the device for the program.
 *
 * Functions that return a pointer or an fd return NULL or -1 and set errno; the others return 0 or an errno value. All
 * fail with ENOTCONN without a daemon.
 */
#ifndef VERBSD_H
#define VERBSD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

/* The interface of this header: grows with each function added. */
#define VERBSD_API_VERSION 3

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library, such as "1.0.0". Static storage. */
const char *verbsd_version(void);

enum verbsd_mr_flags {
	VERBSD_MR_HUGE_2M = 1 << 0,  /* of huge pages; ENOMEM when the host has none free */
	VERBSD_MR_HUGE_1G = 1 << 1,
	VERBSD_MR_POPULATE = 1 << 2, /* every page is there when the call returns */
	VERBSD_MR_NUMA = 1 << 3,     /* on numa_node */
	VERBSD_MR_PERSIST = 1 << 4,  /* of info: it stays when its last user goes */
	VERBSD_MR_READ_ONLY = 1 << 5 /* of info: this process cannot write it */
};

struct verbsd_mr_attr {
	size_t size;	    /* bytes, rounded up to pages */
	unsigned access;    /* enum ibv_access_flags; IBV_ACCESS_LOCAL_WRITE is implied */
	unsigned flags;	    /* enum verbsd_mr_flags */
	int numa_node;	    /* with VERBSD_MR_NUMA */
	uint32_t comp_mask; /* 0 */
};

/* A new region in @pd. */
struct ibv_mr *verbsd_alloc_mr(struct ibv_pd *pd, const struct verbsd_mr_attr *attr);

enum verbsd_export_flags {
	VERBSD_EXPORT_READ_ONLY = 1 << 0, /* who imports it cannot write it */
	VERBSD_EXPORT_PERSIST = 1 << 1,	  /* the region stays when its last user goes */
	VERBSD_EXPORT_SEAL = 1 << 2	  /* nobody maps it for writing any more, whatever their privileges */
};

/* Names the region within the domain (the same user, socket and pid namespace). 1 to 64 of [A-Za-z0-9._:/-]. */
int verbsd_export_mr(struct ibv_mr *mr, const char *name, unsigned flags);
/* A capability: whoever is handed the fd may import the region. The caller closes it. */
int verbsd_export_mr_fd(struct ibv_mr *mr, unsigned flags);

/* @access must be 0 or of reads only for what was exported read-only (EACCES). ENOENT: no such name in this domain. */
struct ibv_mr *verbsd_import_mr(struct ibv_pd *pd, const char *name, unsigned access);
struct ibv_mr *verbsd_import_mr_fd(struct ibv_pd *pd, int fd, unsigned access);

/*
 * Imports the region with that name, or creates it from @attr and exports it with @export_flags, in one step: of many
 * that call it at once, one creates. @created may be NULL. A region that exists keeps its size and flags; a smaller one
 * than @attr->size is EINVAL.
 */
struct ibv_mr *verbsd_attach_mr(struct ibv_pd *pd, const char *name, const struct verbsd_mr_attr *attr,
	unsigned export_flags, bool *created);

/* Whether the region stays in the daemon when its last user goes. It needs a name (EINVAL). */
int verbsd_persist_mr(struct ibv_mr *mr, bool persist);
/* Takes a name away, and persistence with it: the memory goes with the last user. */
int verbsd_release_mr(struct ibv_context *context, const char *name);

struct verbsd_mr_info {
	char name[65];	  /* "": none */
	uint32_t rkey;
	unsigned flags;	  /* enum verbsd_mr_flags */
	unsigned access;  /* enum ibv_access_flags; of a listing: 0 */
	unsigned users;	  /* MRs on it, in all processes */
	uint64_t size;
	uint64_t base;	  /* address of its first byte in work requests, local and remote */
	uint64_t page_size;
};

/* About a region that this process has an MR of. EINVAL: @mr is an ordinary one. */
int verbsd_query_mr(struct ibv_mr *mr, struct verbsd_mr_info *info);
/* The regions of the domain: writes at most @n and returns how many there are, or -1 with errno. */
int verbsd_list_mr(struct ibv_context *context, struct verbsd_mr_info *info, int n);

/*
 * The PD that the processes of this domain have in common on a real device, whose regions are registered once for all of
 * them. Given back with ibv_unimport_pd(), and its context with ibv_close_device(). EOPNOTSUPP: the provider cannot import;
 * EACCES: the daemon's configuration has none for this process.
 */
struct ibv_pd *verbsd_domain_pd(struct ibv_device *device);

#ifdef __cplusplus
}
#endif

#endif
