/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client that means harm: what its parts share. It speaks the protocol itself, without the client library, so that
 * it can break every rule of it.
 */
#ifndef E2E_HOSTILE_H
#define E2E_HOSTILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/frame.h"
#include "proto/sock.h"
#include "proto/verbsd.pb-c.h"

/* What the command line says. */
struct setting {
	const char *socket, *admin;
	pid_t daemon;
	unsigned scale; /* how often things are done, 1 for a short run */
	bool limited;	/* the daemon has the low limits of hostile.py */
};

extern struct setting setting;

/* ---- findings ---- */

/* Something that must not be: said on stderr, and the program's status will be 1. */
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);
/* What was done, for the one line that an attack prints. */
void count(const char *what);
uint64_t chance(void);

/* ---- hostile_link.c: one session ---- */

enum answer {
	ANSWER_ENDED = -1,  /* the session is over */
	ANSWER_SILENT = -2, /* nothing came for a very long time */
	/* otherwise the status, 0 or a positive errno */
};

struct link {
	int fd, events;
	uint32_t serial, context;
	uint8_t nonce[VSD_NONCE_SIZE];
	struct frame_header header; /* of the last answer */
	ProtobufCMessage *reply;    /* of the last answer, NULL: none was wanted or it was refused */
	struct fdlist fds;
};

/* Connects; ends the program when even that fails. */
void link_open(struct link *link);
void link_open_at(struct link *link, const char *path);
void link_close(struct link *link);
void link_hello(struct link *link);
void link_join(struct link *link);
void link_context(struct link *link);
/* All of the above. */
void link_ready(struct link *link);

/* Sends bytes as they are. False: the other end is gone. */
bool link_send(struct link *link, const void *bytes, size_t n);
/* A frame around a body. */
size_t frame_make(uint8_t *buf, size_t size, uint16_t opcode, uint32_t serial, const void *body, size_t n);
/* The next answer's status; unpacks it as @type unless that is NULL. Events are skipped. */
int link_answer(struct link *link, const ProtobufCMessageDescriptor *type);
/* Request and answer. */
int link_call(struct link *link, unsigned op, const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type);
/* Complains unless the session ends now. Closes and connects again up to where link_ready() comes. */
void link_must_end(struct link *link, const char *format, ...) __attribute__((format(printf, 2, 3)));
void must_be(int answer, int expected, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The next event of the event socket within @ms, unpacked as @type; NULL: none. Its fds are closed. */
ProtobufCMessage *link_event(struct link *link, unsigned opcode, const ProtobufCMessageDescriptor *type, int ms);

/* ---- hostile_request.c: requests of every kind ---- */

/* A session with an object of each type. */
struct world {
	struct link link;
	uint32_t pd, td, parent, cq, srq, qp, ud, ah, mw, mr;
	uint32_t region; /* an MR on a shared region, made when it is first wanted */
	uint32_t key_first, key_next, qpn_first, qpn_next, keys, qpns;
	uint32_t qpn, ud_qpn, key;
	uint32_t xrcd, xsrq, xsend, xrecv; /* of XRC; the last two are QPs */
	uint32_t srqn, xsend_qpn, xrecv_qpn;
};

void world_make(struct world *world);
void world_end(struct world *world);

struct operation {
	unsigned op;
	const char *name;
	const ProtobufCMessageDescriptor *type;
};

extern const struct operation operations[];
extern const size_t n_operations;

/* A request that the daemon would take, or nearly: every field is set, names are of objects that exist. */
ProtobufCMessage *request_make(const struct operation *operation, struct world *world, bool optional);
void request_free(ProtobufCMessage *request);
void request_set(ProtobufCMessage *request, const char *field, uint64_t value);

/* Shorthands that answer with a status and, in *@handle, a handle. */
int make_object(struct link *link, unsigned op, const ProtobufCMessage *request, uint32_t *handle);
int make_pd(struct link *link, uint32_t *pd);
int make_mr(struct link *link, uint32_t pd, uint32_t key, uint32_t *mr);
int make_cq(struct link *link, uint32_t *cq);
int make_qp(struct link *link, uint32_t pd, uint32_t cq, unsigned type, uint32_t qpn, uint32_t *qp);
int make_lease(struct link *link, Vsd__LeaseKind kind, uint32_t count, uint32_t *first, uint32_t *n);
int make_region(struct link *link, uint32_t pd, uint64_t size, uint32_t flags, const char *name, uint32_t *mr);
int destroy(struct link *link, Vsd__ObjectType type, uint32_t handle);
int modify(struct link *link, uint32_t qp, unsigned state, uint32_t dest);

/* ---- attacks ---- */

struct attack {
	const char *name;
	void (*run)(void);
};

extern const struct attack attacks_frames[], attacks_requests[], attacks_objects[], attacks_wires[], attacks_floods[],
	attacks_fds[], attacks_regions[], attacks_xrc[], attacks_places[];

/* ---- hostile_regions.c ---- */

/* Takes away all names that attacks left to regions of our domain, and what was kept under them. */
void regions_clean(void);

/* The well-behaved client. */
int polite(void);

#endif
