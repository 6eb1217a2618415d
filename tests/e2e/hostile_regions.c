/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared regions: names and capabilities that are somebody else's, rights that were not given, sizes that nobody has,
 * grants that nobody owes.
 */
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define READ_ONLY VSD__REGION_FLAG__REGION_READ_ONLY
#define PERSIST	  VSD__REGION_FLAG__REGION_PERSIST
#define SEAL	  VSD__REGION_FLAG__REGION_SEAL
#define CREATE	  VSD__REGION_FLAG__REGION_CREATE
#define WRITES	  (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

struct region {
	uint32_t mr, key, number;
	bool created;
};

static int region_answer(struct link *link, unsigned op, const ProtobufCMessage *request, struct region *region)
{
	int r = link_call(link, op, request, &vsd__region_reply__descriptor);
	const Vsd__RegionReply *reply = (const Vsd__RegionReply *)link->reply;

	*region = (struct region){ 0 };
	if (r == 0 && reply)
		*region = (struct region){ reply->handle, reply->key, reply->region, reply->created };
	return r;
}

int make_region(struct link *link, uint32_t pd, uint64_t size, uint32_t flags, const char *name, uint32_t *mr)
{
	Vsd__RegionCreateRequest request = VSD__REGION_CREATE_REQUEST__INIT;
	struct region region;
	int r;

	request.context = link->context;
	request.pd = pd;
	request.size = size;
	request.access = WRITES | IBV_ACCESS_REMOTE_READ;
	request.flags = flags;
	request.name = (char *)(uintptr_t)name;
	r = region_answer(link, VSD__OP__OP_REGION_CREATE, &request.base, &region);
	*mr = region.mr;
	return r;
}

static int import(struct world *world, const char *name, const uint8_t *nonce, uint32_t access, uint32_t flags,
		  struct region *region)
{
	Vsd__RegionImportRequest request = VSD__REGION_IMPORT_REQUEST__INIT;

	request.context = world->link.context;
	request.pd = world->pd;
	request.access = access;
	request.spare_key = (world->key_first + world->key_next++ % world->keys) << 8;
	request.name = (char *)(uintptr_t)name;
	request.has_nonce = nonce != NULL;
	request.nonce.data = (uint8_t *)(uintptr_t)nonce;
	request.nonce.len = nonce ? VSD_NONCE_SIZE : 0;
	request.flags = flags;
	request.has_size = flags & CREATE;
	request.size = 4096;
	return region_answer(&world->link, VSD__OP__OP_REGION_IMPORT, &request.base, region);
}

static int export(struct world *world, uint32_t mr, uint32_t flags, const char *name, uint8_t nonce[VSD_NONCE_SIZE])
{
	Vsd__RegionExportRequest request = VSD__REGION_EXPORT_REQUEST__INIT;
	int r;

	request.context = world->link.context;
	request.mr = mr;
	request.flags = flags;
	request.name = (char *)(uintptr_t)name;
	r = link_call(&world->link, VSD__OP__OP_REGION_EXPORT, &request.base, NULL);
	if (r == 0 && nonce && pread(world->link.fds.fds[0], nonce, VSD_NONCE_SIZE, 0) != VSD_NONCE_SIZE)
		complain("a region's capability without a nonce");
	return r;
}

static int release(struct link *link, const char *name)
{
	Vsd__RegionReleaseRequest request = VSD__REGION_RELEASE_REQUEST__INIT;

	request.name = (char *)(uintptr_t)name;
	return link_call(link, VSD__OP__OP_REGION_RELEASE, &request.base, NULL);
}

/* Waits until the daemon has noticed that all who had regions without a name hung up: what they took counts until then. */
static void regions_unnamed_gone(void)
{
	Vsd__ListRequest request = VSD__LIST_REQUEST__INIT;
	struct link link;
	size_t left;

	request.has_type = true;
	request.type = VSD__OBJECT_TYPE__OBJ_REGION;
	link_open(&link);
	link_hello(&link);
	do {
		left = 0;
		must_be(link_call(&link, VSD__OP__OP_LIST, &request.base, &vsd__list_reply__descriptor), 0, "LIST");
		for (size_t i = 0; link.reply && i < ((Vsd__ListReply *)link.reply)->n_items; i++)
			left += ((Vsd__ListReply *)link.reply)->items[i]->name == NULL;
	} while (left > 0);
	link_close(&link);
}

