/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What all objects have in common: type, handle, owner, charges, what they stand on and what stands on them.
 *
 * Making one: object_new() checks limits, charges, allocates; the type's file fills it in, object_refer()s to what it stands on;
 * object_publish() gives it a handle. Until then object_discard() undoes everything.
 */
#ifndef DAEMON_OBJECT_H
#define DAEMON_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/account.h"
#include "daemon/backend.h"
#include "daemon/list.h"

struct attachment;
struct context;
struct item;

/* As in verbsd.proto: the order of teardown. */
enum object_type {
	OBJECT_QP = 1,
	OBJECT_AH = 2,
	OBJECT_SRQ = 3,
	OBJECT_CQ = 4,
	OBJECT_MW = 5,
	OBJECT_MR = 6,
	OBJECT_PARENT_DOMAIN = 7,
	OBJECT_TD = 8,
	OBJECT_PD = 9,
	OBJECT_DM = 10,
	OBJECT_CONTEXT = 11,
	OBJECT_WIRE = 12,
	OBJECT_CLIENT = 13,
	OBJECT_REGION = 14,
	OBJECT_XRCD = 15,
	OBJECT_MCAST = 16,
	OBJECT_DEVICE = 17, /* a real one, in events only */
};
#define OBJECT_VACANT 64 /* in the table of handles: one that is nothing yet, and cannot be named */
#define OBJECT_TYPES 16 /* of them, those with a class are objects of a context */

struct object_ref {
	struct object *to, *from;
	struct list link; /* in to->users */
};

struct object {
	enum object_type type;
	uint32_t handle;
	struct context *context;
	struct attachment *owner; /* whose process it belongs to; NULL: the context's (a PD, a DM) */
	uint64_t session;         /* who made it, for listings */
	struct list link;         /* in the owner's or the context's list of its type */
	struct list users;        /* struct object_ref of those that stand on it */
	unsigned n_users;         /* objects that do, however many references they have */
	unsigned n_refs;
	struct charge charge, bytes;
	struct object_ref *refs; /* n_refs, behind the object's own struct */
};

struct object_class {
	const char *name;
	enum slot slot;
	size_t size;
	unsigned refs;
	bool shared; /* the context's, not its process's */
	uint32_t (*max)(const struct device_attr *attr);
	/* 0, or -EBUSY and a reason, for what stands on it but is no object. May be NULL. */
	int (*busy)(const struct object *object);
	/* Lets go of everything that is not in struct object. May be NULL. */
	void (*fini)(struct object *object);
	/* Fills in what a listing shows. */
	void (*describe)(const struct object *object, struct item *item);
};

extern const struct object_class object_pd, object_td, object_parent_domain, object_mr, object_mw,
	object_cq, object_srq, object_qp, object_ah, object_dm, object_xrcd;

/* NULL: what is no object of a context. */
const struct object_class *object_class(enum object_type type);
/* Name of any type, listings' ones included. */
const char *object_type_name(enum object_type type);

/* @queue_bytes are charged besides the object itself. 0, or the slot's errno. */
int object_new(struct attachment *attachment, enum object_type type, uint64_t queue_bytes,
	struct object **object);
void object_refer(struct object *object, unsigned i, struct object *to);
void object_replace(struct object *object, unsigned i, struct object *to);
/* @i's reference, or NULL. */
struct object *object_refers(const struct object *object, unsigned i);
struct object *object_discard(struct object *object);
/* 0 and the object has its handle; on failure it was discarded. */
int object_publish(struct object *object);

/*
 * Instead of it, for what shall come and go without a request: charged, known to its backend, and its handle is set aside.
 * It comes when it is ready, with its references, and goes without them; @tell: those who watch.
 */
int object_set_aside(struct object *object);
void object_come(struct object *object, bool tell);
void object_go(struct object *object, bool tell);
/* One that is set aside, and not there. */
struct object *object_drop(struct object *object);

/* What @attachment may name @handle: its own objects and the context's shared ones. NULL: absent or of another type. */
struct object *object_get(
	const struct attachment *attachment, enum object_type type, uint32_t handle);

/* 0, or -EBUSY and a reason that names what stands on it. */
int object_busy(const struct object *object);
/* -EBUSY while something stands on it. */
int object_destroy(struct object *object);

#endif
