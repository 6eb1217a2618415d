/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is in the way of a destroy. The library counts who stands on an object and does not keep a list: the daemon has
 * one. So it is asked, which writes the line that it writes about any destroy that it refuses itself, and its answer goes
 * to whoever reads VERBSD_DEBUG's lines. Windows bound to a region are the library's own knowledge.
 */
#include "client/abi/abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOWS_NAMED 4

static const char *type_name(Vsd__ObjectType type)
{
	static const char *const names[] = {
		[VSD__OBJECT_TYPE__OBJ_SRQ] = "srq",
		[VSD__OBJECT_TYPE__OBJ_CQ] = "cq",
		[VSD__OBJECT_TYPE__OBJ_PARENT_DOMAIN] = "parent domain",
		[VSD__OBJECT_TYPE__OBJ_TD] = "td",
		[VSD__OBJECT_TYPE__OBJ_PD] = "pd",
		[VSD__OBJECT_TYPE__OBJ_DM] = "dm",
		[VSD__OBJECT_TYPE__OBJ_CONTEXT] = "context",
	};

	return (size_t)type < sizeof(names) / sizeof(names[0]) && names[type] ? names[type] : "object";
}

int abi_busy(const struct soft_context *ctx, Vsd__ObjectType type, uint32_t handle, unsigned users)
{
	char *by = control_in_use(ctx->id, type, handle);

	control_debug("destroy: %s %u: in use by %u objects: %s", type_name(type), handle, users,
		by ? by : "the daemon does not say");
	free(by);
	return -EBUSY;
}

int abi_mr_busy(const struct soft_mr *mr)
{
	uint32_t keys[WINDOWS_NAMED];
	char text[WINDOWS_NAMED * 16] = "";
	unsigned windows = mw_bound_to(mr, keys, WINDOWS_NAMED);

	for (unsigned i = 0; i < windows && i < WINDOWS_NAMED; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s0x%x", i ? ", " : "", keys[i]);
	if (windows)
		control_debug("deregister: mr %u (key 0x%x): memory windows are bound to it: %u: key %s", mr->handle,
			mr->key, windows, text);
	else
		control_debug("deregister: mr %u (key 0x%x): a peer is inside and does not leave", mr->handle, mr->key);
	return -EBUSY;
}
