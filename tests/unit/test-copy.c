/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies: every length and alignment, and that nothing beyond the range is touched.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/soft/copy.h"
#include "tests/lib/harness.h"

enum { ROOM = 160, MAX = 100 };

static const struct {
	const char *name;
	int (*copy)(void *dst, const void *src, size_t n);
} copies[] = {
	{ "to program", copy_to_program },
	{ "from program", copy_from_program },
	{ "to paged", copy_to_paged },
	{ "from paged", copy_from_paged },
};

static void check(int (*copy)(void *dst, const void *src, size_t n), size_t n, size_t to, size_t from)
{
	_Alignas(16) uint8_t dst[ROOM], want[ROOM], src[ROOM];

	memset(dst, 0xee, sizeof(dst));
	memset(want, 0xee, sizeof(want));
	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = (uint8_t)(i * 3 + 1);
	memcpy(want + to, src + from, n);
	ck_assert_int_eq(copy(dst + to, src + from, n), 0);
	ck_assert_mem_eq(dst, want, sizeof(dst));
}

START_TEST(every_length_and_alignment)
{
	for (size_t n = 0; n <= MAX; n++)
		for (size_t to = 0; to < 16; to++)
			for (size_t from = 0; from < 16; from += 5)
				check(copies[_i].copy, n, to, from);
}
END_TEST

START_TEST(nothing_is_copied_from_nowhere)
{
	ck_assert_int_eq(copy_to_program(NULL, NULL, 0), 0);
	copy_ordered(NULL, NULL, 0);
}
END_TEST

/* A program that writes onto what it reads gets what it gets, and nothing else changes. AddressSanitizer looks at how. */
START_TEST(what_overlaps_is_no_error)
{
	for (size_t n = 1; n <= MAX; n++) {
		for (size_t to = 20; to <= 40; to++) {
			uint8_t bytes[ROOM], before[ROOM];

			for (size_t i = 0; i < sizeof(bytes); i++)
				before[i] = (uint8_t)(i * 3 + 1);
			memcpy(bytes, before, sizeof(bytes));
			ck_assert_int_eq(copy_to_program(bytes + to, bytes + 30, n), 0);
			ck_assert_mem_eq(bytes, before, to);
			ck_assert_mem_eq(bytes + to + n, before + to + n, sizeof(bytes) - to - n);
			if (to < 30)
				ck_assert_mem_eq(bytes + to, before + 30, n);
		}
	}
}
END_TEST

/* On-demand memory may be absent, of one page or of the next. */
START_TEST(what_is_not_there_is_an_error)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), buf[64] = { 0 };

	ck_assert_ptr_ne(at, MAP_FAILED);
	ck_assert_int_eq(munmap(at + page, page), 0);
	ck_assert_int_eq(copy_to_paged(at + page - 64, buf, 64), 0);
	ck_assert_int_eq(copy_from_paged(buf, at + page - 64, 64), 0);
	ck_assert_int_eq(copy_to_paged(at + page - 32, buf, 64), -EFAULT);
	ck_assert_int_eq(copy_from_paged(buf, at + page - 32, 64), -EFAULT);
	ck_assert_int_eq(copy_to_paged(at + page, buf, 1), -EFAULT);
	ck_assert_int_eq(copy_from_paged(buf, at + page, 1), -EFAULT);
	ck_assert_int_eq(copy_to_paged(buf, at + page - 32, 64), -EFAULT);
	ck_assert_int_eq(mprotect(at, page, PROT_READ), 0);
	ck_assert_int_eq(copy_to_paged(at, buf, 8), -EFAULT);
	ck_assert_int_eq(copy_from_paged(buf, at, 8), 0);
	ck_assert_int_eq(copy_to_paged(NULL, NULL, 0), 0);
	ck_assert_int_eq(copy_from_paged(NULL, NULL, 0), 0);
	munmap(at, page);
}
END_TEST

/* --- copies that are no calls ------------------------------------------------------------------------------------------------ */

#define PAGE 4096u

static const size_t sizes[] = { 1,    31,   64,	  2047, 2048,	  2049,	      2079,	2080,
				4095, 4096, 4097, 4128, 3 * 2048, 3 * 2048 + 1, 3 * PAGE + 17, 64u << 10 };

