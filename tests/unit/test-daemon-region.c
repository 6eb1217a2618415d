/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared regions: who gets which memory, under which name, with which right.
 */
#include "daemon/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/domain.h"
#include "daemon/object.h"
#include "tests/lib/harness.h"
#include "tests/unit/region_calls.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020
#endif

static struct client a, b;

static void setup(void)
{
	fixture_setup();
	client_open(&a);
	client_open(&b);
}

static void teardown(void)
{
	client_close(&a);
	client_close(&b);
	fixture_teardown();
}

static unsigned regions(void)
{
	return fixture_server->regions.count;
}

/* ---- memory ---- */

START_TEST(a_new_region_is_memory_with_a_key)
{
	struct region_got got = region_create(&a, 5000, REMOTE_READ, 0, NULL);
	int fd = a.fds.fds[0];
	struct stat st;
	char *bytes;

	ck_assert_int_eq(got.status, 0);
	ck_assert(got.created);
	ck_assert_uint_eq(got.size, 8192);
	ck_assert_uint_eq(got.access, LOCAL_WRITE | REMOTE_READ);
	ck_assert_uint_eq(got.flags, 0);
	ck_assert_uint_eq(got.iova % (2 << 20), 0);
	ck_assert_uint_ge(got.iova, 16ull << 40);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, 8192);
	ck_assert_int_eq(st.st_mode & 0777, 0600);
	bytes = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(bytes, MAP_FAILED);
	bytes[8191] = 1;
	munmap(bytes, 8192);
	ck_assert_int_lt(ftruncate(fd, 4096), 0);
	ck_assert_int_lt(ftruncate(fd, 1 << 20), 0);
	ck_assert_int_eq(client_destroy(&a, OBJECT_MR, got.mr), 0);
	ck_assert_uint_eq(regions(), 0);
}
END_TEST

START_TEST(a_name_gives_the_same_memory_key_and_address)
{
	struct region_got made = region_create(&a, 4096, REMOTE_WRITE, 0, "pool/1"), got;
	char byte = 0;

	ck_assert_int_eq(made.status, 0);
	ck_assert_uint_eq(made.flags, REGION_NAMED);
	ck_assert_int_eq(pwrite(a.fds.fds[0], "x", 1, 4095), 1);
	got = region_import(&b, "pool/1", LOCAL_WRITE | REMOTE_READ);
	ck_assert_int_eq(got.status, 0);
	ck_assert(!got.created);
	ck_assert_uint_eq(got.key, made.key);
	ck_assert_uint_eq(got.iova, made.iova);
	ck_assert_uint_eq(got.size, made.size);
	ck_assert_uint_eq(got.region, made.region);
	ck_assert_uint_eq(got.access, LOCAL_WRITE | REMOTE_READ);
	ck_assert(region_fd_writes(&b));
	ck_assert_int_eq(pread(b.fds.fds[0], &byte, 1, 4095), 1);
	ck_assert_int_eq(byte, 'x');
	/* It lives as long as somebody has it. */
	client_close(&a);
	ck_assert_uint_eq(regions(), 1);
	ck_assert_int_eq(client_destroy(&b, OBJECT_MR, got.mr), 0);
	ck_assert_uint_eq(regions(), 0);
	ck_assert_int_eq(region_import(&b, "pool/1", 0).status, ENOENT);
}
END_TEST

START_TEST(a_second_one_in_a_process_has_the_spare_key)
{
	struct region_got made = region_create(&a, 4096, 0, 0, "x"), second, third;

	second = region_import(&a, "x", 0);
	ck_assert_int_eq(second.status, 0);
	ck_assert_uint_ne(second.key, made.key);
	ck_assert_uint_eq(second.key, a.key);
	/* That one is in use now. */
	ck_assert_int_eq(region_import(&a, "x", 0).status, EEXIST);
	ck_assert_int_eq(client_destroy(&a, OBJECT_MR, made.mr), 0);
	third = region_import(&a, "x", 0);
	ck_assert_uint_eq(third.key, made.key);
	ck_assert_int_eq(client_destroy(&a, OBJECT_MR, second.mr), 0);
	ck_assert_uint_eq(region_import(&a, "x", 0).key, a.key);
	/* Another process has the region's own. */
	ck_assert_uint_eq(region_import(&b, "x", 0).key, made.key);
	a.key = 0;
	ck_assert_int_eq(region_import(&a, "x", 0).status, EINVAL);
}
END_TEST

