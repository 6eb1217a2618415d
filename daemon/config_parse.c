/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a wrong line must be refused where it stands, not found out later. Guarantees: a configuration is returned only
 * when every line of every file was understood; otherwise the first wrong one is named as file:line: reason. A later
 * file may say again what an earlier one said; the same file may not.
 */
#include "daemon/config.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/cleanup.h"
#include "daemon/gid.h"
#include "daemon/log.h"
#include "daemon/names.h"
#include "daemon/options.h"

#define LINE_MAX_BYTES 1024
#define SEEN_MAX       512

struct device_place {
	char file[256];
	unsigned line;
};

struct parser {
	struct config *config;
	const char *path;
	unsigned line;
	enum section section;
	void *target;  /* of the section's settings */
	uint32_t *set; /* of [limits] */
	uint64_t *limit;
	bool devices_named; /* the default device is gone */
	bool grants_named;  /* so is the default grant */
	struct device_place places[CONFIG_DEVICES_MAX];
	struct {
		const void *target;
		const void *key;
	} seen[SEEN_MAX]; /* in this file */
	unsigned n_seen;
	char *error;
	unsigned size;
};

static const struct {
	const char *name;
	enum section section;
	int named; /* 1: must have a name, 0: may, -1: must not */
} sections[] = {
	{ "daemon", SECTION_DAEMON, -1 },
	{ "device", SECTION_DEVICE, 1 },
	{ "limits", SECTION_LIMITS, 0 },
	{ "connect", SECTION_CONNECT, -1 },
	{ "grant", SECTION_GRANT, 1 },
};

