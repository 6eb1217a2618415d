/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Thread domains: who has one, when it is parked and taken back, which objects stand under it, and how they lose it. What is
 * under the domain of the thread that runs a test is made by it; other threads have none.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "client/soft/mr_private.h"
#include "client/soft/rt_private.h"
#include "tests/lib/harness.h"
#include "tests/unit/soft_loop.h"

#define ROUNDS 20000u

static struct loop loop;
static struct soft_td *td;

static void setup(void)
{
	loop_with_domain();
	loop_start(&loop);
	/* The one of this thread. */
	td = rt.tds;
	ck_assert_ptr_nonnull(td);
	ck_assert_ptr_null(td->next);
}

static void teardown(void)
{
	loop_stop(&loop);
}

static bool is_parked(const struct soft_td *domain)
{
	return atomic_load(&domain->gate);
}

/* --- who has it ------------------------------------------------------------------------------------------------------------- */

/* An owner in a thread of its own, that goes in and out as it is told. */
struct owner {
	struct soft_td *td;
	pthread_t thread;
	_Atomic bool in, go; /* it is inside; it shall leave */
	_Atomic bool done;
};

static void *owner_run(void *arg)
{
	struct owner *owner = arg;

	td_enter(owner->td);
	atomic_store(&owner->in, true);
	while (!atomic_load(&owner->go))
		sched_yield();
	td_leave(owner->td);
	atomic_store(&owner->done, true);
	return NULL;
}

static void owner_start(struct owner *owner, struct soft_td *domain)
{
	*owner = (struct owner){ .td = domain };
	ck_assert_int_eq(pthread_create(&owner->thread, NULL, owner_run, owner), 0);
}

static void owner_inside(struct owner *owner, struct soft_td *domain)
{
	owner_start(owner, domain);
	while (!atomic_load(&owner->in))
		sched_yield();
}

static void owner_end(const struct owner *owner)
{
	ck_assert_int_eq(pthread_join(owner->thread, NULL), 0);
}

START_TEST(an_owner_that_is_outside_is_parked)
{
	unsigned parked;

	ck_assert(rt_enter());
	parked = rt.parked;
	ck_assert(td_park(td));
	ck_assert(is_parked(td));
	ck_assert_uint_eq(rt.parked, parked + 1);
	/* Once more it is the same. */
	ck_assert(td_park(td));
	td_park_wait(td);
	ck_assert_uint_eq(rt.parked, parked + 1);
	rt_leave(true);
	/* It stays so until its owner comes. */
	ck_assert(is_parked(td));
	td_enter(td);
	ck_assert(!is_parked(td));
	ck_assert_uint_eq(rt.parked, parked);
	td_leave(td);
	ck_assert_uint_eq(atomic_load(&td->seq) & 1, 0);
}
END_TEST

START_TEST(an_owner_that_is_inside_is_let_be)
{
	struct owner owner;
	unsigned parked;

	owner_inside(&owner, td);
	ck_assert(rt_enter());
	parked = rt.parked;
	ck_assert(!td_park(td));
	/* It finds its gate open, and does not have to come for it. */
	ck_assert(!is_parked(td));
	ck_assert_uint_eq(rt.parked, parked);
	atomic_store(&owner.go, true);
	owner_end(&owner);
	ck_assert(td_park(td));
	rt_leave(true);
}
END_TEST

START_TEST(a_parked_domain_is_the_holders_until_it_leaves)
{
	struct owner owner;

	ck_assert(rt_enter());
	td_park_wait(td);
	owner_start(&owner, td);
	for (unsigned i = 0; i < 1000; i++) {
		ck_assert(!atomic_load(&owner.in));
		ck_assert(is_parked(td));
		sched_yield();
	}
	/* And it says that it is outside while it waits, or the holder would wait for it here. */
	ck_assert(is_parked(td));
	rt_leave(true);
	while (!atomic_load(&owner.in))
		sched_yield();
	ck_assert(!is_parked(td));
	atomic_store(&owner.go, true);
	owner_end(&owner);
}
END_TEST

static void *leave_later(void *arg)
{
	struct owner *owner = arg;

	for (unsigned i = 0; i < 1000; i++)
		sched_yield();
	atomic_store(&owner->go, true);
	return NULL;
}

