/* SPDX-License-Identifier: BSD-2-Clause */
/* Who is told of what stands in a wire, by a kick or a bit, and who looks at what nobody was told of: polls, and the tick. */
#include <unistd.h>

#include "client/soft/lane.h"
#include "client/soft/qp.h"
#include "client/soft/rt_private.h"
#include "client/soft/td.h"
#include "tests/lib/harness.h"
#include "tests/unit/soft_two.h"

static ssize_t kicks(unsigned side)
{
	char bytes[64];
	ssize_t n = read(two.kick[side], bytes, sizeof(bytes));

	return n < 0 ? 0 : n;
}

START_TEST(a_sleeper_is_kicked_once_per_epoch)
{
	two_make(false, 16, 16);
	peer_page[1]->state = 4; /* active */
	wire_notify(two.end[0]);
	ck_assert_int_eq(kicks(1), 0);
	peer_page[1]->state = 3 << 1 | 1;
	wire_notify(two.end[0]);
	wire_notify(two.end[0]);
	ck_assert_int_eq(kicks(1), 1);
	peer_page[1]->state = 4 << 1 | 1;
	wire_notify(two.end[0]);
	ck_assert_int_eq(kicks(1), 1);
	wire_kick(two.end[0]);
	ck_assert_int_eq(kicks(1), 1);
}
END_TEST

/* An acknowledgement, a message. */
static void (*const publish[])(struct wire *) = { wire_notify_ack, wire_notify_post };
/* What looks once more at a peer that seemed awake when that was published. */
static const char *const looks[] = { "the next notice", "a poll", "a full round", "the tick" };

static void look_again(unsigned how)
{
	if (how == 0)
		wire_notify(two.end[0]);
	else if (how == 1)
		hot_quick(&rt.hot);
	else if (how == 2)
		hot_serve(&rt.hot);
	else
		progress_tick();
}

START_TEST(who_fell_asleep_meanwhile_is_kicked_later)
{
	two_make(false, 16, 16);
	hot_add(&rt.hot, two.end[0]);
	wire_notify(two.end[0]); /* the peer polls this wire from here on */
	peer_page[1]->state = 4; /* active */
	publish[_i % 2](two.end[0]);
	ck_assert(!wire_owes_look(two.end[0])); /* there may be no tick */
	atomic_store(&rt.polling, true);
	publish[_i % 2](two.end[0]);
	ck_assert(wire_owes_look(two.end[0]));
	peer_page[1]->state = 3 << 1 | 1;
	ck_assert_int_eq(kicks(1), 0);
	look_again((unsigned)_i / 2);
	ck_assert_msg(kicks(1) == 1, "%s", looks[_i / 2]);
	ck_assert(!wire_owes_look(two.end[0]));
	look_again((unsigned)_i / 2);
	ck_assert_int_eq(kicks(1), 0);
	hot_remove(&rt.hot, two.end[0]);
}
END_TEST

/* Of a domain its owner looks with its next call. Should none come, the second tick that finds it so does. */
START_TEST(a_domain_left_by_its_owner_looks_with_the_tick)
{
	struct soft_td *td = td_new();

	two_make(false, 16, 16);
	ck_assert(rt_enter());
	td_park_wait(td);
	ck_assert(td_wire_room(td, two.end[0]));
	td_wire_add(td, two.end[0]);
	td_wire_heat(td, two.end[0]);
	rt_leave(true);
	td_enter(td);
	wire_look(two.end[0]);
	ck_assert(!wire_pending(two.end[0])); /* nothing else brings anybody there */
	wire_notify(two.end[0]);
	peer_page[1]->state = 4; /* active */
	atomic_store(&rt.polling, true);
	wire_notify_post(two.end[0]);
	ck_assert(!wire_owes_look(two.end[0])); /* nobody has to take the domain for that */
	wire_notify_ack(two.end[0]);
	td_leave(td);
	ck_assert(wire_owes_look(two.end[0]));
	peer_page[1]->state = 3 << 1 | 1;
	progress_tick();
	progress_tick();
	ck_assert_int_eq(kicks(1), 1);
	ck_assert(!wire_owes_look(two.end[0]));
	ck_assert(rt_enter());
	td_park_wait(td);
	td_wire_remove(two.end[0]);
	rt_leave(true);
	td_free(td);
}
END_TEST

/* A wire with something old that only a look at the ready bits finds; the next rounds of polls look at hot wires alone. */
static void leave_old_work(void)
{
	two_make(false, 16, 16);
	atomic_store(&rt.running, true);
	wire_look(two.end[0]);
	wire_close(two.end[1]);
	rt.rounds = 8 * FULL_ROUNDS;
	ck_assert(wire_pending(two.end[0]));
}

