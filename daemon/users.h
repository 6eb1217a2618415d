/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who stands on an object, in words: for the log line of a refused destroy, for listings, for the client that asks.
 */
#ifndef DAEMON_USERS_H
#define DAEMON_USERS_H

#include <stddef.h>

struct attachment;
struct domain;
struct object;

/* Room for what users_say() has to say at most. */
#define USERS_TEXT 224

/*
 * Writes "qp 7 (QPN 0x12), mr 4 (key 0x1100) of client 9 and 3 more"; "" when nothing stands on @object. A client is
 * named where it is not the one that made @object. Objects of other domains than @domain are counted and not named;
 * NULL: all are.
 */
void users_say(const struct object *object, const struct domain *domain, char *buf, size_t size);

/* The first few objects that a client still has in a context. */
void users_say_context(const struct attachment *attachment, char *buf, size_t size);

#endif