START_TEST(who_waits_has_it_when_its_owner_has_left)
{
	struct owner owner;
	pthread_t thread;

	owner_inside(&owner, td);
	ck_assert_int_eq(pthread_create(&thread, NULL, leave_later, &owner), 0);
	ck_assert(rt_enter());
	td_park_wait(td);
	ck_assert(atomic_load(&owner.go));
	ck_assert(is_parked(td));
	ck_assert_uint_eq(atomic_load(&td->seq) & 1, 0);
	rt_leave(true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	owner_end(&owner);
}
END_TEST

START_TEST(several_are_parked_with_one_barrier)
{
	struct soft_td *second = td_new(), *third = td_new();
	struct owner owner;

	ck_assert(second && third);
	owner_inside(&owner, second);
	ck_assert(rt_enter());
	td_park_begin(td);
	td_park_begin(second);
	td_park_all();
	ck_assert(is_parked(td) && !td->parking);
	ck_assert(!is_parked(second) && !second->parking);
	ck_assert(!is_parked(third));
	rt_leave(true);
	atomic_store(&owner.go, true);
	owner_end(&owner);
	td_free(second);
	td_free(third);
}
END_TEST

/* What only who has the domain changes. */
static uint64_t plain;

static void *count_inside(void *arg)
{
	struct owner *owner = arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		td_enter(owner->td);
		plain++;
		td_leave(owner->td);
	}
	atomic_store(&owner->done, true);
	return NULL;
}

START_TEST(one_at_a_time_has_it)
{
	struct owner owner = { .td = td };
	uint64_t others = 0;

	plain = 0;
	ck_assert_int_eq(pthread_create(&owner.thread, NULL, count_inside, &owner), 0);
	while (!atomic_load(&owner.done) || others < 100) {
		ck_assert(rt_enter());
		if (others % 2)
			td_park_wait(td);
		if (is_parked(td) || td_park(td)) {
			for (unsigned i = 0; i < 100; i++)
				*(volatile uint64_t *)&plain += 1;
			others++;
		}
		rt_leave(true);
	}
	owner_end(&owner);
	ck_assert_uint_eq(plain, ROUNDS + 100 * others);
}
END_TEST

START_TEST(a_key_is_named_by_who_has_the_domain)
{
	static int slots[TD_KEYS + 1];

	td_enter(td);
	for (unsigned i = 0; i < TD_KEYS; i++)
		ck_assert(td_key_enter(td, &slots[i]));
	/* There is no place for more: such a slot counts who is in it. */
	ck_assert(!td_key_enter(td, &slots[TD_KEYS]));
	for (unsigned i = 0; i < TD_KEYS; i++)
		ck_assert(td_key_named(&slots[i]));
	ck_assert(!td_key_named(&slots[TD_KEYS]));
	td_key_leave(td, &slots[1]);
	ck_assert(!td_key_named(&slots[1]));
	ck_assert(td_key_enter(td, &slots[TD_KEYS]));
	ck_assert(td_key_named(&slots[TD_KEYS]));
	for (unsigned i = 0; i <= TD_KEYS; i++)
		td_key_leave(td, &slots[i]);
	td_leave(td);
	for (unsigned i = 0; i <= TD_KEYS; i++)
		ck_assert(!td_key_named(&slots[i]));
}
END_TEST

/* --- which objects stand under it --------------------------------------------------------------------------------------------- */

struct outsider {
	const struct loop_options *options;
	struct soft_qp *qp;
};

static void *outsider_run(void *arg)
{
	struct outsider *outsider = arg;

	outsider->qp = loop_qp(&loop, outsider->options);
	return NULL;
}

/* A QP that is under no domain. */
static struct soft_qp *qp_outside(const struct loop_options *options)
{
	struct outsider outsider = { .options = options };
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, outsider_run, &outsider), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_ptr_null(outsider.qp->pd->td);
	return outsider.qp;
}

static void *cq_outside(void *arg)
{
	(void)arg;
	return loop_cq(&loop, 64);
}

static void *srq_outside(void *arg)
{
	(void)arg;
	return loop_srq(&loop, 16, 1);
}

static void *made_outside(void *(*make)(void *))
{
	pthread_t thread;
	void *made;

	ck_assert_int_eq(pthread_create(&thread, NULL, make, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, &made), 0);
	return made;
}

static struct soft_cq *plain_cq(void)
{
	return made_outside(cq_outside);
}

static struct soft_srq *plain_srq(void)
{
	return made_outside(srq_outside);
}

static bool qp_is_elided(const struct soft_qp *qp)
{
	bool elided = soft_lock_td(&qp->sq_lock) == td;

	ck_assert(elided == (soft_lock_td(&qp->rq_lock) == td));
	return elided;
}

static bool cq_is_elided(const struct soft_cq *cq)
{
	return soft_lock_td(&cq->lock) == td;
}

/* What of a QP's is without a domain. */
enum { SEND = 1, RECV = 2, SRQ = 4 };

