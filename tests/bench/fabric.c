/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer: tagged messages of libfabric's shared memory provider between two processes, each on its own processor. Prints
 * "name<tab>value<tab>unit". A latency and a rate, since the package's own program has only the former, without tags.
 *
 *	fabric lat|rate SIZE
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include "tests/bench/bench.h"

enum { WINDOW = 64 };

static struct {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_av *av;
	struct fid_cq *tx, *rx;
	fi_addr_t peer;
	char *out, *in;
	size_t size;
	int sock;
	bool first;
} e;

static void check(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "fabric: %s: %s\n", what, fi_strerror(-r));
	exit(1);
}

static void exchange(const void *mine, void *theirs, size_t size)
{
	if (send(e.sock, mine, size, 0) != (ssize_t)size || recv(e.sock, theirs, size, MSG_WAITALL) != (ssize_t)size)
		check(-EIO, "exchange");
}

static void open_end(void)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED, .size = 4 * WINDOW };
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	char mine[256] = "", theirs[256];
	size_t length = sizeof(mine);

	hints->caps = FI_TAGGED | FI_MSG;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("shm");
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	check(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &e.info), "fi_getinfo");
	check(fi_fabric(e.info->fabric_attr, &e.fabric, NULL), "fi_fabric");
	check(fi_domain(e.fabric, e.info, &e.domain, NULL), "fi_domain");
	check(fi_endpoint(e.domain, e.info, &e.ep, NULL), "fi_endpoint");
	check(fi_cq_open(e.domain, &cq, &e.tx, NULL), "fi_cq_open");
	check(fi_cq_open(e.domain, &cq, &e.rx, NULL), "fi_cq_open");
	check(fi_av_open(e.domain, &av, &e.av, NULL), "fi_av_open");
	check(fi_ep_bind(e.ep, &e.tx->fid, FI_TRANSMIT), "fi_ep_bind");
	check(fi_ep_bind(e.ep, &e.rx->fid, FI_RECV), "fi_ep_bind");
	check(fi_ep_bind(e.ep, &e.av->fid, 0), "fi_ep_bind");
	check(fi_enable(e.ep), "fi_enable");
	check(fi_getname(&e.ep->fid, mine, &length), "fi_getname");
	exchange(mine, theirs, sizeof(mine));
	check(fi_av_insert(e.av, theirs, 1, &e.peer, 0, NULL) == 1 ? 0 : -EIO, "fi_av_insert");
}

static void reap(struct fid_cq *cq, unsigned n)
{
	struct fi_cq_tagged_entry entries[WINDOW];

	while (n) {
		ssize_t got = fi_cq_read(cq, entries, n < WINDOW ? n : WINDOW);

		if (got != -FI_EAGAIN)
			check((int)got, "completion");
		n -= got > 0 ? (unsigned)got : 0;
	}
}

static void post(bool out, size_t size)
{
	ssize_t r;

	do {
		r = out ? fi_tsend(e.ep, e.out, size, NULL, e.peer, 7, NULL)
			: fi_trecv(e.ep, e.in, size, NULL, e.peer, 7, 0, NULL);
		if (r == -FI_EAGAIN) { /* it moves on when it is asked */
			fi_cq_read(e.tx, NULL, 0);
			fi_cq_read(e.rx, NULL, 0);
		}
	} while (r == -FI_EAGAIN);
	check((int)r, "post");
}

static void message(bool out, size_t size)
{
	post(out, size);
	reap(out ? e.tx : e.rx, 1);
}

static void round_lat(void)
{
	message(e.first, e.size);
	message(!e.first, e.size);
}

static void round_rate(void)
{
	for (int i = 0; i < WINDOW; i++)
		post(e.first, e.size);
	reap(e.first ? e.tx : e.rx, WINDOW);
	message(!e.first, 1);
}

static double rounds(void (*one)(void), unsigned long n)
{
	uint64_t start = now();

	for (unsigned long i = 0; i < n; i++)
		one();
	return (double)(now() - start) * 1e-9;
}

static void side(int sock, bool first, bool rate)
{
	void (*one)(void) = rate ? round_rate : round_lat;
	unsigned long n, theirs;
	double seconds;

	pin(!first);
	e.sock = sock;
	e.first = first;
	open_end();
	n = (unsigned long)(0.2 / (rounds(one, 50) / 50)) + 1;
	exchange(&n, &theirs, sizeof(n));
	n = n < theirs ? n : theirs;
	rounds(one, n / 10 + 1);
	seconds = rounds(one, n);
	exchange("", &(char){ 0 }, 1);
	if (first && rate)
		printf("rate\t%.9f\tM/s\n", (double)n * WINDOW / seconds * 1e-6);
	else if (first)
		printf("lat\t%.1f\tns\n", seconds * 1e9 / (double)n / 2);
	fi_close(&e.ep->fid);
}

int main(int argc, char **argv)
{
	bool rate = argc == 3 && strcmp(argv[1], "rate") == 0;
	int sockets[2], status;

	if (argc != 3 || (!rate && strcmp(argv[1], "lat") != 0)) {
		fprintf(stderr, "usage: fabric lat|rate SIZE\n");
		return 2;
	}
	e.size = strtoull(argv[2], NULL, 10);
	e.out = aligned_alloc(4096, (e.size + 4095) & ~(size_t)4095);
	e.in = aligned_alloc(4096, (e.size + 4095) & ~(size_t)4095);
	if (!e.out || !e.in || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		check(-ENOMEM, "memory");
	memset(e.out, 1, e.size);
	memset(e.in, 2, e.size);

	pid_t child = fork();

	if (child == 0) {
		side(sockets[1], false, rate);
		exit(0);
	}
	side(sockets[0], true, rate);
	return waitpid(child, &status, 0) != child || status;
}
