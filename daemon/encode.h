/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Items of listings as messages.
 */
#ifndef DAEMON_ENCODE_H
#define DAEMON_ENCODE_H

#include "daemon/item.h"
#include "daemon/scratch.h"
#include "daemon/stats.h"
#include "proto/verbsd.pb-c.h"

struct device_attr;
struct session;

/* NULL when @scratch is full. Strings are copied. */
Vsd__Item *encode_item(
	struct scratch *scratch, const struct item *item, const struct stats_who *who);
/* Adds the counters of a client; false when @scratch is full. */
bool encode_counters(struct scratch *scratch, Vsd__Item *item, const struct session *session);
/* The same of an item with ITEM_RESOURCES. */
bool encode_resources(struct scratch *scratch, Vsd__Item *out, const struct item *item);
/* What any device has limits of. */
void encode_limits(Vsd__Device *out, const struct device_attr *attr);

#endif
