/* SPDX-License-Identifier: BSD-2-Clause */
/* client/soft/mr_place.c: what stands in the page, how often the daemon is asked, and what it may answer. */
#include "client/soft/mr_place.h"

#include <errno.h>
#include <sys/mman.h>

#include "client/control/control.h"
#include "client/soft/rt_private.h"
#include "proto/limits.h"
#include "tests/lib/harness.h"
#include "tests/unit/fake_daemon.h"

static struct fake_daemon fake;
static struct mr_places *places;
static struct soft_pd pd;
static struct vsd_map *map;

/* What the next answer is; the fake daemon is a thread, and a socket orders nothing for ThreadSanitizer. */
static struct {
	_Atomic int status;
	_Atomic uint32_t first, step, places, handles;
} answer;
static _Atomic uint32_t asked, asked_for;

static bool handle(struct fake_daemon *f, int fd, const struct frame_header *header, const void *body)
{
	static uint32_t at[VSD_MR_PLACES + 1], handles[VSD_MR_PLACES + 1];
	Vsd__MrPlacesReply reply = VSD__MR_PLACES_REPLY__INIT;
	Vsd__MrPlacesRequest *request = vsd__mr_places_request__unpack(NULL, header->length, body);
	uint32_t first = answer.first, step = answer.step;
	int status = answer.status;

	(void)f;
	ck_assert_uint_eq(header->opcode, VSD__OP__OP_MR_PLACES);
	asked++;
	asked_for = request->count;
	vsd__mr_places_request__free_unpacked(request, NULL);
	for (uint32_t i = 0; i < answer.places; i++) {
		at[i] = first + i * step;
		handles[i] = 1000 + first + i;
	}
	answer.first += answer.places * step;
	reply.n_places = answer.places;
	reply.places = at;
	reply.n_handles = answer.handles;
	reply.handles = handles;
	return fake_reply(fd, header, status, status ? NULL : &reply.base, NULL);
}

