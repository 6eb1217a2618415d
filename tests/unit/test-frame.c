/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Framing: what is refused first, what is accepted after it. Bodies are written as bytes, so that no
 * packer of ours can hide what a stranger may send.
 */
#include "proto/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/verbsd.pb-c.h"
#include "tests/lib/harness.h"

#define HELLO (&vsd__hello_request__descriptor)
#define LIST  (&vsd__list_reply__descriptor)

struct body {
	const char *name;
	const ProtobufCMessageDescriptor *type;
	size_t length;
	const char *bytes;
	int want;
};

#define BODY(type, bytes, want, name)                                                             \
	{                                                                                         \
		name, type, sizeof(bytes) - 1, bytes, want                                        \
	}

static const struct body bodies[] = {
	BODY(HELLO, "", -EBADMSG, "required fields absent"),
	BODY(HELLO, "\x08\x01\x10\x01", -EBADMSG, "one required field absent"),
	BODY(HELLO, "\x08\x01\x10\x01\x18", -EBADMSG, "cut before a value"),
	BODY(HELLO, "\x08\x01\x10\x01\x18\x80", -EBADMSG, "cut within a number"),
	BODY(HELLO, "\x08\x01\x10\x01\x18\x00\x20\x00", -EBADMSG, "unknown field"),
	BODY(HELLO, "\x08\x01\x10\x01\x18\x00\x22\x00", -EBADMSG, "unknown empty message"),
	BODY(HELLO, "\x08\x01\x10\x01\x18\x00\x23\x24", -EBADMSG, "group"),
	BODY(HELLO, "\x08\x01\x10\x01\x18\x00\x00\x00", -EBADMSG, "field number 0"),
	BODY(HELLO, "\x08\x01\x10\x01\x18\x00\x18\x00", -EBADMSG, "field given twice"),
	BODY(HELLO, "\x0d\x01\x00\x00\x00\x10\x01\x18\x00", -EBADMSG, "wrong wire type"),
	BODY(HELLO, "\x08\x81\x00\x10\x01\x18\x00", -EBADMSG, "padded number"),
	BODY(HELLO, "\x08\x81\x80\x80\x80\x10\x10\x01\x18\x00", -EBADMSG, "number above 32 bits"),
	BODY(HELLO, "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00\x10\x01\x18\x00",
		-EBADMSG, "number above 64 bits"),
	BODY(HELLO, "\x08\x01\x10\x01\x18\x00", 0, "plain"),
	BODY(HELLO, "\x18\x00\x10\x01\x08\x01", 0, "other order"),
	BODY(&vsd__context_open_request__descriptor, "\x0a\x05soft", -EBADMSG, "string cut"),
	BODY(&vsd__context_open_request__descriptor, "\x0a\xff\xff\xff\xff\x0fsoft", -EBADMSG,
		"string of 4 GiB"),
	BODY(&vsd__context_open_request__descriptor,
		"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01soft", -EBADMSG, "string of 16 EiB"),
	BODY(&vsd__context_open_request__descriptor, "\x0a\x04s\0ft", -EBADMSG, "NUL in a string"),
	BODY(&vsd__context_open_request__descriptor, "\x0a\x04soft", 0, "string"),
	BODY(&vsd__context_attach_request__descriptor, "\x0a\x02\0\0", 0, "bytes may be NUL"),
	BODY(&vsd__empty__descriptor, "\x08\x01", -EBADMSG, "anything in an empty message"),
	BODY(&vsd__empty__descriptor, "", 0, "empty message"),
/* ListReply { items { type = 1 ...; counters { name = "a", value = 1 } } } */
#define ITEM "\x08\x01\x10\x01\x18\x00\x20\x00\x28\x01\x30\x00\x3a\x00\x42\x00\x4a\x00"
	BODY(LIST,
		"\x0a\x1a" ITEM "\xda\x01\x05\x0a\x01"
		"a\x10\x01",
		0, "two levels"),
	BODY(LIST, "\x0a\x13" ITEM "\xda", -EBADMSG, "submessage cut within a tag"),
	BODY(LIST, "\x0a\x15" ITEM "\xf0\x07\x01", -EBADMSG, "unknown field one level down"),
	BODY(LIST,
		"\x0a\x1c" ITEM "\xda\x01\x07\x0a\x01"
		"a\x10\x01\x18\x00",
		-EBADMSG, "unknown field two levels down"),
	BODY(LIST, "\x0a\x00", -EBADMSG, "submessage without its required fields"),
};