static unsigned names_listed(struct link *link, char names[][80], unsigned max)
{
	Vsd__ListRequest request = VSD__LIST_REQUEST__INIT;
	unsigned n = 0;

	request.has_type = true;
	request.type = VSD__OBJECT_TYPE__OBJ_REGION;
	if (link_call(link, VSD__OP__OP_LIST, &request.base, &vsd__list_reply__descriptor) != 0)
		return 0;
	for (size_t i = 0; i < ((Vsd__ListReply *)link->reply)->n_items && n < max; i++) {
		const Vsd__Item *item = ((Vsd__ListReply *)link->reply)->items[i];

		if (item->name)
			snprintf(names[n++], sizeof(names[0]), "%s", item->name);
	}
	return n;
}

void regions_clean(void)
{
	static char names[256][80];
	struct link link;
	unsigned n;

	link_open(&link);
	link_hello(&link);
	while ((n = names_listed(&link, names, 256)) > 0)
		for (unsigned i = 0; i < n; i++) {
			int r = release(&link, names[i]);

			/* Of a client that has just hung up, the daemon may still hold a region when we list, but not now. */
			if (r != ENOENT)
				must_be(r, 0, "REGION_RELEASE of %s", names[i]);
		}
	link_close(&link);
}

/* ---- names ---- */

static void region_names(void)
{
	static const char *const bad[] = { "", " ", "a b", "a\n", "\x1b[2J", "%n%s", "../\\", "na\xc3\xafve", "*", "'" };
	char longest[66];
	struct world mine, other;
	struct region region;
	uint32_t mr, mrs;

	memset(longest, 'x', 65);
	longest[65] = '\0';
	world_make(&mine);
	world_make(&other);
	must_be(make_region(&mine.link, mine.pd, 4096, 0, NULL, &mr), 0, "REGION_CREATE");
	for (size_t i = 0; i <= sizeof(bad) / sizeof(bad[0]); i++) {
		const char *name = i < sizeof(bad) / sizeof(bad[0]) ? bad[i] : longest;

		must_be(make_region(&mine.link, mine.pd, 4096, PERSIST, name, &mrs), EINVAL, "a region called '%s'", name);
		must_be(export(&mine, mr, 0, name, NULL), EINVAL, "a region exported as '%s'", name);
		must_be(import(&other, name, NULL, 0, CREATE, &region), EINVAL, "a region imported as '%s'", name);
		must_be(release(&mine.link, name), EINVAL, "a region released as '%s'", name);
	}
	must_be(export(&mine, mr, 0, longest + 1, NULL), 0, "a name of 64 characters");
	must_be(make_region(&other.link, other.pd, 4096, 0, longest + 1, &mrs), EEXIST, "a name that is taken");
	/* Each takes it from the other, and what it names stays whole. */
	for (unsigned i = 0; i < 200 * setting.scale; i++) {
		must_be(release(i % 2 ? &mine.link : &other.link, longest + 1), 0, "REGION_RELEASE");
		must_be(import(&other, longest + 1, NULL, 0, 0, &region), ENOENT, "a name that was released");
		must_be(export(&mine, mr, 0, longest + 1, NULL), 0, "REGION_EXPORT");
		must_be(import(&other, longest + 1, NULL, 0, 0, &region), 0, "REGION_IMPORT");
		must_be(destroy(&other.link, VSD__OBJECT_TYPE__OBJ_MR, region.mr), 0, "DESTROY");
	}
	world_end(&other);
	world_end(&mine);
}

/* Many ask for the same name at once: one has made it. A name a round: the last holders may still be on their way out. */
static void region_races(void)
{
	enum { N = 16 };
	char name[32];

	for (unsigned round = 0; round < 5 * setting.scale; round++) {
		static struct world worlds[N];
		Vsd__RegionImportRequest request = VSD__REGION_IMPORT_REQUEST__INIT;
		struct frame_header header = { .version = 1, .opcode = VSD__OP__OP_REGION_IMPORT };
		unsigned created = 0;
		uint32_t number = 0;
		uint8_t frame[256];

		for (unsigned i = 0; i < N; i++)
			world_make(&worlds[i]);
		snprintf(name, sizeof(name), "raced.%u", round);
		request.name = name;
		request.has_size = true;
		request.size = 1 << 20;
		request.flags = CREATE;
		for (unsigned i = 0; i < N; i++) {
			request.context = worlds[i].link.context;
			request.pd = worlds[i].pd;
			header.serial = ++worlds[i].link.serial;
			link_send(&worlds[i].link, frame,
				(size_t)frame_pack(frame, sizeof(frame), &header, &request.base));
		}
		for (unsigned i = 0; i < N; i++) {
			const Vsd__RegionReply *reply;

			must_be(link_answer(&worlds[i].link, &vsd__region_reply__descriptor), 0, "REGION_IMPORT");
			reply = (const Vsd__RegionReply *)worlds[i].link.reply;
			if (!reply)
				continue;
			created += reply->created;
			if (number && reply->region != number)
				complain("two regions of one name");
			number = reply->region;
		}
		if (created != 1)
			complain("a region was created %u times", created);
		for (unsigned i = 0; i < N; i++)
			world_end(&worlds[i]);
		count("races");
	}
}

