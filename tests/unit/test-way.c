/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long SENDs go, by what they took: the times are the test's.
 */
#include "client/soft/way.h"
#include "tests/lib/harness.h"

#define LENGTH 65536u
#define TRIAL  (WAY_SKIP + WAY_TRIAL)

static struct ways ways;
static uint64_t cost[2]; /* ns of a message of LENGTH, by way */

static void setup(void)
{
	memset(&ways, 0, sizeof(ways));
	cost[WAY_FETCH] = 4000;
	cost[WAY_CHUNKS] = 4000;
}

static enum way next(void)
{
	return ways_next(&ways, LENGTH);
}

static void one(uint64_t ns)
{
	ways_took(&ways, way_size(LENGTH), next(), LENGTH, ns);
}

/* Messages one after the other: how many of them went in chunks. */
static unsigned messages(unsigned n)
{
	unsigned chunks = 0;

	for (unsigned i = 0; i < n; i++) {
		chunks += next() == WAY_CHUNKS;
		one(cost[next()]);
	}
	return chunks;
}

START_TEST(both_are_tried)
{
	ck_assert_uint_eq(messages(TRIAL), 0);
	ck_assert_uint_eq(messages(TRIAL), TRIAL);
	ck_assert_uint_eq(messages(WAY_HOLD), 0); /* neither is better: as before */
}
END_TEST

START_TEST(the_faster_one_is_kept)
{
	cost[_i] /= 2;
	messages(2 * TRIAL);
	ck_assert_uint_eq(messages(WAY_HOLD), _i == WAY_CHUNKS ? WAY_HOLD : 0);
}
END_TEST

START_TEST(a_little_faster_is_not_enough)
{
	cost[WAY_CHUNKS] = cost[WAY_FETCH] * 9 / 10;
	messages(2 * TRIAL);
	ck_assert_uint_eq(messages(WAY_HOLD), 0);
	cost[WAY_CHUNKS] = cost[WAY_FETCH] * 17 / 20;
	messages(2 * TRIAL);
	ck_assert_uint_eq(messages(WAY_HOLD), WAY_HOLD);
	/* Nor is it to go back. */
	cost[WAY_FETCH] = cost[WAY_CHUNKS] * 9 / 10;
	messages(2 * TRIAL);
	ck_assert_uint_eq(messages(2 * WAY_HOLD), 2 * WAY_HOLD);
}
END_TEST

/* The machine is another one now, or the program. */
START_TEST(what_was_faster_is_tried_again)
{
	cost[WAY_CHUNKS] /= 2;
	messages(2 * TRIAL + WAY_HOLD);
	cost[WAY_FETCH] /= 4;
	ck_assert_uint_eq(messages(TRIAL), TRIAL);
	ck_assert_uint_eq(messages(TRIAL), 0);
	ck_assert_uint_eq(messages(WAY_HOLD), 0);
}
END_TEST

START_TEST(trials_become_rare)
{
	unsigned hold = WAY_HOLD;

	for (unsigned i = 0; i < 10; i++) {
		ck_assert_uint_eq(messages(2 * TRIAL), TRIAL);
		ck_assert_uint_eq(messages(hold), 0);
		hold = hold < WAY_HOLD_MAX ? 2 * hold : hold;
	}
	/* One that changed something makes them frequent. */
	cost[WAY_CHUNKS] /= 2;
	messages(2 * TRIAL);
	ck_assert_uint_eq(messages(WAY_HOLD), WAY_HOLD);
	ck_assert_uint_eq(messages(2 * TRIAL), TRIAL);
}
END_TEST

/* A thread that lost its processor says nothing about the way. */
START_TEST(the_slowest_do_not_count)
{
	cost[WAY_CHUNKS] = cost[WAY_FETCH] / 2;
	messages(TRIAL + WAY_SKIP);
	for (unsigned i = 0; i < WAY_TRIM; i++)
		one(100000000);
	messages(WAY_TRIAL - WAY_TRIM);
	ck_assert_uint_eq(messages(WAY_HOLD), WAY_HOLD);
}
END_TEST

