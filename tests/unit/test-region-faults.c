/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared regions where memory or fds run out: at each allocation, and with each number of fds left, the request fails
 * with a plain error or succeeds, and nothing of one that failed is there.
 */
#include "daemon/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/object.h"
#include "tests/lib/harness.h"
#include "tests/unit/region_calls.h"

#define FDS_LOW 200

static struct client a, b;
static struct region_got there;

static void fds_drop(void)
{
	fdlist_deinit(&a.fds);
	fdlist_deinit(&b.fds);
	a.fds = b.fds = (struct fdlist)FDLIST_NULL;
}

static void setup(void)
{
	fixture_setup();
	client_open(&a);
	client_open(&b);
	there = region_create(&b, 4096, REMOTE_READ, 0, "there");
	ck_assert_int_eq(there.status, 0);
	fds_drop();
}

static void teardown(void)
{
	client_close(&a);
	client_close(&b);
	fixture_teardown();
}

/* ---- the requests ---- */

static char name_new[] = "new", name_there[] = "there";

static void request_create(struct client *client)
{
	Vsd__RegionCreateRequest request = VSD__REGION_CREATE_REQUEST__INIT;

	request.context = client->context;
	request.pd = client->pd;
	request.size = 4096;
	request.flags = REGION_PERSIST;
	request.name = name_new;
	client_request(client, VSD__OP__OP_REGION_CREATE, &request.base);
}

static void request_import(struct client *client)
{
	Vsd__RegionImportRequest request = VSD__REGION_IMPORT_REQUEST__INIT;

	request.context = client->context;
	request.pd = client->pd;
	request.name = name_there;
	client_request(client, VSD__OP__OP_REGION_IMPORT, &request.base);
}

static void request_attach(struct client *client)
{
	Vsd__RegionImportRequest request = VSD__REGION_IMPORT_REQUEST__INIT;

	request.context = client->context;
	request.pd = client->pd;
	request.name = name_new;
	request.has_size = 1;
	request.size = 8192;
	request.flags = REGION_CREATE | REGION_PERSIST | REGION_READ_ONLY;
	client_request(client, VSD__OP__OP_REGION_IMPORT, &request.base);
}

/* Of b's region. */
static void request_export(struct client *client, char *name)
{
	Vsd__RegionExportRequest request = VSD__REGION_EXPORT_REQUEST__INIT;

	request.context = b.context;
	request.mr = there.mr;
	request.flags = REGION_READ_ONLY;
	request.name = name;
	client_request(client, VSD__OP__OP_REGION_EXPORT, &request.base);
}

static void request_capability(struct client *client)
{
	request_export(client, NULL);
}

static void request_name(struct client *client)
{
	request_export(client, name_there);
}

static void request_pd(struct client *client)
{
	Vsd__PdAllocRequest request = VSD__PD_ALLOC_REQUEST__INIT;

	request.context = client->context;
	client_request(client, VSD__OP__OP_PD_ALLOC, &request.base);
}

static const struct {
	void (*send)(struct client *client);
	struct client *client;
	unsigned fds; /* that the daemon has open at once while it handles it */
} calls[] = {
	{ request_create, &a, 2 },
	{ request_import, &a, 1 },
	{ request_attach, &a, 2 },
	{ request_capability, &b, 2 },
	{ request_name, &b, 0 },
	{ request_pd, &a, 0 },
};
#define CALLS (int)(sizeof(calls) / sizeof(calls[0]))

/* What must be as it was when a request failed. */
struct state {
	unsigned regions, objects, pds;
	int fds;
};

static struct state state_now(void)
{
	return (struct state){
		.regions = fixture_server->regions.count,
		.objects = fixture_server->n_objects,
		.pds = fixture_server->pd_numbers.count,
		.fds = harness_fds_open(),
	};
}

static void state_is(const struct state *state)
{
	fds_drop();
	ck_assert_uint_eq(fixture_server->regions.count, state->regions);
	ck_assert_uint_eq(fixture_server->n_objects, state->objects);
	ck_assert_uint_eq(fixture_server->pd_numbers.count, state->pds);
	ck_assert_int_eq(harness_fds_open(), state->fds);
	ck_assert_int_eq(region_import(&a, "new", 0).status, ENOENT);
}

static void forget(void)
{
	region_release_as(&a, "new");
	region_release_as(&b, "there");
}

/* ---- fds ---- */

static unsigned hog(int *hogs, unsigned spare)
{
	unsigned n = 0;

	while (n < FDS_LOW && (hogs[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		n++;
	ck_assert_uint_lt(n, FDS_LOW);
	for (; spare > 0; spare--)
		close(hogs[--n]);
	return n;
}

START_TEST(without_fds_nothing_is_made)
{
	struct rlimit old, low;
	int hogs[FDS_LOW], status = 0;
	struct state before;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = (struct rlimit){ .rlim_cur = FDS_LOW, .rlim_max = old.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
	before = state_now();
	for (unsigned spare = 0; spare <= calls[_i].fds; spare++) {
		unsigned n = hog(hogs, spare);

		calls[_i].send(calls[_i].client);
		status = client_answer(calls[_i].client, NULL, NULL);
		while (n > 0)
			close(hogs[--n]);
		if (spare < calls[_i].fds) {
			ck_assert(status == EMFILE || status == ENFILE);
			state_is(&before);
		}
	}
	ck_assert_int_eq(status, 0);
	forget();
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
}
END_TEST

/* ---- memory ---- */

#ifndef VERBSD_SANITIZED
static unsigned fail_at; /* this allocation from now on; 0: none */

static bool fails(void)
{
	if (fail_at == 0 || --fail_at > 0)
		return false;
	errno = ENOMEM;
	return true;
}

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t size);

void *malloc(size_t size)
{
	return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
	return fails() ? NULL : __libc_realloc(old, size);
}

START_TEST(without_memory_nothing_is_made)
{
	const struct state before = state_now();
	unsigned failed = 0;
	int status = -1;

	for (unsigned n = 1; status != 0; n++) {
		unsigned left;

		ck_assert_uint_lt(n, 1000);
		calls[_i].send(calls[_i].client);
		fail_at = n;
		fixture_turn();
		left = fail_at;
		fail_at = 0;
		status = client_answer(calls[_i].client, NULL, NULL);
		if (status != 0) {
			ck_assert_int_eq(status, ENOMEM);
			ck_assert_uint_eq(left, 0);
			state_is(&before);
			failed++;
		}
	}
	/* A name said again and a capability need none. */
	ck_assert(failed > 0 || calls[_i].send == request_name ||
		  calls[_i].send == request_capability);
	forget();
}
END_TEST
#endif

int main(void)
{
	Suite *suite = suite_create("region-faults");
	TCase *tcase = harness_tcase(suite, "region-faults");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, without_fds_nothing_is_made, 0, CALLS);
#ifndef VERBSD_SANITIZED
	tcase_add_loop_test(tcase, without_memory_nothing_is_made, 0, CALLS);
#endif
	return harness_run(suite);
}