static void setup(void)
{
	harness_fds_setup();
	answer.status = 0;
	answer.first = 3;
	answer.step = 100; /* each on a page of its own */
	answer.places = answer.handles = 4;
	asked = 0;
	fake_start(&fake, handle);
	fake.features = VSD_FEATURE_MR_PLACES;
	rt.page = mmap(NULL, VSD_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	map = mmap(NULL, VSD_MAP_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert(rt.page != MAP_FAILED && (void *)map != MAP_FAILED);
	rt.map = map;
	pd.pd.handle = 77;
	places = mr_places_new(1);
	ck_assert_ptr_nonnull(places);
}

static void teardown(void)
{
	mr_places_free(places);
	munmap(rt.page, VSD_PAGE_SIZE);
	munmap(map, VSD_MAP_SIZE);
	rt.page = NULL;
	rt.map = NULL;
	control_close();
	fake_stop(&fake);
	harness_fds_teardown();
}

static struct soft_mr mr_of(uint32_t number)
{
	return (struct soft_mr){
		.mr = { .length = 4096 + number },
		.mem = (uint8_t *)0x10000,
		.iova = 0x20000,
		.key = number << 8,
		.access = IBV_ACCESS_LOCAL_WRITE,
		.pd = &pd,
	};
}

static void is_written(const struct soft_mr *mr)
{
	const struct vsd_mr *line = &rt.page->mrs[mr->place - 1];

	ck_assert_uint_ne(line->gen, 0);
	ck_assert_uint_eq(line->addr, (uintptr_t)mr->mem);
	ck_assert_uint_eq(line->length, mr->mr.length);
	ck_assert_uint_eq(line->iova, mr->iova);
	ck_assert_uint_eq(line->key, mr->key);
	ck_assert_uint_eq(line->access, mr->access);
	ck_assert_uint_eq(line->pd, 77);
}

START_TEST(written_changed_and_gone)
{
	struct soft_mr mr = mr_of(1);
	uint64_t gen, changes;

	ck_assert_int_eq(control_connect(), 0);
	ck_assert_int_eq(mr_place_take(places, &mr), 0);
	ck_assert_uint_eq(mr.place, 3 + 1);
	ck_assert_uint_eq(mr.handle, 1003);
	is_written(&mr);
	gen = rt.page->mrs[3].gen;
	changes = rt.page->mr_changes;
	mr.mr.length = 5;
	mr.access = 0;
	mr_place_change(&mr);
	is_written(&mr);
	ck_assert_uint_ne(rt.page->mrs[3].gen, gen);
	ck_assert_uint_gt(rt.page->mr_changes, changes);
	changes = rt.page->mr_changes;
	mr_place_put(places, &mr);
	ck_assert_uint_eq(mr.place, 0);
	ck_assert_uint_eq(rt.page->mrs[3].gen, 0);
	ck_assert_uint_gt(rt.page->mr_changes, changes);
	ck_assert_uint_eq(asked, 1);
}
END_TEST

START_TEST(a_place_comes_back_after_all_others)
{
	struct soft_mr mr = mr_of(1), again = mr_of(2);
	uint64_t gen;

	ck_assert_int_eq(control_connect(), 0);
	ck_assert_int_eq(mr_place_take(places, &mr), 0);
	gen = rt.page->mrs[3].gen;
	mr_place_put(places, &mr);
	for (unsigned i = 1; i <= 4; i++) {
		ck_assert_int_eq(mr_place_take(places, &again), 0);
		ck_assert_uint_eq(again.place, 3 + i % 4 * 100 + 1);
		if (i < 4)
			mr_place_put(places, &again);
	}
	ck_assert_uint_ne(rt.page->mrs[3].gen, gen);
	for (unsigned i = 0; i < 10000; i++) {
		ck_assert_int_eq(mr_place_take(places, &mr), 0);
		mr_place_put(places, &mr);
	}
	ck_assert_uint_eq(asked, 1);
}
END_TEST

START_TEST(as_many_again_are_asked_for)
{
	struct soft_mr mrs[12];

	ck_assert_int_eq(control_connect(), 0);
	for (unsigned i = 0; i < 12; i++) {
		mrs[i] = mr_of(i);
		ck_assert_int_eq(mr_place_take(places, &mrs[i]), 0);
		if (i == 0)
			ck_assert_uint_gt(asked_for, 1);
	}
	ck_assert_uint_eq(asked, 3);
	ck_assert_uint_eq(asked_for, 8);
	for (unsigned i = 0; i < 12; i++)
		is_written(&mrs[i]);
}
END_TEST

static const struct {
	const char *name;
	int status;
	uint32_t first, places, handles;
} answers[] = {
	{ "none", 0, 0, 0, 0 },
	{ "a refusal", ENOMEM, 0, 0, 0 },
	{ "places without handles", 0, 0, 3, 2 },
	{ "handles without places", 0, 0, 2, 3 },
	{ "too many", 0, 0, VSD_MR_PLACES + 1, VSD_MR_PLACES + 1 },
	{ "a place behind the page", 0, VSD_PAGE_MRS - 1, 2, 2 },
};

/* Then it is registered by request, and not asked again for a while. */
START_TEST(no_place_to_be_had)
{
	struct soft_mr mr = mr_of(1);

	answer.status = answers[_i].status;
	answer.first = answers[_i].first;
	answer.step = 1;
	answer.places = answers[_i].places;
	answer.handles = answers[_i].handles;
	ck_assert_int_eq(control_connect(), 0);
	for (unsigned i = 0; i < 20; i++) {
		ck_assert_msg(mr_place_take(places, &mr) == -EAGAIN, "%s", answers[_i].name);
		ck_assert_uint_eq(mr.place, 0);
	}
	ck_assert_uint_eq(asked, 1);
	answer.status = 0;
	answer.first = 8;
	answer.places = answer.handles = 4;
	for (unsigned i = 0; i < 1000 && mr_place_take(places, &mr) < 0; i++)
		;
	ck_assert_uint_eq(mr.place, 9);
	ck_assert_uint_eq(asked, 2);
}
END_TEST

START_TEST(not_from_an_older_daemon)
{
	struct soft_mr mr = mr_of(1);

	fake.features = 0;
	ck_assert_int_eq(control_connect(), 0);
	ck_assert_int_eq(mr_place_take(places, &mr), -EAGAIN);
	ck_assert_uint_eq(asked, 0);
}
END_TEST

START_TEST(not_while_somebody_watches)
{
	struct soft_mr mr = mr_of(1), other = mr_of(2);

	ck_assert_int_eq(control_connect(), 0);
	ck_assert_int_eq(mr_place_take(places, &mr), 0);
	map->watched = 1;
	ck_assert_int_eq(mr_place_take(places, &other), -EAGAIN);
	mr_place_put(places, &mr); /* and the daemon is told to look */
	ck_assert_uint_eq(asked, 2);
	ck_assert_uint_eq(asked_for, 0);
	map->watched = 0;
	ck_assert_int_eq(mr_place_take(places, &other), 0);
	ck_assert_uint_eq(asked, 2);
}
END_TEST

START_TEST(not_without_a_session)
{
	struct soft_mr mr = mr_of(1), other = mr_of(2);

	ck_assert_int_eq(control_connect(), 0);
	ck_assert_int_eq(mr_place_take(places, &mr), 0);
	control_lost();
	ck_assert_int_eq(mr_place_take(places, &other), -EAGAIN);
	mr_place_put(places, &mr);
	ck_assert_uint_eq(asked, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client_place");
	TCase *t = harness_tcase(suite, "places");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, written_changed_and_gone);
	tcase_add_test(t, a_place_comes_back_after_all_others);
	tcase_add_test(t, as_many_again_are_asked_for);
	tcase_add_loop_test(t, no_place_to_be_had, 0, sizeof(answers) / sizeof(answers[0]));
	tcase_add_test(t, not_from_an_older_daemon);
	tcase_add_test(t, not_while_somebody_watches);
	tcase_add_test(t, not_without_a_session);
	return harness_run(suite);
}
