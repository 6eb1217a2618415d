/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fork. On the soft device nothing needs protection: registered pages are only touched through their owner's address
 * space. A program that asks for it has it all the same, as ibv_fork_init(3) says. Real devices may need it: the real
 * library is told, but what it registers is tracked here, since it calls ibv_dontfork_range() through its PLT.
 */
#include "client/abi/abi.h"

#include <sched.h>
#include <stdlib.h>

#include "client/soft/dontfork.h"

enum { UNASKED, ASKING, ASKED };

static _Atomic int environment;	 /* whether it was looked at */
static _Atomic bool real_unsafe; /* what real devices have is to be kept from children */

static void forget(void)
{
	abi_buffer_in_child();
	abi_child_in_child();
	abi_context_in_child();
	abi_device_in_child();
	abi_file_in_child();
	abi_region_in_child();
	if (environment == ASKING)
		environment = UNASKED;
}

static void prepare(void)
{
	abi_device_prepare();
	abi_file_prepare();
}

static void parent(void)
{
	abi_file_parent();
	abi_device_parent();
}

static void child(void)
{
	abi_file_child();
	abi_device_in_child();
}

static const struct process_hooks abi_hooks = { prepare, parent, child, forget };

void abi_enter(void)
{
	if (process_enter() == 0)
		process_hooks_add(&abi_hooks);
}

/* --- asking for it ------------------------------------------------------------------------------------------------- */

static int start(void)
{
	int r;

	if (dontfork_on())
		return 0;
	/* Too late: what is registered already would stay unprotected. */
	if (dontfork_late())
		return EINVAL;
	r = REAL_INT(0, ibv_fork_init, "IBVERBS_1.1");
	if (r)
		return r;
	/* A kernel that copies such pages at fork has nothing to be kept from children. */
	real_unsafe = REAL_INT(IBV_FORK_ENABLED, ibv_is_fork_initialized, "IBVERBS_1.13") != IBV_FORK_UNNEEDED;
	return -dontfork_start();
}

VERBS_API int ibv_fork_init(void)
{
	if (real_deferred())
		return REAL_INT(ENOSYS, ibv_fork_init, "IBVERBS_1.1");
	abi_enter();
	return process_borrowed() ? ABI_CHILD_ERRNO : start();
}

void abi_first_use(void)
{
	int unasked = UNASKED;

	abi_enter();
	if (environment == ASKED)
		return;
	if (!atomic_compare_exchange_strong(&environment, &unasked, ASKING)) {
		/* Nobody registers before it is decided; the thread that decides may come back here from the real library. */
		while (environment == ASKING && !real_inside())
			sched_yield();
		return;
	}
	if (getenv("RDMAV_FORK_SAFE") || getenv("IBV_FORK_SAFE")) {
		int r = ibv_fork_init();

		if (r)
			control_debug("RDMAV_FORK_SAFE: %s", strerror(r));
	}
	environment = ASKED;
}

VERBS_API enum ibv_fork_status ibv_is_fork_initialized(void)
{
	if (!real_deferred() && !real_inside() && !abi_real_devices())
		return IBV_FORK_UNNEEDED;
	return REAL_INT(IBV_FORK_UNNEEDED, ibv_is_fork_initialized, "IBVERBS_1.13");
}

/* --- what the real library registers ------------------------------------------------------------------------------- */

/* Of its interface to its providers, so in none of the installed headers. */
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);

VERBS_API int ibv_dontfork_range(void *base, size_t size)
{
	if (real_deferred())
		return REAL_INT(0, ibv_dontfork_range, "IBVERBS_1.1", base, size);
	abi_enter();
	if (dontfork_on() && !real_unsafe)
		return 0;
	return abi_errno(dontfork_take_real(base, size));
}

VERBS_API int ibv_dofork_range(void *base, size_t size)
{
	if (real_deferred())
		return REAL_INT(0, ibv_dofork_range, "IBVERBS_1.1", base, size);
	abi_enter();
	return abi_errno(dontfork_put_real(base, size));
}