static int wrong(struct parser *parser, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int wrong(struct parser *parser, const char *format, ...)
{
	char reason[256];
	va_list args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	snprintf(parser->error, parser->size, "%s:%u: %s", parser->path, parser->line, reason);
	return -EINVAL;
}

static int check_name(struct parser *parser, const char *name)
{
	char escaped[80];

	for (const char *p = name; *p; p++) {
		if (!isalnum((unsigned char)*p) && !strchr("_-.", *p))
			return wrong(parser,
				"'%s' is no name: letters, digits, '_', '-' and '.' only",
				log_escape(escaped, sizeof(escaped), name, strlen(name)));
	}
	if (strlen(name) > CONFIG_NAME_MAX)
		return wrong(parser, "a name has at most %d characters", CONFIG_NAME_MAX);
	return 0;
}

static int section_device(struct parser *parser, const char *name)
{
	struct config *config = parser->config;
	struct device_place *place;
	int r = check_name(parser, name);

	if (r < 0)
		return r;
	if (!parser->devices_named)
		config->n_devices = 0;
	parser->devices_named = true;
	for (unsigned i = 0; i < config->n_devices; i++) {
		if (strcmp(config->devices[i].name, name) == 0) {
			parser->target = &config->devices[i];
			return 0;
		}
	}
	if (config->n_devices == CONFIG_DEVICES_MAX)
		return wrong(parser, "more than %d devices", CONFIG_DEVICES_MAX);
	place = &parser->places[config->n_devices];
	snprintf(place->file, sizeof(place->file), "%s", parser->path);
	place->line = parser->line;
	device_default(&config->devices[config->n_devices], name, config->n_devices);
	parser->target = &config->devices[config->n_devices++];
	return 0;
}

static int section_grant(struct parser *parser, const char *name)
{
	struct config *config = parser->config;
	int r = check_name(parser, name);

	if (r < 0)
		return r;
	if (!parser->grants_named)
		config_grants_drop(config);
	parser->grants_named = true;
	for (unsigned i = 0; i < config->n_grants; i++) {
		if (strcmp(config->grants[i].name, name) == 0) {
			parser->target = &config->grants[i];
			return 0;
		}
	}
	if (config->n_grants == CONFIG_GRANTS_MAX)
		return wrong(parser, "more than %d grants", CONFIG_GRANTS_MAX);
	grant_default(&config->grants[config->n_grants], name);
	parser->target = &config->grants[config->n_grants++];
	return 0;
}

static int section_limits(struct parser *parser, const char *name)
{
	static uint32_t ignored;
	struct config *config = parser->config;
	struct user_limits *users;
	uint32_t uid;

	if (!*name) {
		parser->limit = config->limit;
		parser->set = &ignored;
		parser->target = config->limit;
		return 0;
	}
	if (name_to_uid(name, &uid) < 0)
		return wrong(parser, "no user '%s'", name);
	for (unsigned i = 0; i <= config->n_users; i++) {
		if (i == config->n_users) {
			users = reallocarray(config->users, i + 1, sizeof(*users));
			if (!users)
				return -ENOMEM;
			config->users = users;
			config->n_users++;
			users[i] = (struct user_limits){ .uid = (uid_t)uid };
		}
		if (config->users[i].uid == uid) {
			parser->limit = config->users[i].limit;
			parser->set = &config->users[i].set;
			/* The array may move: what tells one user from another is the uid. */
			parser->target = (void *)((uintptr_t)uid * 2 + 1);
			return 0;
		}
	}
	return 0;
}

static int section_enter(struct parser *parser, char *text)
{
	char *end = strchr(text, ']'), *name;

	if (!end || end[1])
		return wrong(parser, "a section is [NAME], alone on its line");
	*end = '\0';
	text++;
	name = strpbrk(text, " \t");
	if (name) {
		*name++ = '\0';
		name += strspn(name, " \t");
	} else {
		name = end;
	}
	for (unsigned i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
		if (strcmp(sections[i].name, text) != 0)
			continue;
		if (sections[i].named > 0 && !*name)
			return wrong(parser, "[%s] needs a name", text);
		if (sections[i].named < 0 && *name)
			return wrong(parser, "[%s] takes no name", text);
		parser->section = sections[i].section;
		parser->target = parser->config;
		if (parser->section == SECTION_DEVICE)
			return section_device(parser, name);
		if (parser->section == SECTION_LIMITS)
			return section_limits(parser, name);
		if (parser->section == SECTION_GRANT)
			return section_grant(parser, name);
		return 0;
	}
	return wrong(parser, "no section '%s'", text);
}

/* Whether this file has said this before. */
static int see(struct parser *parser, const void *key, const char *name)
{
	for (unsigned i = 0; i < parser->n_seen; i++) {
		if (parser->seen[i].target == parser->target && parser->seen[i].key == key)
			return wrong(parser, "%s is given twice", name);
	}
	if (parser->n_seen == SEEN_MAX)
		return wrong(parser, "more than %d settings in one file", SEEN_MAX);
	parser->seen[parser->n_seen].target = parser->target;
	parser->seen[parser->n_seen++].key = key;
	return 0;
}

static int limit_set(struct parser *parser, const char *key, const char *value)
{
	char why[128];
	int r;

	for (unsigned i = 0; i < SLOT_N; i++) {
		if (strcmp(slot_info[i].name, key) == 0) {
			r = see(parser, &slot_info[i], key);
			if (r < 0)
				return r;
		}
	}
	r = option_limit(key, value, parser->limit, parser->set, why, sizeof(why));
	if (r == -ENOENT)
		return wrong(parser, "no setting '%s' in [limits]", key);
	return r < 0 ? wrong(parser, "%s", why) : 0;
}

static int setting(struct parser *parser, char *key, char *value)
{
	const struct option *option;
	char why[256];
	int r;

	if (parser->section == SECTION_NONE)
		return wrong(parser, "'%s' stands before the first section", key);
	if (parser->section == SECTION_LIMITS)
		return limit_set(parser, key, value);
	option = option_find(parser->section, key);
	if (!option)
		return wrong(parser, "no setting '%s' in this section", key);
	r = see(parser, option, key);
	if (r < 0)
		return r;
	if (!*value)
		return wrong(parser, "%s has no value", key);
	r = option->apply(option, parser->target, value, why, sizeof(why));
	return r < 0 ? wrong(parser, "%s", why) : 0;
}

static char *trim(char *text)
{
	char *end;

	text += strspn(text, " \t\r\n");
	end = text + strlen(text);
	while (end > text && strchr(" \t\r\n", end[-1]))
		end--;
	*end = '\0';
	return text;
}

static int line_read(struct parser *parser, char *line, size_t n)
{
	char *text, *equals;

	if (n >= LINE_MAX_BYTES)
		return wrong(parser, "line longer than %d characters", LINE_MAX_BYTES);
	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)line[i] < ' ' && !strchr("\t\r\n", line[i]))
			return wrong(parser, "not a text file");
		if (line[i] == '\0')
			return wrong(parser, "not a text file");
	}
	text = trim(line);
	if (!*text || *text == '#' || *text == ';')
		return 0;
	if (*text == '[')
		return section_enter(parser, text);
	equals = strchr(text, '=');
	if (!equals || equals == text)
		return wrong(parser, "neither [SECTION] nor KEY = VALUE");
	*equals = '\0';
	return setting(parser, trim(text), trim(equals + 1));
}

static int file_error(struct parser *parser, int error)
{
	snprintf(parser->error, parser->size, "%s: %s", parser->path, strerror(error));
	return -error;
}

