/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of settings: in which section each stands, what it may be, what it is by default.
 */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

struct config;

enum section {
	SECTION_NONE,
	SECTION_DAEMON,  /* of struct config */
	SECTION_DEVICE,  /* of struct device_config */
	SECTION_LIMITS,  /* of struct user_limits; the keys are slot_info's names */
	SECTION_CONNECT, /* of struct config */
	SECTION_GRANT,   /* of struct device_grant */
};

struct option {
	enum section section;
	const char *key;
	const char *def; /* by default, as it would be written; NULL: depends */
	/* Writes @value into the field at @offset of @target. 0, or -EINVAL and why. */
	int (*apply)(const struct option *option, void *target, const char *value, char *why,
		unsigned size);
	size_t offset;
	uint64_t min, max;
	const char *const *
		words; /* of a setting that is one of a few words; their values are their places */
};

/* All but those of [limits]. */
extern const struct option options[];
extern const unsigned n_options;

const struct option *option_find(enum section section, const char *key);
/* A key of [limits] in @limit (SLOT_N entries), and its bit in *@set. -ENOENT: no such key; -EINVAL and why. */
int option_limit(const char *key, const char *value, uint64_t *limit, uint32_t *set, char *why,
	unsigned size);
/* What holds when no file says otherwise. */
void options_default(struct config *config);

#endif
