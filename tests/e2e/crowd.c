/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many clients with many thread domains each (F2 of the field reports): every domain has its parent domain, its CQ and its
 * QP. Prints "ready" when all of them have all, and gives everything back when its standard input ends.
 *
 *	crowd CLIENTS DOMAINS
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

struct domain {
	struct ibv_td *td;
	struct ibv_pd *parent;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static void fail(const char *what, unsigned i)
{
	fprintf(stderr, "crowd: %s of domain %u: %s\n", what, i, strerror(errno));
	exit(1);
}

static void domain_make(struct ibv_pd *pd, struct domain *d, unsigned i)
{
	struct ibv_td_init_attr td = { 0 };
	struct ibv_parent_domain_init_attr parent = { .pd = pd };
	struct ibv_cq_init_attr_ex cq = {
		.cqe = 4,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
	};
	struct ibv_qp_init_attr qp = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_cq_ex *made;

	d->td = parent.td = ibv_alloc_td(pd->context, &td);
	if (!d->td)
		fail("ibv_alloc_td", i);
	d->parent = cq.parent_domain = ibv_alloc_parent_domain(pd->context, &parent);
	if (!d->parent)
		fail("ibv_alloc_parent_domain", i);
	made = ibv_create_cq_ex(pd->context, &cq);
	if (!made)
		fail("ibv_create_cq_ex", i);
	d->cq = qp.send_cq = qp.recv_cq = ibv_cq_ex_to_cq(made);
	d->qp = ibv_create_qp(d->parent, &qp);
	if (!d->qp)
		fail("ibv_create_qp", i);
}

static void domain_free(struct domain *d, unsigned i)
{
	errno = ibv_destroy_qp(d->qp);
	if (!errno)
		errno = ibv_destroy_cq(d->cq);
	if (!errno)
		errno = ibv_dealloc_pd(d->parent);
	if (!errno)
		errno = ibv_dealloc_td(d->td);
	if (errno)
		fail("destroy", i);
}

static void client(unsigned n, int ready, int end)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	struct domain *domains = calloc(n, sizeof(*domains));
	char byte = 0;

	if (!pd || !domains)
		fail("set-up", 0);
	ibv_free_device_list(list);
	for (unsigned i = 0; i < n; i++)
		domain_make(pd, &domains[i], i);
	if (write(ready, &byte, 1) != 1 || read(end, &byte, 1) != 0)
		fail("pipe", 0);
	for (unsigned i = 0; i < n; i++)
		domain_free(&domains[i], i);
	if (ibv_dealloc_pd(pd) || ibv_close_device(ctx))
		fail("close", n);
	free(domains);
	exit(0);
}

int main(int argc, char **argv)
{
	unsigned clients = argc == 3 ? (unsigned)atoi(argv[1]) : 0, failed = 0;
	int ready[2], end[2], status;
	char byte;

	if (!clients || pipe(ready) || pipe(end))
		return 2;
	for (unsigned i = 0; i < clients; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			close(ready[0]);
			close(end[1]);
			client((unsigned)atoi(argv[2]), ready[1], end[0]);
		}
		if (pid < 0)
			fail("fork", i);
	}
	close(ready[1]);
	for (unsigned i = 0; i < clients; i++)
		if (read(ready[0], &byte, 1) != 1) {
			failed = 1;
			break;
		}
	if (!failed) {
		puts("ready");
		fflush(stdout);
		while (read(STDIN_FILENO, &byte, 1) > 0)
			;
	}
	close(end[1]);
	while (wait(&status) > 0)
		failed |= status != 0;
	return failed;
}
