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

#include "client/ctl/escape.h"

#define TABLE_COLUMNS_MAX 64

struct table {
	struct libscols_table *scols;
	struct libscols_line *line;
	bool json;
	size_t n;
	enum table_kind kinds[TABLE_COLUMNS_MAX];
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

void table_row(struct table *table)
{
	table->line = scols_table_new_line(table->scols, NULL);
	memory_check(table->line);
}

void table_text(struct table *table, size_t column, const char *text)
{
	if (!text)
		return;

	size_t size = strlen(text) * ESCAPE_MAX + 1;
	char *buf = malloc(size);

	memory_check(buf != NULL);
	memory_check(!scols_line_refer_data(table->line, column, escape(buf, size, text)));
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

int table_print(struct table *table)
{
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