#define N_BODIES (int)(sizeof(bodies) / sizeof(bodies[0]))

START_TEST(unpack_accepts_only_plain_bodies)
{
	const struct body *body = &bodies[_i];
	struct frame_arena *arena = malloc(sizeof(*arena));
	/* A copy of its own length, so that ASan sees a read behind its end. */
	uint8_t *bytes = malloc(body->length + !body->length);
	ProtobufCMessage *msg = NULL;

	memcpy(bytes, body->bytes, body->length);
	frame_arena_init(arena);

	int r = frame_unpack(arena, body->type, bytes, body->length, &msg);

	ck_assert_msg(r == body->want, "%s: %d, not %d", body->name, r, body->want);
	ck_assert_msg(!msg == !!r, "%s: message", body->name);
	if (msg)
		ck_assert_ptr_eq(msg->descriptor, body->type);
	free(bytes);
	free(arena);
}
END_TEST

static struct frame_arena arena;

START_TEST(unpack_stops_at_the_arena)
{
	static uint8_t bytes[VSD_REQUEST_MAX];
	ProtobufCMessage *msg = NULL;

	/* Two thousand empty submessages, which cost the heap an allocation each. */
	for (size_t i = 0; i < sizeof(bytes); i += 2)
		bytes[i] = 0x0a;
	frame_arena_init(&arena);
	ck_assert_int_eq(frame_unpack(&arena, &vsd__device_list_reply__descriptor, bytes,
				 sizeof(bytes), &msg),
		-E2BIG);
	ck_assert_ptr_null(msg);
	ck_assert_uint_le(arena.used, sizeof(arena.bytes));
}
END_TEST

START_TEST(arena_is_reset_by_each_use)
{
	ProtobufCMessage *msg;

	frame_arena_init(&arena);
	for (int i = 0; i < 10000; i++) {
		int r = frame_unpack(
			&arena, &vsd__context_open_request__descriptor, "\x0a\x04soft", 6, &msg);

		ck_assert_int_eq(r, 0);
		ck_assert_str_eq(((Vsd__ContextOpenRequest *)msg)->device, "soft");
	}
	ck_assert_uint_lt(arena.used, 256);
}
END_TEST

START_TEST(arena_after_an_overflow_works_again)
{
	static uint8_t bytes[VSD_REQUEST_MAX];
	ProtobufCMessage *msg;

	frame_arena_init(&arena);
	for (size_t i = 0; i < sizeof(bytes); i += 2)
		bytes[i] = 0x0a;
	frame_unpack(&arena, &vsd__device_list_reply__descriptor, bytes, sizeof(bytes), &msg);
	ck_assert_int_eq(frame_unpack(&arena, HELLO, "\x08\x01\x10\x01\x18\x00", 6, &msg), 0);
	/* And what is malformed is not called too big because the one before it was. */
	ck_assert_int_eq(frame_unpack(&arena, HELLO, "\x08", 1, &msg), -EBADMSG);
}
END_TEST

START_TEST(unpack_refuses_a_type_that_nests_without_end)
{
	ProtobufCFieldDescriptor field = vsd__list_reply__descriptor.fields[0];
	ProtobufCMessageDescriptor type = vsd__list_reply__descriptor;
	ProtobufCMessage *msg = NULL;

	field.descriptor = &type;
	type.fields = &field;
	type.n_fields = 1;
	frame_arena_init(&arena);
	ck_assert_int_eq(frame_unpack(&arena, &type, "\x0a\x02\x0a\x00", 4, &msg), -EBADMSG);
	ck_assert_ptr_null(msg);
	ck_assert_uint_eq(arena.used, 0);
}
END_TEST

