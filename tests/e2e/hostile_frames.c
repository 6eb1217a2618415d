/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames that are none, and frames at the wrong time.
 */
#include "hostile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* ---- the header ---- */

static void headers(void)
{
	static const struct {
		const char *name;
		size_t at, size;
	} fields[] = {
		{ "magic", offsetof(struct frame_header, magic), 4 },
		{ "version", offsetof(struct frame_header, version), 2 },
		{ "length", offsetof(struct frame_header, length), 4 },
		{ "fds", offsetof(struct frame_header, fds), 2 },
		{ "flags", offsetof(struct frame_header, flags), 2 },
		{ "status", offsetof(struct frame_header, status), 4 },
	};
	static const uint64_t values[] = { 0, 1, 2, 3, 5, 0x7f, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000u,
					   0xffffffffu, 0x56534431 };
	struct frame_header plain;
	uint8_t frame[64], bad[64];
	struct link link;
	size_t n;

	link_ready(&link);
	n = frame_make(frame, sizeof(frame), VSD__OP__OP_DEVICE_LIST, 7, NULL, 0);
	memcpy(&plain, frame, sizeof(plain));
	for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
		for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
			memcpy(bad, frame, n);
			memcpy(bad + fields[f].at, &values[v], fields[f].size);
			if (memcmp(bad, frame, n) == 0)
				continue;
			link_send(&link, bad, n);
			link_must_end(&link, "header with %s %#llx", fields[f].name, (unsigned long long)values[v]);
		}
	}
	link_close(&link);
}

static void truncated(void)
{
	uint8_t frame[VSD_REQUEST_MAX];
	struct world world;
	struct link link;

	world_make(&world);
	link_ready(&link);
	for (size_t i = 0; i < n_operations; i++) {
		ProtobufCMessage *request = request_make(&operations[i], &world, true);
		struct frame_header header = { .version = 1, .opcode = (uint16_t)operations[i].op };
		size_t n = (size_t)frame_pack(frame, sizeof(frame), &header, request);

		/* The header says more than there is, and less. An empty record is the end of the stream. */
		for (size_t cut = 0; cut < n; cut++) {
			link_send(&link, frame, cut);
			link_must_end(&link, "%s of %zu bytes cut to %zu", operations[i].name, n, cut);
		}
		memset(frame + n, 0, 16);
		for (size_t more = 1; more <= 16; more++) {
			link_send(&link, frame, n + more);
			link_must_end(&link, "%s with %zu bytes more than it says", operations[i].name, more);
		}
		request_free(request);
	}
	link_close(&link);
	world_end(&world);
}

static void oversized(void)
{
	static const size_t sizes[] = { VSD_REQUEST_MAX + 1, 8192, 65536, 200 << 10 };
	uint8_t *frame = calloc(1, 200 << 10);
	int buffer = 512 << 10;
	struct link link;

	for (unsigned state = 0; state < 2; state++) {
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			size_t body = sizes[i] - sizeof(struct frame_header);
			/* An unknown field of that size, so that the length is the only thing wrong. */
			uint8_t *bytes = calloc(1, body);

			if (state == 0)
				link_open(&link);
			else
				link_ready(&link);
			setsockopt(link.fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
			frame_make(frame, 200 << 10, VSD__OP__OP_HELLO, 1, bytes, body);
			if (link_send(&link, frame, sizes[i])) {
				must_be(link_answer(&link, NULL), ANSWER_ENDED, "a frame of %zu bytes", sizes[i]);
				count("oversized");
			}
			link_close(&link);
			free(bytes);
		}
	}
	free(frame);
}

/* ---- opcodes, serials, states ---- */

static bool is_operation(unsigned op)
{
	for (size_t i = 0; i < n_operations; i++)
		if (operations[i].op == op)
			return true;
	return false;
}

static void opcodes(void)
{
	uint8_t frame[64];
	struct link link;

	link_ready(&link);
	for (unsigned i = 0; i < 1024 + 256 * setting.scale; i++) {
		unsigned op = i < 512 ? i : (unsigned)chance() & 0xffff;

		if (is_operation(op))
			continue;
		link_send(&link, frame, frame_make(frame, sizeof(frame), (uint16_t)op, i, NULL, 0));
		link_must_end(&link, "opcode %u", op);
	}
	link_close(&link);
}

static void serials(void)
{
	static const uint32_t numbers[] = { 5, 5, 5, 0, 0xffffffffu, 0xffffffffu, 1, 0x80000000u, 0 };
	uint8_t frame[64];
	struct link link;

	/* A serial means nothing to the daemon: it comes back. */
	link_ready(&link);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		link_send(&link, frame,
			frame_make(frame, sizeof(frame), VSD__OP__OP_DEVICE_LIST, numbers[i], NULL, 0));
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		must_be(link_answer(&link, &vsd__device_list_reply__descriptor), 0, "serial %u", numbers[i]);
		if (link.header.serial != numbers[i])
			complain("answer to serial %u has %u", numbers[i], link.header.serial);
	}
	link_close(&link);
}

static void in_state(const struct operation *operation, unsigned joined, bool admin, struct world *world, int expected)
{
	ProtobufCMessage *request = request_make(operation, world, true);
	struct link link;

	link_open_at(&link, admin ? setting.admin : setting.socket);
	if (joined > 0)
		link_hello(&link);
	if (joined > 1)
		link_join(&link);
	must_be(link_call(&link, operation->op, request, NULL), expected, "%s in state %u%s", operation->name, joined,
		admin ? " on the admin socket" : "");
	if (expected >= 0)
		must_be(link_call(&link, VSD__OP__OP_DEVICE_LIST, NULL, NULL), 0, "the request after %s in state %u",
			operation->name, joined);
	link_close(&link);
	request_free(request);
}

