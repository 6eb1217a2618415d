/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a process counts, has mapped and has open, as others can see it.
 */
#ifndef TESTS_E2E_COUNTED_H
#define TESTS_E2E_COUNTED_H

#include <stdint.h>

#include "proto/ring_abi.h"

/* How many mappings have that name and mode (NULL: any); *@first, if it is given, is where one starts. */
unsigned mappings(const char *name, const char *mode, void **first);
/* As this process publishes it. It has opened a soft device. */
uint64_t counted(enum vsd_counter counter);
/* Its open fds, and the one that is open to look. */
unsigned open_fds(void);

#endif