START_TEST(regions_differ_in_key_address_and_number)
{
	struct region_got got[64];

	for (unsigned i = 0; i < 64; i++) {
		got[i] = region_create(&a, 1ull << (i % 36), 0, 0, NULL);
		ck_assert_int_eq(got[i].status, 0);
		for (unsigned j = 0; j < i; j++) {
			ck_assert_uint_ne(got[i].key >> 8, got[j].key >> 8);
			ck_assert_uint_ne(got[i].region, got[j].region);
			ck_assert(got[i].iova + got[i].size < got[j].iova ||
				  got[j].iova + got[j].size < got[i].iova);
		}
	}
	/* No client is leased one of their keys, nor may register under it. */
	a.key = got[0].key;
	ck_assert_int_eq(region_import_any(&a, "x", NULL, 0, REGION_CREATE, 1).status, 0);
	ck_assert_int_eq(region_import(&a, "x", 0).status, EINVAL);
}
END_TEST

START_TEST(huge_pages_or_a_clear_refusal)
{
	static const struct {
		uint32_t flag;
		uint64_t size;
	} pages[] = { { REGION_HUGE_2M, 2 << 20 }, { REGION_HUGE_1G, 1 << 30 } };
	struct region_got got = region_create(&a, 1, 0, pages[_i].flag, NULL);
	struct stat st;

	ck_assert(got.status == 0 || got.status == ENOMEM);
	if (got.status == 0) {
		ck_assert_uint_eq(got.size, pages[_i].size);
		ck_assert_uint_eq(got.flags, pages[_i].flag);
		ck_assert_uint_eq(got.iova % pages[_i].size, 0);
		ck_assert_int_eq(fstat(a.fds.fds[0], &st), 0);
		ck_assert_int_eq(st.st_blksize, (long)pages[_i].size);
		ck_assert_int_eq(st.st_mode & 0777, 0600);
	} else {
		ck_assert_uint_eq(regions(), 0);
	}
}
END_TEST

/* ---- rights ---- */

START_TEST(a_capability_is_as_good_as_its_right)
{
	struct region_got made = region_create(&a, 4096, 0, 0, NULL);
	uint8_t reads[VSD_NONCE_SIZE], writes[VSD_NONCE_SIZE], again[VSD_NONCE_SIZE];

	ck_assert_int_eq(region_capability_of(&a, made.mr, 0, writes), 0);
	ck_assert_int_eq(region_capability_of(&a, made.mr, REGION_READ_ONLY, reads), 0);
	ck_assert_int_ne(memcmp(reads, writes, sizeof(reads)), 0);
	ck_assert_int_eq(region_capability_of(&a, made.mr, 0, again), 0);
	ck_assert_int_eq(memcmp(again, writes, sizeof(writes)), 0);
	/* Nobody changes what it says. */
	ck_assert_int_lt(pwrite(a.fds.fds[0], "x", 1, 0), 0);
	ck_assert_int_eq(region_import_nonce(&b, reads, LOCAL_WRITE).status, EACCES);
	ck_assert_int_eq(region_import_nonce(&b, reads, REMOTE_READ).status, 0);
	ck_assert(!region_fd_writes(&b));
	ck_assert_int_eq(region_import_nonce(&b, writes, LOCAL_WRITE).status, 0);
	ck_assert(region_fd_writes(&b));
	client_close(&a);
	client_close(&b);
	ck_assert_uint_eq(regions(), 0);
	client_open(&b);
	ck_assert_int_eq(region_import_nonce(&b, writes, 0).status, EACCES);
}
END_TEST

START_TEST(a_wrong_nonce_opens_nothing)
{
	struct region_got made = region_create(&a, 4096, 0, 0, NULL);
	uint8_t nonce[VSD_NONCE_SIZE];

	ck_assert_int_eq(region_capability_of(&a, made.mr, 0, nonce), 0);
	nonce[_i / 8] ^= (uint8_t)(1u << _i % 8);
	ck_assert_int_eq(region_import_nonce(&b, nonce, 0).status, EACCES);
	memset(nonce, 0, sizeof(nonce));
	ck_assert_int_eq(region_import_nonce(&b, nonce, 0).status, EACCES);
}
END_TEST

