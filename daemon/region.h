/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared regions: memory of the daemon's that processes map. A region belongs to the domain that made it, which pays for
 * it; its users are the MRs on it, wherever they are. It goes with its last user, unless it is persistent.
 */
#ifndef DAEMON_REGION_H
#define DAEMON_REGION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/account.h"
#include "daemon/list.h"
#include "daemon/region_space.h"
#include "proto/limits.h"

struct domain;
struct item;
struct lease_pool;
struct server;
struct session;
struct window;

#define REGION_NAME_MAX 64

/* As in verbsd.proto. */
enum region_flag {
	REGION_HUGE_2M = 1,
	REGION_HUGE_1G = 2,
	REGION_READ_ONLY = 4,
	REGION_PERSIST = 8,
	REGION_SEAL = 16,
	REGION_CREATE = 32,
	REGION_NAMED = 64,
};
#define REGION_HUGE (REGION_HUGE_2M | REGION_HUGE_1G)

/* What a capability gives: read-only ones are [0], the others [1]. */
struct region_capability {
	struct list link; /* in the server's; not in the list: never asked for */
	struct region *region;
	bool writable;
	uint8_t nonce[VSD_NONCE_SIZE];
};

struct region {
	struct list link; /* all of them, by number */
	struct server *server;
	struct domain *domain; /* referenced */
	uint32_t number, key;
	int memfd;
	uint64_t size, page_size;
	struct region_range range; /* its addresses */
	uint32_t huge;             /* REGION_HUGE_* that it was made with */
	uint64_t creator;          /* session */
	char name[REGION_NAME_MAX + 1];
	bool read_only;  /* for who imports it by its name */
	bool persistent; /* which needs a name */
	bool shared;     /* another process than its creator's could write it */
	bool sealed;     /* nobody can write it any more who does not already */
	bool announced;  /* watchers know it */
	struct window *window; /* from before it was sealed; NULL: none */
	unsigned users;
	struct region_capability capabilities[2];
	/* Of a heap: parts of it may be registered by the process that has it, and nobody else finds it. */
	struct list link_heap; /* in its session's; not in the list: it was given back */
	pid_t heap_pid;	       /* 0: none */
	struct charge charge, bytes, fds, persistent_bytes;
};

/* The server's. */
struct regions {
	struct list all;
	struct list capabilities;
	void *names; /* tree of struct region, by domain and name */
	void *mrs;   /* tree of struct mr with a region's key, an imported one, or on a heap, by session and key */
	void *heaps; /* tree of struct region that are heaps, by number */
	struct region_space space;
	uint32_t last, count;
	uint64_t bytes;
};

void regions_init(struct regions *regions, struct lease_pool *keys);
/* No region has users any more. */
void regions_deinit(struct regions *regions);

/* Of @session's domain, with @flags of REGION_HUGE. Without users: follow with region_check(). */
int region_new(struct session *session, uint64_t size, uint32_t flags, struct region **region);
/* Watchers are told of it, and will be of its end. */
void region_announce(struct region *region);
/* Frees it if nobody needs it. */
void region_check(struct region *region);
void region_ref(struct region *region);
void region_unref(struct region *region);

/* A region for the heap of @session's process: it has the session as a user until it is given back. */
int heap_new(struct session *session, uint64_t size, struct region **region);
/* -EINVAL: @session has no such heap. */
int heap_give(struct session *session, uint32_t number);
/* All that it has. */
void heaps_give(struct session *session);
/* The heap of @session's process with that number. NULL: none. */
struct region *heap_find(const struct session *session, uint32_t number);

/* NULL: none of that domain has this name. */
struct region *region_find(struct server *server, const struct domain *domain, const char *name);
/* The region that a capability opens, compared in constant time. NULL: none. */
struct region *region_open(
	struct server *server, const uint8_t nonce[VSD_NONCE_SIZE], bool *writable);

/* -EINVAL when it is no name. */
int region_name_check(const char *name);
/*
 * Names it, for others of its domain to import. -EEXIST: another region has the name, -EBUSY: it has another name, -EACCES:
 * @session is of another domain. @flags of READ_ONLY, PERSIST, SEAL.
 */
int region_export(
	struct region *region, const struct session *session, const char *name, uint32_t flags);
/* -EINVAL without a name. */
int region_persist(struct region *region, const struct session *session, bool persist);
/* Takes its name away, and persistence with it; without users it is gone then. */
void region_release(struct region *region);
/* The same, but it stays for now: follow with region_check(). */
void region_unname(struct region *region);
/*
 * Its clients are of the daemon's own user, and that is not root's: they could get at what the daemon has mapped, so a seal is all
 * that holds, and nothing of it stays mapped for writing (see window.h).
 */
bool region_is_of_own_user(const struct region *region);
/* PERSIST and SEAL of @flags. -EBUSY for SEAL: another process may write it already. */
int region_keep(struct region *region, const struct session *session, uint32_t flags);

/* A new capability fd. */
int region_capability(struct region *region, bool writable);
/* An fd of its memory for @session's process. */
int region_fd(struct region *region, const struct session *session, bool writable);
/* REGION_* as a reply or a listing shows it. */
uint32_t region_flags(const struct region *region);

/* What MRs on it and the region itself show of it. */
void region_describe(const struct region *region, struct item *item);

/* How many names @uid's domains lost. */
unsigned regions_release(struct server *server, uint32_t uid, const char *name);

#endif
