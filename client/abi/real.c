/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Access to the real library. dlopen by its SONAME and dlvsym: RTLD_NEXT finds nothing where libibverbs came in with a
 * dlopen'ed plugin, and an unversioned lookup would find us. Where that SONAME is our own, the file is looked for.
 *
 * A process may have this library twice, in both of its forms: linked with -lverbsd, say, and with a plugin that opens
 * libibverbs. One of them serves it, the one that was used first; for the other that one is the real library, and it
 * gives out no object of its own.
 */
#include "client/abi/real.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "client/control/control.h"

#define SONAME "libibverbs.so.1"

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

static char absent; /* its address stands for what is not there, where NULL says that nobody has looked */

static _Atomic(void *) handle;
static _Atomic bool deferred;
static _Atomic(uintptr_t) owner; /* 0, or the address of the owner's own such word */

/* Where another copy of this library looks. Its address, not a variable's: that one would be resolved to one of many. */
__attribute__((visibility("default"))) _Atomic(uintptr_t) *verbsd_owner(void);

_Atomic(uintptr_t) *verbsd_owner(void)
{
	return &owner;
}

static _Atomic(uintptr_t) *owner_of(void *library)
{
	void *symbol = library ? dlsym(library, "verbsd_owner") : NULL;

	return symbol ? ((__typeof__(&verbsd_owner))symbol)() : NULL;
}

/* The other copy, if there is one, and *@word its word. */
static void *sibling_open(_Atomic(uintptr_t) **word)
{
	static const char *const names[] = { "libverbsd.so.1", SONAME };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);

		*word = owner_of(library);
		if (*word && *word != &owner)
			return library;
		if (library)
			dlclose(library);
	}
	return NULL;
}

/* Whether this copy is the one that serves the process. Of two that ask at once the lower word decides. */
static bool owner_claim(_Atomic(uintptr_t) *other)
{
	uintptr_t mine = (uintptr_t)&owner, none = 0;
	_Atomic(uintptr_t) *word = other < &owner ? other : &owner;

	if (*other == (uintptr_t)other)
		return false;
	if (!atomic_compare_exchange_strong(word, &none, mine) && none != mine)
		return false;
	owner = mine;
	return true;
}

static bool file_try(const char *path, void *arg)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (library && !owner_of(library)) {
		*(void **)arg = library;
		return true;
	}
	if (library)
		dlclose(library);
	return false;
}

static void *handle_open(void)
{
	_Atomic(uintptr_t) *word = NULL;
	void *library = sibling_open(&word);

	if (library && !owner_claim(word)) {
		control_debug("another copy of this library serves the process");
		deferred = true;
		return library;
	}
	owner = (uintptr_t)&owner;
	library = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
	if (library && owner_of(library)) {
		dlclose(library);
		library = NULL;
		real_find(SONAME, file_try, &library);
	}
	if (!library)
		control_debug("no real libibverbs");
	return library;
}

/*
 * No lock is held while the dynamic linker is called: it has one of its own, and constructors that run under that (of
 * providers, which register themselves) come here. So two threads may both look; they find the same.
 */
static void *handle_get(void)
{
	void *found = handle, *none = NULL;

	if (!found) {
		found = handle_open();
		if (!found)
			found = &absent;
		if (!atomic_compare_exchange_strong(&handle, &none, found)) {
			if (found != &absent)
				dlclose(found);
			found = none;
		}
	}
	return found == &absent ? NULL : found;
}

bool real_deferred(void)
{
	handle_get();
	return deferred;
}

void *(*real_instead)(const char *name);

void *real_symbol(_Atomic(void *) *slot, const char *name, const char *version)
{
	void *symbol = *slot;

	if (real_instead)
		return real_instead(name);
	if (!symbol) {
		void *library = handle_get();

		symbol = library ? dlvsym(library, name, version) : NULL;
		/* The form that is preloaded has no versions. */
		if (!symbol && library && deferred)
			symbol = dlsym(library, name);
		*slot = symbol ? symbol : &absent;
	}
	return symbol == &absent ? NULL : symbol;
}