START_TEST(one_more_slow_one_does)
{
	cost[WAY_CHUNKS] = cost[WAY_FETCH] / 2;
	messages(TRIAL + WAY_SKIP);
	for (unsigned i = 0; i < WAY_TRIM + 1; i++)
		one(100000000);
	messages(WAY_TRIAL - WAY_TRIM - 1);
	ck_assert_uint_eq(messages(WAY_HOLD), 0);
}
END_TEST

/* What was under way when the trial began. */
START_TEST(the_first_ones_do_not_count)
{
	cost[WAY_CHUNKS] = cost[WAY_FETCH] / 2;
	messages(TRIAL);
	for (unsigned i = 0; i < WAY_SKIP; i++)
		one(100000000);
	for (unsigned i = 0; i < WAY_TRIAL; i++)
		one(i < WAY_TRIM ? 100000000 : cost[WAY_CHUNKS]);
	ck_assert_uint_eq(messages(WAY_HOLD), WAY_HOLD);
}
END_TEST

/* Sent before the way changed, acknowledged after it. */
START_TEST(the_other_way_does_not_count)
{
	messages(TRIAL);
	for (unsigned i = 0; i < 10 * TRIAL; i++)
		ways_took(&ways, way_size(LENGTH), WAY_FETCH, LENGTH, 1);
	ck_assert_int_eq(next(), WAY_CHUNKS);
	ck_assert_uint_eq(messages(TRIAL), TRIAL);
}
END_TEST

/* Several at once are as good as one, and cost what they cost together. */
START_TEST(bytes_count)
{
	for (unsigned i = 0; i < TRIAL; i++)
		ways_took(&ways, way_size(LENGTH), WAY_FETCH, LENGTH, 4000);
	for (unsigned i = 0; i < TRIAL; i++)
		ways_took(&ways, way_size(LENGTH), WAY_CHUNKS, 4 * (uint64_t)LENGTH, 8000);
	ck_assert_int_eq(next(), WAY_CHUNKS);
	ck_assert_uint_eq(messages(WAY_HOLD), WAY_HOLD);
}
END_TEST

START_TEST(each_size_has_its_own)
{
	cost[WAY_CHUNKS] /= 2;
	messages(2 * TRIAL);
	for (unsigned size = 0; size < WAY_SIZES; size++)
		ck_assert_int_eq(ways_next(&ways, 32768u << size), size == way_size(LENGTH) ? WAY_CHUNKS : WAY_FETCH);
}
END_TEST

static const struct {
	uint32_t length;
	unsigned size;
} sizes[] = {
	{ 0, 0 },	{ 1, 0 },	{ 16385, 0 },	       { 32768, 0 },		    { 32769, 1 },
	{ 65536, 1 },	{ 65537, 2 },	{ 2u << 20, 6 },       { (2u << 20) + 1, 7 },	    { 4u << 20, 7 },
	{ 8u << 20, 7 }, { 1u << 31, 7 }, { UINT32_MAX, 7 },
};

START_TEST(a_length_has_a_size)
{
	ck_assert_uint_eq(way_size(sizes[_i].length), sizes[_i].size);
}
END_TEST

/* Another thread is in it: what this one brings is lost, and nothing else. */
START_TEST(who_comes_second_leaves)
{
	messages(TRIAL - 1);
	atomic_store(&ways.busy, true);
	messages(10 * TRIAL);
	ck_assert_int_eq(next(), WAY_FETCH);
	atomic_store(&ways.busy, false);
	messages(1);
	ck_assert_int_eq(next(), WAY_CHUNKS);
}
END_TEST

/* Two of many messages each, and no slower than others: it is by the byte. */
START_TEST(long_runs_are_not_slow_ones)
{
	for (unsigned i = 0; i < TRIAL; i++)
		one(4000);
	for (unsigned i = 0; i < TRIAL; i++) {
		uint64_t many = i >= TRIAL - WAY_TRIM ? 16 : 1;

		ways_took(&ways, way_size(LENGTH), WAY_CHUNKS, many * LENGTH, many > 1 ? many * 2000 : 4000);
	}
	ck_assert_uint_eq(messages(WAY_HOLD), WAY_HOLD);
}
END_TEST

/* --- acknowledgements without a time -------------------------------------------------------------------------------------- */

