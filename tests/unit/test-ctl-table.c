/* SPDX-License-Identifier: BSD-2-Clause */
/* What clients chose, on its way to a terminal or into JSON; and the tables themselves. */
#include "client/ctl/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/escape.h"
#include "client/ctl/items.h"
#include "tests/lib/harness.h"

static const struct {
	const char *name, *in, *want;
} texts[] = {
	{ "nothing", NULL, "" },
	{ "empty", "", "" },
	{ "plain", "ib_send_bw -d vsd0", "ib_send_bw -d vsd0" },
	{ "terminal control", "\x1b]0;title\x07", "\\x1b]0;title\\x07" },
	{ "newline and tab", "a\nb\tc\r", "a\\x0ab\\x09c\\x0d" },
	{ "DEL", "\x7f", "\\x7f" },
	{ "C1 as a byte",
		"\x9b"
		"31m",
		"\\x9b31m" },
	{ "C1 as UTF-8", "\xc2\x9b", "\\xc2\\x9b" },
	{ "UTF-8", "gr\xc3\xb6\xc3\x9f\x65 \xe2\x82\xac \xf0\x9f\x98\x80",
		"gr\xc3\xb6\xc3\x9f\x65 \xe2\x82\xac \xf0\x9f\x98\x80" },
	{ "direction override",
		"a\xe2\x80\xae"
		"b",
		"a\\xe2\\x80\\xaeb" },
	{ "line separator", "\xe2\x80\xa8", "\\xe2\\x80\\xa8" },
	{ "overlong", "\xc0\x9b", "\\xc0\\x9b" },
	{ "overlong in three", "\xe0\x80\x9b", "\\xe0\\x80\\x9b" },
	{ "surrogate", "\xed\xa0\x80", "\\xed\\xa0\\x80" },
	{ "above Unicode", "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80" },
	{ "five bytes", "\xf8\x88\x80\x80\x80", "\\xf8\\x88\\x80\\x80\\x80" },
	{ "cut character", "a\xe2\x82", "a\\xe2\\x82" },
	{ "lone continuation", "\x80z", "\\x80z" },
	{ "character cut by another", "\xe2\x82z", "\\xe2\\x82z" },
};

#define N_TEXTS (int)(sizeof(texts) / sizeof(texts[0]))

START_TEST(text_is_escaped)
{
	char buf[256];

	ck_assert_msg(strcmp(escape(buf, sizeof(buf), texts[_i].in), texts[_i].want) == 0,
		"%s: %s", texts[_i].name, buf);
}
END_TEST

START_TEST(no_byte_is_written_behind_the_buffer)
{
	for (size_t size = 0; size < 16; size++) {
		char *buf = malloc(size + 1);

		memset(buf, 'e', size + 1);
		escape(buf, size, "a\x1b\xe2\x82\xac\x80");
		ck_assert_int_eq(buf[size], 'e');
		if (size)
			ck_assert_uint_lt(strlen(buf), size);
		free(buf);
	}
}
END_TEST

START_TEST(escapes_and_characters_are_not_cut)
{
	char buf[6];

	ck_assert_str_eq(escape(buf, 5, "\x1b!"), "\\x1b");
	ck_assert_str_eq(escape(buf, 4, "\x1b!"), "");
	ck_assert_str_eq(escape(buf, 3, "\xe2\x82\xac"), "");
	ck_assert_str_eq(escape(buf, 4, "\xe2\x82\xac"), "\xe2\x82\xac");
}
END_TEST

START_TEST(every_byte_alone_is_printable_after)
{
	char in[2] = { 0 }, buf[8];

	for (int c = 1; c < 256; c++) {
		in[0] = (char)c;
		escape(buf, sizeof(buf), in);
		for (const char *p = buf; *p; p++)
			ck_assert_msg(*p >= ' ' && *p < 127, "%02x", c);
	}
}
END_TEST

