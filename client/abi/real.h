/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The real libibverbs, opened on first need. While a thread is inside it, what it calls of its own exports comes to us
 * (they go through its PLT) and must act as its own would: real_inside() says so.
 */
#ifndef CLIENT_ABI_REAL_H
#define CLIENT_ABI_REAL_H

#include <stdbool.h>

/* Another copy of this library serves this process: everything goes there. */
bool real_deferred(void);

bool real_inside(void);
void real_enter(void);
void real_leave(void);

/*
 * Calls @use with each file of that name, in the order in which the dynamic linker would look for it, until it returns
 * true.
 */
void real_find(const char *name, bool (*use)(const char *path, void *arg), void *arg);

/* What tests have in its place; NULL otherwise. */
extern void *(*real_instead)(const char *name);

/* The symbol, cached in *@slot, or NULL when there is no real library or it is older than the symbol. */
void *real_symbol(_Atomic(void *) *slot, const char *name, const char *version);

/* The real function's result, or @fallback when there is none. */
#define REAL_INT(fallback, name, version, ...)                                                    \
	({                                                                                        \
		static _Atomic(void *) slot_##name;                                               \
		__typeof__(&name) real_##name = real_symbol(&slot_##name, #name, version);        \
		__typeof__(name(__VA_ARGS__)) real_result;                                        \
		if (real_##name) {                                                                \
			real_enter();                                                             \
			real_result = real_##name(__VA_ARGS__);                                   \
			real_leave();                                                             \
		} else {                                                                          \
			real_result = fallback;                                                   \
		}                                                                                 \
		real_result;                                                                      \
	})

#define REAL_PTR(name, version, ...) REAL_INT(abi_null(EOPNOTSUPP), name, version, __VA_ARGS__)

#define REAL_VOID(name, version, ...)                                                             \
	do {                                                                                      \
		static _Atomic(void *) slot_##name;                                               \
		__typeof__(&name) real_##name = real_symbol(&slot_##name, #name, version);        \
		if (real_##name) {                                                                \
			real_enter();                                                             \
			real_##name(__VA_ARGS__);                                                 \
			real_leave();                                                             \
		}                                                                                 \
	} while (0)

#endif