static void miss(unsigned n, bool away)
{
	for (unsigned i = 0; i < n; i++)
		ways_missed(&ways, way_size(LENGTH), away);
}

/* Nothing is to be learnt: then it stays as it was. */
START_TEST(they_end_a_trial)
{
	cost[WAY_CHUNKS] /= 2;
	messages(2 * TRIAL + WAY_HOLD); /* chunks are kept, and tried */
	messages(TRIAL);
	ck_assert_int_eq(next(), WAY_FETCH);
	miss(WAY_MISSED - 1, false);
	ck_assert_int_eq(next(), WAY_FETCH);
	miss(1, false);
	ck_assert_uint_eq(messages(WAY_HOLD), WAY_HOLD);
	/* The next trial is a new one. */
	ck_assert_uint_eq(messages(2 * TRIAL), TRIAL);
	ck_assert_uint_eq(messages(WAY_HOLD), WAY_HOLD);
}
END_TEST

START_TEST(they_are_some_of_a_hold)
{
	messages(2 * TRIAL);
	miss(WAY_HOLD - 1, false);
	ck_assert_uint_eq(messages(1 + TRIAL), 0);
	ck_assert_int_eq(next(), WAY_CHUNKS);
}
END_TEST

/* The program posts and is away: its receiver is to fetch. */
START_TEST(nobody_is_there)
{
	cost[WAY_CHUNKS] /= 2;
	messages(2 * TRIAL);
	ck_assert_int_eq(next(), WAY_CHUNKS);
	miss(WAY_HOLD / WAY_AWAY, true);
	miss(WAY_MISSED, true);
	ck_assert_int_eq(next(), WAY_FETCH);
	/* And so it goes on, until somebody is. */
	miss(100 * WAY_HOLD, true);
	ck_assert_int_eq(next(), WAY_FETCH);
	messages(WAY_HOLD + 2 * TRIAL);
	ck_assert_int_eq(next(), WAY_CHUNKS);
}
END_TEST

START_TEST(somebody_is_there_most_of_the_time)
{
	cost[WAY_CHUNKS] /= 2;
	messages(2 * TRIAL + WAY_HOLD);
	miss(WAY_MISSED / 2, true);
	miss(WAY_MISSED / 2, false);
	ck_assert_uint_eq(messages(WAY_HOLD), WAY_HOLD);
}
END_TEST

/* --- what a QP brings --------------------------------------------------------------------------------------------------- */

static const struct way_size *size(void)
{
	return &ways.sizes[way_size(LENGTH)];
}

static const struct way_trial *trial(enum way way)
{
	return &size()->trials[way];
}

static struct way_run run;

/* A run that waits for @n, since 1000, in a trial that counts. */
static void begin(unsigned n)
{
	messages(WAY_SKIP);
	run = (struct way_run){ .waiting = n, .since = 1000 };
}

static void turn(uint64_t now)
{
	way_run_turn(&run, &ways, now, false);
}

START_TEST(a_run_takes_from_turn_to_turn)
{
	begin(3);
	way_run_add(&run, LENGTH, WAY_FETCH);
	turn(5000);
	ck_assert_uint_eq(trial(WAY_FETCH)->ns, 4000);
	ck_assert_uint_eq(trial(WAY_FETCH)->bytes, LENGTH);
	ck_assert_uint_eq(run.since, 5000);
	way_run_add(&run, LENGTH, WAY_FETCH);
	way_run_add(&run, LENGTH - 1, WAY_FETCH);
	turn(7000);
	ck_assert_uint_eq(trial(WAY_FETCH)->n, 2);
	ck_assert_uint_eq(trial(WAY_FETCH)->ns, 6000);
	ck_assert_uint_eq(trial(WAY_FETCH)->bytes, 3 * LENGTH - 1);
	ck_assert_uint_eq(run.since, 0);
}
END_TEST

/* Acknowledgements of something else: the next ones took the time from there. */
START_TEST(short_messages_take_their_time)
{
	begin(1);
	turn(5000);
	ck_assert_uint_eq(trial(WAY_FETCH)->n, 0);
	ck_assert_uint_eq(size()->missed, 0);
	way_run_add(&run, LENGTH, WAY_FETCH);
	turn(6000);
	ck_assert_uint_eq(trial(WAY_FETCH)->ns, 1000);
}
END_TEST

