/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fork. On the soft device nothing needs protection: registered pages are only touched through their owner's address
 * space. A program that asks for protection gets the documented answers, and the real library is asked as well, since
 * its devices may need it. It keeps the ranges: it calls ibv_dontfork_range() through its PLT, that is, here.
 */
#include "client/abi/abi.h"

static void forget(void)
{
	abi_buffer_in_child();
	abi_context_in_child();
	abi_device_in_child();
	abi_mr_in_child();
	abi_region_in_child();
}

static const struct process_hooks abi_hooks = { .forget = forget };

void abi_enter(void)
{
	if (process_enter() == 0)
		process_hooks_add(&abi_hooks);
}

static _Atomic bool asked;

VERBS_API int ibv_fork_init(void)
{
	if (real_deferred())
		return REAL_INT(ENOSYS, ibv_fork_init, "IBVERBS_1.1");
	if (asked)
		return 0;
	/* Too late: what is registered already would stay unprotected. */
	if (abi_mr_ever())
		return EINVAL;

	int r = REAL_INT(0, ibv_fork_init, "IBVERBS_1.1");

	if (r == 0)
		asked = true;
	return r;
}

VERBS_API enum ibv_fork_status ibv_is_fork_initialized(void)
{
	if (!abi_real_devices() && !real_inside() && !real_deferred())
		return IBV_FORK_UNNEEDED;
	return REAL_INT(IBV_FORK_UNNEEDED, ibv_is_fork_initialized, "IBVERBS_1.13");
}

/* Of the real library's interface to its providers, so in none of the installed headers. */
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);

VERBS_API int ibv_dontfork_range(void *base, size_t size)
{
	return REAL_INT(0, ibv_dontfork_range, "IBVERBS_1.1", base, size);
}

VERBS_API int ibv_dofork_range(void *base, size_t size)
{
	return REAL_INT(0, ibv_dofork_range, "IBVERBS_1.1", base, size);
}
