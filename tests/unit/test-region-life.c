/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared regions: how long they stay, and who pays for it.
 */
#include "daemon/region.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/backend.h"
#include "daemon/domain.h"
#include "daemon/object.h"
#include "tests/lib/harness.h"
#include "tests/unit/region_calls.h"

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

/* ---- how long ---- */

START_TEST(a_persistent_region_outlives_everybody)
{
	struct region_got made = region_create(&a, 8192, 0, REGION_PERSIST, "kept"), got;
	char byte = 0;

	ck_assert_uint_eq(made.flags, REGION_PERSIST | REGION_NAMED);
	ck_assert_int_eq(pwrite(a.fds.fds[0], "k", 1, 8000), 1);
	client_close(&a);
	client_close(&b);
	ck_assert_uint_eq(regions(), 1);
	ck_assert_uint_eq(fixture_server->n_objects, 0);
	/* Its domain is there still, and is charged. */
	ck_assert(!list_empty(&fixture_server->domains.domains));
	client_open(&a);
	got = region_attach(&a, "kept", 8192, 0);
	ck_assert(!got.created);
	ck_assert_uint_eq(got.key, made.key);
	ck_assert_uint_eq(got.iova, made.iova);
	ck_assert_uint_eq(got.flags, REGION_PERSIST | REGION_NAMED);
	ck_assert_int_eq(pread(a.fds.fds[0], &byte, 1, 8000), 1);
	ck_assert_int_eq(byte, 'k');
	ck_assert_int_eq(client_destroy(&a, OBJECT_MR, got.mr), 0);
	ck_assert_uint_eq(regions(), 1);
	ck_assert_int_eq(region_release_as(&a, "kept"), 0);
	ck_assert_uint_eq(regions(), 0);
}
END_TEST

START_TEST(a_released_region_goes_with_its_last_user)
{
	struct region_got made = region_create(&a, 4096, 0, REGION_PERSIST, "x");
	uint8_t nonce[VSD_NONCE_SIZE];

	ck_assert_int_eq(region_release_as(&b, "x"), 0);
	ck_assert_uint_eq(regions(), 1);
	ck_assert_int_eq(region_import(&b, "x", 0).status, ENOENT);
	/* Capabilities hold. */
	ck_assert_int_eq(region_capability_of(&a, made.mr, 0, nonce), 0);
	ck_assert_int_eq(region_import_nonce(&b, nonce, 0).status, 0);
	client_close(&a);
	ck_assert_uint_eq(regions(), 1);
	client_close(&b);
	ck_assert_uint_eq(regions(), 0);
}
END_TEST

START_TEST(persistence_comes_and_goes)
{
	struct region_got made = region_create(&a, 4096, 0, 0, NULL);

	ck_assert_int_eq(region_persist_mr(&a, made.mr, true), EINVAL);
	ck_assert_int_eq(region_export_as(&a, made.mr, REGION_PERSIST, NULL), EINVAL);
	ck_assert_int_eq(region_export_as(&a, made.mr, 0, "x"), 0);
	ck_assert_int_eq(region_persist_mr(&a, made.mr, true), 0);
	ck_assert_int_eq(region_persist_mr(&a, made.mr, true), 0);
	ck_assert_int_eq(region_persist_mr(&a, made.mr, false), 0);
	ck_assert_int_eq(region_persist_mr(&a, made.mr, false), 0);
	/* Naming it again does not take it away. */
	ck_assert_int_eq(region_export_as(&a, made.mr, REGION_PERSIST, "x"), 0);
	ck_assert_int_eq(region_export_as(&a, made.mr, 0, "x"), 0);
	client_close(&a);
	ck_assert_uint_eq(regions(), 1);
	made = region_import(&b, "x", 0);
	ck_assert_int_eq(region_persist_mr(&b, made.mr, false), 0);
	client_close(&b);
	ck_assert_uint_eq(regions(), 0);
}
END_TEST

START_TEST(who_is_alone_keeps_nothing)
{
	struct region_got got;

	list_for_each (pos, &fixture_server->domains.domains)
		container_of(pos, struct domain, link)->key.alone = 1;
	ck_assert_int_eq(region_create(&a, 4096, 0, REGION_PERSIST, "x").status, EOPNOTSUPP);
	ck_assert_uint_eq(regions(), 0);
	got = region_create(&a, 4096, 0, 0, "x");
	ck_assert_int_eq(region_persist_mr(&a, got.mr, true), EOPNOTSUPP);
	list_for_each (pos, &fixture_server->domains.domains)
		container_of(pos, struct domain, link)->key.alone = 0;
}
END_TEST

/* ---- who pays ---- */

static const struct {
	enum slot slot;
	uint64_t limit; /* that one region reaches */
	int error;
} quotas[] = {
	{ SLOT_REGIONS, 1, EDQUOT },
	{ SLOT_REGION_BYTES, 8192, EDQUOT },
	{ SLOT_PERSISTENT_BYTES, 8192, EDQUOT },
	/* Two clients with five each, the region, and the namespace for its name. */
	{ SLOT_FDS, 12, ENFILE },
};

