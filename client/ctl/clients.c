/* SPDX-License-Identifier: BSD-2-Clause */
/* verbsctl clients: who is connected. The number in the first column is what `disconnect` takes. */
#include "client/ctl/ctl.h"
#include "client/ctl/items.h"

int ctl_clients(const struct ctl *ctl)
{
	return items_show(ctl, "clients", VSD__OBJECT_TYPE__OBJ_CLIENT);
}