/* Polls that another thread keeps from the lock. */
static void poll_in_vain(unsigned n)
{
	ck_assert(rt_enter());
	for (unsigned i = 0; i < n; i++)
		ck_assert(!rt_progress());
	rt_leave(true);
}

/* What was there at the last tick is for who polls, though another thread keeps them from it for now. */
START_TEST(a_tick_leaves_old_work_to_the_polls)
{
	leave_old_work();
	for (unsigned i = 0; i < 4; i++) {
		poll_in_vain(2);
		progress_tick();
		ck_assert(wire_pending(two.end[0]));
	}
	rt_progress(); /* looks everywhere */
	ck_assert(!wire_pending(two.end[0]));
}
END_TEST

START_TEST(a_tick_serves_it_where_nobody_polls)
{
	leave_old_work();
	progress_tick();
	ck_assert(wire_pending(two.end[0]));
	poll_in_vain(_i); /* one is not many: it may have been the last */
	progress_tick();
	ck_assert(!wire_pending(two.end[0]));
}
END_TEST

/* Who waits for the lock keeps polls out, and may not come to take it. */
START_TEST(a_tick_serves_it_where_polls_are_kept_out)
{
	leave_old_work();
	atomic_store(&rt.waiters, 1);
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned n = 0; n < 100; n++)
			ck_assert(!rt_progress());
		progress_tick();
	}
	ck_assert(!wire_pending(two.end[0]));
	atomic_store(&rt.waiters, 0);
}
END_TEST

/* Those that came before the tick are no sign: they may have been the last. */
START_TEST(kicks_are_for_polls_that_go_on)
{
	atomic_store(&rt.running, true);
	ck_assert(!progress_is_polled());
	poll_in_vain(1);
	ck_assert(!progress_is_polled());
	poll_in_vain(1);
	ck_assert(progress_is_polled());
	progress_tick();
	ck_assert(!progress_is_polled());
	poll_in_vain(1);
	ck_assert(progress_is_polled());
	progress_tick();
	poll_in_vain(1);
	ck_assert(!progress_is_polled());
}
END_TEST

START_TEST(who_sleeps_when_it_is_acknowledged_is_kicked_at_once)
{
	two_make(false, 16, 16);
	hot_add(&rt.hot, two.end[0]);
	wire_notify(two.end[0]);
	atomic_store(&rt.polling, true);
	peer_page[1]->state = 3 << 1 | 1;
	wire_notify_ack(two.end[0]);
	ck_assert_int_eq(kicks(1), 1);
	ck_assert(!wire_owes_look(two.end[0]));
	hot_remove(&rt.hot, two.end[0]);
}
END_TEST

START_TEST(notice_sets_the_ready_bit_and_its_summary)
{
	struct vsd_side *side;

	two_make(false, 16, 16);
	side = &two.pair[1]->mem->sides[1];
	ck_assert_uint_eq(side->ready[0], 0);
	wire_notify(two.end[0]);
	ck_assert_uint_eq(side->ready[0], 1u << 3);
	ck_assert_uint_eq(side->summary, 1);
	/* While the bit stands the receiver looks for itself. */
	side->summary = 0;
	wire_notify(two.end[0]);
	ck_assert_uint_eq(side->summary, 0);
}
END_TEST

START_TEST(space_is_told_to_who_wants_it_only)
{
	two_make(false, 2, 2);
	wire_notify_space(two.end[1]);
	ck_assert_uint_eq(two.pair[0]->mem->sides[0].summary, 0);
	wire_want_space(two.end[0], WIRE_WANT_REQ);
	wire_notify_space(two.end[1]);
	ck_assert_uint_eq(two.pair[0]->mem->sides[0].summary, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("notice");
	TCase *t = harness_tcase(suite, "notice");

	tcase_add_checked_fixture(t, two_setup, two_teardown);
	tcase_add_test(t, a_sleeper_is_kicked_once_per_epoch);
	tcase_add_loop_test(t, who_fell_asleep_meanwhile_is_kicked_later, 0, 2 * sizeof(looks) / sizeof(looks[0]));
	tcase_add_test(t, a_domain_left_by_its_owner_looks_with_the_tick);
	tcase_add_test(t, a_tick_leaves_old_work_to_the_polls);
	tcase_add_loop_test(t, a_tick_serves_it_where_nobody_polls, 0, 2);
	tcase_add_test(t, a_tick_serves_it_where_polls_are_kept_out);
	tcase_add_test(t, kicks_are_for_polls_that_go_on);
	tcase_add_test(t, who_sleeps_when_it_is_acknowledged_is_kicked_at_once);
	tcase_add_test(t, notice_sets_the_ready_bit_and_its_summary);
	tcase_add_test(t, space_is_told_to_who_wants_it_only);
	return harness_run(suite);
}
