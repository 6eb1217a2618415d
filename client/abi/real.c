/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Access to the real library. dlopen by its SONAME and dlvsym: RTLD_NEXT finds nothing where libibverbs came in with a
 * dlopen'ed plugin, and an unversioned lookup would find us.
 */
#include "client/abi/real.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

#include "client/control/control.h"

static _Thread_local unsigned inside;

bool real_inside(void)
{
	return inside > 0;
}

void real_enter(void)
{
	inside++;
}

void real_leave(void)
{
	inside--;
}

static void *handle;

static void handle_open(void)
{
	handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		control_debug("no real libibverbs: %s", dlerror());
}

static char absent; /* the address that a slot holds when there is no such symbol */

void *real_symbol(_Atomic(void *) *slot, const char *name, const char *version)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	void *symbol = *slot;

	if (!symbol) {
		pthread_once(&once, handle_open);
		symbol = handle ? dlvsym(handle, name, version) : NULL;
		*slot = symbol ? symbol : &absent;
	}
	return symbol == &absent ? NULL : symbol;
}
