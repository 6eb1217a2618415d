/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Looking inside: status, listings in pages, watching.
 */
#include "daemon/op.h"

#include <errno.h>
#include <unistd.h>

#include "daemon/encode.h"
#include "daemon/list_walk.h"
#include "daemon/look.h"
#include "daemon/mr_place.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/stats.h"
#include "daemon/watch.h"

/* What one page takes at most: items, places looked at, bytes. */
#define PAGE_ITEMS  256
#define PAGE_BUDGET 16384
#define PAGE_BYTES  (VSD_ANSWER_MAX - 4096)

int op_status(struct call *call)
{
	struct server *server = call->server;
	Vsd__StatusReply *reply = call_alloc(call, sizeof(*reply));
	struct stats_total total;

	mr_places_look_all(server);
	stats_total(server, &total);
	vsd__status_reply__init(reply);
	reply->version = scratch_strdup(&server->scratch, PACKAGE_VERSION);
	reply->pid = (uint32_t)getpid();
	reply->uptime = (loop_now() - server->started) / 1000;
	reply->sessions = server->n_sessions;
	reply->contexts = server->n_contexts;
	reply->objects = server->n_objects;
	reply->segments = total.segments;
	reply->wires = server->n_wires;
	reply->fds = total.fds;
	reply->shared_bytes = total.shared_bytes;
	reply->socket = server->socket_path;
	reply->config = server->config_path;
	reply->refused = server->refused;
	reply->has_regions = 1;
	reply->regions = total.regions;
	reply->has_region_bytes = 1;
	reply->region_bytes = total.region_bytes;
	reply->has_requests = 1;
	reply->requests = server->requests;
	call->reply = &reply->base;
	return 0;
}

struct page {
	struct scratch *scratch;
	Vsd__ListReply *reply;
	size_t bytes;
	uint64_t session; /* whose @who it is; 0: nobody's yet */
	struct stats_who who;
};

/* False when the page is full; the item stays for the next one. */
static bool page_add(struct page *page, const struct walk *walk, const struct item *item)
{
	Vsd__Item *out;
	size_t n;

	if (page->reply->n_items == PAGE_ITEMS)
		return false;
	if (!walk->session) {
		page->who = (struct stats_who){ .command = "" };
	} else if (page->session != walk->session->id) {
		stats_who(walk->session, &page->who);
		page->session = walk->session->id;
	}
	out = encode_item(page->scratch, item, &page->who);
	if (!out)
		return false;
	if (item->type == OBJECT_CLIENT && !encode_counters(page->scratch, out, walk->session))
		return false;
	if (item->has & ITEM_RESOURCES && !encode_resources(page->scratch, out, item))
		return false;
	n = vsd__item__get_packed_size(out) + 8;
	if (page->bytes + n > PAGE_BYTES)
		return false;
	page->bytes += n;
	page->reply->items[page->reply->n_items++] = out;
	return true;
}

/* True when there is more. */
static bool page_fill(struct page *page, struct walk *walk)
{
	struct item item;

	for (;;) {
		int r = walk_next(walk, &item);

		if (r <= 0)
			return r < 0;
		if (!page_add(page, walk, &item))
			return true;
		walk_skip(walk);
	}
}

static int listing_begin(
	struct session *session, const Vsd__ListRequest *request, struct listing *listing)
{
	if (request->all && !session->admin)
		return refuse(-EPERM, "other domains are shown on the admin socket only");
	if (request->page == 0) {
		*listing = (struct listing){
			.type = request->has_type ? (unsigned)request->type : 0,
			.all = request->all,
		};
		return 0;
	}
	*listing = session->listing;
	if (request->page != listing->page || request->all != listing->all ||
		(request->has_type ? (unsigned)request->type : 0) != listing->type)
		return refuse(-EINVAL, "page %u is not the next one", request->page);
	return 0;
}

static int list_page(struct call *call)
{
	const Vsd__ListRequest *request = (const void *)call->request;
	struct session *session = call->session;
	struct listing listing = { .page = 0 };
	struct walk walk;
	struct page page = { .scratch = &call->server->scratch };
	int r = listing_begin(session, request, &listing);

	if (r < 0)
		return r;
	page.reply = call_alloc(call, sizeof(*page.reply));
	vsd__list_reply__init(page.reply);
	page.reply->items = call_alloc(call, PAGE_ITEMS * sizeof(*page.reply->items));
	walk = (struct walk){
		.viewer = session,
		.all = listing.all,
		.type = (enum object_type)listing.type,
		.at = listing.at,
		.budget = PAGE_BUDGET,
	};
	if (page_fill(&page, &walk)) {
		listing.at = walk.at;
		listing.page++;
		page.reply->has_next_page = 1;
		page.reply->next_page = listing.page;
		session->listing = listing;
	} else {
		session->listing = (struct listing){ .page = 0 };
	}
	call->reply = &page.reply->base;
	return 0;
}

/* Only contexts are of any interest to the kernel. */
int op_list(struct call *call)
{
	const Vsd__ListRequest *request = (const void *)call->request;

	if (request->has_type && request->type != VSD__OBJECT_TYPE__OBJ_CONTEXT)
		return list_page(call);
	return look_then(call, LOOK_OWNERS, list_page, sizeof(*request));
}

int op_watch(struct call *call)
{
	mr_places_look_all(call->server);
	watch_start(call->session);
	return 0;
}