START_TEST(every_message_of_ours_is_shallow_enough)
{
	static const ProtobufCMessageDescriptor *types[] = { &vsd__ev_change__descriptor,
		&vsd__device_list_reply__descriptor, &vsd__context_reply__descriptor,
		&vsd__list_reply__descriptor };
	ProtobufCMessage *msg;

	frame_arena_init(&arena);
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		/* Refused for its depth, it would not come to the unknown field. */
		int r = frame_unpack(&arena, types[i], "\xf8\x07\x01", 3, &msg);

		ck_assert_int_eq(r, -EBADMSG);
		ck_assert_uint_ne(arena.used, 0);
	}
}
END_TEST

START_TEST(heap_unpack_tolerates_a_newer_daemon)
{
	ProtobufCMessage *msg = NULL;

	ck_assert_int_eq(
		frame_unpack_heap(HELLO, "\x08\x01\x10\x01\x18\x00\xf8\x07\x01", 9, &msg), 0);
	ck_assert_uint_eq(((Vsd__HelloRequest *)msg)->min_version, 1);
	protobuf_c_message_free_unpacked(msg, NULL);
	ck_assert_int_eq(frame_unpack_heap(HELLO, "\x08\x01", 2, &msg), -EBADMSG);
}
END_TEST

static void header_put(uint8_t *buf, uint32_t magic, uint32_t length, uint16_t fds)
{
	struct frame_header header = { .magic = magic,
		.version = 1,
		.opcode = 7,
		.serial = 9,
		.length = length,
		.fds = fds };

	memcpy(buf, &header, sizeof(header));
}

