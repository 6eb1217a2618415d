/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: parser, defaults and manual page must agree on every setting, so there is one table. Guarantees: a value that
 * is refused changes nothing; a number is never cut.
 */
#include "daemon/options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config.h"
#include "daemon/names.h"

static const char *const words_switch[] = { "off", "on", NULL };
static const char *const words_atomics[] = { "", "device", "global", NULL };
static const char *const words_connect[] = { "domain", "any", NULL };
static const char *const words_level[] = { "error", "warning", "info", "debug", NULL };
static const char *const words_link[] = { "", "infiniband", "ethernet", NULL };
static const char *const words_port[] = { "down", "active", NULL };

static int refuse_value(char *why, unsigned size, const char *key, const char *text)
{
	snprintf(why, size, "%s must be %s", key, text);
	return -EINVAL;
}

/* Digits (or 0x and hexadecimal ones), and K, M, G or T for powers of 1024. */
static int parse_number(const char *value, uint64_t *number)
{
	static const char suffixes[] = "KMGT";
	const char *suffix;
	uint64_t n;
	char *end;

	if (!isdigit((unsigned char)value[0]))
		return -EINVAL;
	errno = 0;
	n = strtoull(value, &end, value[0] == '0' && value[1] == 'x' ? 16 : 10);
	if (errno != 0 || end == value)
		return -EINVAL;
	if (*end) {
		unsigned shift;

		suffix = strchr(suffixes, *end);
		if (!suffix || end[1])
			return -EINVAL;
		shift = 10 * (unsigned)(suffix - suffixes + 1);
		if (n > UINT64_MAX >> shift)
			return -EINVAL;
		n <<= shift;
	}
	*number = n;
	return 0;
}

static int get_number(const char *key, const char *value, uint64_t min, uint64_t max,
	uint64_t *number, char *why, unsigned size)
{
	uint64_t n;

	if (parse_number(value, &n) < 0)
		return refuse_value(why, size, key, "a number");
	if (n < min || n > max) {
		snprintf(why, size, "%s must be from %" PRIu64 " to %" PRIu64, key, min, max);
		return -EINVAL;
	}
	*number = n;
	return 0;
}

static int apply_u32(
	const struct option *option, void *target, const char *value, char *why, unsigned size)
{
	uint64_t n;
	int r = get_number(option->key, value, option->min, option->max, &n, why, size);

	if (r == 0)
		*(uint32_t *)(void *)((char *)target + option->offset) = (uint32_t)n;
	return r;
}

/* A power of two, or 0. */
static int apply_slots(
	const struct option *option, void *target, const char *value, char *why, unsigned size)
{
	uint64_t n;
	int r = get_number(option->key, value, option->min, option->max, &n, why, size);

	if (r < 0)
		return r;
	if (n == 1 || (n & (n - 1)) != 0)
		return refuse_value(why, size, option->key, "0 or a power of two from 2");
	*(uint32_t *)(void *)((char *)target + option->offset) = (uint32_t)n;
	return 0;
}

static int apply_mtu(
	const struct option *option, void *target, const char *value, char *why, unsigned size)
{
	uint64_t n;
	int r = get_number(option->key, value, option->min, option->max, &n, why, size);

	if (r < 0)
		return r;
	if ((n & (n - 1)) != 0)
		return refuse_value(why, size, option->key, "256, 512, 1024, 2048 or 4096");
	*(uint32_t *)(void *)((char *)target + option->offset) = (uint32_t)n;
	return 0;
}

/* GUIDs and prefixes: 64 bits in hexadecimal, colons between groups allowed. */
static int apply_hex64(
	const struct option *option, void *target, const char *value, char *why, unsigned size)
{
	const char *digits = strncmp(value, "0x", 2) == 0 ? value + 2 : value;
	uint64_t n = 0;
	unsigned count = 0;

	for (const char *p = digits; *p; p++) {
		if (*p == ':' && p > digits && p[-1] != ':' && p[1])
			continue;
		if (!isxdigit((unsigned char)*p) || ++count > 16)
			return refuse_value(why, size, option->key, "up to 16 hexadecimal digits");
		n = n << 4 |
		    (unsigned)(isdigit((unsigned char)*p) ? *p - '0'
							  : tolower((unsigned char)*p) - 'a' + 10);
	}
	if (n < option->min)
		return refuse_value(why, size, option->key, "something other than 0");
	*(uint64_t *)(void *)((char *)target + option->offset) = n;
	return 0;
}

