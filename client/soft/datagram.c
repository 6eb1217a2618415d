/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams.
 */
#include "client/soft/qp.h"

bool datagram_service(struct wire *wire)
{
	(void)wire;
	return false;
}

void datagram_attached(uint32_t peer, struct wire *wire)
{
	(void)peer;
	(void)wire;
}

void datagram_gone(struct wire *wire)
{
	(void)wire;
}
