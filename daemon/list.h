/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A doubly linked list whose links sit in its members. A link that is in no list points to itself, so that removing
 * it twice is harmless.
 */
#ifndef DAEMON_LIST_H
#define DAEMON_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

#define LIST_NULL(l)                                                                              \
	{                                                                                         \
		.next = &(l), .prev = &(l)                                                        \
	}

#define container_of(pointer, type, member)                                                       \
	((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#define list_for_each(pos, head)                                                                  \
	for (struct list *pos = (head)->next; pos != (head); pos = pos->next)

/* @pos may be removed meanwhile, nothing else. */
#define list_for_each_safe(pos, head)                                                             \
	for (struct list *pos = (head)->next, *pos##_next = pos->next; pos != (head);             \
		pos = pos##_next, pos##_next = pos->next)

static inline void list_init(struct list *list)
{
	list->next = list;
	list->prev = list;
}

static inline bool list_empty(const struct list *list)
{
	return list->next == list;
}

static inline void list_append(struct list *head, struct list *link)
{
	link->next = head;
	link->prev = head->prev;
	head->prev->next = link;
	head->prev = link;
}

static inline void list_remove(struct list *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	list_init(link);
}

#endif