/* Whatever would change the memory, here or from afar. */
static const uint32_t writes[] = { LOCAL_WRITE, LOCAL_WRITE | REMOTE_WRITE,
	LOCAL_WRITE | REMOTE_ATOMIC, MW_BIND, LOCAL_WRITE | REMOTE_READ };

START_TEST(who_may_only_read_does_only_that)
{
	struct region_got got;
	uint8_t nonce[VSD_NONCE_SIZE];

	ck_assert_int_eq(region_create(&a, 4096, 0, REGION_READ_ONLY, "ro").status, 0);
	/* Its creator writes. */
	ck_assert(region_fd_writes(&a));
	ck_assert_int_eq(region_import(&b, "ro", writes[_i]).status, EACCES);
	got = region_import(&b, "ro", REMOTE_READ);
	ck_assert_int_eq(got.status, 0);
	ck_assert_uint_eq(got.flags, REGION_NAMED | REGION_READ_ONLY);
	ck_assert(!region_fd_writes(&b));
	ck_assert_ptr_eq(
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, b.fds.fds[0], 0), MAP_FAILED);
	/* And cannot give more than it has. */
	ck_assert_int_eq(region_export_as(&b, got.mr, 0, "ro"), EACCES);
	ck_assert_int_eq(region_capability_of(&b, got.mr, 0, nonce), EACCES);
	ck_assert_int_eq(
		region_export_as(&b, got.mr, REGION_READ_ONLY | REGION_SEAL, NULL), EACCES);
	ck_assert_int_eq(region_export_as(&b, got.mr, REGION_READ_ONLY, "ro"), 0);
	ck_assert_int_eq(region_capability_of(&b, got.mr, REGION_READ_ONLY, nonce), 0);
	ck_assert_int_eq(region_import_nonce(&a, nonce, LOCAL_WRITE).status, EACCES);
}
END_TEST

START_TEST(a_sealed_one_is_written_by_its_exporter_alone)
{
	struct region_got made = region_create(&a, 4096, 0, 0, NULL), got;
	int fd = fcntl(a.fds.fds[0], F_DUPFD_CLOEXEC, 0);
	char *bytes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	uint8_t nonce[VSD_NONCE_SIZE];

	ck_assert_ptr_ne(bytes, MAP_FAILED);
	ck_assert_int_eq(region_capability_of(&a, made.mr, 0, nonce), 0);
	ck_assert_int_eq(region_export_as(&a, made.mr, REGION_SEAL, "sealed"), 0);
	ck_assert_int_eq(fcntl(fd, F_GET_SEALS) & ~F_SEAL_EXEC,
		F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE);
	bytes[0] = 1;
	munmap(bytes, 4096);
	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	close(fd);
	got = region_import(&b, "sealed", 0);
	ck_assert_int_eq(got.status, 0);
	ck_assert(!region_fd_writes(&b));
	ck_assert_uint_eq(got.flags, REGION_NAMED | REGION_READ_ONLY | REGION_SEAL);
	ck_assert_int_eq(region_import(&b, "sealed", LOCAL_WRITE).status, EACCES);
	/* What was given for writing before reads now, and so do its own further ones. */
	ck_assert_int_eq(region_import_nonce(&b, nonce, LOCAL_WRITE).status, EACCES);
	ck_assert_int_eq(region_import_nonce(&a, nonce, 0).status, 0);
	ck_assert(!region_fd_writes(&a));
	ck_assert_int_eq(region_export_as(&a, made.mr, REGION_SEAL, "sealed"), 0);
}
END_TEST

