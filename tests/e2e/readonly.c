/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Read-only means read-only: whoever was given a region, or any other file of the daemon's, for reading, tries
 * everything to write it. The tricks with the fd are readonly_tricks.c's, those of a program readonly_verbs.c's; those
 * of the protocol are here, made by a client that speaks it itself.
 *
 *	readonly SOCKET plain PID	for who lacks CAP_DAC_OVERRIDE: everything is refused; PID: the daemon
 *	readonly SOCKET sealed		for anybody: a sealed export is
 *
 * The daemon has to run as another user but for the second. Prints findings; status 0.
 */
#include "tests/e2e/readonly.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "tests/e2e/ends.h"
#include "tests/e2e/hostile.h"

#define SIZE (1u << 20)
#define NAME "readonly.prey"
#define LOCAL  IBV_ACCESS_LOCAL_WRITE
#define READS  IBV_ACCESS_REMOTE_READ
#define WRITES (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ)

struct setting setting;

static struct world owner, attacker, reader;

void finding(bool ok, const char *name, const char *format, ...)
{
	va_list args;

	printf("%s\t%s\t", ok ? "ok" : "not", name);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

void complain(const char *format, ...)
{
	char line[256];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	finding(false, "the protocol", "%s", line);
	exit(0);
}

void count(const char *what)
{
	(void)what;
}

uint64_t chance(void)
{
	return 4; /* as good as any */
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

struct region {
	uint32_t mr, key, number;
	int fd;
};

static int answered(struct world *world, int status, struct region *region)
{
	const Vsd__RegionReply *reply = (const void *)world->link.reply;

	if (status)
		return status;
	if (!reply || world->link.fds.n != 1)
		complain("a region without its fd");
	*region = (struct region){ reply->handle, reply->key, reply->region, fdlist_steal(&world->link.fds, 0) };
	return 0;
}

static int region_create(struct world *world, struct region *region)
{
	Vsd__RegionCreateRequest request = VSD__REGION_CREATE_REQUEST__INIT;

	request.context = world->link.context;
	request.pd = world->pd;
	request.size = SIZE;
	request.access = WRITES;
	return answered(world,
		link_call(&world->link, VSD__OP__OP_REGION_CREATE, &request.base, &vsd__region_reply__descriptor), region);
}

static int region_import(struct world *world, const char *name, const uint8_t *nonce, unsigned access, unsigned flags,
	struct region *region)
{
	Vsd__RegionImportRequest request = VSD__REGION_IMPORT_REQUEST__INIT;

	request.context = world->link.context;
	request.pd = world->pd;
	request.access = access;
	request.flags = flags;
	request.spare_key = (world->key_first + world->key_next++) << 8;
	request.name = (char *)(uintptr_t)name;
	if (nonce) {
		request.has_nonce = true;
		request.nonce.data = (uint8_t *)(uintptr_t)nonce;
		request.nonce.len = VSD_NONCE_SIZE;
	}
	if (flags & VSD__REGION_FLAG__REGION_CREATE) {
		request.has_size = true;
		request.size = SIZE;
	}
	return answered(world,
		link_call(&world->link, VSD__OP__OP_REGION_IMPORT, &request.base, &vsd__region_reply__descriptor), region);
}

/* *@capability: the fd of one, when @name is NULL. */
static int region_export(struct world *world, uint32_t mr, const char *name, unsigned flags, int *capability)
{
	Vsd__RegionExportRequest request = VSD__REGION_EXPORT_REQUEST__INIT;
	int r;

	request.context = world->link.context;
	request.mr = mr;
	request.flags = flags;
	request.name = (char *)(uintptr_t)name;
	r = link_call(&world->link, VSD__OP__OP_REGION_EXPORT, &request.base, NULL);
	if (r == 0 && !name)
		*capability = fdlist_steal(&world->link.fds, 0);
	return r;
}

static int rereg(struct world *world, uint32_t mr, unsigned access)
{
	Vsd__MrReregRequest request = VSD__MR_REREG_REQUEST__INIT;

	request.context = world->link.context;
	request.handle = mr;
	request.has_access = true;
	request.access = access;
	return link_call(&world->link, VSD__OP__OP_MR_REREG, &request.base, NULL);
}

static int grant(struct world *world, uint32_t peer, uint32_t key, uint32_t qpn, bool *writable, int *fd)
{
	Vsd__RegionGrantRequest request = VSD__REGION_GRANT_REQUEST__INIT;
	int r;

	request.peer = peer;
	request.key = key;
	request.qpn = qpn;
	r = link_call(&world->link, VSD__OP__OP_REGION_GRANT, &request.base, &vsd__region_grant_reply__descriptor);
	if (r == 0) {
		*writable = ((Vsd__RegionGrantReply *)world->link.reply)->writable;
		*fd = fdlist_steal(&world->link.fds, 0);
	}
	return r;
}

/* Connects the attacker's QP @mine with @qp of @other: the id of that process. */
static uint32_t meet(uint32_t mine, uint32_t qpn, struct world *other, uint32_t qp, uint32_t other_qpn)
{
	Vsd__EvSegment *segment;
	uint32_t peer;

	must_be(modify(&attacker.link, mine, IBV_QPS_INIT, 0), 0, "INIT");
	must_be(modify(&other->link, qp, IBV_QPS_INIT, 0), 0, "INIT");
	must_be(modify(&attacker.link, mine, IBV_QPS_RTR, other_qpn), 0, "RTR");
	must_be(modify(&other->link, qp, IBV_QPS_RTR, qpn), 0, "RTR");
	segment = (Vsd__EvSegment *)link_event(&attacker.link, VSD__OP__EV_SEGMENT, &vsd__ev_segment__descriptor, 10000);
	if (!segment)
		complain("no segment");
	peer = segment->peer;
	protobuf_c_message_free_unpacked(&segment->base, NULL);
	return peer;
}

static void refused(int status, const char *name)
{
	finding(status > 0, name, "%s", status == 0 ? "allowed" : "the session ended");
}

/* --- tricks of the protocol --------------------------------------------------------------------------------------- */

static void imports(const uint8_t nonce[VSD_NONCE_SIZE])
{
	static const unsigned accesses[] = { LOCAL, LOCAL | IBV_ACCESS_REMOTE_WRITE, LOCAL | IBV_ACCESS_REMOTE_ATOMIC,
		IBV_ACCESS_MW_BIND, WRITES };
	uint8_t other[VSD_NONCE_SIZE];
	struct region region;
	char name[64];

	for (size_t i = 0; i < sizeof(accesses) / sizeof(accesses[0]); i++) {
		snprintf(name, sizeof(name), "import by name, access 0x%x", accesses[i]);
		refused(region_import(&attacker, NAME, NULL, accesses[i], 0, &region), name);
		snprintf(name, sizeof(name), "import by capability, access 0x%x", accesses[i]);
		refused(region_import(&attacker, NULL, nonce, accesses[i], 0, &region), name);
		snprintf(name, sizeof(name), "create or attach, access 0x%x", accesses[i]);
		refused(region_import(&attacker, NAME, NULL, accesses[i], VSD__REGION_FLAG__REGION_CREATE, &region), name);
	}
	memcpy(other, nonce, sizeof(other));
	other[31] ^= 1;
	refused(region_import(&attacker, NULL, other, READS, 0, &region), "a capability that is not quite it");
	refused(region_import(&attacker, NULL, attacker.link.nonce, READS, 0, &region), "a context's capability");
}

static void changes(const struct region *mine)
{
	int capability;

	refused(rereg(&attacker, mine->mr, LOCAL), "rereg with local write");
	refused(rereg(&attacker, mine->mr, WRITES), "rereg with everything");
	refused(region_export(&attacker, mine->mr, NAME, 0, &capability), "export by name for writing");
	refused(region_export(&attacker, mine->mr, NULL, 0, &capability), "export by capability for writing");
	refused(region_export(&attacker, mine->mr, NAME, VSD__REGION_FLAG__REGION_SEAL, &capability), "a seal");
}

/* A QP that leads to a PD with a read-only MR: its fd is as read-only as any. */
static void grants(const struct region *region, const uint8_t *truth)
{
	uint32_t far_pd, far_qp, far_qpn = owner.qpn_first + owner.qpn_next++, to_owner, to_reader;
	uint32_t second, second_qpn = attacker.qpn_first + attacker.qpn_next++;
	struct region theirs;
	bool writable = true;
	int fd = -1;

	world_make(&reader);
	must_be(region_import(&reader, NAME, NULL, READS, 0, &theirs), 0, "REGION_IMPORT");
	must_be(make_pd(&owner.link, &far_pd), 0, "PD_ALLOC");
	must_be(make_qp(&owner.link, far_pd, owner.cq, IBV_QPT_RC, far_qpn, &far_qp), 0, "QP_CREATE");
	must_be(make_qp(&attacker.link, attacker.pd, attacker.cq, IBV_QPT_RC, second_qpn, &second), 0, "QP_CREATE");
	to_owner = meet(attacker.qp, attacker.qpn, &owner, far_qp, far_qpn);
	refused(grant(&attacker, to_owner, region->key, 0, &writable, &fd), "a grant without a QP");
	refused(grant(&attacker, to_owner, region->key, second_qpn, &writable, &fd), "a grant by a QP that is not connected");
	refused(grant(&attacker, to_owner, region->key, far_qpn, &writable, &fd), "a grant by the owner's own QP");
	refused(grant(&attacker, to_owner, region->key, attacker.qpn, &writable, &fd), "a grant by a QP to another PD");
	refused(grant(&attacker, to_owner, owner.key, attacker.qpn, &writable, &fd), "a grant for an ordinary key");
	to_reader = meet(second, second_qpn, &reader, reader.qp, reader.qpn);
	refused(grant(&attacker, to_owner, region->key, second_qpn, &writable, &fd), "a grant by a QP to another process");
	must_be(grant(&attacker, to_reader, theirs.key, second_qpn, &writable, &fd), 0, "REGION_GRANT");
	finding(!writable, "a reader's grant says read-only", "it says writable");
	tricks_run(&(struct prey){ "granted by a reader", fd, SIZE, truth });
	close(fd);
	close(theirs.fd);
	world_end(&reader);
}

/* --- the rest ----------------------------------------------------------------------------------------------------- */

/* Other files that clients have for reading: the map page, a capability. */
static void other_files(int capability)
{
	struct link link;
	int fd;

	link_open(&link);
	link_hello(&link);
	must_be(link_call(&link, VSD__OP__OP_JOIN, NULL, &vsd__join_reply__descriptor), 0, "JOIN");
	fd = fdlist_steal(&link.fds, 3);
	tricks_run(&(struct prey){ "the map page", fd, ((Vsd__JoinReply *)link.reply)->map_size, NULL });
	close(fd);
	link_close(&link);
	tricks_run(&(struct prey){ "a capability", capability, VSD_NONCE_SIZE, NULL });
}

static uint8_t *region_fill(const struct region *region)
{
	uint8_t *truth = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);

	if (truth == MAP_FAILED)
		complain("mmap: %s", strerror(errno));
	for (size_t i = 0; i < SIZE / 2; i++) /* and a hole */
		truth[i] = (uint8_t)(i * 5 + (i >> 8));
	return truth;
}

/* The library is for a process of its own, made before this one has a session. */
static void program(int fd, void *arg)
{
	int capability = fd_hear(fd);

	(void)arg;
	verbs_tricks(NAME, capability);
}

static void plain(pid_t daemon)
{
	struct child child = child_start(program, NULL);
	struct region region, mine;
	uint8_t nonce[VSD_NONCE_SIZE], *truth;
	int capability = -1;

	world_make(&owner);
	world_make(&attacker);
	must_be(region_create(&owner, &region), 0, "REGION_CREATE");
	truth = region_fill(&region);
	must_be(region_export(&owner, region.mr, NAME, VSD__REGION_FLAG__REGION_READ_ONLY, NULL), 0, "REGION_EXPORT");
	must_be(region_export(&owner, region.mr, NULL, VSD__REGION_FLAG__REGION_READ_ONLY, &capability), 0,
		"REGION_EXPORT");
	if (pread(capability, nonce, sizeof(nonce), 0) != sizeof(nonce))
		complain("a capability without a nonce");
	must_be(region_import(&attacker, NAME, NULL, READS, 0, &mine), 0, "REGION_IMPORT");
	tricks_run(&(struct prey){ "by name", mine.fd, SIZE, truth });
	imports(nonce);
	changes(&mine);
	close(mine.fd);
	must_be(region_import(&attacker, NULL, nonce, READS, 0, &mine), 0, "REGION_IMPORT");
	tricks_run(&(struct prey){ "by capability", mine.fd, SIZE, truth });
	close(mine.fd);
	grants(&region, truth);
	fd_say(child.fd, capability);
	child_end(&child);
	other_files(capability);
	if (daemon)
		tricks_with_daemon(daemon);
	world_end(&attacker);
	world_end(&owner);
}

static void sealed(void)
{
	struct region region, mine;
	uint8_t *truth;

	world_make(&owner);
	world_make(&attacker);
	must_be(region_create(&owner, &region), 0, "REGION_CREATE");
	truth = region_fill(&region);
	must_be(region_export(&owner, region.mr, NAME, VSD__REGION_FLAG__REGION_SEAL, NULL), 0, "REGION_EXPORT");
	must_be(region_import(&attacker, NAME, NULL, READS, 0, &mine), 0, "REGION_IMPORT");
	tricks_run_sealed(&(struct prey){ "sealed", mine.fd, SIZE, truth });
	world_end(&attacker);
	world_end(&owner);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	setting.socket = argv[1];
	if (strcmp(argv[2], "sealed") == 0)
		sealed();
	else
		plain(argc > 3 ? atoi(argv[3]) : 0);
	return 0;
}
