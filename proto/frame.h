/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames: a fixed header and one protobuf body in one SOCK_SEQPACKET record. Everything is little endian, as is every
 * machine that verbsd runs on (checked at compile time).
 *
 * Packing and unpacking are strict: exact length, known opcode, no unknown fields, bodies unpacked into a caller's
 * fixed arena (a few KiB of hostile submessages must not cost thousands of allocations).
 */
#ifndef PROTO_FRAME_H
#define PROTO_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "proto/limits.h"

#define FRAME_MAGIC 0x31445356u /* "VSD1" */

enum frame_flag {
	FRAME_REPLY = 1, /* an answer: serial is the request's */
	FRAME_EVENT = 2, /* unasked, serial 0 */
};

struct frame_header {
	uint32_t magic;
	uint16_t version;
	uint16_t opcode;
	uint32_t serial;
	uint32_t length; /* of the body */
	uint16_t fds;
	uint16_t flags;	 /* enum frame_flag; a request has none */
	int32_t status;	 /* of a reply: 0 or a positive errno */
};

_Static_assert(sizeof(struct frame_header) == 24, "frame header");

/* A fixed arena for unpacking. One per session or per caller; reset by frame_unpack(). */
struct frame_arena {
	ProtobufCAllocator allocator;
	size_t used, failed;
	_Alignas(16) uint8_t bytes[16384];
};

void frame_arena_init(struct frame_arena *arena);

/*
 * Writes header and body of @msg (NULL: empty body) into @buf. Returns the frame's length, or -EMSGSIZE when @size is
 * too small.
 */
int frame_pack(void *buf, size_t size, const struct frame_header *header, const ProtobufCMessage *msg);

/* Checks a header that came with @length bytes: magic, lengths, fds <= VSD_FDS_MAX. 0, or -EBADMSG. *@header is written
 * on success. */
int frame_parse(const void *buf, size_t length, struct frame_header *header);

/*
 * Unpacks a body into @arena (the message lives until the arena's next use, and is not freed). -EBADMSG for anything
 * that is not exactly one message of that type in its plain encoding: unknown fields (at any depth), fields given
 * twice, padded or cut numbers, strings with a NUL; -E2BIG when the arena is full.
 */
int frame_unpack(struct frame_arena *arena, const ProtobufCMessageDescriptor *type, const void *body, size_t length,
		 ProtobufCMessage **msg);

/* The client's side of the same: unknown fields are tolerated (a newer daemon), memory from malloc; free with
 * protobuf_c_message_free_unpacked(). */
int frame_unpack_heap(const ProtobufCMessageDescriptor *type, const void *body, size_t length, ProtobufCMessage **msg);

#endif
