/* SPDX-License-Identifier: BSD-2-Clause */
/* The program's heap, where it is shared: libverbsd-heap knows which of its memory is in which region. */
#ifndef CLIENT_ABI_HEAP_H
#define CLIENT_ABI_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether [addr, addr+length) is a part of a heap region: its number, and where in it addr is. */
bool abi_heap_find(const void *addr, size_t length, uint32_t *region, uint64_t *offset);

#endif
