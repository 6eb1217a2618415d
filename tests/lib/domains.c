/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A preload that puts programs under thread domains that know nothing of them: each PD that they get is a parent domain with the
 * one thread domain of its context, and each CQ is made with that and for one thread. So the program has to use verbs in one
 * thread at a time. Goes before libverbsd.so. What it did is a line at the end of the file that VERBSD_DOMAINS_LOG names.
 * With VERBSD_DOMAINS_FENCES there is no membarrier: what a container's filter may do.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define EXPORT __attribute__((visibility("default")))
#define NEXT(name)                                           \
	static __typeof__(&name) next;                       \
	if (!next)                                           \
		*(void **)&next = dlsym(RTLD_NEXT, #name)

struct domain {
	struct ibv_context *ctx;
	struct ibv_td *td;
	struct ibv_pd *pd, *parent;
	struct domain *next;
	unsigned cqs; /* made with it: the program may deallocate the PD before */
	int gone;
};

struct made {
	struct ibv_cq *cq;
	struct domain *domain;
	struct made *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct domain *domains;
static struct made *cqs;
static unsigned count_domains, count_cqs, count_refused;

static struct domain *domain_of(const struct ibv_context *ctx, const struct ibv_pd *parent)
{
	struct domain *d = domains;

	while (d && (d->gone || (ctx && d->ctx != ctx) || (parent && d->parent != parent)))
		d = d->next;
	return d;
}

static struct ibv_td *td_of(struct ibv_context *ctx)
{
	struct ibv_td_init_attr attr = { .comp_mask = 0 };
	struct domain *d = domains;

	while (d && d->ctx != ctx)
		d = d->next;
	return d ? d->td : ibv_alloc_td(ctx, &attr);
}

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	NEXT(ibv_alloc_pd);

	struct ibv_pd *pd = next(ctx);

	if (!pd)
		return NULL;
	pthread_mutex_lock(&lock);

	struct domain *d = calloc(1, sizeof(*d));
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td_of(ctx) };
	struct ibv_pd *parent = d && attr.td ? ibv_alloc_parent_domain(ctx, &attr) : NULL;

	if (parent) {
		*d = (struct domain){ .ctx = ctx, .td = attr.td, .pd = pd, .parent = parent, .next = domains };
		domains = d;
		count_domains++;
	} else {
		free(d);
		count_refused++; /* the test sees it */
	}
	pthread_mutex_unlock(&lock);
	return parent ? parent : pd;
}

/* Lock held. */
static int domain_free(struct domain *domain, int (*dealloc)(struct ibv_pd *))
{
	int r = dealloc(domain->parent);
	struct domain **at = &domains;

	if (r)
		return r;
	r = dealloc(domain->pd);
	while (*at != domain)
		at = &(*at)->next;
	*at = domain->next;

	struct domain *other = domains;

	while (other && other->td != domain->td)
		other = other->next;
	if (!other && ibv_dealloc_td(domain->td))
		count_refused++;
	free(domain);
	return r;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	NEXT(ibv_dealloc_pd);
	pthread_mutex_lock(&lock);

	struct domain *d = domain_of(NULL, pd);
	int r = d ? domain_free(d, next) : next(pd);

	/* CQs do not stand on the PD that the program knows. */
	if (r == EBUSY && d && d->cqs) {
		d->gone = 1;
		r = 0;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *context, struct ibv_comp_channel *channel,
	int vector)
{
	NEXT(ibv_create_cq);
	pthread_mutex_lock(&lock);

	struct domain *d = domain_of(ctx, NULL);
	struct made *made = d ? calloc(1, sizeof(*made)) : NULL;
	struct ibv_cq_init_attr_ex attr = {
		.cqe = (uint32_t)cqe,
		.cq_context = context,
		.channel = channel,
		.comp_vector = (uint32_t)vector,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
		.parent_domain = d ? d->parent : NULL,
	};
	struct ibv_cq_ex *ex = made && cqe > 0 ? ibv_create_cq_ex(ctx, &attr) : NULL;

	if (ex) {
		*made = (struct made){ ibv_cq_ex_to_cq(ex), d, cqs };
		cqs = made;
		d->cqs++;
		count_cqs++;
	} else {
		free(made);
	}
	pthread_mutex_unlock(&lock);
	return ex ? ibv_cq_ex_to_cq(ex) : next(ctx, cqe, context, channel, vector);
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	NEXT(ibv_destroy_cq);

	int r = next(cq);

	pthread_mutex_lock(&lock);
	for (struct made **at = &cqs, *made = *at; r == 0 && made; made = *at) {
		if (made->cq != cq) {
			at = &made->next;
			continue;
		}
		*at = made->next;
		made->domain->cqs--;
		if (made->domain->gone) {
			*(void **)&next = dlsym(RTLD_NEXT, "ibv_destroy_cq");

			int (*dealloc)(struct ibv_pd *);

			*(void **)&dealloc = dlsym(RTLD_NEXT, "ibv_dealloc_pd");
			domain_free(made->domain, dealloc);
		}
		free(made);
		break;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

/* No membarrier(): EPERM. */
static void forbid(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ||
		syscall(SYS_membarrier, 0, 0, 0) >= 0)
		count_refused++;
}

__attribute__((constructor)) static void begin(void)
{
	if (getenv("VERBSD_DOMAINS_FENCES"))
		forbid();
}

__attribute__((destructor)) static void end(void)
{
	const char *path = getenv("VERBSD_DOMAINS_LOG");
	int fd = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;

	if (fd < 0 || !(count_domains || count_refused))
		return;
	dprintf(fd, "domains %u cqs %u refused %u\n", count_domains, count_cqs, count_refused);
	close(fd);
}