static const struct {
	enum ibv_qp_type type;
	unsigned without;
	bool want;
} fits[] = {
	{ IBV_QPT_RC, 0, true },     { IBV_QPT_UC, 0, true },     { IBV_QPT_UD, 0, false },
	{ IBV_QPT_RC, SEND, false }, { IBV_QPT_RC, RECV, false }, { IBV_QPT_RC, SEND | RECV, false },
	{ IBV_QPT_RC, SRQ, false },
};

START_TEST(all_of_a_qp_is_under_it_or_nothing)
{
	struct loop_options options = LOOP_OPTIONS;
	struct soft_cq *own = loop_cq(&loop, 64), *other = plain_cq();
	struct soft_qp *qp;

	options.type = fits[_i].type;
	options.send_cq = fits[_i].without & SEND ? other : own;
	options.recv_cq = fits[_i].without & RECV ? other : own;
	options.srq = fits[_i].without & SRQ ? plain_srq() : NULL;
	ck_assert(cq_is_elided(own) && !cq_is_elided(other));
	qp = loop_qp(&loop, &options);
	ck_assert(qp_is_elided(qp) == fits[_i].want);
	/* A CQ of the domain that such a QP uses has any thread at it. */
	ck_assert(cq_is_elided(own) == (fits[_i].want || fits[_i].without == (SEND | RECV)));
	loop_qp_free(qp);
	if (options.srq)
		loop_srq_free(options.srq);
	loop_cq_free(own);
	loop_cq_free(other);
}
END_TEST

START_TEST(what_hangs_together_loses_it_together)
{
	struct loop_options options = LOOP_OPTIONS;
	struct soft_cq *cqs[6];
	struct soft_srq *srqs[2];
	struct soft_qp *qps[5], *outside;

	for (unsigned i = 0; i < 6; i++)
		cqs[i] = loop_cq(&loop, 64);
	for (unsigned i = 0; i < 2; i++)
		srqs[i] = loop_srq(&loop, 16, 1);
	/* 0 and 1 share a CQ, 1 and 2 another; 2 and 3 an SRQ. 4 has nothing of theirs. */
	for (unsigned i = 0; i < 5; i++) {
		options.send_cq = cqs[i];
		options.recv_cq = cqs[i < 2 ? i + 1 : i == 3 ? 5 : i];
		options.srq = i == 2 || i == 3 ? srqs[0] : i == 4 ? srqs[1] : NULL;
		qps[i] = loop_qp(&loop, &options);
		ck_assert(qp_is_elided(qps[i]));
	}
	options.send_cq = options.recv_cq = cqs[0];
	options.srq = NULL;
	outside = qp_outside(&options);
	ck_assert(!qp_is_elided(outside));
	for (unsigned i = 0; i < 5; i++) {
		ck_assert(qp_is_elided(qps[i]) == (i == 4));
		ck_assert(cq_is_elided(cqs[i]) == (i == 4));
	}
	ck_assert(!cq_is_elided(cqs[5]));
	ck_assert_ptr_null(soft_lock_td(&srqs[0]->lock));
	ck_assert_ptr_eq(soft_lock_td(&srqs[1]->lock), td);
	ck_assert_ptr_eq(td->qps, qps[4]);
	ck_assert_ptr_null(td->qps->td_next);
	loop_qp_free(outside);
	for (unsigned i = 0; i < 5; i++)
		loop_qp_free(qps[i]);
	for (unsigned i = 0; i < 6; i++)
		loop_cq_free(cqs[i]);
	for (unsigned i = 0; i < 2; i++)
		loop_srq_free(srqs[i]);
}
END_TEST

/* --- traffic ------------------------------------------------------------------------------------------------------------------ */

static uint8_t memory[2 * 4096];

/* Two connected QPs on one CQ of the domain. */
struct both {
	struct loop_options options;
	struct soft_cq *cq;
	struct soft_qp *a, *b;
	struct soft_mr *mr;
};

static void both_make(struct both *both)
{
	both->options = (struct loop_options)LOOP_OPTIONS;
	both->options.rnr_timer = 31; /* it is long until that is tried again */
	both->cq = both->options.send_cq = both->options.recv_cq = loop_cq(&loop, 64);
	both->a = loop_qp(&loop, &both->options);
	both->b = loop_qp(&loop, &both->options);
	both->mr = loop_mr(&loop, memory, sizeof(memory), LOOP_ACCESS);
	loop_connect(&loop, both->a, both->b, 16, &both->options);
}

static void both_free(const struct both *both)
{
	loop_qp_free(both->a);
	loop_qp_free(both->b);
	loop_mr_free(both->mr);
	loop_cq_free(both->cq);
}

