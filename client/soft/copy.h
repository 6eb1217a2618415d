/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies to and from program memory. All store the last 8 bytes (or fewer) after the rest, an aligned 8 in one store
 * (programs poll the last byte). In the progress thread they go through process_vm_readv/writev on this process, so
 * that memory which the program unmapped gives -EFAULT, not a signal in a thread that the program does not know.
 */
#ifndef SOFT_COPY_H
#define SOFT_COPY_H

#include <stddef.h>

int copy_to_program(void *dst, const void *src, size_t n);
int copy_from_program(void *dst, const void *src, size_t n);
/* The same of memory that may not be there (on-demand paging): so in whatever thread, at the price of a system call. */
int copy_to_paged(void *dst, const void *src, size_t n);
int copy_from_paged(void *dst, const void *src, size_t n);
/* The plain copy with the rule about the last bytes. */
void copy_ordered(void *dst, const void *src, size_t n);

#endif
