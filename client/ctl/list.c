/* SPDX-License-Identifier: BSD-2-Clause */
/* verbsctl list: objects, with who owns them and what they stand on. */
#include "client/ctl/ctl.h"
#include "client/ctl/items.h"

int ctl_list(const struct ctl *ctl)
{
	unsigned type = ITEMS_ALL;

	if (ctl->n_args) {
		type = item_type_find(ctl->args[0]);
		if (type == 0) {
			ctl_say("no such kind of object: %s", ctl->args[0]);
			return CTL_USAGE;
		}
	}
	return items_show(ctl, type == ITEMS_ALL ? "objects" : item_type_name(type), type);
}
