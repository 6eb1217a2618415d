/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bodies of every request: extreme values in every field, and encodings that protobuf could read but the protocol
 * forbids.
 */
#include "hostile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t extremes[] = {
	0, 1, 2, 3, 4, 7, 9, 10, 12, 0x7f, 0x80, 0xff, 0x100, 0x1000, 0xffff, 0x10000, 0xffffff, 0x1000000, 0x7fffffff,
	0x80000000u, 0xfffffffeu, 0xffffffffu, 0x100000000ull, 0x7fffffffffffffffull, 0x8000000000000000ull,
	0xfffffffffffff000ull, 0xfffffffffffffffeull, 0xffffffffffffffffull,
};

#define EXTREMES (sizeof(extremes) / sizeof(extremes[0]))

/* What is well formed is answered, whatever it asks for. */
static void send_request(struct world *world, const struct operation *operation, ProtobufCMessage *request,
			 const char *field, uint64_t value)
{
	int r = link_call(&world->link, operation->op, request, NULL);

	if (r >= 0 && operation->op != VSD__OP__OP_CONTEXT_CLOSE)
		return;
	if (r < 0 && operation->op != VSD__OP__OP_HELLO)
		complain("%s with %s %#llx: %s", operation->name, field, (unsigned long long)value,
			r == ANSWER_SILENT ? "silence" : "the session ended");
	world_end(world);
	world_make(world);
}

static void extreme_fields(void)
{
	struct world world;

	world_make(&world);
	for (size_t i = 0; i < n_operations; i++) {
		for (unsigned f = 0; f < operations[i].type->n_fields; f++) {
			const ProtobufCFieldDescriptor *field = &operations[i].type->fields[f];

			if (field->type == PROTOBUF_C_TYPE_BYTES || field->type == PROTOBUF_C_TYPE_STRING)
				continue;
			for (size_t v = 0; v < EXTREMES; v++) {
				ProtobufCMessage *request = request_make(&operations[i], &world, v % 2);

				request_set(request, field->name, extremes[v]);
				send_request(&world, &operations[i], request, field->name, extremes[v]);
				request_free(request);
			}
		}
		/* What succeeded would fill tables. */
		world_end(&world);
		world_make(&world);
	}
	world_end(&world);
}

/* All fields at once: extremes, what exists, and noise. */
static void random_fields(void)
{
	struct world world;

	world_make(&world);
	for (unsigned i = 0; i < 8000 * setting.scale; i++) {
		const struct operation *operation = &operations[chance() % n_operations];
		ProtobufCMessage *request = request_make(operation, &world, chance() % 2);

		for (unsigned f = 0; f < operation->type->n_fields; f++) {
			const ProtobufCFieldDescriptor *field = &operation->type->fields[f];
			uint64_t value = chance() % 2 ? extremes[chance() % EXTREMES] : chance() % 16;

			if (field->type == PROTOBUF_C_TYPE_BYTES || field->type == PROTOBUF_C_TYPE_STRING ||
				strcmp(field->name, "context") == 0 || chance() % 3 == 0)
				continue;
			request_set(request, field->name, value);
		}
		send_request(&world, operation, request, "random fields", i);
		request_free(request);
		if (i % 1000 == 999) {
			world_end(&world);
			world_make(&world);
		}
	}
	world_end(&world);
}

static void strings(void)
{
	static const char *const names[] = {
		"", "soft1", "\n", "\r\nverbsd: error: forged", "\x1b[2J\x1b]0;title\a", "\x7f\x80\xff\xfe", "%s%n%x",
		"../../../etc/passwd", "soft0 ", "SOFT0", "\xc3\x28", "\u202esoft0",
	};
	Vsd__ContextOpenRequest request = VSD__CONTEXT_OPEN_REQUEST__INIT;
	char *huge = malloc(4000);
	struct link link;

	memset(huge, 'x', 3999);
	huge[3999] = '\0';
	link_ready(&link);
	for (size_t i = 0; i <= sizeof(names) / sizeof(names[0]); i++) {
		request.device = i < sizeof(names) / sizeof(names[0]) ? (char *)(uintptr_t)names[i] : huge;
		must_be(link_call(&link, VSD__OP__OP_CONTEXT_OPEN, &request.base, NULL), ENODEV, "device '%.40s'",
			request.device);
	}
	link_close(&link);
	free(huge);
}

/* ---- encodings ---- */

struct body {
	uint8_t bytes[VSD_REQUEST_MAX - sizeof(struct frame_header)];
	size_t n;
};

enum fate { EITHER, END };

static void send_body(struct link *link, const struct operation *operation, const struct body *body, enum fate fate,
		      const char *what)
{
	uint8_t frame[VSD_REQUEST_MAX];
	int r;

	link_send(link, frame,
		frame_make(frame, sizeof(frame), (uint16_t)operation->op, ++link->serial, body->bytes, body->n));
	if (fate == END) {
		link_must_end(link, "%s with %s", operation->name, what);
		return;
	}
	r = link_answer(link, NULL);
	if (r == ANSWER_SILENT)
		complain("%s with %s: silence", operation->name, what);
	if (r < 0 || operation->op == VSD__OP__OP_CONTEXT_CLOSE) {
		link_close(link);
		link_ready(link);
	}
}

