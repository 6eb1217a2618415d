/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tables, so that every subcommand says once what a cell is and both the terminal and JSON come out right: numbers
 * stay numbers, everything that is text has passed escape().
 */
#include "client/ctl/table.h"

#include <errno.h>
#include <inttypes.h>
#include <libsmartcols.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/escape.h"

#define TABLE_COLUMNS_MAX 64

struct table {
	struct libscols_table *scols;
	struct libscols_line *line;
	bool json;
	size_t n;
	enum table_kind kinds[TABLE_COLUMNS_MAX];
	bool droppable[TABLE_COLUMNS_MAX];
};

static void memory_check(bool fine)
{
	if (fine)
		return;
	fputs("verbsctl: out of memory\n", stderr);
	exit(EXIT_FAILURE);
}

struct table *table_new(const char *name, bool json, bool headings)
{
	struct table *table = calloc(1, sizeof(*table));

	memory_check(table != NULL);
	table->json = json;
	table->scols = scols_new_table();
	memory_check(table->scols);
	memory_check(!scols_table_set_name(table->scols, name));
	scols_table_enable_json(table->scols, json);
	scols_table_enable_noheadings(table->scols, !headings);
	/* escape() has done it, and libsmartcols would do it again. */
	scols_table_enable_noencoding(table->scols, 1);
	return table;
}

struct table *table_free(struct table *table)
{
	if (table)
		scols_unref_table(table->scols);
	free(table);
	return NULL;
}

void table_column(struct table *table, const char *name, enum table_kind kind)
{
	static const struct {
		int flags, json;
	} kinds[] = {
		[TABLE_TEXT] = { 0, SCOLS_JSON_STRING },
		[TABLE_LONG] = { SCOLS_FL_TRUNC, SCOLS_JSON_STRING },
		[TABLE_NUMBER] = { SCOLS_FL_RIGHT, SCOLS_JSON_NUMBER },
		[TABLE_HEX] = { SCOLS_FL_RIGHT, SCOLS_JSON_NUMBER },
		[TABLE_SIZE] = { SCOLS_FL_RIGHT, SCOLS_JSON_NUMBER },
		[TABLE_BOOL] = { 0, SCOLS_JSON_BOOLEAN },
	};
	struct libscols_column *column = scols_table_new_column(
		table->scols, name, kind == TABLE_LONG ? 0.1 : 0, kinds[kind].flags);

	memory_check(column && table->n < TABLE_COLUMNS_MAX);
	scols_column_set_json_type(column, kinds[kind].json);
	table->kinds[table->n++] = kind;
}

void table_droppable(struct table *table)
{
	table->droppable[table->n - 1] = true;
}

void table_row(struct table *table)
{
	table->line = scols_table_new_line(table->scols, NULL);
	memory_check(table->line);
}

/* Where the locale has no UTF-8. A buffer for escape() has room for it. */
static void text_to_ascii(char *text)
{
	size_t left = strlen(text), high = 0;

	for (size_t i = 0; i < left; i++)
		high += (unsigned char)text[i] >= 0x80;

	char *out = text + left + high * (ESCAPE_MAX - 1);

	*out = 0;
	while (left && out != text + left) {
		unsigned char c = (unsigned char)text[--left];
		static const char digits[] = "0123456789abcdef";

		out -= c >= 0x80 ? ESCAPE_MAX : 1;
		if (c >= 0x80)
			memcpy(out, (const char[]){ '\\', 'x', digits[c >> 4], digits[c & 15] },
				ESCAPE_MAX);
		else
			*out = (char)c;
	}
}

void table_text(struct table *table, size_t column, const char *text)
{
	if (!text)
		return;

	size_t size = strlen(text) * ESCAPE_MAX + 1;
	char *buf = malloc(size);

	memory_check(buf != NULL);
	escape(buf, size, text);
	if (!table->json && MB_CUR_MAX == 1)
		text_to_ascii(buf);
	memory_check(!scols_line_refer_data(table->line, column, buf));
}

void table_number(struct table *table, size_t column, uint64_t value)
{
	char buf[32];

	if (table->kinds[column] == TABLE_BOOL)
		snprintf(buf, sizeof(buf), "%s",
			table->json ? (value ? "1" : "0") : (value ? "yes" : "no"));
	else if (table->json || table->kinds[column] == TABLE_NUMBER)
		snprintf(buf, sizeof(buf), "%" PRIu64, value);
	else if (table->kinds[column] == TABLE_HEX)
		snprintf(buf, sizeof(buf), "0x%" PRIx64, value);
	else
		size_format(buf, sizeof(buf), value);
	memory_check(!scols_line_set_data(table->line, column, buf));
}

/* The least that a column takes: what may be cut is cut to its heading. */
static size_t column_width(struct table *table, size_t column)
{
	struct libscols_column *cl = scols_table_get_column(table->scols, column);
	size_t width = strlen(scols_column_get_name(cl));

	for (size_t i = 0;
		table->kinds[column] != TABLE_LONG && i < scols_table_get_nlines(table->scols);
		i++) {
		struct libscols_line *line = scols_table_get_line(table->scols, i);
		const char *text = scols_line_get_column_data(line, cl);

		if (text && strlen(text) > width)
			width = strlen(text);
	}
	return width + 1;
}

/* Hides columns that can be spared, from the right, until the rest fits the terminal. */
static void table_fit(struct table *table)
{
	size_t room = scols_table_get_termwidth(table->scols) + 1, width = 0;

	for (size_t i = 0; i < table->n; i++)
		width += column_width(table, i);
	for (size_t i = table->n; i-- && width > room;) {
		if (!table->droppable[i])
			continue;
		width -= column_width(table, i);

		struct libscols_column *cl = scols_table_get_column(table->scols, i);

		scols_column_set_flags(cl, scols_column_get_flags(cl) | SCOLS_FL_HIDDEN);
	}
}

int table_print(struct table *table)
{
	if (!table->json && isatty(STDOUT_FILENO))
		table_fit(table);
	return scols_print_table(table->scols);
}

char *table_line(struct table *table)
{
	char *text = NULL, *out;

	memory_check(!scols_print_table_to_string(table->scols, &text) && text);
	/* A newline within a value is written as an escape, so those that are there are layout. */
	out = text;
	for (const char *in = text; *in;) {
		*out = *in++;
		if (*out++ == '\n') {
			out--;
			in += strspn(in, " ");
		}
	}
	*out = 0;
	return text;
}

char *size_format(char *buf, size_t size, uint64_t value)
{
	static const char units[] = " KMGTPE";
	size_t unit = 0;
	uint64_t whole = value, tenths = 0;

	while (whole >= 1024) {
		tenths = (whole % 1024) * 10 / 1024;
		whole /= 1024;
		unit++;
	}
	if (unit == 0)
		snprintf(buf, size, "%" PRIu64, whole);
	else if (whole < 100)
		snprintf(buf, size, "%" PRIu64 ".%" PRIu64 "%c", whole, tenths, units[unit]);
	else
		snprintf(buf, size, "%" PRIu64 "%c", whole, units[unit]);
	return buf;
}