/* ---- rights ---- */

/* What can be tried with an fd that only reads. The daemon has our uid here, so opening it again is not in question. */
static void only_reads(int fd)
{
	void *memory = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED) {
		complain("a region for reading cannot be mapped: %s", strerror(errno));
		return;
	}
	if (mprotect(memory, 4096, PROT_READ | PROT_WRITE) == 0)
		complain("a mapping for reading was made writable");
	munmap(memory, 4096);
	if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED)
		complain("a region for reading was mapped for writing");
	if (pwrite(fd, "x", 1, 0) >= 0 || ftruncate(fd, 0) == 0 || ftruncate(fd, 1 << 20) == 0 ||
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0 ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0)
		complain("a region for reading was changed");
	count("fds that only read");
}

static void region_rights(void)
{
	static const uint32_t writes[] = { IBV_ACCESS_LOCAL_WRITE, WRITES, IBV_ACCESS_MW_BIND,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ };
	Vsd__MrReregRequest rereg = VSD__MR_REREG_REQUEST__INIT;
	uint8_t reads[VSD_NONCE_SIZE] = { 0 }, nonce[VSD_NONCE_SIZE];
	struct world mine, other;
	struct region region;
	uint32_t mr;

	world_make(&mine);
	world_make(&other);
	must_be(make_region(&mine.link, mine.pd, 4096, READ_ONLY, "ro", &mr), 0, "REGION_CREATE");
	must_be(export(&mine, mr, READ_ONLY, NULL, reads), 0, "REGION_EXPORT");
	for (size_t i = 0; i < sizeof(writes) / sizeof(writes[0]); i++) {
		must_be(import(&other, "ro", NULL, writes[i], 0, &region), EACCES, "access 0x%x by name", writes[i]);
		must_be(import(&other, "ro", NULL, writes[i], CREATE, &region), EACCES, "access 0x%x", writes[i]);
		must_be(import(&other, NULL, reads, writes[i], 0, &region), EACCES, "access 0x%x by nonce", writes[i]);
	}
	for (unsigned i = 0; i < 2; i++) {
		must_be(import(&other, i ? NULL : "ro", i ? reads : NULL, IBV_ACCESS_REMOTE_READ, 0, &region), 0, "IMPORT");
		only_reads(other.link.fds.fds[0]);
		must_be(export(&other, region.mr, 0, NULL, nonce), EACCES, "a capability for writing");
		must_be(export(&other, region.mr, 0, "ro", NULL), EACCES, "a name for writing");
		must_be(export(&other, region.mr, SEAL, NULL, NULL), EACCES, "a seal");
		must_be(export(&other, region.mr, READ_ONLY | SEAL, NULL, NULL), EACCES, "a seal");
		rereg.context = other.link.context;
		rereg.handle = region.mr;
		rereg.has_access = true;
		rereg.access = WRITES;
		must_be(link_call(&other.link, VSD__OP__OP_MR_REREG, &rereg.base, NULL), EACCES, "MR_REREG");
	}
	must_be(export(&mine, mine.mr, READ_ONLY, NULL, NULL), EINVAL, "an MR on no region");
	world_end(&other);
	world_end(&mine);
}