static void put_varint(struct body *body, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		body->bytes[body->n++] = (uint8_t)(value | 0x80);
	body->bytes[body->n++] = (uint8_t)value;
}

/* The end of the field that starts at @at. */
static size_t field_end(const struct body *body, size_t at)
{
	unsigned type = body->bytes[at] & 7;
	size_t length = 0;

	while (body->bytes[at++] & 0x80)
		;
	for (unsigned shift = 0;; shift += 7) {
		length |= (size_t)(body->bytes[at] & 0x7f) << shift;
		if (!(body->bytes[at++] & 0x80))
			break;
	}
	return type == 2 ? at + length : at;
}

static void body_cut(struct body *body, size_t from, size_t to)
{
	memmove(body->bytes + from, body->bytes + to, body->n - to);
	body->n -= to - from;
}

static void each_field(struct link *link, const struct operation *operation, const struct body *plain)
{
	for (size_t at = 0, end; at < plain->n; at = end) {
		unsigned number = plain->bytes[at] >> 3;
		const ProtobufCFieldDescriptor *field =
			protobuf_c_message_descriptor_get_field(operation->type, number);
		struct body body = *plain;

		end = field_end(plain, at);
		memcpy(body.bytes + body.n, plain->bytes + at, end - at);
		body.n += end - at;
		send_body(link, operation, &body, END, "a field given twice");

		body = *plain;
		body_cut(&body, at, end);
		send_body(link, operation, &body, field->label == PROTOBUF_C_LABEL_REQUIRED ? END : EITHER,
			"a field left out");

		for (unsigned type = 0; type < 8; type++) {
			body = *plain;
			if (type == (plain->bytes[at] & 7u))
				continue;
			body.bytes[at] = (uint8_t)(number << 3 | type);
			/* A boolean may be of any type that says the same in as many bytes. */
			send_body(link, operation, &body, field->type == PROTOBUF_C_TYPE_BOOL ? EITHER : END,
				"another wire type");
		}

		body = *plain;
		body.bytes[end - 1] |= 0x80;
		memmove(body.bytes + end + 1, body.bytes + end, body.n - end);
		body.bytes[end] = 0;
		body.n++;
		if ((plain->bytes[at] & 7) == 0)
			send_body(link, operation, &body, END, "a padded number");
	}
}

static void each_body(struct link *link, const struct operation *operation, const struct body *plain)
{
	static const unsigned numbers[] = { 13, 15, 16, 1000, 19000, 536870911 };
	struct body body;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		body = *plain;
		put_varint(&body, (uint64_t)numbers[i] << 3);
		put_varint(&body, 1);
		send_body(link, operation, &body, END, "an unknown field");
	}
	/* Thousands of empty parts, and parts in parts: groups, and strings that say what the next one's length is. */
	for (unsigned type = 2; type < 5; type++) {
		body = *plain;
		while (body.n + 2 < sizeof(body.bytes)) {
			put_varint(&body, 14u << 3 | type);
			if (type == 2)
				put_varint(&body, 0);
		}
		send_body(link, operation, &body, END, "thousands of empty parts");
	}
	body = *plain;
	while (body.n + 4 < sizeof(body.bytes)) {
		put_varint(&body, 14u << 3 | 2);
		put_varint(&body, sizeof(body.bytes) - body.n - (sizeof(body.bytes) - body.n > 130 ? 2 : 1));
	}
	send_body(link, operation, &body, END, "deep nesting");
	for (size_t cut = 0; cut < plain->n; cut++) {
		body = *plain;
		body.n = cut;
		send_body(link, operation, &body, EITHER, "a body that is cut off");
	}
	memset(body.bytes, 0xff, sizeof(body.bytes));
	body.n = sizeof(body.bytes);
	send_body(link, operation, &body, END, "a body of ff");
	memset(body.bytes, 0, sizeof(body.bytes));
	send_body(link, operation, &body, END, "a body of 00");
}

static void make_body(const struct operation *operation, struct world *world, struct body *body)
{
	ProtobufCMessage *request = request_make(operation, world, true);

	body->n = protobuf_c_message_pack(request, body->bytes);
	request_free(request);
}

static void encodings(void)
{
	struct world world;
	struct link link;
	struct body body;

	world_make(&world);
	link_ready(&link);
	for (size_t i = 0; i < n_operations; i++) {
		/* A second HELLO ends the session whatever it says. */
		if (operations[i].op == VSD__OP__OP_HELLO)
			continue;
		make_body(&operations[i], &world, &body);
		each_field(&link, &operations[i], &body);
		each_body(&link, &operations[i], &body);
	}
	link_close(&link);
	world_end(&world);
}

static void noise(void)
{
	struct world world;
	struct body body;

	world_make(&world);
	for (unsigned i = 0; i < 3000 * setting.scale; i++) {
		const struct operation *operation = &operations[chance() % n_operations];

		make_body(operation, &world, &body);
		for (unsigned n = 1 + (unsigned)chance() % 4; n && body.n; n--)
			body.bytes[chance() % body.n] ^= (uint8_t)(1u << chance() % 8);
		send_body(&world.link, operation, &body, EITHER, "noise");
	}
	world_end(&world);
}

const struct attack attacks_requests[] = {
	{ "extreme_fields", extreme_fields }, { "random_fields", random_fields }, { "strings", strings },
	{ "encodings", encodings },	      { "noise", noise },		  { NULL, NULL },
};
