/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: "busy" alone tells nobody what to destroy first. Guarantees: it takes the same time however many stand on an
 * object, since a refused destroy costs a client nothing.
 */
#include "daemon/users.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "daemon/context.h"
#include "daemon/item.h"
#include "daemon/object.h"
#include "daemon/session.h"

/* So many are named; of more it says how many. */
#define NAMED 4

struct text {
	char *buf;
	size_t size, used;
	unsigned named;
};

__attribute__((format(printf, 2, 3))) static void text_add(
	struct text *text, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text->buf + text->used, text->size - text->used, format, args);
	va_end(args);
	if (n > 0)
		text->used += (size_t)n;
	if (text->used >= text->size)
		text->used = text->size - 1;
}

/* By handle, and by the number that programs know it by. @session: whose it is taken to be. */
static void name_add(struct text *text, const struct object *user, uint64_t session)
{
	struct item item = { .has = 0 };

	text_add(text, "%s%s %u", text->named++ ? ", " : "", object_type_name(user->type),
		user->handle);
	if (user->type == OBJECT_QP || user->type == OBJECT_MR || user->type == OBJECT_MW) {
		object_class(user->type)->describe(user, &item);
		text_add(text, " (%s 0x%x)", user->type == OBJECT_QP ? "QPN" : "key", item.number);
	}
	if (user->session != session)
		text_add(text, " of client %llu", (unsigned long long)user->session);
}

static bool may_name(const struct object *user, const struct domain *domain)
{
	return !domain || !user->owner || user->owner->domain == domain;
}

void users_say(const struct object *object, const struct domain *domain, char *buf, size_t size)
{
	struct text text = { .buf = buf, .size = size };
	const struct object *last = NULL;
	unsigned seen = 0;

	buf[0] = '\0';
	list_for_each (pos, &object->users) {
		const struct object *user = container_of(pos, struct object_ref, link)->from;

		/* A QP may stand on a CQ twice, for sending and receiving; then the two follow each other. */
		if (user == last)
			continue;
		last = user;
		if (seen++ == NAMED)
			break;
		if (may_name(user, domain))
			name_add(&text, user, object->session);
	}
	if (text.named && object->n_users > text.named)
		text_add(&text, " and %u more", object->n_users - text.named);
	else if (object->n_users > text.named)
		text_add(&text, "%u objects of others", object->n_users);
}

void users_say_context(const struct attachment *attachment, char *buf, size_t size)
{
	struct text text = { .buf = buf, .size = size };

	buf[0] = '\0';
	for (unsigned type = OBJECT_QP; type < OBJECT_TYPES; type++) {
		list_for_each (pos, &attachment->objects[type]) {
			if (text.named == NAMED)
				return;
			name_add(&text, container_of(pos, struct object, link),
				attachment->session->id);
		}
	}
	list_for_each (pos, &attachment->context->shared) {
		if (text.named == NAMED)
			return;
		name_add(&text, container_of(pos, struct object, link), attachment->session->id);
	}
}