static bool is_plain(unsigned op)
{
	return op == VSD__OP__OP_DEVICE_LIST || op == VSD__OP__OP_REGION_RELEASE || op == VSD__OP__OP_DEVICE_COUNTERS ||
	       (op >= VSD__OP__OP_STATUS && op < VSD__OP__OP_RELOAD);
}

/* What a process that never joins may ask, but not an administrator. */
static bool needs_no_process(unsigned op)
{
	switch (op) {
	case VSD__OP__OP_NATIVE_OPEN:
	case VSD__OP__OP_NATIVE_CLOSE:
	case VSD__OP__OP_NATIVE_WAIT:
	case VSD__OP__OP_NATIVE_REGION:
	case VSD__OP__OP_NATIVE_REG:
	case VSD__OP__OP_NATIVE_RELEASE:
	case VSD__OP__OP_NATIVE_DOMAIN:
	case VSD__OP__OP_REGION_EXPORT:
	case VSD__OP__OP_REGION_PERSIST:
	case VSD__OP__OP_REGION_QUERY:
	case VSD__OP__OP_HEAP_CREATE:
	case VSD__OP__OP_HEAP_DESTROY:
		return true;
	default:
		return false;
	}
}

static void states(void)
{
	struct world world;

	world_make(&world);
	for (size_t i = 0; i < n_operations; i++) {
		const struct operation *operation = &operations[i];
		bool admin = operation->op >= VSD__OP__OP_RELOAD;

		if (operation->op != VSD__OP__OP_HELLO)
			in_state(operation, 0, false, &world, ANSWER_ENDED);
		if (operation->op != VSD__OP__OP_HELLO)
			in_state(operation, 0, true, &world, ANSWER_ENDED);
		if (is_plain(operation->op))
			continue;
		if (operation->op == VSD__OP__OP_HELLO) {
			in_state(operation, 1, false, &world, ANSWER_ENDED);
			in_state(operation, 2, false, &world, ANSWER_ENDED);
		} else if (operation->op == VSD__OP__OP_JOIN) {
			in_state(operation, 2, false, &world, EALREADY);
			in_state(operation, 1, true, &world, EPERM);
		} else if (needs_no_process(operation->op)) {
			in_state(operation, 1, true, &world, EPERM);
		} else if (admin) {
			in_state(operation, 1, false, &world, EPERM);
			in_state(operation, 2, false, &world, EPERM);
		} else {
			in_state(operation, 1, false, &world, ENOTCONN);
			in_state(operation, 1, true, &world, ENOTCONN);
		}
	}
	world_end(&world);
}

static void versions(void)
{
	static const uint32_t ranges[][2] = { { 0, 0 }, { 2, 9 }, { 0xffffffffu, 0xffffffffu }, { 2, 0xffffffffu } };
	Vsd__HelloRequest request = VSD__HELLO_REQUEST__INIT;
	struct link link;

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		link_open(&link);
		request.min_version = ranges[i][0];
		request.max_version = ranges[i][1];
		must_be(link_call(&link, VSD__OP__OP_HELLO, &request.base, NULL), EPROTONOSUPPORT,
			"HELLO for versions %u to %u", ranges[i][0], ranges[i][1]);
		must_be(link_answer(&link, NULL), ANSWER_ENDED, "after a HELLO without a common version");
		link_close(&link);
	}
	link_open(&link);
	request.min_version = 5;
	request.max_version = 0;
	must_be(link_call(&link, VSD__OP__OP_HELLO, &request.base, NULL), EINVAL, "HELLO for versions 5 to 0");
	link_close(&link);
}

/* Answers and events of the daemon, sent to it. */
static void backwards(void)
{
	static const ProtobufCMessageDescriptor *const types[] = {
		&vsd__join_reply__descriptor, &vsd__object_reply__descriptor, &vsd__ev_segment__descriptor,
		&vsd__ev_wire__descriptor, &vsd__ev_wire_gone__descriptor, &vsd__ev_peer_gone__descriptor,
	};
	uint8_t frame[VSD_REQUEST_MAX];
	struct world world;
	struct link link;

	world_make(&world);
	link_ready(&link);
	for (unsigned flags = 1; flags < 4; flags++) {
		for (size_t i = 0; i < n_operations; i++) {
			ProtobufCMessage *request = request_make(&operations[i], &world, false);
			struct frame_header header = {
				.version = 1, .opcode = (uint16_t)operations[i].op, .flags = (uint16_t)flags };

			link_send(&link, frame, (size_t)frame_pack(frame, sizeof(frame), &header, request));
			link_must_end(&link, "%s with flags %u", operations[i].name, flags);
			request_free(request);
		}
	}
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		for (unsigned op = VSD__OP__EV_SEGMENT; op <= VSD__OP__EV_CHANGE; op++) {
			struct operation operation = { op, "event", types[i] };
			ProtobufCMessage *event = request_make(&operation, &world, true);
			struct frame_header header = { .version = 1, .opcode = (uint16_t)op, .flags = FRAME_EVENT };

			link_send(&link, frame, (size_t)frame_pack(frame, sizeof(frame), &header, event));
			link_must_end(&link, "event %u", op);
			request_free(event);
		}
	}
	link_close(&link);
	world_end(&world);
}

const struct attack attacks_frames[] = {
	{ "headers", headers },	  { "truncated", truncated }, { "oversized", oversized }, { "opcodes", opcodes },
	{ "serials", serials },	  { "states", states },	      { "versions", versions },	  { "backwards", backwards },
	{ NULL, NULL },
};
