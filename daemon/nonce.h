/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nonces of capabilities.
 */
#ifndef DAEMON_NONCE_H
#define DAEMON_NONCE_H

#include <stdint.h>

#include "proto/limits.h"

/* Takes the same time wherever they differ. */
static inline unsigned nonce_differs(
	const uint8_t a[VSD_NONCE_SIZE], const uint8_t b[VSD_NONCE_SIZE])
{
	unsigned differs = 0;

	for (unsigned i = 0; i < VSD_NONCE_SIZE; i++)
		differs |= a[i] ^ b[i];
	return differs;
}

#endif
