/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens libibverbs as NCCL does: by its name without a number first, then with one; each symbol under its version. */
#ifndef TESTS_E2E_FORMS_OPEN_H
#define TESTS_E2E_FORMS_OPEN_H

#include <dlfcn.h>

#include "forms_talk.h"

static inline int calls_open(struct calls *calls)
{
	void *library = dlopen("libibverbs.so", RTLD_NOW);

	if (!library)
		library = dlopen("libibverbs.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
#define CALL(name, version)                                                                                           \
	calls->name = (__typeof__(&name))dlvsym(library, #name, version);                                             \
	if (!calls->name) {                                                                                           \
		fprintf(stderr, "%s\n", dlerror());                                                                   \
		return 1;                                                                                             \
	}
	CALLS(CALL)
#undef CALL
	return 0;
}

#endif
