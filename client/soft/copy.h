/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies to and from program memory. All store the last 8 bytes (or fewer) after the rest, an aligned 8 in one store
 * (programs poll the last byte). In the progress thread they go through process_vm_readv/writev on this process, so
 * that memory which the program unmapped gives -EFAULT, not a signal in a thread that the program does not know.
 */
#ifndef SOFT_COPY_H
#define SOFT_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "client/soft/in_piece.h"

#define COPY_TAIL 8u /* bytes */

int copy_to_program(void *dst, const void *src, size_t n);
int copy_from_program(void *dst, const void *src, size_t n);
/* The same of memory that may not be there (on-demand paging): so in whatever thread, at the price of a system call. */
int copy_to_paged(void *dst, const void *src, size_t n);
int copy_from_paged(void *dst, const void *src, size_t n);
/* memmove(), where processors do it well. */
void copy_plain(void *dst, const void *src, size_t n);
/* The same with the rule about the last bytes. */
void copy_ordered(void *dst, const void *src, size_t n);

/* How many of @n bytes that end at @end go last: the aligned eight that end the range, or what the end has of an unaligned one. */
static inline size_t copy_tail(uintptr_t end, size_t n)
{
	size_t tail = end & (COPY_TAIL - 1);

	if (!tail)
		tail = COPY_TAIL;
	return tail < n ? tail : n;
}

/*
 * The pieces of a WR. The program has just written them, field by field, and they are read in the same way: a processor that is
 * to read two of them at once waits until both have left for its cache.
 */
IN_PIECE void copy_sges(struct ibv_sge *to, const struct ibv_sge *from, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		to[i].addr = __atomic_load_n(&from[i].addr, __ATOMIC_RELAXED);
		to[i].length = __atomic_load_n(&from[i].length, __ATOMIC_RELAXED);
		to[i].lkey = __atomic_load_n(&from[i].lkey, __ATOMIC_RELAXED);
	}
}

/* copy_ordered() where most are one word. */
static inline void copy_word(void *dst, const void *src, size_t n)
{
	uint64_t word;

	if (n != sizeof(word) || (uintptr_t)dst & 7) {
		copy_ordered(dst, src, n);
		return;
	}
	memcpy(&word, src, sizeof(word));
	__atomic_store_n((uint64_t *)dst, word, __ATOMIC_RELEASE);
}

/* memcpy() of a few bytes, without the call. */
IN_PIECE void copy_few(void *dst, const void *src, size_t n)
{
	uint8_t *to = dst;
	const uint8_t *from = src;

	if (n >= 16) {
		for (size_t i = 0; i + 16 < n; i += 16)
			memcpy(to + i, from + i, 16);
		memcpy(to + n - 16, from + n - 16, 16);
	} else if (n >= 8) {
		memcpy(to, from, 8);
		memcpy(to + n - 8, from + n - 8, 8);
	} else if (n >= 4) {
		memcpy(to, from, 4);
		memcpy(to + n - 4, from + n - 4, 4);
	} else if (n) {
		to[0] = from[0];
		to[n / 2] = from[n / 2];
		to[n - 1] = from[n - 1];
	}
}

#define COPY_SHORT 128u

/* copy_ordered() without a call, of what is short and ends with an aligned eight. */
static inline void copy_short(void *dst, const void *src, size_t n)
{
	uint64_t word;

	if (n < sizeof(word) || n > COPY_SHORT || ((uintptr_t)dst + n) & 7) {
		copy_ordered(dst, src, n);
		return;
	}
	n -= sizeof(word);
	copy_few(dst, src, n);
	memcpy(&word, (const uint8_t *)src + n, sizeof(word));
	__atomic_store_n((uint64_t *)(void *)((uint8_t *)dst + n), word, __ATOMIC_RELEASE);
}

#endif