static const struct {
	uint64_t value;
	const char *want;
} sizes[] = {
	{ 0, "0" },
	{ 1023, "1023" },
	{ 1024, "1.0K" },
	{ 1536, "1.5K" },
	{ 99 * 1024 + 1023, "99.9K" },
	{ 100 * 1024, "100K" },
	{ 1024 * 1024 - 1, "1023K" },
	{ 1ull << 30, "1.0G" },
	{ 3ull << 40, "3.0T" },
	{ UINT64_MAX, "15.9E" },
};

START_TEST(sizes_are_short)
{
	char buf[32];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		ck_assert_str_eq(size_format(buf, sizeof(buf), sizes[i].value), sizes[i].want);
}
END_TEST

/* The table of one hostile row, in one line. */
static char *hostile_line(bool json)
{
	struct table *table = table_new("things", json, true);

	table_column(table, "NAME", TABLE_TEXT);
	table_column(table, "N", TABLE_NUMBER);
	table_column(table, "LENGTH", TABLE_SIZE);
	table_column(table, "KEY", TABLE_HEX);
	table_column(table, "SOFT", TABLE_BOOL);
	table_column(table, "NONE", TABLE_NUMBER);
	table_row(table);
	table_text(table, 0, "\"},\n{\x1b[2J\\");
	table_number(table, 1, 7);
	table_number(table, 2, 2048);
	table_number(table, 3, 0x1234);
	table_number(table, 4, 1);

	char *line = table_line(table);

	table_free(table);
	return line;
}

START_TEST(json_keeps_its_types_and_its_quotes)
{
	char *line = hostile_line(true);

	ck_assert_str_eq(line, "{\"things\": [{\"name\": \"\\\"},\\\\x0a{\\\\x1b[2J\\\\\",\"n\": "
			       "7,\"length\": 2048,"
			       "\"key\": 4660,\"soft\": true,\"none\": null}]}");
	free(line);
}
END_TEST

START_TEST(terminal_shows_units)
{
	char *line = hostile_line(false);

	ck_assert_ptr_nonnull(strstr(line, "2.0K"));
	ck_assert_ptr_nonnull(strstr(line, "0x1234"));
	ck_assert_ptr_nonnull(strstr(line, "yes"));
	ck_assert_ptr_null(strchr(line, 0x1b));
	free(line);
}
END_TEST

START_TEST(empty_table_is_json_all_the_same)
{
	struct table *table = table_new("qp", true, true);

	table_column(table, "ID", TABLE_NUMBER);

	char *line = table_line(table);

	ck_assert_str_eq(line, "{\"qp\": []}");
	free(line);
	table_free(table);
}
END_TEST

/* The harness sets no locale, so this is the C locale's table. */
START_TEST(table_is_ascii_where_the_locale_is)
{
	struct table *table = table_new("t", false, false);

	table_column(table, "TEXT", TABLE_TEXT);
	table_row(table);
	table_text(table, 0,
		"gr\xc3\xb6\xc3\x9f"
		"er\x1b");

	char *line = table_line(table);

	ck_assert_str_eq(line, "gr\\xc3\\xb6\\xc3\\x9f"
			       "er\\x1b");
	free(line);
	table_free(table);
}
END_TEST

static char *item_line(unsigned type, bool json)
{
	Vsd__Item item = VSD__ITEM__INIT;
	Vsd__Counter counter = VSD__COUNTER__INIT, unknown = VSD__COUNTER__INIT;
	Vsd__Counter *counters[] = { &counter, &unknown };
	struct table *table = items_table("t", type, json, true);

	item.type = VSD__OBJECT_TYPE__OBJ_MR;
	item.session = 1ull << 40;
	item.command = (char *)"evil\x1b[0m";
	item.cgroup = item.device = (char *)"";
	item.has_length = 1;
	item.length = 4096;
	counter.name = (char *)"bytes_sent";
	counter.value = 42;
	unknown.name = (char *)"no such counter";
	item.counters = counters;
	item.n_counters = 2;
	items_add(table, type, json, &item);

	char *line = table_line(table);

	table_free(table);
	return line;
}