START_TEST(parse_checks_magic_and_lengths)
{
	static const struct {
		const char *name;
		uint32_t magic;
		uint32_t body;
		size_t length;
		uint16_t fds;
		int want;
	} cases[] = {
		{ "nothing", FRAME_MAGIC, 0, 0, 0, -EBADMSG },
		{ "half a header", FRAME_MAGIC, 0, 12, 0, -EBADMSG },
		{ "a byte less than a header", FRAME_MAGIC, 0, 23, 0, -EBADMSG },
		{ "magic", FRAME_MAGIC + 1, 0, 24, 0, -EBADMSG },
		{ "body shorter than said", FRAME_MAGIC, 2, 25, 0, -EBADMSG },
		{ "body longer than said", FRAME_MAGIC, 1, 26, 0, -EBADMSG },
		{ "length that wraps", FRAME_MAGIC, UINT32_MAX, 23, 0, -EBADMSG },
		{ "length of 4 GiB", FRAME_MAGIC, UINT32_MAX, 32, 0, -EBADMSG },
		{ "more fds than may be", FRAME_MAGIC, 0, 24, VSD_FDS_MAX + 1, -EBADMSG },
		{ "empty body", FRAME_MAGIC, 0, 24, 0, 0 },
		{ "as many fds as may be", FRAME_MAGIC, 8, 32, VSD_FDS_MAX, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t *buf = malloc(64), *exact = malloc(cases[i].length + 1);
		struct frame_header header = { .serial = 77 };

		memset(buf, 0, 64);
		header_put(buf, cases[i].magic, cases[i].body, cases[i].fds);
		memcpy(exact, buf, cases[i].length);

		int r = frame_parse(exact, cases[i].length, &header);

		ck_assert_msg(r == cases[i].want, "%s: %d", cases[i].name, r);
		ck_assert_msg(header.serial == (r ? 77 : 9), "%s: header", cases[i].name);
		free(buf);
		free(exact);
	}
}
END_TEST

START_TEST(parse_takes_an_unaligned_buffer)
{
	uint8_t buf[64];
	struct frame_header header;

	header_put(buf + 1, FRAME_MAGIC, 0, 0);
	ck_assert_int_eq(frame_parse(buf + 1, 24, &header), 0);
	ck_assert_uint_eq(header.opcode, 7);
}
END_TEST

START_TEST(pack_refuses_what_does_not_fit)
{
	Vsd__HelloRequest hello = VSD__HELLO_REQUEST__INIT;
	struct frame_header header = { .version = 1 };
	uint8_t buf[30];

	memset(buf, 0xee, sizeof(buf));
	hello.min_version = hello.max_version = 1;
	ck_assert_int_eq(frame_pack(buf, 23, &header, NULL), -EMSGSIZE);
	ck_assert_int_eq(frame_pack(buf, 29, &header, &hello.base), -EMSGSIZE);
	for (size_t i = 0; i < sizeof(buf); i++)
		ck_assert_uint_eq(buf[i], 0xee);
	ck_assert_int_eq(frame_pack(buf, 24, &header, NULL), 24);
	ck_assert_int_eq(frame_pack(buf, 30, &header, &hello.base), 30);
}
END_TEST

START_TEST(pack_writes_magic_and_length_itself)
{
	Vsd__HelloRequest hello = VSD__HELLO_REQUEST__INIT;
	struct frame_header header = {
		.magic = 1, .version = 1, .opcode = 1, .serial = 5, .length = 99
	};
	uint8_t buf[128];
	ProtobufCMessage *msg;

	hello.min_version = 3;
	hello.max_version = UINT32_MAX;
	hello.features = UINT64_MAX;

	int n = frame_pack(buf, sizeof(buf), &header, &hello.base);

	ck_assert_int_eq(frame_parse(buf, (size_t)n, &header), 0);
	ck_assert_uint_eq(header.serial, 5);
	frame_arena_init(&arena);
	ck_assert_int_eq(
		frame_unpack(&arena, HELLO, buf + sizeof(header), header.length, &msg), 0);
	ck_assert_uint_eq(((Vsd__HelloRequest *)msg)->min_version, 3);
	ck_assert_uint_eq(((Vsd__HelloRequest *)msg)->max_version, UINT32_MAX);
	ck_assert_uint_eq(((Vsd__HelloRequest *)msg)->features, UINT64_MAX);
}
END_TEST

START_TEST(pack_refuses_an_answer_above_the_maximum)
{
	size_t size = VSD_ANSWER_MAX + 4096;
	char *name = malloc(size);
	uint8_t *buf = malloc(2 * size);
	Vsd__ContextOpenRequest open = VSD__CONTEXT_OPEN_REQUEST__INIT;
	struct frame_header header = { .version = 1 };

	memset(name, 'a', size);
	name[size - 1] = 0;
	open.device = name;
	ck_assert_int_eq(frame_pack(buf, 2 * size, &header, &open.base), -EMSGSIZE);
	free(buf);
	free(name);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("frame");
	TCase *unpack = harness_tcase(suite, "unpack");
	TCase *header = harness_tcase(suite, "header");
	TCase *pack = harness_tcase(suite, "pack");

	tcase_add_loop_test(unpack, unpack_accepts_only_plain_bodies, 0, N_BODIES);
	tcase_add_test(unpack, unpack_stops_at_the_arena);
	tcase_add_test(unpack, arena_is_reset_by_each_use);
	tcase_add_test(unpack, arena_after_an_overflow_works_again);
	tcase_add_test(unpack, unpack_refuses_a_type_that_nests_without_end);
	tcase_add_test(unpack, every_message_of_ours_is_shallow_enough);
	tcase_add_test(unpack, heap_unpack_tolerates_a_newer_daemon);
	tcase_add_test(header, parse_checks_magic_and_lengths);
	tcase_add_test(header, parse_takes_an_unaligned_buffer);
	tcase_add_test(pack, pack_refuses_what_does_not_fit);
	tcase_add_test(pack, pack_writes_magic_and_length_itself);
	tcase_add_test(pack, pack_refuses_an_answer_above_the_maximum);
	return harness_run(suite);
}
