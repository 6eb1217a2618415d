/* SPDX-License-Identifier: BSD-2-Clause */
/* The files below a device's folder, in the words of the kernel, which programs parse. */
#include "proto/attributes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define GIDS_MIN	8
#define CAP_IP_GIDS	(1u << 26)
#define GID_TYPE_V2	2
#define STATE_ACTIVE	4
#define NAME(names, i)	((i) < sizeof(names) / sizeof((names)[0]) && (names)[i] ? (names)[i] : "unknown")

typedef int use_fn(const char *file, const char *text, void *arg);

/* Where we are in the list, and for whom. */
struct walk {
	use_fn *use;
	void *arg;
	int result;
	char file[64];
};

static const char *const node_types[] = { NULL, "CA", "SWITCH", "ROUTER", "RNIC", "usNIC", "usNIC UDP", "UNSPECIFIED" };
static const char *const port_states[] = { "NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER" };
static const char *const link_layers[] = { "Unknown", "InfiniBand", "Ethernet" };

uint32_t port_gids(const Vsd__Port *port)
{
	uint32_t n = GIDS_MIN;

	for (size_t i = 0; i < port->n_gids; i++)
		if (port->gids[i]->index >= n)
			n = port->gids[i]->index + 1;
	return n;
}

/* Nothing is called any more once @use has returned other than 0. */
__attribute__((format(printf, 2, 3))) static void say(struct walk *walk, const char *format, ...)
{
	char text[128];
	va_list args;

	if (walk->result)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	walk->result = walk->use(walk->file, text, walk->arg);
}

/* Names the file that say() is about next. */
__attribute__((format(printf, 2, 3))) static void file(struct walk *walk, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(walk->file, sizeof(walk->file), format, args);
	va_end(args);
}

static void say_guid(struct walk *walk, uint64_t guid)
{
	say(walk, "%04x:%04x:%04x:%04x", (unsigned)(guid >> 48) & 0xffff, (unsigned)(guid >> 32) & 0xffff,
		(unsigned)(guid >> 16) & 0xffff, (unsigned)guid & 0xffff);
}

static void say_gid(struct walk *walk, const Vsd__Gid *gid)
{
	uint8_t raw[16] = { 0 };
	char text[40] = "";

	if (gid && gid->raw.len == sizeof(raw))
		memcpy(raw, gid->raw.data, sizeof(raw));
	for (size_t i = 0; i < sizeof(raw); i += 2)
		snprintf(text + i / 2 * 5, 6, "%02x%02x%s", raw[i], raw[i + 1], i < 14 ? ":" : "");
	say(walk, "%s", text);
}

/* Empty entries have a GID, of zeros, but no attributes. */
static void gids_walk(struct walk *walk, const Vsd__Port *port)
{
	for (uint32_t i = 0; i < port_gids(port); i++) {
		const Vsd__Gid *gid = NULL;

		for (size_t g = 0; g < port->n_gids; g++)
			if (port->gids[g]->index == i)
				gid = port->gids[g];
		file(walk, "ports/%u/gids/%u", port->number, i);
		say_gid(walk, gid);
		if (!gid)
			continue;
		file(walk, "ports/%u/gid_attrs/types/%u", port->number, i);
		say(walk, "%s", gid->type == GID_TYPE_V2 ? "RoCE v2" : "IB/RoCE v1");
		if (!gid->netdev)
			continue;
		file(walk, "ports/%u/gid_attrs/ndevs/%u", port->number, i);
		say(walk, "%s", gid->netdev);
	}
}

/* In Gb/s and as the kernel names it: 200 Gb/sec (4X HDR). */
static void rate_walk(struct walk *walk, const Vsd__Port *port)
{
	static const struct {
		uint32_t speed;
		unsigned tenths;
		const char *name;
	} speeds[] = { { 1, 25, "" }, { 2, 50, " DDR" }, { 4, 100, " QDR" }, { 8, 100, " FDR10" }, { 16, 140, " FDR" },
		{ 32, 250, " EDR" }, { 64, 500, " HDR" }, { 128, 1000, " NDR" } };
	static const struct {
		uint32_t code;
		unsigned lanes;
	} widths[] = { { 1, 1 }, { 2, 4 }, { 4, 8 }, { 8, 12 }, { 16, 2 } };

	file(walk, "ports/%u/rate", port->number);
	for (size_t s = 0; s < sizeof(speeds) / sizeof(speeds[0]); s++)
		for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++)
			if (port->active_speed == speeds[s].speed && port->active_width == widths[w].code) {
				unsigned tenths = speeds[s].tenths * widths[w].lanes;

				if (tenths % 10)
					say(walk, "%u.%u Gb/sec (%uX%s)", tenths / 10, tenths % 10, widths[w].lanes,
						speeds[s].name);
				else
					say(walk, "%u Gb/sec (%uX%s)", tenths / 10, widths[w].lanes, speeds[s].name);
			}
}

static void port_walk(struct walk *walk, const Vsd__Port *port)
{
	unsigned n = port->number;

	file(walk, "ports/%u/state", n);
	say(walk, "%u: %s", port->state, NAME(port_states, port->state));
	file(walk, "ports/%u/phys_state", n);
	say(walk, "%s", port->state == STATE_ACTIVE ? "5: LinkUp" : "3: Disabled");
	file(walk, "ports/%u/link_layer", n);
	say(walk, "%s", NAME(link_layers, port->link_layer));
	file(walk, "ports/%u/lid", n);
	say(walk, "0x%x", port->lid);
	file(walk, "ports/%u/lid_mask_count", n);
	say(walk, "0");
	file(walk, "ports/%u/sm_lid", n);
	say(walk, "0x%x", port->sm_lid);
	file(walk, "ports/%u/sm_sl", n);
	say(walk, "0");
	file(walk, "ports/%u/cap_mask", n);
	say(walk, "0x%08x", CAP_IP_GIDS);
	rate_walk(walk, port);
	gids_walk(walk, port);
	for (size_t i = 0; i < port->n_pkeys; i++) {
		file(walk, "ports/%u/pkeys/%zu", n, i);
		say(walk, "0x%04x", port->pkeys[i]);
	}
}

int device_attributes(const Vsd__Device *device, use_fn *use, void *arg)
{
	struct walk walk = { .use = use, .arg = arg };
	static const char *const same[][2] = { { "board_id", "verbsd-soft" }, { "fw_ver", PACKAGE_VERSION },
		{ "hca_type", "verbsd-soft" }, { "hw_rev", "0x0" } };

	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
		file(&walk, "%s", same[i][0]);
		say(&walk, "%s", same[i][1]);
	}
	file(&walk, "node_desc");
	say(&walk, "%s", device->name);
	file(&walk, "node_guid");
	say_guid(&walk, device->guid);
	file(&walk, "sys_image_guid");
	say_guid(&walk, device->guid);
	file(&walk, "node_type");
	say(&walk, "%u: %s", device->node_type, NAME(node_types, device->node_type));
	for (size_t i = 0; i < device->n_ports; i++)
		port_walk(&walk, device->ports[i]);
	return walk.result;
}