START_TEST(what_another_may_write_is_not_sealed)
{
	struct region_got made = region_create(&a, 4096, 0, 0, "shared");

	ck_assert_int_eq(region_import(&a, "shared", 0).status, 0);
	ck_assert_int_eq(fcntl(a.fds.fds[0], F_GET_SEALS) & F_SEAL_SEAL, 0);
	ck_assert_int_eq(region_import(&b, "shared", 0).status, 0);
	/* Nor does that one choose seals. */
	ck_assert_int_eq(fcntl(b.fds.fds[0], F_GET_SEALS) & F_SEAL_SEAL, F_SEAL_SEAL);
	ck_assert_int_eq(region_export_as(&a, made.mr, REGION_SEAL, "shared"), EBUSY);
	ck_assert_int_eq(region_export_as(&a, made.mr, REGION_SEAL, NULL), EBUSY);
	/* It takes nothing back, and nothing of the request was done. */
	ck_assert_int_eq(
		region_export_as(&a, made.mr, REGION_SEAL | REGION_PERSIST, "shared"), EBUSY);
	client_close(&a);
	client_close(&b);
	ck_assert_uint_eq(regions(), 0);
}
END_TEST

/* ---- names ---- */

START_TEST(a_name_is_one_regions_and_a_region_has_one)
{
	struct region_got one = region_create(&a, 4096, 0, 0, "one"),
			  two = region_create(&b, 4096, 0, 0, NULL);

	ck_assert_int_eq(region_create(&b, 4096, 0, 0, "one").status, EEXIST);
	ck_assert_uint_eq(regions(), 2);
	ck_assert_int_eq(region_export_as(&b, two.mr, 0, "one"), EEXIST);
	ck_assert_int_eq(region_export_as(&a, one.mr, 0, "two"), EBUSY);
	ck_assert_int_eq(region_export_as(&b, two.mr, 0, "two"), 0);
	ck_assert_int_eq(region_export_as(&b, two.mr, 0, "two"), 0);
	ck_assert_uint_eq(region_import(&a, "two", 0).region, two.region);
	/* Said again, it may say less or more. */
	ck_assert_int_eq(region_export_as(&b, two.mr, REGION_READ_ONLY, "two"), 0);
	ck_assert_int_eq(region_import(&a, "two", LOCAL_WRITE).status, EACCES);
	ck_assert_int_eq(region_release_as(&a, "one"), 0);
	ck_assert_int_eq(region_release_as(&a, "one"), ENOENT);
	ck_assert_int_eq(region_import(&b, "one", 0).status, ENOENT);
	ck_assert_uint_eq(regions(), 2);
	/* It is free again, for the same one too. */
	ck_assert_int_eq(region_export_as(&a, one.mr, 0, "three"), 0);
	ck_assert_int_eq(region_create(&b, 4096, 0, 0, "one").status, 0);
}
END_TEST

static const char *const bad_names[] = { "", "a b", "a\n", "n\xc3\xa4me", "%s", "a\\b", "..*",
	"1234567890123456789012345678901234567890123456789012345678901234x" };

START_TEST(bad_names_are_refused_everywhere)
{
	struct region_got made = region_create(&a, 4096, 0, 0, NULL);

	ck_assert_int_eq(region_create(&a, 4096, 0, 0, bad_names[_i]).status, EINVAL);
	ck_assert_int_eq(region_export_as(&a, made.mr, 0, bad_names[_i]), EINVAL);
	ck_assert_int_eq(region_import(&a, bad_names[_i], 0).status, EINVAL);
	ck_assert_int_eq(region_attach(&a, bad_names[_i], 4096, 0).status, EINVAL);
	ck_assert_int_eq(region_release_as(&a, bad_names[_i]), EINVAL);
	ck_assert_uint_eq(regions(), 1);
}
END_TEST

START_TEST(long_names_are_good)
{
	char name[REGION_NAME_MAX + 1] = ".:/-_09azAZ";

	memset(name + 11, 'x', REGION_NAME_MAX - 11);
	ck_assert_int_eq(region_create(&a, 1, 0, 0, name).status, 0);
	ck_assert_int_eq(region_import(&b, name, 0).status, 0);
}
END_TEST