static void region_nonces(void)
{
	uint8_t nonce[VSD_NONCE_SIZE] = { 0 }, wrong[VSD_NONCE_SIZE];
	struct world mine, other;
	struct region region;
	uint32_t mr;

	world_make(&mine);
	world_make(&other);
	must_be(make_region(&mine.link, mine.pd, 4096, 0, NULL, &mr), 0, "REGION_CREATE");
	must_be(import(&other, NULL, nonce, 0, 0, &region), EACCES, "a nonce of zeros");
	must_be(export(&mine, mr, 0, NULL, nonce), 0, "REGION_EXPORT");
	for (unsigned bit = 0; bit < 8 * VSD_NONCE_SIZE; bit++) {
		memcpy(wrong, nonce, sizeof(wrong));
		wrong[bit / 8] ^= (uint8_t)(1u << bit % 8);
		must_be(import(&other, NULL, wrong, 0, 0, &region), EACCES, "a nonce with bit %u wrong", bit);
	}
	/* That of a context, which is another thing. */
	must_be(import(&other, NULL, mine.link.nonce, 0, 0, &region), EACCES, "a context's nonce");
	must_be(import(&other, NULL, nonce, WRITES, 0, &region), 0, "the right nonce");
	must_be(destroy(&other.link, VSD__OBJECT_TYPE__OBJ_MR, region.mr), 0, "DESTROY");
	must_be(destroy(&mine.link, VSD__OBJECT_TYPE__OBJ_MR, mr), 0, "DESTROY");
	must_be(import(&other, NULL, nonce, 0, 0, &region), EACCES, "the nonce of a region that is gone");
	world_end(&other);
	world_end(&mine);
}

/* ---- sizes and quotas ---- */

static void region_sizes(void)
{
	static const uint64_t impossible[] = { 0, ~0ull, ~0ull - 4095, ~0ull - 4096, 1ull << 63, 1ull << 62, 1ull << 48 };
	struct world w;
	uint32_t mr;
	int r;

	world_make(&w);
	for (size_t i = 0; i < sizeof(impossible) / sizeof(impossible[0]); i++)
		for (uint32_t huge = 0; huge < 4; huge++)
			must_be(make_region(&w.link, w.pd, impossible[i], huge | PERSIST, "x", &mr), EINVAL,
				"a region of 0x%llx bytes", (unsigned long long)impossible[i]);
	/* As much address space as is given, again and again; none of it is memory. */
	for (unsigned i = 0; i < 500 * setting.scale; i++) {
		r = make_region(&w.link, w.pd, (chance() & 0xffffffffffull) + 1, 0, NULL, &mr);
		if (r == 0 && chance() % 2)
			must_be(destroy(&w.link, VSD__OBJECT_TYPE__OBJ_MR, mr), 0, "DESTROY");
		else if (r != 0 && r != EDQUOT && r != ENFILE && r != ENOMEM)
			must_be(r, EDQUOT, "REGION_CREATE");
		if (r == EDQUOT) {
			count("quotas");
			world_end(&w);
			world_make(&w);
		}
	}
	world_end(&w);
}

/* Whole regions full of memory, gone all at once: nobody waits for that. */
static void region_memory(void)
{
	struct world w;

	for (unsigned i = 0; i < 2 * setting.scale; i++) {
		size_t size = 256u << 20;
		uint32_t mr;
		void *memory;

		world_make(&w);
		must_be(make_region(&w.link, w.pd, size, 0, NULL, &mr), 0, "REGION_CREATE");
		memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, w.link.fds.fds[0], 0);
		if (memory == MAP_FAILED)
			complain("mmap: %s", strerror(errno));
		else
			munmap(memory, size);
		if (i % 2)
			must_be(destroy(&w.link, VSD__OBJECT_TYPE__OBJ_MR, mr), 0, "DESTROY");
		world_end(&w);
		count("regions of 256 MiB");
	}
}

static void region_quotas(void)
{
	struct world w;
	char name[32];
	uint32_t mr;
	int r = 0;

	world_make(&w);
	for (unsigned i = 0; r == 0 && i < 2000 * setting.scale; i++)
		r = make_region(&w.link, w.pd, 4096, 0, NULL, &mr);
	if (r != 0 && r != EDQUOT && r != ENFILE && r != ENOMEM)
		must_be(r, EDQUOT, "regions until the quota is full");
	count("quotas");
	world_end(&w);
	regions_unnamed_gone();
	/* What stays when its maker is gone is his still. */
	world_make(&w);
	r = 0;
	for (unsigned i = 0; r == 0 && i < 20000; i++) {
		snprintf(name, sizeof(name), "kept.%u", i);
		r = make_region(&w.link, w.pd, setting.limited ? 1 << 20 : 1 << 26, PERSIST, name, &mr);
		if (r == 0 && i % 100 == 99) {
			world_end(&w);
			world_make(&w);
		}
	}
	if (r != 0 && r != EDQUOT && r != ENFILE)
		must_be(r, EDQUOT, "persistent regions until the quota is full");
	count("quotas");
	world_end(&w);
	if (setting.limited) {
		world_make(&w);
		must_be(make_region(&w.link, w.pd, 1 << 20, PERSIST, "more", &mr), EDQUOT, "a region that is one too many");
		world_end(&w);
	}
	regions_clean();
}