static uint8_t room[40 * PAGE], before[40 * PAGE];

static void fill(void)
{
	for (size_t i = 0; i < sizeof(room); i++)
		before[i] = (uint8_t)(i * 7 + (i >> 8));
	memcpy(room, before, sizeof(room));
}

static void moved(size_t to, size_t from, size_t n)
{
	fill();
	copy_plain(room + to, room + from, n);
	memmove(before + to, before + from, n);
	ck_assert_msg(memcmp(room, before, sizeof(room)) == 0, "%zu bytes from %zu to %zu", n, from, to);
}

/* Some distances within the page are copied in pieces, others are not. */
START_TEST(every_distance_within_the_page)
{
	size_t n = sizes[_i];

	for (size_t distance = 0; distance <= 128; distance++) {
		moved(20 * PAGE + distance - 64, PAGE, n);
		moved(PAGE + distance, 20 * PAGE + 64, n);
	}
}
END_TEST

/* As memmove(), whichever is ahead. */
START_TEST(every_distance_that_overlaps)
{
	size_t n = sizes[_i];

	for (size_t distance = 0; distance <= 128; distance++)
		moved(8 * PAGE + distance - 64, 8 * PAGE, n);
	moved(8 * PAGE + PAGE + 16, 8 * PAGE, n);
	moved(8 * PAGE, 8 * PAGE + PAGE - 16, n);
	moved(8 * PAGE + n, 8 * PAGE, n);
	moved(8 * PAGE + n - 1, 8 * PAGE, n);
}
END_TEST

static void few(void *dst, const void *src, size_t n)
{
	copy_few(dst, src, n);
}

static void word(void *dst, const void *src, size_t n)
{
	copy_word(dst, src, n);
}

static void in_short(void *dst, const void *src, size_t n)
{
	copy_short(dst, src, n);
}

static void ordered(void *dst, const void *src, size_t n)
{
	copy_ordered(dst, src, n);
}

static void (*const shorts[])(void *dst, const void *src, size_t n) = { few, word, in_short, ordered, copy_plain };

/* The source is no longer than what is copied: AddressSanitizer looks at that. */
static void check_short(void (*copy)(void *dst, const void *src, size_t n), size_t n, size_t to, size_t from)
{
	_Alignas(16) uint8_t dst[ROOM], want[ROOM];
	uint8_t *src = malloc(from + n + !(from + n));

	memset(dst, 0xee, sizeof(dst));
	memset(want, 0xee, sizeof(want));
	for (size_t i = 0; i < from + n; i++)
		src[i] = (uint8_t)(i * 3 + 1);
	memcpy(want + to, src + from, n);
	copy(dst + to, src + from, n);
	ck_assert_msg(memcmp(dst, want, sizeof(dst)) == 0, "%zu bytes from %zu to %zu", n, from, to);
	free(src);
}

START_TEST(every_short_length_and_alignment)
{
	for (size_t n = 0; n <= MAX; n++)
		for (size_t to = 0; to < 16; to++)
			for (size_t from = 0; from < 8; from += 3)
				check_short(shorts[_i], n, to + 16, from);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("copy");
	TCase *t = harness_tcase(suite, "copy");

	tcase_add_loop_test(t, every_length_and_alignment, 0, sizeof(copies) / sizeof(copies[0]));
	tcase_add_test(t, what_overlaps_is_no_error);
	tcase_add_test(t, what_is_not_there_is_an_error);
	tcase_add_test(t, nothing_is_copied_from_nowhere);
	tcase_add_loop_test(t, every_short_length_and_alignment, 0, sizeof(shorts) / sizeof(shorts[0]));
	t = harness_tcase(suite, "pieces");
	tcase_set_timeout(t, 30);
	tcase_add_loop_test(t, every_distance_within_the_page, 0, sizeof(sizes) / sizeof(sizes[0]));
	tcase_add_loop_test(t, every_distance_that_overlaps, 0, sizeof(sizes) / sizeof(sizes[0]));
	return harness_run(suite);
}