enum { OTHER_WAY, OTHER_SIZE, NO_CHOICE };

START_TEST(nothing_is_said_of_several)
{
	begin(4);
	way_run_add(&run, LENGTH, WAY_FETCH);
	if (_i == NO_CHOICE)
		way_run_mix(&run);
	else
		way_run_add(&run, _i == OTHER_SIZE ? 2 * LENGTH : LENGTH, _i == OTHER_WAY ? WAY_CHUNKS : WAY_FETCH);
	way_run_add(&run, LENGTH, WAY_FETCH);
	turn(5000);
	ck_assert_uint_eq(trial(WAY_FETCH)->n, 0);
	ck_assert_uint_eq(size()->missed, 1);
	ck_assert_uint_eq(size()->away, 0);
	/* The next turn is another matter. */
	way_run_add(&run, LENGTH, WAY_FETCH);
	turn(6000);
	ck_assert_uint_eq(trial(WAY_FETCH)->n, 1);
	ck_assert_uint_eq(trial(WAY_FETCH)->ns, 1000);
}
END_TEST

START_TEST(nor_of_what_nobody_looked_at)
{
	begin(2);
	way_run_add(&run, LENGTH, WAY_FETCH);
	way_run_turn(&run, &ways, 5000, true);
	ck_assert_uint_eq(trial(WAY_FETCH)->n, 0);
	ck_assert_uint_eq(size()->away, 1);
	way_run_add(&run, LENGTH, WAY_FETCH);
	turn(6000);
	ck_assert_uint_eq(trial(WAY_FETCH)->ns, 1000);
}
END_TEST

/* What is acknowledged behind a refusal belongs to no run, and to none that comes. */
START_TEST(without_a_run_nothing_is_kept)
{
	begin(0);
	run.since = 0;
	way_run_mix(&run);
	way_run_add(&run, LENGTH, WAY_FETCH);
	run = (struct way_run){ .waiting = 1, .since = 1000, .bytes = run.bytes, .mixed = run.mixed };
	way_run_add(&run, LENGTH, WAY_FETCH);
	turn(5000);
	ck_assert_uint_eq(trial(WAY_FETCH)->bytes, LENGTH);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("way");
	TCase *tcase = harness_tcase(suite, "ways");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, both_are_tried);
	tcase_add_loop_test(tcase, the_faster_one_is_kept, WAY_FETCH, WAY_CHUNKS + 1);
	tcase_add_test(tcase, a_little_faster_is_not_enough);
	tcase_add_test(tcase, what_was_faster_is_tried_again);
	tcase_add_test(tcase, trials_become_rare);
	tcase_add_test(tcase, the_slowest_do_not_count);
	tcase_add_test(tcase, one_more_slow_one_does);
	tcase_add_test(tcase, the_first_ones_do_not_count);
	tcase_add_test(tcase, the_other_way_does_not_count);
	tcase_add_test(tcase, bytes_count);
	tcase_add_test(tcase, each_size_has_its_own);
	tcase_add_loop_test(tcase, a_length_has_a_size, 0, (int)(sizeof(sizes) / sizeof(sizes[0])));
	tcase_add_test(tcase, who_comes_second_leaves);
	tcase_add_test(tcase, long_runs_are_not_slow_ones);
	tcase_add_test(tcase, they_end_a_trial);
	tcase_add_test(tcase, they_are_some_of_a_hold);
	tcase_add_test(tcase, nobody_is_there);
	tcase_add_test(tcase, somebody_is_there_most_of_the_time);

	tcase = harness_tcase(suite, "runs");
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, a_run_takes_from_turn_to_turn);
	tcase_add_test(tcase, short_messages_take_their_time);
	tcase_add_loop_test(tcase, nothing_is_said_of_several, OTHER_WAY, NO_CHOICE + 1);
	tcase_add_test(tcase, nor_of_what_nobody_looked_at);
	tcase_add_test(tcase, without_a_run_nothing_is_kept);
	return harness_run(suite);
}