/* ---- grants ---- */

static int grant(struct link *link, uint32_t peer, uint32_t key, uint32_t qpn)
{
	Vsd__RegionGrantRequest request = VSD__REGION_GRANT_REQUEST__INIT;

	request.peer = peer;
	request.key = key;
	request.qpn = qpn;
	return link_call(link, VSD__OP__OP_REGION_GRANT, &request.base, &vsd__region_grant_reply__descriptor);
}

/* Asks on the event socket and reads nothing: the daemon keeps few fds in flight, and serves others. */
static void grants_unread(struct world *w, uint32_t peer, uint32_t key)
{
	Vsd__RegionGrantRequest request = VSD__REGION_GRANT_REQUEST__INIT;
	struct frame_header header = { .version = 1, .opcode = VSD__OP__OP_REGION_GRANT };
	uint8_t frame[128];
	size_t n;

	request.peer = peer;
	request.key = key;
	request.qpn = w->qpn;
	n = (size_t)frame_pack(frame, sizeof(frame), &header, &request.base);
	for (unsigned i = 0; i < 1000; i++) {
		if (send(w->link.events, frame, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
		count("grants left unread");
	}
	must_be(link_call(&w->link, VSD__OP__OP_DEVICE_LIST, NULL, NULL), 0, "a call beside grants left unread");
}

static void region_grants(void)
{
	struct world a, b, c;
	uint32_t mr, key, peer = 0;
	Vsd__EvSegment *segment;

	world_make(&a);
	world_make(&b);
	world_make(&c);
	must_be(make_region(&b.link, b.pd, 4096, 0, NULL, &mr), 0, "REGION_CREATE");
	key = b.link.reply ? ((Vsd__RegionReply *)b.link.reply)->key : 0;
	for (uint32_t i = 0; i < 64; i++)
		must_be(grant(&a.link, i, key, a.qpn), EACCES, "a grant of process %u without a wire", i);
	must_be(modify(&a.link, a.qp, IBV_QPS_INIT, 0), 0, "INIT");
	must_be(modify(&b.link, b.qp, IBV_QPS_INIT, 0), 0, "INIT");
	must_be(modify(&a.link, a.qp, IBV_QPS_RTR, b.qpn), 0, "RTR");
	must_be(modify(&b.link, b.qp, IBV_QPS_RTR, a.qpn), 0, "RTR");
	segment = (Vsd__EvSegment *)link_event(&a.link, VSD__OP__EV_SEGMENT, &vsd__ev_segment__descriptor, 10000);
	if (segment) {
		peer = segment->peer;
		protobuf_c_message_free_unpacked(&segment->base, NULL);
	}
	must_be(grant(&a.link, peer, key, a.qpn), 0, "a grant");
	must_be(grant(&c.link, peer, key, c.qpn), EACCES, "a grant to a third process");
	must_be(grant(&c.link, peer, key, a.qpn), EACCES, "a grant through another process's QP");
	for (unsigned i = 0; i < 3000 * setting.scale; i++) {
		uint32_t some = chance() % 2 ? key : (uint32_t)chance(), qpn = chance() % 2 ? a.qpn : (uint32_t)chance();
		uint32_t of = chance() % 2 ? peer : (uint32_t)chance() % 8;

		must_be(grant(&a.link, of, some, qpn), of == peer && some == key && qpn == a.qpn ? 0 : EACCES,
			"a grant of 0x%x of %u by 0x%x", some, of, qpn);
	}
	must_be(grant(&a.link, peer, b.key, a.qpn), EACCES, "a grant of an MR on no region");
	grants_unread(&a, peer, key);
	must_be(modify(&b.link, b.qp, IBV_QPS_ERR, 0), 0, "ERR");
	world_end(&c);
	world_end(&b);
	world_end(&a);
}

const struct attack attacks_regions[] = {
	{ "region_names", region_names },   { "region_races", region_races },	{ "region_rights", region_rights },
	{ "region_nonces", region_nonces }, { "region_sizes", region_sizes },	{ "region_memory", region_memory },
	{ "region_quotas", region_quotas }, { "region_grants", region_grants }, { NULL, NULL },
};