START_TEST(what_is_over_the_limit_is_not_there)
{
	struct region_got made;

	region_limit(quotas[_i].slot, quotas[_i].limit);
	made = region_create(&a, 8192, 0, REGION_PERSIST, "x");
	ck_assert_int_eq(made.status, 0);
	ck_assert_int_eq(region_create(&b, 1, 0, REGION_PERSIST, "y").status, quotas[_i].error);
	ck_assert_int_eq(region_attach(&b, "y", 1, REGION_PERSIST).status, quotas[_i].error);
	ck_assert_uint_eq(regions(), 1);
	/* What it was made of does not end the charge: only its own end does. */
	client_close(&a);
	ck_assert_int_eq(region_create(&b, 1, 0, REGION_PERSIST, "y").status,
		quotas[_i].slot == SLOT_FDS ? 0 : quotas[_i].error);
	ck_assert_int_eq(region_release_as(&b, "x"), 0);
	ck_assert_int_eq(region_create(&b, 8192, 0, REGION_PERSIST, "z").status, 0);
	region_release_as(&b, "y");
	region_release_as(&b, "z");
	region_limit(quotas[_i].slot, quotas[_i].limit - 1);
	client_close(&b);
	ck_assert_uint_eq(regions(), 0);
	client_open(&b);
	ck_assert_int_eq(region_create(&b, 8192, 0, REGION_PERSIST, "x").status,
		quotas[_i].slot == SLOT_FDS ? 0 : quotas[_i].error);
	if (quotas[_i].slot == SLOT_FDS)
		ck_assert_int_eq(region_release_as(&b, "x"), 0);
}
END_TEST

/* Whoever kept as many as he may can still connect to take them away. */
START_TEST(kept_regions_leave_fds_for_sessions)
{
	struct region_got got = { .status = 0 };
	char name[16];
	unsigned n = 0;

	region_limit(SLOT_FDS, 40);
	for (; got.status == 0; n++) {
		snprintf(name, sizeof(name), "%u", n);
		got = region_create(&a, 1, 0, REGION_PERSIST, name);
	}
	ck_assert_int_eq(got.status, EDQUOT);
	ck_assert_uint_eq(n, 21);
	client_close(&a);
	client_close(&b);
	client_open(&a);
	while (--n > 0) {
		snprintf(name, sizeof(name), "%u", n - 1);
		ck_assert_int_eq(region_release_as(&a, name), 0);
	}
}
END_TEST

START_TEST(persistence_that_is_too_dear_is_refused_alone)
{
	struct region_got made;

	region_limit(SLOT_PERSISTENT_BYTES, 4095);
	made = region_create(&a, 4096, 0, 0, "x");
	ck_assert_int_eq(region_persist_mr(&a, made.mr, true), EDQUOT);
	ck_assert_int_eq(region_export_as(&a, made.mr, REGION_PERSIST, "x"), EDQUOT);
	/* A name that came with it is not there; one that was there is. */
	ck_assert_int_eq(region_import(&b, "x", 0).status, 0);
	made = region_create(&a, 4096, 0, 0, NULL);
	ck_assert_int_eq(region_export_as(&a, made.mr, REGION_PERSIST, "y"), EDQUOT);
	ck_assert_int_eq(region_import(&b, "y", 0).status, ENOENT);
}
END_TEST

START_TEST(a_failing_device_leaves_nothing)
{
	ck_assert_int_eq(region_create(&b, 4096, 0, 0, "there").status, 0);
	backend_fake_fail(1, ENXIO);
	if (_i == 0) {
		ck_assert_int_eq(region_create(&a, 4096, 0, REGION_PERSIST, "x").status, ENXIO);
	} else {
		ck_assert_int_eq(region_import(&a, "there", 0).status, ENXIO);
		ck_assert_int_eq(region_import(&a, "there", 0).status, 0);
	}
	backend_fake_fail(0, 0);
	ck_assert_uint_eq(regions(), 1);
	ck_assert_int_eq(region_import(&b, "x", 0).status, ENOENT);
}
END_TEST

START_TEST(a_server_that_ends_frees_what_is_kept)
{
	struct region_got got = region_create(&a, 4096, 0, REGION_PERSIST, "x");

	ck_assert_int_eq(got.status, 0);
	ck_assert_int_eq(region_create(&a, 4096, 0, REGION_PERSIST, "y").status, 0);
	client_close(&a);
	client_close(&b);
	ck_assert_uint_eq(regions(), 2);
	fixture_stop();
	fixture_setup();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("region-life");
	TCase *tcase = harness_tcase(suite, "region-life");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_persistent_region_outlives_everybody);
	tcase_add_test(tcase, a_released_region_goes_with_its_last_user);
	tcase_add_test(tcase, persistence_comes_and_goes);
	tcase_add_test(tcase, who_is_alone_keeps_nothing);
	tcase_add_loop_test(
		tcase, what_is_over_the_limit_is_not_there, 0, sizeof(quotas) / sizeof(quotas[0]));
	tcase_add_test(tcase, kept_regions_leave_fds_for_sessions);
	tcase_add_test(tcase, persistence_that_is_too_dear_is_refused_alone);
	tcase_add_loop_test(tcase, a_failing_device_leaves_nothing, 0, 2);
	tcase_add_test(tcase, a_server_that_ends_frees_what_is_kept);
	return harness_run(suite);
}