static int file_read(struct parser *parser, const char *path, bool optional)
{
	CLEANUP_FREE char *line = NULL;
	size_t size = 0;
	struct stat st;
	ssize_t n;
	int r = 0;
	FILE *file;

	parser->path = path;
	parser->line = 0;
	parser->section = SECTION_NONE;
	parser->n_seen = 0;
	file = fopen(path, "re");
	if (!file && errno == ENOENT && optional)
		return 0;
	if (!file)
		return file_error(parser, errno);
	if (fstat(fileno(file), &st) == 0 && !S_ISREG(st.st_mode)) {
		fclose(file);
		return file_error(parser, EISDIR);
	}
	while (r == 0 && (n = getline(&line, &size, file)) >= 0) {
		parser->line++;
		r = line_read(parser, line, (size_t)n);
	}
	if (r == 0 && ferror(file))
		r = file_error(parser, EIO);
	fclose(file);
	return r;
}

static int is_drop_in(const struct dirent *entry)
{
	size_t n = strlen(entry->d_name);

	return entry->d_name[0] != '.' && n > 5 && strcmp(entry->d_name + n - 5, ".conf") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int drop_ins_read(struct parser *parser, const char *path)
{
	const char *slash = strrchr(path, '/');
	int folder = slash ? (int)(slash - path) : 1;
	char dir[PATH_MAX], name[PATH_MAX + NAME_MAX + 2];
	struct dirent **entries;
	int n, r = 0;

	snprintf(dir, sizeof(dir), "%.*s/conf.d", folder, slash ? path : ".");
	n = scandir(dir, &entries, is_drop_in, by_name);
	if (n < 0)
		return 0;
	for (int i = 0; i < n; i++) {
		if (r == 0) {
			snprintf(name, sizeof(name), "%s/%s", dir, entries[i]->d_name);
			r = file_read(parser, name, false);
		}
		free(entries[i]);
	}
	free(entries);
	return r;
}

static bool same_mac(const struct device_config *a, const struct device_config *b)
{
	uint8_t mac[2][6];

	gid_mac(a->guid, mac[0]);
	gid_mac(b->guid, mac[1]);
	return memcmp(mac[0], mac[1], sizeof(mac[0])) == 0;
}

static bool same_netdev(const struct device_config *a, const struct device_config *b)
{
	return strcmp(a->netdev, b->netdev) == 0 && strcmp(a->netdev, "auto") != 0 && strcmp(a->netdev, "none") != 0;
}

/* No two devices may be mistaken for each other. */
static int check_pair(struct parser *parser, const struct device_config *a, const struct device_config *b)
{
	bool ethernet = a->link_layer == LINK_ETHERNET && b->link_layer == LINK_ETHERNET;
	const char *same = NULL;

	if (a->guid == b->guid)
		same = "guid";
	else if (a->lid == b->lid && a->link_layer == LINK_INFINIBAND && b->link_layer == LINK_INFINIBAND)
		same = "lid";
	else if (ethernet && same_mac(a, b))
		same = "MAC address (bytes 1 to 3 and 6 to 8 of the guid)";
	else if (ethernet && same_netdev(a, b))
		same = "netdev";
	return same ? wrong(parser, "device %s has the %s of device %s", b->name, same, a->name) : 0;
}

static int check_devices(struct parser *parser)
{
	struct config *config = parser->config;
	uint32_t n_ethernet = 0;

	for (unsigned i = 0; i < config->n_devices; i++) {
		parser->path = parser->places[i].file;
		parser->line = parser->places[i].line;
		if (config->devices[i].link_layer == LINK_ETHERNET)
			config->devices[i].nth_ethernet = n_ethernet++;
		for (unsigned j = 0; j < i; j++) {
			int r = check_pair(parser, &config->devices[j], &config->devices[i]);

			if (r < 0)
				return r;
		}
	}
	return 0;
}

int config_read(
	const char *path, bool optional, struct config **config, char *error, unsigned size)
{
	struct parser *parser = calloc(1, sizeof(*parser));
	struct config *made = config_new();
	int r = -ENOMEM;

	if (parser && made) {
		*parser = (struct parser){ .config = made, .error = error, .size = size };
		snprintf(error, size, "%s: %s", path, strerror(ENOMEM));
		r = file_read(parser, path, optional);
		if (r == 0)
			r = drop_ins_read(parser, path);
		if (r == 0)
			r = check_devices(parser);
	}
	free(parser);
	if (r < 0) {
		config_free(made);
		return r;
	}
	error[0] = '\0';
	*config = made;
	return 0;
}