START_TEST(another_domains_name_is_not_there)
{
	struct region_got made = region_create(&a, 4096, 0, 0, "x"), theirs;
	struct client stranger;
	uint8_t nonce[VSD_NONCE_SIZE];

	client_open_stranger(&stranger);
	ck_assert_int_eq(region_import(&stranger, "x", 0).status, ENOENT);
	ck_assert_int_eq(region_release_as(&stranger, "x"), ENOENT);
	theirs = region_create(&stranger, 4096, 0, 0, "x");
	ck_assert_int_eq(theirs.status, 0);
	ck_assert_uint_ne(theirs.region, made.region);
	ck_assert_int_eq(region_release_as(&stranger, "x"), 0);
	/* A capability crosses, but does not make them masters of the region. */
	ck_assert_int_eq(region_capability_of(&a, made.mr, 0, nonce), 0);
	theirs = region_import_nonce(&stranger, nonce, LOCAL_WRITE);
	ck_assert_uint_eq(theirs.region, made.region);
	ck_assert_int_eq(region_export_as(&stranger, theirs.mr, 0, "x"), EACCES);
	ck_assert_int_eq(region_export_as(&stranger, theirs.mr, 0, "y"), EACCES);
	ck_assert_int_eq(region_persist_mr(&stranger, theirs.mr, true), EACCES);
	ck_assert_int_eq(region_persist_mr(&stranger, theirs.mr, false), EACCES);
	ck_assert_int_eq(region_capability_of(&stranger, theirs.mr, 0, nonce), 0);
	/* They keep it, and its domain with it, which pays. */
	client_close(&a);
	client_close(&b);
	ck_assert_uint_eq(regions(), 2);
	client_close(&stranger);
	ck_assert_uint_eq(regions(), 0);
}
END_TEST

START_TEST(of_many_that_attach_one_creates)
{
	struct region_got one = region_attach(&a, "pool", 10000, 0),
			  two = region_attach(&b, "pool", 10000, 0);

	ck_assert_int_eq(one.status, 0);
	ck_assert(one.created);
	ck_assert_int_eq(two.status, 0);
	ck_assert(!two.created);
	ck_assert_uint_eq(two.region, one.region);
	/* Pages count: 12 KiB are there. */
	b.key += 256;
	ck_assert_int_eq(region_attach(&b, "pool", 12288, 0).status, 0);
	b.key += 256;
	ck_assert_int_eq(region_attach(&b, "pool", 12289, 0).status, EINVAL);
	two = region_attach(&b, "pool", 1, REGION_READ_ONLY);
	ck_assert_int_eq(two.status, 0);
	/* It keeps the flags that it has. */
	ck_assert(region_fd_writes(&b));
	ck_assert_uint_eq(two.access, LOCAL_WRITE);
	one = region_attach(&a, "ro", 1, REGION_READ_ONLY);
	ck_assert_uint_eq(one.access, LOCAL_WRITE);
	b.key += 256;
	two = region_attach(&b, "ro", 1, REGION_READ_ONLY);
	ck_assert_int_eq(two.status, 0);
	ck_assert_uint_eq(two.access, 0);
	ck_assert(!region_fd_writes(&b));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("region");
	TCase *tcase = harness_tcase(suite, "region");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_new_region_is_memory_with_a_key);
	tcase_add_test(tcase, a_name_gives_the_same_memory_key_and_address);
	tcase_add_test(tcase, a_second_one_in_a_process_has_the_spare_key);
	tcase_add_test(tcase, regions_differ_in_key_address_and_number);
	tcase_add_loop_test(tcase, huge_pages_or_a_clear_refusal, 0, 2);
	tcase_add_test(tcase, a_capability_is_as_good_as_its_right);
	tcase_add_loop_test(tcase, a_wrong_nonce_opens_nothing, 0, 8 * VSD_NONCE_SIZE);
	tcase_add_loop_test(
		tcase, who_may_only_read_does_only_that, 0, sizeof(writes) / sizeof(writes[0]));
	tcase_add_test(tcase, a_sealed_one_is_written_by_its_exporter_alone);
	tcase_add_test(tcase, what_another_may_write_is_not_sealed);
	tcase_add_test(tcase, a_name_is_one_regions_and_a_region_has_one);
	tcase_add_loop_test(tcase, bad_names_are_refused_everywhere, 0,
		sizeof(bad_names) / sizeof(bad_names[0]));
	tcase_add_test(tcase, long_names_are_good);
	tcase_add_test(tcase, another_domains_name_is_not_there);
	tcase_add_test(tcase, of_many_that_attach_one_creates);
	return harness_run(suite);
}
