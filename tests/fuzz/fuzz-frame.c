/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a stranger's record meets first: frame_parse(), then frame_unpack() as the request that its opcode
 * names. The frame of an accepted request, packed again and unpacked again, must say the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/frame.h"
#include "proto/verbsd.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* By opcode. Event and answer types are here too: they nest, which requests do not. */
static const ProtobufCMessageDescriptor *const types[256] = {
	[VSD__OP__OP_HELLO] = &vsd__hello_request__descriptor,
	[VSD__OP__OP_JOIN] = &vsd__empty__descriptor,
	[VSD__OP__OP_DEVICE_LIST] = &vsd__empty__descriptor,
	[VSD__OP__OP_CONTEXT_OPEN] = &vsd__context_open_request__descriptor,
	[VSD__OP__OP_CONTEXT_ATTACH] = &vsd__context_attach_request__descriptor,
	[VSD__OP__OP_CONTEXT_CLOSE] = &vsd__context_close_request__descriptor,
	[VSD__OP__OP_LEASE] = &vsd__lease_request__descriptor,
	[VSD__OP__OP_SEGMENT_GET] = &vsd__segment_get_request__descriptor,
	[VSD__OP__OP_WIRE_RELEASE] = &vsd__wire_release_request__descriptor,
	[VSD__OP__OP_PEER_RESOLVE] = &vsd__peer_resolve_request__descriptor,
	[VSD__OP__OP_PD_ALLOC] = &vsd__pd_alloc_request__descriptor,
	[VSD__OP__OP_TD_ALLOC] = &vsd__td_alloc_request__descriptor,
	[VSD__OP__OP_PARENT_DOMAIN_ALLOC] = &vsd__parent_domain_alloc_request__descriptor,
	[VSD__OP__OP_MR_REG] = &vsd__mr_reg_request__descriptor,
	[VSD__OP__OP_MR_REREG] = &vsd__mr_rereg_request__descriptor,
	[VSD__OP__OP_CQ_CREATE] = &vsd__cq_create_request__descriptor,
	[VSD__OP__OP_CQ_RESIZE] = &vsd__cq_resize_request__descriptor,
	[VSD__OP__OP_SRQ_CREATE] = &vsd__srq_create_request__descriptor,
	[VSD__OP__OP_SRQ_MODIFY] = &vsd__srq_modify_request__descriptor,
	[VSD__OP__OP_QP_CREATE] = &vsd__qp_create_request__descriptor,
	[VSD__OP__OP_QP_MODIFY] = &vsd__qp_modify_request__descriptor,
	[VSD__OP__OP_AH_CREATE] = &vsd__ah_create_request__descriptor,
	[VSD__OP__OP_MW_ALLOC] = &vsd__mw_alloc_request__descriptor,
	[VSD__OP__OP_DESTROY] = &vsd__destroy_request__descriptor,
	[VSD__OP__OP_MCAST_ATTACH] = &vsd__mcast_request__descriptor,
	[VSD__OP__OP_MCAST_DETACH] = &vsd__mcast_request__descriptor,
	[VSD__OP__OP_MCAST_RESOLVE] = &vsd__mcast_resolve_request__descriptor,
	[VSD__OP__OP_REGION_CREATE] = &vsd__region_create_request__descriptor,
	[VSD__OP__OP_REGION_EXPORT] = &vsd__region_export_request__descriptor,
	[VSD__OP__OP_REGION_IMPORT] = &vsd__region_import_request__descriptor,
	[VSD__OP__OP_REGION_PERSIST] = &vsd__region_persist_request__descriptor,
	[VSD__OP__OP_REGION_RELEASE] = &vsd__region_release_request__descriptor,
	[VSD__OP__OP_REGION_GRANT] = &vsd__region_grant_request__descriptor,
	[VSD__OP__OP_HEAP_CREATE] = &vsd__heap_create_request__descriptor,
	[VSD__OP__OP_HEAP_DESTROY] = &vsd__heap_destroy_request__descriptor,
	[VSD__OP__OP_PD_IMPORT] = &vsd__pd_import_request__descriptor,
	[VSD__OP__OP_MR_IMPORT] = &vsd__mr_import_request__descriptor,
	[VSD__OP__OP_NATIVE_OPEN] = &vsd__native_open_request__descriptor,
	[VSD__OP__OP_NATIVE_CLOSE] = &vsd__native_close_request__descriptor,
	[VSD__OP__OP_STATUS] = &vsd__empty__descriptor,
	[VSD__OP__OP_LIST] = &vsd__list_request__descriptor,
	[VSD__OP__OP_WATCH] = &vsd__empty__descriptor,
	[VSD__OP__OP_RELOAD] = &vsd__empty__descriptor,
	[VSD__OP__OP_DISCONNECT] = &vsd__disconnect_request__descriptor,
	[VSD__OP__EV_CHANGE] = &vsd__ev_change__descriptor,
	[254] = &vsd__device_list_reply__descriptor,
	[255] = &vsd__list_reply__descriptor,
};

static struct frame_arena arena, again;

static void require(int holds)
{
	if (!holds)
		abort();
}

static void frame_repeat(const struct frame_header *header, const ProtobufCMessage *msg)
{
	static uint8_t first[VSD_REQUEST_MAX], second[VSD_REQUEST_MAX];
	struct frame_header parsed;
	ProtobufCMessage *copy;
	int n = frame_pack(first, sizeof(first), header, msg);

	require(n == (int)(sizeof(*header) + header->length));
	require(frame_parse(first, (size_t)n, &parsed) == 0);
	require(frame_unpack(&again, msg->descriptor, first + sizeof(parsed), parsed.length,
			&copy) == 0);
	require(frame_pack(second, sizeof(second), &parsed, copy) == n);
	require(memcmp(first, second, (size_t)n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct frame_header header;
	ProtobufCMessage *msg;

	if (size > VSD_REQUEST_MAX || frame_parse(data, size, &header) < 0)
		return 0;
	if (header.opcode >= 256 || !types[header.opcode])
		return 0;
	if (!arena.allocator.alloc) {
		frame_arena_init(&arena);
		frame_arena_init(&again);
	}

	int r = frame_unpack(
		&arena, types[header.opcode], data + sizeof(header), header.length, &msg);

	require(arena.used <= sizeof(arena.bytes));
	if (r == 0)
		frame_repeat(&header, msg);
	return 0;
}