START_TEST(items_have_every_field_in_json)
{
	char *line = item_line(VSD__OBJECT_TYPE__OBJ_MR, true);

	ck_assert_ptr_nonnull(strstr(line, "\"type\": \"mr\""));
	ck_assert_ptr_nonnull(strstr(line, "\"client\": 1099511627776"));
	ck_assert_ptr_nonnull(strstr(line, "\"length\": 4096"));
	ck_assert_ptr_nonnull(strstr(line, "\"state\": null"));
	ck_assert_ptr_nonnull(strstr(line, "\"bytes_sent\": 42"));
	ck_assert_ptr_nonnull(strstr(line, "\"srq\": null"));
	ck_assert_ptr_nonnull(strstr(line, "evil\\\\x1b[0m"));
	free(line);
}
END_TEST

START_TEST(number_is_a_key_for_regions_only)
{
	Vsd__Item item = VSD__ITEM__INIT;
	struct table *table = items_table("t", ITEMS_ALL, true, true);

	item.command = item.cgroup = item.device = (char *)"";
	item.has_number = 1;
	item.number = 5;
	item.type = VSD__OBJECT_TYPE__OBJ_QP;
	items_add(table, ITEMS_ALL, true, &item);
	item.type = VSD__OBJECT_TYPE__OBJ_MR;
	items_add(table, ITEMS_ALL, true, &item);

	char *line = table_line(table), *first = strstr(line, "\"key\": null");

	ck_assert_ptr_nonnull(first);
	ck_assert_ptr_nonnull(strstr(first, "\"key\": 5"));
	free(line);
	table_free(table);
}
END_TEST

START_TEST(items_have_the_columns_of_their_kind)
{
	char *mr = item_line(VSD__OBJECT_TYPE__OBJ_MR, false),
	     *client = item_line(VSD__OBJECT_TYPE__OBJ_CLIENT, false);

	ck_assert_ptr_nonnull(strstr(mr, "LENGTH"));
	ck_assert_ptr_nonnull(strstr(mr, "4.0K"));
	ck_assert_ptr_null(strstr(mr, "SEND_CQ"));
	ck_assert_ptr_nonnull(strstr(client, "SENT"));
	ck_assert_ptr_null(strstr(mr, "SENT"));
	ck_assert_ptr_null(strchr(client, 0x1b));
	free(mr);
	free(client);
}
END_TEST

START_TEST(types_have_names_both_ways)
{
	for (unsigned i = VSD__OBJECT_TYPE__OBJ_QP; i <= VSD__OBJECT_TYPE__OBJ_CLIENT; i++)
		ck_assert_uint_eq(item_type_find(item_type_name(i)), i);
	ck_assert_uint_eq(item_type_find("nothing"), 0);
	ck_assert_uint_eq(item_type_find(""), 0);
	ck_assert_ptr_null(item_type_name(99));
	ck_assert_ptr_null(item_type_name(0));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ctl-table");
	TCase *text = harness_tcase(suite, "escape");
	TCase *table = harness_tcase(suite, "table");

	tcase_add_loop_test(text, text_is_escaped, 0, N_TEXTS);
	tcase_add_test(text, no_byte_is_written_behind_the_buffer);
	tcase_add_test(text, escapes_and_characters_are_not_cut);
	tcase_add_test(text, every_byte_alone_is_printable_after);
	tcase_add_test(table, sizes_are_short);
	tcase_add_test(table, json_keeps_its_types_and_its_quotes);
	tcase_add_test(table, terminal_shows_units);
	tcase_add_test(table, empty_table_is_json_all_the_same);
	tcase_add_test(table, table_is_ascii_where_the_locale_is);
	tcase_add_test(table, items_have_every_field_in_json);
	tcase_add_test(table, items_have_the_columns_of_their_kind);
	tcase_add_test(table, number_is_a_key_for_regions_only);
	tcase_add_test(table, types_have_names_both_ways);
	return harness_run(suite);
}