static int find_word(const struct option *option, const char *value, char *why, unsigned size)
{
	int used;

	for (int i = 0; option->words[i]; i++) {
		if (option->words[i][0] && strcmp(option->words[i], value) == 0)
			return i;
	}
	used = snprintf(why, size, "%s must be one of:", option->key);
	for (int i = 0; option->words[i] && used > 0 && (unsigned)used < size; i++) {
		if (option->words[i][0])
			used += snprintf(
				why + used, size - (unsigned)used, " %s", option->words[i]);
	}
	return -EINVAL;
}

static int apply_word(
	const struct option *option, void *target, const char *value, char *why, unsigned size)
{
	int r = find_word(option, value, why, size);

	if (r < 0)
		return r;
	*(unsigned *)(void *)((char *)target + option->offset) = (unsigned)r;
	return 0;
}

static int apply_bool(
	const struct option *option, void *target, const char *value, char *why, unsigned size)
{
	int r = find_word(option, value, why, size);

	if (r < 0)
		return r;
	*(bool *)((char *)target + option->offset) = r;
	return 0;
}

/* The name of a network interface, as the kernel takes it. */
static int apply_netdev(
	const struct option *option, void *target, const char *value, char *why, unsigned size)
{
	char *netdev = (char *)target + option->offset;

	if (strlen(value) > CONFIG_NETDEV_MAX || strpbrk(value, "/: \t"))
		return refuse_value(why, size, option->key, "auto, none or the name of a network interface");
	snprintf(netdev, CONFIG_NETDEV_MAX + 1, "%s", value);
	return 0;
}

static int add_id(struct id_list *list, uint32_t id)
{
	uint32_t *ids = reallocarray(list->ids, list->n + 1, sizeof(*ids));

	if (!ids)
		return -ENOMEM;
	list->ids = ids;
	list->ids[list->n++] = id;
	return 0;
}

static int apply_ids(
	const struct option *option, void *target, const char *value, char *why, unsigned size)
{
	struct id_list *list = (struct id_list *)(void *)((char *)target + option->offset);
	int (*find)(const char *name, uint32_t *id) = option->min ? name_to_gid : name_to_uid;
	struct id_list made = { .set = true };
	char copy[1024], *save = NULL;
	uint32_t id;
	int r = 0;

	snprintf(copy, sizeof(copy), "%s", value);
	for (char *name = strtok_r(copy, " \t,", &save); name && r == 0;
		name = strtok_r(NULL, " \t,", &save)) {
		if (strcmp(name, "*") == 0) {
			made.any = true;
			continue;
		}
		r = find(name, &id);
		if (r < 0)
			snprintf(why, size, "no %s '%s'", option->min ? "group" : "user", name);
		else
			r = add_id(&made, id);
	}
	if (r < 0) {
		free(made.ids);
		return -EINVAL;
	}
	free(list->ids);
	*list = made;
	return 0;
}

/* A number of bytes, or a word for 0. */
static int apply_bytes(
	const struct option *option, void *target, const char *value, char *why, unsigned size)
{
	uint64_t n = 0;
	int r = 0;

	if (strcmp(value, option->words[0]) != 0)
		r = get_number(option->key, value, option->min, option->max, &n, why, size);
	if (r == 0)
		*(uint64_t *)(void *)((char *)target + option->offset) = n;
	return r;
}

/* Patterns, as one text. */
static int apply_patterns(
	const struct option *option, void *target, const char *value, char *why, unsigned size)
{
	char *text = (char *)target + option->offset;

	if (strlen(value) >= CONFIG_PATTERNS_MAX) {
		snprintf(why, size, "%s has at most %d characters", option->key, CONFIG_PATTERNS_MAX - 1);
		return -EINVAL;
	}
	snprintf(text, CONFIG_PATTERNS_MAX, "%s", value);
	return 0;
}

