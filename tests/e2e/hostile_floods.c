/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Too much of everything: connects, silence, answers and events that nobody reads, and every quota until it is full.
 * And the client that behaves meanwhile.
 */
#include "hostile.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

/* ---- connecting ---- */

static void connects(void)
{
	for (unsigned i = 0; i < 10000; i++) {
		int fd = sock_connect(setting.socket);

		if (fd < 0) {
			complain("connect %u: %s", i, strerror(-fd));
			return;
		}
		close(fd);
		count("connects");
	}
}

/* As many at once as the daemon and the limit of this process allow. */
static void bursts(void)
{
	enum { BURST = 900 };

	for (unsigned round = 0; round < 5 * setting.scale; round++) {
		int fds[BURST];
		unsigned n = 0;

		while (n < BURST && (fds[n] = sock_connect(setting.socket)) >= 0)
			n++;
		count("bursts");
		while (n > 0)
			close(fds[--n]);
	}
}

/* Part of a frame or nothing at all, and then nothing more. The rest of the attack goes on beside them. */
static void silence(void)
{
	enum { N = 600 };
	struct link links[N];
	uint8_t half[12] = "VSD1";

	for (unsigned i = 0; i < N; i++) {
		link_open(&links[i]);
		if (i % 3 == 1)
			link_send(&links[i], half, i % sizeof(half) + 1);
		if (i % 3 == 2)
			link_hello(&links[i]);
		count("silent sessions");
	}
	for (unsigned i = 0; i < N; i++) {
		/* Half a frame is a whole record, and a wrong one. */
		if (i % 3 == 1)
			must_be(link_answer(&links[i], NULL), ANSWER_ENDED, "half a frame");
		link_close(&links[i]);
	}
}

static void joined_and_gone(void)
{
	for (unsigned i = 0; i < 500 * setting.scale; i++) {
		struct world world;

		if (i % 4 == 0) {
			world_make(&world);
			world_end(&world);
		} else {
			link_ready(&world.link);
			link_close(&world.link);
		}
		count("sessions");
	}
}

/* ---- answers and events that nobody reads ---- */