static void message(const struct both *both, uint8_t byte)
{
	unsigned seen = 0;

	memset(memory, byte, 64);
	ck_assert_int_eq(loop_recv(both->b, 1, both->mr, memory + 4096, 64), 0);
	ck_assert_int_eq(loop_send(both->a, 2, IBV_WR_SEND, both->mr, memory, 64, NULL, NULL), 0);
	while (seen != 3) {
		struct ibv_wc wc = loop_wait(both->cq);

		ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
		seen |= (unsigned)wc.wr_id;
	}
	ck_assert_uint_eq(memory[4096 + 63], byte);
}

/* A message while nobody polls. */
static void unattended(const struct both *both)
{
	memset(memory, 9, 64);
	memset(memory + 4096, 0, 64);
	ck_assert_int_eq(loop_recv(both->b, 1, both->mr, memory + 4096, 64), 0);
	ck_assert_int_eq(loop_send(both->a, 2, IBV_WR_SEND, both->mr, memory, 64, NULL, NULL), 0);
	/* Nobody polls. The last byte is stored last, by whoever does it. */
	while (((_Atomic uint8_t *)memory)[4096 + 63] != 9)
		sched_yield();
	/* The next call takes it back, and it is all there. */
	for (unsigned seen = 0; seen != 3;)
		seen |= (unsigned)loop_wait(both->cq).wr_id;
}

START_TEST(traffic_goes_on_when_it_is_lost)
{
	struct both both;
	struct soft_qp *outside;

	both_make(&both);
	message(&both, 1);
	ck_assert(qp_is_elided(both.a) && qp_is_elided(both.b));
	/* A message is under way, for which there is no receive yet. */
	memset(memory, 2, 64);
	ck_assert_int_eq(loop_send(both.a, 3, IBV_WR_SEND, both.mr, memory, 64, NULL, NULL), 0);
	outside = qp_outside(&both.options);
	ck_assert(!qp_is_elided(both.a) && !qp_is_elided(both.b) && !cq_is_elided(both.cq));
	ck_assert_ptr_null(td->qps);
	ck_assert_ptr_null(atomic_load(&td->run));
	ck_assert_ptr_null(atomic_load(&atomic_load(&both.a->wire)->td));
	ck_assert_ptr_null(atomic_load(&atomic_load(&both.b->wire)->td));
	ck_assert_int_eq(loop_recv(both.b, 4, both.mr, memory + 4096, 64), 0);
	for (unsigned seen = 0; seen != 7;) {
		struct ibv_wc wc = loop_wait(both.cq);

		ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
		seen |= (unsigned)wc.wr_id;
	}
	ck_assert_uint_eq(memory[4096 + 63], 2);
	message(&both, 3);
	unattended(&both);
	loop_qp_free(outside);
	both_free(&both);
}
END_TEST

/* What was handed in for a QP when it lost its domain is done all the same. */
START_TEST(mail_follows_a_qp_out)
{
	struct both both;
	struct soft_qp *outside;

	both_make(&both);
	message(&both, 1);
	td_mail(td, both.a);
	td_mail(td, both.b);
	td_mail(td, both.a); /* it is in already */
	outside = qp_outside(&both.options);
	ck_assert_ptr_null(atomic_load(&td->mail));
	ck_assert_ptr_null(atomic_load(&td->run));
	message(&both, 2);
	loop_qp_free(outside);
	both_free(&both);
}
END_TEST

START_TEST(a_domain_is_served_while_its_owner_is_away)
{
	struct both both;

	both_make(&both);
	message(&both, 1);
	unattended(&both);
	message(&both, 2);
	both_free(&both);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("td");
	TCase *tcase = tcase_create("td");

	tcase_set_timeout(tcase, 20);
	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, an_owner_that_is_outside_is_parked);
	tcase_add_test(tcase, an_owner_that_is_inside_is_let_be);
	tcase_add_test(tcase, a_parked_domain_is_the_holders_until_it_leaves);
	tcase_add_test(tcase, who_waits_has_it_when_its_owner_has_left);
	tcase_add_test(tcase, several_are_parked_with_one_barrier);
	tcase_add_test(tcase, one_at_a_time_has_it);
	tcase_add_test(tcase, a_key_is_named_by_who_has_the_domain);
	tcase_add_loop_test(tcase, all_of_a_qp_is_under_it_or_nothing, 0, sizeof(fits) / sizeof(fits[0]));
	tcase_add_test(tcase, what_hangs_together_loses_it_together);
	tcase_add_test(tcase, traffic_goes_on_when_it_is_lost);
	tcase_add_test(tcase, mail_follows_a_qp_out);
	tcase_add_test(tcase, a_domain_is_served_while_its_owner_is_away);
	return harness_run(suite);
}