#define D(field) offsetof(struct config, field)
#define G(field) offsetof(struct device_grant, field)
#define V(field) offsetof(struct device_config, field)

/* clang-format off */
const struct option options[] = {
	{ SECTION_DAEMON, "log_level", "info", apply_word, D(log_level), .words = words_level },
	{ SECTION_DAEMON, "max_connections", "16384", apply_u32, D(max_connections), 1, 1 << 20 },
	{ SECTION_DAEMON, "domain_share", "100", apply_u32, D(domain_share), 1, 100 },
	{ SECTION_DAEMON, "cma", "on", apply_bool, D(cma), .words = words_switch },
	{ SECTION_DAEMON, "connect", "any", apply_bool, D(connect_any), .words = words_connect },
	{ SECTION_DAEMON, "device_events", "on", apply_bool, D(device_events), .words = words_switch },
	{ SECTION_DAEMON, "lane_slots", "0", apply_slots, D(lane_slots), 0, 256 },
	{ SECTION_DEVICE, "guid", NULL, apply_hex64, V(guid), 1 },
	{ SECTION_DEVICE, "lid", NULL, apply_u32, V(lid), 1, 0xbfff },
	{ SECTION_DEVICE, "gid_prefix", "fe80:0000:0000:0000", apply_hex64, V(gid_prefix), 1 },
	{ SECTION_DEVICE, "link_layer", "infiniband", apply_word, V(link_layer), .words = words_link },
	{ SECTION_DEVICE, "atomics", "global", apply_word, V(atomics), .words = words_atomics },
	{ SECTION_DEVICE, "netdev", "auto", apply_netdev, V(netdev) },
	{ SECTION_DEVICE, "mtu", "4096", apply_mtu, V(mtu), 256, 4096 },
	{ SECTION_DEVICE, "port", "active", apply_bool, V(active), .words = words_port },
	{ SECTION_CONNECT, "users", "*", apply_ids, D(connect_users), 0 },
	{ SECTION_CONNECT, "groups", NULL, apply_ids, D(connect_groups), 1 },
	{ SECTION_GRANT, "users", NULL, apply_ids, G(users), 0 },
	{ SECTION_GRANT, "groups", NULL, apply_ids, G(groups), 1 },
	{ SECTION_GRANT, "cgroups", NULL, apply_patterns, G(cgroups) },
	{ SECTION_GRANT, "devices", "*", apply_patterns, G(devices) },
	{ SECTION_GRANT, "contexts", "256", apply_u32, G(contexts), 0, 1 << 20 },
	{ SECTION_GRANT, "memlock", "off", apply_bytes, G(memlock), 4096, INT64_MAX, words_switch },
	{ SECTION_GRANT, "rdma_cm", "on", apply_bool, G(rdma_cm), .words = words_switch },
	{ SECTION_GRANT, "domain_contexts", "off", apply_bool, G(domain_contexts), .words = words_switch },
};
/* clang-format on */
const unsigned n_options = sizeof(options) / sizeof(options[0]);

_Static_assert(
	sizeof(enum log_level) == sizeof(unsigned) && sizeof(enum link_layer) == sizeof(unsigned) &&
		sizeof(enum atomics) == sizeof(unsigned),
	"apply_word writes an unsigned");

const struct option *option_find(enum section section, const char *key)
{
	for (unsigned i = 0; i < n_options; i++) {
		if (options[i].section == section && strcmp(options[i].key, key) == 0)
			return &options[i];
	}
	return NULL;
}

int option_limit(const char *key, const char *value, uint64_t *limit, uint32_t *set, char *why,
	unsigned size)
{
	for (unsigned i = 0; i < SLOT_N; i++) {
		if (strcmp(slot_info[i].name, key) != 0)
			continue;
		int r = get_number(key, value, 0, slot_info[i].max, &limit[i], why, size);

		if (r == 0)
			*set |= 1u << i;
		return r;
	}
	return -ENOENT;
}

void options_default(struct config *config)
{
	char why[128];

	/* Ids have no default value of their own: a list that is not set admits everybody. */
	for (unsigned i = 0; i < n_options; i++) {
		if (options[i].section == SECTION_DAEMON)
			options[i].apply(&options[i], config, options[i].def, why, sizeof(why));
	}
}
