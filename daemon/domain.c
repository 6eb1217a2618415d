/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: quotas, log limits and the question "may these two touch each other's memory" all hang on the same key.
 * Guarantees: a domain lives as long as a session or a charge refers to it, its user as long as a domain does.
 */
#include "daemon/domain.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cleanup.h"
#include "daemon/fd.h"
#include "daemon/refuse.h"

void domains_init(struct domains *domains)
{
	*domains = (struct domains){ 0 };
	list_init(&domains->domains);
	list_init(&domains->users);
}

static void user_free(struct account *account)
{
	struct user *user = container_of(account, struct user, account);

	list_remove(&user->link);
	free(user);
}

static void domain_free(struct account *account)
{
	struct domain *domain = container_of(account, struct domain, account);

	assert(domain->pins == 0);
	list_remove(&domain->link);
	free(domain);
}

static struct user *user_get(struct domains *domains, const struct config *config, uid_t uid)
{
	uint64_t limit[SLOT_N];
	struct user *user;

	list_for_each (pos, &domains->users) {
		user = container_of(pos, struct user, link);
		if (user->uid == uid) {
			account_ref(&user->account);
			return user;
		}
	}
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	config_limits(config, uid, limit);
	account_init(&user->account, NULL, limit, user_free);
	user->uid = uid;
	list_append(&domains->users, &user->link);
	return user;
}

static void share(const struct config *config, uid_t uid, uint64_t *limit)
{
	config_limits(config, uid, limit);
	for (unsigned i = 0; i < SLOT_N; i++)
		limit[i] = limit[i] / 100 * config->domain_share +
			   limit[i] % 100 * config->domain_share / 100;
}

static bool key_equal(const struct domain_key *a, const struct domain_key *b)
{
	return a->listener == b->listener && a->uid == b->uid && a->pidns == b->pidns &&
	       a->alone == b->alone;
}

static struct log_limit *log_limit_get(struct domains *domains, const struct domain_key *key)
{
	uint64_t hash = (key->uid + 1) * 0x9e3779b97f4a7c15ull;

	hash = (hash ^ key->pidns ^ (uintptr_t)key->listener) * 0x9e3779b97f4a7c15ull;
	return &domains->log_limits[hash >> 32 & (DOMAIN_LOG_LIMITS - 1)];
}

int domain_get(struct domains *domains, const struct config *config, const struct domain_key *key,
	struct domain **domain)
{
	uint64_t limit[SLOT_N];
	struct domain *made;
	struct user *user;

	list_for_each (pos, &domains->domains) {
		made = container_of(pos, struct domain, link);
		if (key_equal(&made->key, key)) {
			*domain = domain_ref(made);
			return 0;
		}
	}
	user = user_get(domains, config, key->uid);
	if (!user)
		return -ENOMEM;
	made = calloc(1, sizeof(*made));
	if (!made) {
		account_unref(&user->account);
		return -ENOMEM;
	}
	share(config, key->uid, limit);
	account_init(&made->account, &user->account, limit, domain_free);
	account_unref(&user->account); /* the domain's account has its own */
	made->key = *key;
	made->pidns = -1;
	made->log_limit = log_limit_get(domains, key);
	list_append(&domains->domains, &made->link);
	*domain = made;
	return 0;
}

struct domain *domain_ref(struct domain *domain)
{
	account_ref(&domain->account);
	return domain;
}

struct domain *domain_unref(struct domain *domain)
{
	if (domain)
		account_unref(&domain->account);
	return NULL;
}

/* Opens the namespace of @pid, sure that it is the one that was seen when the process connected. */
static int pidns_open(uint64_t inode, pid_t pid, int pidfd)
{
	struct pollfd pollfd = { .fd = pidfd, .events = POLLIN };
	CLEANUP_CLOSE int fd = -1;
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	fd = fd_admit(open(path, O_RDONLY | O_CLOEXEC));
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_ino != inode || pidfd < 0 || poll(&pollfd, 1, 0) != 0)
		return refuse(-ESRCH, "its pid namespace is gone");
	return fd_steal(&fd);
}

int domain_pin(struct domain *domain, pid_t pid, int pidfd)
{
	int r;

	if (domain->pins == 0 && domain->key.pidns) {
		r = charge_take(&domain->pidns_charge, &domain->account, SLOT_FDS, 1);
		if (r < 0)
			return r;
		r = pidns_open(domain->key.pidns, pid, pidfd);
		if (r < 0) {
			charge_release(&domain->pidns_charge);
			return r;
		}
		domain->pidns = r;
	}
	domain->pins++;
	return 0;
}

void domain_unpin(struct domain *domain)
{
	assert(domain->pins > 0);
	if (--domain->pins > 0)
		return;
	cleanup_close(&domain->pidns);
	domain->pidns = -1;
	charge_release(&domain->pidns_charge);
}

void domains_set_limits(struct domains *domains, const struct config *config)
{
	uint64_t limit[SLOT_N];

	list_for_each (pos, &domains->users) {
		struct user *user = container_of(pos, struct user, link);

		config_limits(config, user->uid, limit);
		account_set_limits(&user->account, limit);
	}
	list_for_each (pos, &domains->domains) {
		struct domain *domain = container_of(pos, struct domain, link);

		share(config, domain->key.uid, limit);
		account_set_limits(&domain->account, limit);
	}
}
