/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A command name may hold anything, terminal control sequences included. The decoder is our own since the C
 * library's depends on the locale, and what is safe must not.
 */
#include "client/ctl/escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Length of the well-formed UTF-8 character at @p (shortest form, no surrogates), 0 if there is none. */
static size_t utf8_decode(const uint8_t *p, uint32_t *code)
{
	static const uint32_t lowest[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xf0 && p[0] < 0xf8 ? 4 : p[0] >= 0xe0 ? 3 : 2;

	if (p[0] >= 0xf8 || (p[0] >= 0x80 && p[0] < 0xc0))
		return 0;
	*code = n == 1 ? p[0] : p[0] & (0x7fu >> n);
	/* The final NUL is no continuation byte, so this never looks behind it. */
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		*code = *code << 6 | (p[i] & 0x3f);
	}
	if (*code < lowest[n] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000))
		return 0;
	return n;
}

/* First and last characters of ranges that a terminal acts on or shows as nothing. */
static const struct {
	uint32_t first, last;
} unsafe[] = {
	{ 0x00, 0x1f },        /* C0 */
	{ 0x7f, 0x9f },        /* DEL and C1 */
	{ 0xad, 0xad },        /* soft hyphen */
	{ 0x61c, 0x61c },      /* Arabic letter mark */
	{ 0x200b, 0x200f },    /* zero width, direction marks */
	{ 0x2028, 0x202e },    /* line and paragraph separators, direction overrides */
	{ 0x2060, 0x206f },    /* invisible operators, direction isolates */
	{ 0xe000, 0xf8ff },    /* private use */
	{ 0xfeff, 0xfeff },    /* byte order mark */
	{ 0xfff0, 0xfffb },    /* specials */
	{ 0xfffe, 0xffff },    /* not characters */
	{ 0xe0000, 0x10ffff }, /* tags, private use */
};

static bool code_is_safe(uint32_t code)
{
	for (size_t i = 0; i < sizeof(unsafe) / sizeof(unsafe[0]); i++)
		if (code >= unsafe[i].first && code <= unsafe[i].last)
			return false;
	return true;
}

char *escape(char *buf, size_t size, const char *text)
{
	const uint8_t *p = (const uint8_t *)(text ? text : "");
	size_t at = 0;

	while (*p) {
		uint32_t code;
		size_t n = utf8_decode(p, &code);
		bool safe = n && code_is_safe(code);
		size_t in = n ? n : 1, out = safe ? in : in * ESCAPE_MAX;

		if (at + out >= size)
			break;
		if (safe)
			memcpy(buf + at, p, n);
		for (size_t i = 0; !safe && i < in; i++)
			snprintf(buf + at + i * ESCAPE_MAX, ESCAPE_MAX + 1, "\\x%02x", p[i]);
		at += out;
		p += in;
	}
	if (size)
		buf[at] = 0;
	return buf;
}