static void send_unread(struct link *link, unsigned op, const void *body, size_t n, unsigned limit)
{
	uint8_t frame[128];
	size_t length = frame_make(frame, sizeof(frame), (uint16_t)op, 1, body, n);

	for (unsigned i = 0; i < limit; i++) {
		if (send(link->fd, frame, length, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
		count("frames");
	}
}

static void unread_answers(void)
{
	enum { N = 200 };
	static const unsigned ops[] = { VSD__OP__OP_DEVICE_LIST, VSD__OP__OP_LIST, VSD__OP__OP_STATUS };
	static const uint8_t list_body[] = { 0x10, 0, 0x18, 0 };
	struct link links[N];

	for (unsigned i = 0; i < N; i++) {
		unsigned op = ops[i % 3];

		link_ready(&links[i]);
		send_unread(&links[i], op, list_body, op == VSD__OP__OP_LIST ? sizeof(list_body) : 0, 2000);
	}
	/* A join's answer has four fds: unread, they are on their way for ever. */
	for (unsigned i = 0; i < N; i++) {
		link_close(&links[i]);
		link_open(&links[i]);
		link_hello(&links[i]);
		send_unread(&links[i], VSD__OP__OP_JOIN, NULL, 0, 3);
	}
	for (unsigned i = 0; i < N; i++)
		link_close(&links[i]);
}

/* Somebody watches and never reads; 64 events later it is out, and the one who caused them did not notice. */
static void unread_events(void)
{
	enum { N = 20 };
	struct link watchers[N], busy;
	uint32_t pd;
	int r = 0;

	for (unsigned i = 0; i < N; i++) {
		link_ready(&watchers[i]);
		r = link_call(&watchers[i], VSD__OP__OP_WATCH, NULL, NULL);
		if (r != EOPNOTSUPP)
			must_be(r, 0, "WATCH");
	}
	link_ready(&busy);
	for (unsigned i = 0; i < 3000; i++) {
		must_be(make_pd(&busy, &pd), 0, "PD_ALLOC");
		must_be(destroy(&busy, VSD__OBJECT_TYPE__OBJ_PD, pd), 0, "DESTROY");
	}
	for (unsigned i = 0; i < N; i++) {
		uint8_t buf[4096];
		unsigned events = 0;
		ssize_t n;

		while (r == 0 && (n = recv(watchers[i].fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
			events++;
		if (r == 0 && (n < 0 || events == 0))
			complain("a watcher that read nothing still has a session after %u events", events);
		link_close(&watchers[i]);
	}
	link_close(&busy);
}

/* Listings and watches as fast as they go, with objects that come and go. */
static void listings(void)
{
	Vsd__ListRequest request = VSD__LIST_REQUEST__INIT;
	struct world world;
	struct link link;
	uint32_t pd;

	world_make(&world);
	link_ready(&link);
	for (unsigned i = 0; i < 300 * setting.scale; i++) {
		int r;

		make_pd(&world.link, &pd);
		request.has_type = i % 2;
		request.type = (Vsd__ObjectType)(i % 2 ? chance() % 14 : 1);
		request.page = i % 3 == 0 ? 0 : i % 3 == 1 ? (uint32_t)chance() : i;
		request.all = i % 5 == 0;
		r = link_call(&link, VSD__OP__OP_LIST, &request.base, &vsd__list_reply__descriptor);
		if (r == ANSWER_SILENT || r == ANSWER_ENDED)
			complain("LIST of page %u: no answer", request.page);
		if (r == ANSWER_ENDED)
			break;
		request.all = false;
		request.page = 0;
		/* A walk with a step for each page, while objects are made. */
		for (unsigned steps = 0; steps < 100; steps++) {
			Vsd__ListReply *reply;

			r = link_call(&link, VSD__OP__OP_LIST, &request.base, &vsd__list_reply__descriptor);
			reply = (Vsd__ListReply *)link.reply;
			if (r != 0 || !reply || !reply->has_next_page)
				break;
			request.page = reply->next_page;
		}
		for (unsigned k = 0; k < 8; k++)
			link_call(&link, VSD__OP__OP_WATCH, NULL, NULL);
	}
	link_close(&link);
	world_end(&world);
}

/* ---- quotas ---- */

/* Makes objects of one kind until that is refused. */
static void fill(struct world *world, unsigned op, unsigned limit)
{
	size_t i = 0;
	uint32_t handle;
	int r = 0;

	while (operations[i].op != op)
		i++;
	for (unsigned n = 0; r == 0 && n < limit; n++) {
		ProtobufCMessage *request = request_make(&operations[i], world, false);

		r = make_object(&world->link, op, request, &handle);
		request_free(request);
	}
	/* A number that is used already may come before the quota of objects. */
	if (setting.limited && r != ENOMEM && r != ENOSPC && r != EDQUOT && r != EEXIST)
		must_be(r, ENOMEM, "%s until the quota is full", operations[i].name);
	else if (r > 0)
		count("quotas");
}

static void quotas(void)
{
	static const unsigned ops[] = {
		VSD__OP__OP_PD_ALLOC, VSD__OP__OP_TD_ALLOC, VSD__OP__OP_PARENT_DOMAIN_ALLOC, VSD__OP__OP_CQ_CREATE,
		VSD__OP__OP_SRQ_CREATE, VSD__OP__OP_AH_CREATE, VSD__OP__OP_MW_ALLOC, VSD__OP__OP_MR_REG,
		VSD__OP__OP_QP_CREATE,
	};
	struct world world;
	uint32_t first, n;

	world_make(&world);
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		fill(&world, ops[i], 5000);
	for (unsigned i = 0; i < 5000 && make_lease(&world.link, VSD__LEASE_KIND__LEASE_QPN, 1u << 23, &first, &n) == 0;)
		i++;
	for (unsigned i = 0; i < 5000 && make_lease(&world.link, VSD__LEASE_KIND__LEASE_KEY, 1u << 23, &first, &n) == 0;)
		i++;
	count("quotas");
	world_end(&world);
}

static void many_contexts(void)
{
	Vsd__ContextOpenRequest request = VSD__CONTEXT_OPEN_REQUEST__INIT;
	struct link link;
	int r = 0;

	link_ready(&link);
	request.device = (char *)(uintptr_t) "soft0";
	for (unsigned i = 0; r == 0 && i < 5000; i++)
		r = link_call(&link, VSD__OP__OP_CONTEXT_OPEN, &request.base, NULL);
	if (r != 0 && r != ENOMEM && r != ENFILE)
		must_be(r, ENOMEM, "contexts until the quota is full");
	count("quotas");
	link_close(&link);
}

/* Sessions that hold as much as they can, all at once: connections are refused, and the daemon keeps its reserve. */
static void many_sessions(void)
{
	enum { N = 800 };
	struct link links[N];
	unsigned n = 0;

	for (; n < N; n++) {
		Vsd__HelloRequest request = VSD__HELLO_REQUEST__INIT;
		int r;

		links[n] = (struct link){ .fd = sock_connect(setting.socket), .events = -1, .fds = FDLIST_NULL };
		if (links[n].fd < 0)
			break;
		request.min_version = request.max_version = 1;
		r = link_call(&links[n], VSD__OP__OP_HELLO, &request.base, NULL);
		if (r == 0)
			r = link_call(&links[n], VSD__OP__OP_JOIN, NULL, NULL);
		if (r == ANSWER_SILENT)
			complain("session %u: silence", n);
		if (r != 0) {
			count("refused sessions");
			link_close(&links[n]);
			break;
		}
		count("sessions");
	}
	while (n > 0)
		link_close(&links[--n]);
}

const struct attack attacks_floods[] = {
	{ "connects", connects },	      { "bursts", bursts },
	{ "silence", silence },		      { "joined_and_gone", joined_and_gone },
	{ "unread_answers", unread_answers }, { "unread_events", unread_events },
	{ "listings", listings },	      { "quotas", quotas },
	{ "many_contexts", many_contexts },   { "many_sessions", many_sessions },
	{ NULL, NULL },
};

/* ---- the client that behaves ---- */

static struct {
	double longest;
	const char *of;
	unsigned long calls;
	char trouble[200];
} served;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void served_note(const char *what, double since, int r)
{
	double took = now() - since;

	served.calls++;
	if (took > served.longest) {
		served.longest = took;
		served.of = what;
	}
	if (r != 0 && !served.trouble[0])
		snprintf(served.trouble, sizeof(served.trouble), "%s: %s", what,
			r == ANSWER_SILENT ? "silence" : r < 0 ? "the session ended" : strerror(r));
}

#define SERVED(what, call)                                                                        \
	do {                                                                                      \
		double since_ = now();                                                            \
		int r_ = (call);                                                                  \
                                                                                                  \
		served_note(what, since_, r_);                                                    \
	} while (0)

static int connect_anew(void)
{
	struct link link = { .fd = sock_connect(setting.socket), .events = -1, .fds = FDLIST_NULL };
	Vsd__HelloRequest request = VSD__HELLO_REQUEST__INIT;
	int r;

	if (link.fd < 0)
		return -link.fd;
	request.min_version = request.max_version = 1;
	r = link_call(&link, VSD__OP__OP_HELLO, &request.base, NULL);
	link_close(&link);
	return r;
}

static void polite_round(struct world *world, unsigned round)
{
	struct link *link = &world->link;
	uint32_t pd = 0, cq = 0, mr = 0, qp = 0;

	SERVED("PD_ALLOC", make_pd(link, &pd));
	SERVED("MR_REG", make_mr(link, pd, world->key + (64 << 8), &mr));
	SERVED("CQ_CREATE", make_cq(link, &cq));
	SERVED("QP_CREATE", make_qp(link, pd, cq, IBV_QPT_RC, world->qpn + 64, &qp));
	SERVED("QP_MODIFY", modify(link, qp, IBV_QPS_INIT, 0));
	SERVED("DESTROY", destroy(link, VSD__OBJECT_TYPE__OBJ_QP, qp));
	SERVED("DESTROY", destroy(link, VSD__OBJECT_TYPE__OBJ_CQ, cq));
	SERVED("DESTROY", destroy(link, VSD__OBJECT_TYPE__OBJ_MR, mr));
	SERVED("DESTROY", destroy(link, VSD__OBJECT_TYPE__OBJ_PD, pd));
	SERVED("DEVICE_LIST", link_call(link, VSD__OP__OP_DEVICE_LIST, NULL, NULL));
	if (round % 16 == 0)
		SERVED("connect and HELLO", connect_anew());
}

/*
 * Makes and destroys objects until its input ends. For each line of input it prints one: the longest time in seconds
 * that a call took since the last line, of how many, of which kind, and what was refused.
 */
int polite(void)
{
	struct pollfd poll_fd = { .fd = STDIN_FILENO, .events = POLLIN };
	struct world world;
	char line[16];

	world_make(&world);
	setvbuf(stdin, NULL, _IONBF, 0);
	puts("ready");
	fflush(stdout);
	for (unsigned round = 0;; round++) {
		polite_round(&world, round);
		/* Leaves the processor to the others between two rounds. */
		if (poll(&poll_fd, 1, 2) <= 0)
			continue;
		if (!fgets(line, sizeof(line), stdin))
			break;
		printf("%.6f %lu %s; %s\n", served.longest, served.calls, served.of, served.trouble);
		fflush(stdout);
		memset(&served, 0, sizeof(served));
	}
	world_end(&world);
	return 0;
}
