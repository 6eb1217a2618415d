/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The unit of trust: (listening socket, uid, pid namespace). It has the account that its clients are charged to, under
 * the account of its uid, and the limit on log lines about it.
 */
#ifndef DAEMON_DOMAIN_H
#define DAEMON_DOMAIN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/account.h"
#include "daemon/config.h"
#include "daemon/list.h"
#include "daemon/log.h"

struct user {
	struct account account;
	struct list link;
	uid_t uid;
};

struct domain_key {
	const void *listener;
	uid_t uid;
	uint64_t pidns; /* inode of the pid namespace */
	uint64_t alone; /* a session's id when its namespace is not known: a domain of its own */
};

struct domain {
	struct account account; /* counts references */
	struct list link;
	struct domain_key key;
	struct log_limit *log_limit; /* outlives it */
	unsigned pins;
	int pidns; /* its pid namespace, while it is pinned */
	struct charge pidns_charge;
};

/* By a hash of the key: a domain that comes and goes with one session would have a new limit each time. */
#define DOMAIN_LOG_LIMITS 256

struct domains {
	struct list domains, users;
	struct log_limit log_limits[DOMAIN_LOG_LIMITS];
};

void domains_init(struct domains *domains);
/* The domain of @key, made when it is not there; a reference for the caller. 0 or -ENOMEM. */
int domain_get(struct domains *domains, const struct config *config, const struct domain_key *key,
	struct domain **domain);
struct domain *domain_ref(struct domain *domain);
struct domain *domain_unref(struct domain *domain);
/*
 * As long as it is pinned, no other pid namespace gets the number of its own: what is kept here under a name would be that
 * one's. @pid and @pidfd are of a process in it.
 */
int domain_pin(struct domain *domain, pid_t pid, int pidfd);
void domain_unpin(struct domain *domain);
/* After a reload. */
void domains_set_limits(struct domains *domains, const struct config *config);

#endif
