/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames, packed and unpacked. The daemon unpacks what strangers send: frame_unpack() costs no
 * heap, recurses no deeper than FRAME_DEPTH_MAX, and accepts only what has the length that packing
 * its own result would give.
 */
#include "proto/frame.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "frames are little endian, and so must the machine be"
#endif

/* A type that nests deeper than this is refused; our deepest is EvChange.item.counters. */
#define FRAME_DEPTH_MAX 4

#define ARENA_ALIGN 16

static void *arena_alloc(void *data, size_t size)
{
	struct frame_arena *arena = data;
	size_t left = sizeof(arena->bytes) - arena->used;

	if (size > left || ((size + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1)) > left) {
		arena->failed++;
		return NULL;
	}

	void *bytes = arena->bytes + arena->used;

	arena->used += (size + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
	return bytes;
}

static void arena_free(void *data, void *bytes)
{
}

void frame_arena_init(struct frame_arena *arena)
{
	arena->allocator = (ProtobufCAllocator){
		.alloc = arena_alloc,
		.free = arena_free,
		.allocator_data = arena,
	};
	arena->used = 0;
	arena->failed = 0;
}

int frame_pack(
	void *buf, size_t size, const struct frame_header *header, const ProtobufCMessage *msg)
{
	size_t length = msg ? protobuf_c_message_get_packed_size(msg) : 0;

	if (size < sizeof(*header) || length > size - sizeof(*header) || length > VSD_ANSWER_MAX)
		return -EMSGSIZE;

	struct frame_header out = *header;

	out.magic = FRAME_MAGIC;
	out.length = (uint32_t)length;
	memcpy(buf, &out, sizeof(out));
	if (msg)
		protobuf_c_message_pack(msg, (uint8_t *)buf + sizeof(out));
	return (int)(sizeof(out) + length);
}

int frame_parse(const void *buf, size_t length, struct frame_header *header)
{
	struct frame_header in;

	if (length < sizeof(in))
		return -EBADMSG;
	memcpy(&in, buf, sizeof(in));
	if (in.magic != FRAME_MAGIC || in.length != length - sizeof(in) || in.fds > VSD_FDS_MAX)
		return -EBADMSG;
	*header = in;
	return 0;
}

/* Unpacking recurses as deep as the type does, so the type is looked at before the body is. */
static bool type_is_shallow(const ProtobufCMessageDescriptor *type, unsigned depth)
{
	if (depth == 0)
		return false;
	for (unsigned i = 0; i < type->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &type->fields[i];

		if (field->type == PROTOBUF_C_TYPE_MESSAGE &&
			!type_is_shallow(field->descriptor, depth - 1))
			return false;
	}
	return true;
}

static bool message_is_known(const ProtobufCMessage *msg);

static bool field_is_known(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *field)
{
	const void *member = (const uint8_t *)msg + field->offset;

	if (field->label != PROTOBUF_C_LABEL_REPEATED) {
		const ProtobufCMessage *sub = *(ProtobufCMessage *const *)member;

		return !sub || message_is_known(sub);
	}

	size_t n = *(const size_t *)((const uint8_t *)msg + field->quantifier_offset);
	ProtobufCMessage *const *subs = *(ProtobufCMessage *const *const *)member;

	for (size_t i = 0; i < n; i++)
		if (!message_is_known(subs[i]))
			return false;
	return true;
}

static bool message_is_known(const ProtobufCMessage *msg)
{
	if (msg->n_unknown_fields)
		return false;
	for (unsigned i = 0; i < msg->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &msg->descriptor->fields[i];

		if (field->type == PROTOBUF_C_TYPE_MESSAGE && !field_is_known(msg, field))
			return false;
	}
	return true;
}

int frame_unpack(struct frame_arena *arena, const ProtobufCMessageDescriptor *type,
	const void *body, size_t length, ProtobufCMessage **msg)
{
	arena->used = 0;
	arena->failed = 0;
	if (!type_is_shallow(type, FRAME_DEPTH_MAX))
		return -EBADMSG;

	ProtobufCMessage *in = protobuf_c_message_unpack(type, &arena->allocator, length, body);

	if (!in)
		return arena->failed ? -E2BIG : -EBADMSG;
	/*
	 * What packs to another length was not the plain encoding: a field given twice, a number
	 * that was cut to 32 bits or padded, a string with a NUL in it.
	 */
	if (!message_is_known(in) || protobuf_c_message_get_packed_size(in) != length)
		return -EBADMSG;
	*msg = in;
	return 0;
}

int frame_unpack_heap(const ProtobufCMessageDescriptor *type, const void *body, size_t length,
	ProtobufCMessage **msg)
{
	ProtobufCMessage *in = protobuf_c_message_unpack(type, NULL, length, body);

	if (!in)
		return -EBADMSG;
	*msg = in;
	return 0;
}
