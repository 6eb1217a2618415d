/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Text that a client chose (its command, its cgroup, a device's name), made safe for a terminal and for JSON.
 */
#ifndef CLIENT_CTL_ESCAPE_H
#define CLIENT_CTL_ESCAPE_H

#include <stddef.h>

/* The most that one byte of input may become: \xNN. */
#define ESCAPE_MAX 4

/*
 * Writes @text to @buf, at most @size bytes with the final NUL, never cutting a character or an escape. Printable
 * UTF-8 stays; control characters (C1 and line separators too), what turns the direction of writing, and bytes that
 * are not UTF-8 become \xNN, byte by byte. NULL is the empty text. Returns @buf.
 */
char *escape(char *buf, size_t size, const char *text);

#endif
