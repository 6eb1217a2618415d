/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether the daemon looks for the next request without sleeping first. A client that makes one call after the other has its next
 * one there in a few microseconds, where a wake-up takes tens of them. What looking on brought lately says whether it goes on.
 * Times are monotonic, in ns; all zero is the beginning, for several processors.
 */
#ifndef DAEMON_BURST_H
#define DAEMON_BURST_H

#include <stdbool.h>
#include <stdint.h>

#define BURST_NS     50000u /* about one wake-up */
#define BURST_CREDIT 4u	    /* vain looks in a row that end it */
#define BURST_TRY    16u    /* one request of so many is followed by a look all the same */

struct burst {
	uint64_t until; /* 0: it is not looking on */
	unsigned vain, requests;
	bool looking; /* it did, when it looked last */
	bool never;   /* one processor for all, when the loop was made: whoever looks on keeps the clients from it */
};

/* A request was taken. */
static inline void burst_served(struct burst *burst, uint64_t now)
{
	if (burst->looking)
		burst->vain = 0;
	if (!burst->never && (burst->vain < BURST_CREDIT || ++burst->requests % BURST_TRY == 0))
		burst->until = now + BURST_NS;
}

/* True: the daemon is not to sleep yet. */
static inline bool burst_goes_on(struct burst *burst, uint64_t now)
{
	burst->looking = now < burst->until;
	if (burst->looking || !burst->until)
		return burst->looking;
	burst->until = 0;
	if (burst->vain < BURST_CREDIT)
		burst->vain++;
	return false;
}

#endif
