/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * MRs that a process registers by itself, in its page: more than it may have, with keys of nobody's, twice, on PDs that are not
 * there, torn, faster than anybody can look, or never said.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "proto/limits.h"
#include "proto/ring_abi.h"

struct writer {
	struct link link;
	int file;
	struct vsd_page *page;
	uint32_t pd, key, places[VSD_MR_PLACES], n;
};

static void writer_make(struct writer *w)
{
	uint32_t n;

	memset(w, 0, sizeof(*w));
	link_open(&w->link);
	link_hello(&w->link);
	must_be(link_call(&w->link, VSD__OP__OP_JOIN, NULL, &vsd__join_reply__descriptor), 0, "JOIN");
	w->link.events = fdlist_steal(&w->link.fds, 0);
	w->file = fdlist_steal(&w->link.fds, 1);
	w->page = mmap(NULL, sizeof(*w->page), PROT_READ | PROT_WRITE, MAP_SHARED, w->file, 0);
	if (w->page == MAP_FAILED)
		complain("mmap: %s", strerror(errno));
	link_context(&w->link);
	must_be(make_pd(&w->link, &w->pd), 0, "PD_ALLOC");
	must_be(make_lease(&w->link, VSD__LEASE_KIND__LEASE_KEY, 1, &w->key, &n), 0, "LEASE");
}

static void writer_end(struct writer *w)
{
	munmap(w->page, sizeof(*w->page));
	close(w->file);
	link_close(&w->link);
}

static void more(struct writer *w, uint32_t wanted)
{
	Vsd__MrPlacesRequest request = VSD__MR_PLACES_REQUEST__INIT;
	const Vsd__MrPlacesReply *reply;

	request.context = w->link.context;
	request.count = wanted;
	must_be(link_call(&w->link, VSD__OP__OP_MR_PLACES, &request.base, &vsd__mr_places_reply__descriptor), 0, "MR_PLACES");
	reply = (const Vsd__MrPlacesReply *)w->link.reply;
	if (!reply || reply->n_places > VSD_MR_PLACES || reply->n_places != reply->n_handles) {
		complain("places that are none");
		return;
	}
	w->n = (uint32_t)reply->n_places;
	if (w->n)
		memcpy(w->places, reply->places, w->n * sizeof(w->places[0]));
}

/* How many the daemon lists of our domain's, on however many pages. */
static unsigned listed(struct link *link)
{
	Vsd__ListRequest request = VSD__LIST_REQUEST__INIT;
	unsigned n = 0;
	bool again = true;

	request.has_type = true;
	request.type = VSD__OBJECT_TYPE__OBJ_MR;
	while (again) {
		must_be(link_call(link, VSD__OP__OP_LIST, &request.base, &vsd__list_reply__descriptor), 0, "LIST");

		const Vsd__ListReply *reply = (const Vsd__ListReply *)link->reply;

		again = reply && reply->has_next_page;
		n += reply ? (unsigned)reply->n_items : 0;
		request.page = reply ? reply->next_page : 0;
	}
	return n;
}

static void line_random(const struct writer *w, struct vsd_mr *line)
{
	line->gen = chance() % 4;
	line->addr = chance() % 2 ? 0x10000 : chance();
	line->length = chance() % 2 ? 4096 : chance();
	line->iova = chance();
	line->key = (w->key + (uint32_t)(chance() % 200)) << 8 | (uint32_t)(chance() % 256);
	if (chance() % 8 == 0)
		line->key = (uint32_t)chance();
	line->access = chance() % 2 ? IBV_ACCESS_LOCAL_WRITE : (uint32_t)chance();
	line->pd = chance() % 4 ? w->pd : (uint32_t)chance();
}

static void scribble(struct writer *w, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		line_random(w, &w->page->mrs[chance() % 4 ? chance() % 256 : chance() % VSD_PAGE_MRS]);
	w->page->mr_changes++;
}

static void all_clear(struct writer *w)
{
	for (unsigned i = 0; i < VSD_PAGE_MRS; i++)
		w->page->mrs[i].gen = 0;
	w->page->mr_changes++;
}

/* Nonsense, looked at by others. */
static void nonsense(void)
{
	struct writer w;
	struct link other;

	writer_make(&w);
	link_ready(&other);
	more(&w, 200);
	for (unsigned i = 0; i < 50 * setting.scale; i++) {
		scribble(&w, 300);
		(void)listed(&other);
		must_be(link_call(&other, VSD__OP__OP_STATUS, NULL, NULL), 0, "STATUS");
	}
	(void)destroy(&w.link, VSD__OBJECT_TYPE__OBJ_PD, w.pd);
	all_clear(&w);
	if (listed(&other))
		complain("MRs are listed that are not there");
	if (destroy(&w.link, VSD__OBJECT_TYPE__OBJ_PD, w.pd) == EBUSY)
		complain("a PD is busy that nothing is on");
	link_close(&other);
	writer_end(&w);
	count("nonsense in the page");
}

/* Another process of the attacker's that changes the page all the time, while it is looked at. */
static void too_fast(void)
{
	struct writer w;
	struct link other;
	pid_t child;

	writer_make(&w);
	link_ready(&other);
	more(&w, VSD_MR_PLACES);
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			scribble(&w, 1);
	}
	for (unsigned i = 0; child > 0 && i < 100 * setting.scale; i++) {
		(void)listed(&other);
		more(&w, 0);
	}
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	all_clear(&w);
	if (listed(&other))
		complain("MRs are listed that are not there");
	link_close(&other);
	writer_end(&w);
	count("a page that never rests");
}

/* As many as it gets, all registered: no more than the limits allow. */
static void hoard(void)
{
	struct writer w;
	struct link other;
	unsigned had = 0, n;

	writer_make(&w);
	link_ready(&other);
	do {
		more(&w, chance() % 2 ? UINT32_MAX : 1);
		for (uint32_t i = 0; i < w.n; i++)
			w.page->mrs[w.places[i]] = (struct vsd_mr){ .gen = 1,
				.addr = 4096,
				.length = 4096,
				.key = (w.key + had + i) << 8,
				.access = IBV_ACCESS_LOCAL_WRITE,
				.pd = w.pd };
		had += w.n;
	} while (w.n && had < 8192);
	if (setting.limited && had >= 300)
		complain("%u MRs, and 300 are allowed", had);
	if (listed(&other)) /* the count did not change, so it is as if nothing had */
		complain("MRs are listed of which nobody was told");
	w.page->mr_changes++;
	n = listed(&other);
	if (n > had || (had <= 4096 && n != had))
		complain("%u MRs are listed, and %u are there", n, had);
	/* What is not there any more, with the file under it. */
	if (fallocate(w.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, sizeof(struct vsd_page)) == 0) {
		w.page->mr_changes += 2;
		if (listed(&other))
			complain("MRs are listed that are not there");
	}
	link_close(&other);
	writer_end(&w);
	count("all places taken");
}

const struct attack attacks_places[] = {
	{ "nonsense", nonsense },
	{ "too_fast", too_fast },
	{ "hoard", hoard },
	{ NULL, NULL },
};
