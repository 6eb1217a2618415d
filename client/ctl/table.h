/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One table, to look at or as JSON: the only user of libsmartcols. Running out of memory ends the program.
 */
#ifndef CLIENT_CTL_TABLE_H
#define CLIENT_CTL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct table;

enum table_kind {
	TABLE_TEXT,   /* left */
	TABLE_LONG,   /* left, cut where the terminal is too narrow */
	TABLE_NUMBER, /* right; a number in JSON */
	TABLE_HEX,    /* right; a number in JSON */
	TABLE_SIZE,   /* right, with a unit; plain bytes in JSON */
	TABLE_BOOL,   /* yes or no; a boolean in JSON */
};

struct table *table_new(const char *name, bool json, bool headings);
struct table *table_free(struct table *table);

/* Columns come before rows and are counted from 0. The name is the heading and, in lower case, the JSON key. */
void table_column(struct table *table, const char *name, enum table_kind kind);
/* The last column may be left out where a terminal is too narrow. */
void table_droppable(struct table *table);
void table_row(struct table *table);

/* Cells of the last row. What is not set is empty, or null. Text is escaped here. */
void table_text(struct table *table, size_t column, const char *text);
void table_number(struct table *table, size_t column, uint64_t value);

/* Prints to standard output. 0 or a negative errno. */
int table_print(struct table *table);
/* The JSON of the table in one line, to be freed by the caller. */
char *table_line(struct table *table);

/* @value bytes for people: "512", "4.0K", "1.5G". Returns @buf. */
char *size_format(char *buf, size_t size, uint64_t value);

#endif
