/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What LIST answers: asked for page by page, and shown in the columns that a kind of object has.
 */
#ifndef CLIENT_CTL_ITEMS_H
#define CLIENT_CTL_ITEMS_H

#include "client/ctl/conn.h"
#include "client/ctl/table.h"

#define ITEMS_ALL 0u /* objects of every kind */

/* "qp" and the like; NULL for what this verbsctl does not know. */
const char *item_type_name(unsigned type);
/* 0 when there is no such type. */
unsigned item_type_find(const char *name);

/* A table with the columns of @type, or those that all types share (ITEMS_ALL). JSON has every column. */
struct table *items_table(const char *name, unsigned type, bool json, bool headings);
void items_add(struct table *table, unsigned type, bool json, const Vsd__Item *item);

/*
 * Adds what LIST says to the table; @all asks for every domain. MRs are followed by the regions that none is on. 0 or a
 * negative errno.
 */
int items_list(struct conn *conn, struct table *table, unsigned type, bool json, bool all);

/* The lists of `list` and `clients`: connects, asks, prints. An exit code. */
struct ctl;
int items_show(const struct ctl *ctl, const char *name, unsigned type);

#endif
