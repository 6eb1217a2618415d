/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls about shared regions, for tests on the fixture of daemon_fixture.h.
 */
#ifndef TESTS_UNIT_REGION_CALLS_H
#define TESTS_UNIT_REGION_CALLS_H

#include "daemon/region.h"
#include "tests/unit/daemon_fixture.h"

/* enum ibv_access_flags */
enum { LOCAL_WRITE = 1, REMOTE_WRITE = 2, REMOTE_READ = 4, REMOTE_ATOMIC = 8, MW_BIND = 16 };

/* An answer about a region; its fd is in the client. */
struct region_got {
	int status; /* 0 or errno */
	uint32_t mr, key, access, flags, region;
	uint64_t iova, size;
	bool created;
	unsigned memory; /* enum MrMemory, and if it is no region: */
	uint64_t at, length;
};

struct region_got region_answer(
	struct client *client, unsigned opcode, const ProtobufCMessage *request);
/* @name may be NULL. */
struct region_got region_create(struct client *client, uint64_t size, uint32_t access,
	uint32_t flags, const char *name);
/* Everything that IMPORT takes; the spare key is the client's. */
struct region_got region_import_any(struct client *client, const char *name, const uint8_t *nonce,
	uint32_t access, uint32_t flags, uint64_t size);
struct region_got region_import(struct client *client, const char *name, uint32_t access);
struct region_got region_attach(
	struct client *client, const char *name, uint64_t size, uint32_t flags);
struct region_got region_import_nonce(
	struct client *client, const uint8_t nonce[VSD_NONCE_SIZE], uint32_t access);
/* All of these: 0 or errno. */
int region_export_as(struct client *client, uint32_t mr, uint32_t flags, const char *name);
int region_capability_of(
	struct client *client, uint32_t mr, uint32_t flags, uint8_t nonce[VSD_NONCE_SIZE]);
int region_persist_mr(struct client *client, uint32_t mr, bool persist);
int region_release_as(struct client *client, const char *name);
/* On the admin socket. */
int region_release_of(struct client *client, const char *name, uint32_t uid);

/* How many lines a listing of @type has, own domain or @all; @last gets a copy of the last one (may be NULL; free it). */
unsigned region_list(struct client *client, unsigned type, bool all, Vsd__Item **last);
/* Whether the client's last fd is open for writing. */
bool region_fd_writes(const struct client *client);
/* A limit for everybody. */
void region_limit(enum slot slot, uint64_t limit);

#endif
