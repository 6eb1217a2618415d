/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The progress of a thread domain: its hot wires, the ready bits of its others, the QPs that are to run, deadlines and
 * untaken descriptors. All of it is plain memory of whoever has the domain; what others hand in comes by mail.
 */
#include <stdlib.h>

#include "client/soft/lane.h"
#include "client/soft/order.h"
#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"
#include "client/soft/td.h"

#define ROUND_RUNS  64u /* QPs that run in one round */
#define ROUND_WORDS 2u	/* words of ready bits */

/* --- wires: the domain is parked, by the holder of the progress lock ------------------------------------------------------ */

static struct td_word *word_of(struct soft_td *td, const struct wire *wire)
{
	for (unsigned i = 0; i < td->n_words; i++)
		if (td->words[i].pair == wire->pair && td->words[i].index == wire->index / 64)
			return &td->words[i];
	return NULL;
}

bool td_wire_room(struct soft_td *td, struct wire *wire)
{
	struct td_word *words;
	unsigned i = 0;

	if (!wire->pair->segment || word_of(td, wire))
		return true;
	while (i < td->n_words && td->words[i].pair)
		i++;
	if (i == td->n_words) {
		words = realloc(td->words, (i + 1) * sizeof(*words));
		if (!words)
			return false;
		td->words = words;
		td->n_words = i + 1;
	}
	td->words[i] = (struct td_word){ .pair = wire->pair, .index = wire->index / 64, .hazard = -1 };
	return true;
}

void td_wire_add(struct soft_td *td, struct wire *wire)
{
	progress_forget_wire(wire); /* its other end may have marked it before it was anybody's */
	atomic_store(&wire->hot, false);
	if (wire->pair->segment) {
		struct td_word *word = word_of(td, wire);

		word->wires++;
		wire->word = (unsigned)(word - td->words);
	}
	wire->set = &td->hot;
	atomic_store(&wire->td, td);
}

static void watch_remove(struct soft_td *td, struct wire *wire)
{
	struct wire *first = atomic_load_explicit(&td->watched, memory_order_relaxed);

	if (first == wire) {
		atomic_store_explicit(&td->watched, wire->watch_next, memory_order_relaxed);
		return;
	}
	for (; first; first = first->watch_next)
		if (first->watch_next == wire)
			first->watch_next = wire->watch_next;
}

static uint64_t bit_of(const struct wire *wire)
{
	return 1ull << (wire->index % 64);
}

void td_wire_remove(struct wire *wire)
{
	struct soft_td *td = atomic_load(&wire->td);

	if (!td)
		return;
	order_forget(wire);
	if (wire->pair->segment) {
		struct td_word *word = &td->words[wire->word];

		if (atomic_fetch_and(&word->cold, ~bit_of(wire)) & bit_of(wire))
			td->n_cold--;
		if (--word->wires == 0) {
			pair_hazard_give_back(wire->pair, word->hazard);
			word->pair = NULL;
		}
	}
	hot_remove(&td->hot, wire);
	watch_remove(td, wire);
	atomic_store(&wire->hot, false);
	atomic_store(&wire->watched, false);
	wire->set = &rt.hot;
	atomic_store(&wire->td, NULL);
}

/* --- hot and cold -------------------------------------------------------------------------------------------------------- */

void td_wire_heat(struct soft_td *td, struct wire *wire)
{
	if (wire->pair->segment) {
		struct td_word *word = &td->words[wire->word];
		uint64_t cold = atomic_load_explicit(&word->cold, memory_order_relaxed);

		if (cold & bit_of(wire)) {
			atomic_store_explicit(&word->cold, cold & ~bit_of(wire), memory_order_relaxed);
			td->n_cold--;
		}
	}
	hot_add(&td->hot, wire);
}

/*
 * It left the hot set just now. Who looks at the domain without having it may have looked between the clearing of the bit
 * and what is found here: so that is work, which its owner does or leaves behind.
 */
void td_wire_cool(struct soft_td *td, struct wire *wire)
{
	atomic_store(&wire->hot, false);
	if (wire->pair->segment) {
		struct td_word *word = &td->words[wire->word];

		atomic_fetch_or(&word->cold, bit_of(wire));
		td->n_cold++;
		ready_clear(wire);
	}
	atomic_thread_fence(memory_order_seq_cst);
	if (wire->pair->segment) /* others would drive each other out for ever */
		order_await(wire);
	if (!wire_pending(wire))
		return;
	if (wire->pair->segment)
		ready_set(wire);
	td_again(td, atomic_load(&wire->qp));
}

static bool serve_cold(struct soft_td *td)
{
	bool did = false;

	for (unsigned n = 0; n < ROUND_WORDS && n < td->n_words; n++) {
		const struct td_word *word = &td->words[td->next_word];
		uint64_t bits = atomic_load_explicit(&word->cold, memory_order_relaxed);

		if (bits)
			bits &= ready_bits(word->pair, word->index);
		for (; bits; bits &= bits - 1) {
			struct wire *wire = word->pair->priv->wires[word->index * 64 + (unsigned)__builtin_ctzll(bits)];

			td_wire_heat(td, wire);
			did |= wire_serve(wire);
		}
		if (++td->next_word >= td->n_words)
			td->next_word = 0;
	}
	return did;
}

/* --- QPs that are to run --------------------------------------------------------------------------------------------------- */

void td_again(struct soft_td *td, struct soft_qp *qp)
{
	if (qp->td_queued)
		return;
	qp->td_queued = true;
	qp->td_run_next = NULL;
	if (atomic_load_explicit(&td->run, memory_order_relaxed))
		td->run_last->td_run_next = qp;
	else
		atomic_store_explicit(&td->run, qp, memory_order_relaxed);
	td->run_last = qp;
}

void td_mail(struct soft_td *td, struct soft_qp *qp)
{
	struct soft_qp *head;

	if (atomic_exchange(&qp->run_queued, true))
		return;
	head = atomic_load(&td->mail);
	do {
		qp->run_next = head;
	} while (!atomic_compare_exchange_weak(&td->mail, &head, qp));
}

static void take_mail(struct soft_td *td)
{
	struct soft_qp *qp = atomic_exchange(&td->mail, NULL);

	while (qp) {
		struct soft_qp *next = qp->run_next;

		atomic_store(&qp->run_queued, false);
		td_again(td, qp);
		qp = next;
	}
}

static struct soft_qp *run_pop(struct soft_td *td)
{
	struct soft_qp *qp = atomic_load_explicit(&td->run, memory_order_relaxed);

	if (qp) {
		atomic_store_explicit(&td->run, qp->td_run_next, memory_order_relaxed);
		qp->td_queued = false;
	}
	return qp;
}

static void run_one(struct soft_td *td, struct soft_qp *qp)
{
	struct wire *wire = atomic_load_explicit(&qp->wire, memory_order_relaxed);

	if (qp_td(qp) != td) {
		rt_run_later(qp); /* it lost its elision on the way */
		return;
	}
	/* A loopback wire that cooled down has no bit: this is how it is said to have something. */
	if (wire && !wire->pair->segment && atomic_load(&wire->td) && !atomic_load(&wire->hot))
		td_wire_heat(td, wire);
	qp_run(qp);
}

/* One turn for each QP that is queued now. */
static bool run_all(struct soft_td *td)
{
	const struct soft_qp *last = td->run_last;
	bool did = false;

	for (unsigned n = 0; n < ROUND_RUNS; n++) {
		struct soft_qp *qp = run_pop(td);

		if (!qp)
			break;
		run_one(td, qp);
		did = true;
		if (qp == last)
			break;
	}
	return did;
}

void td_forget_qp(struct soft_td *td, struct soft_qp *qp)
{
	struct soft_qp *others = NULL, *queued;

	take_mail(td);
	while ((queued = run_pop(td))) {
		if (queued == qp)
			continue;
		queued->td_run_next = others;
		others = queued;
	}
	while (others) {
		struct soft_qp *next = others->td_run_next;

		td_again(td, others);
		others = next;
	}
	for (struct soft_qp **at = &td->qps; *at; at = &(*at)->td_next)
		if (*at == qp) {
			*at = qp->td_next;
			break;
		}
}

/* --- deadlines ------------------------------------------------------------------------------------------------------------- */

void td_deadline(struct soft_td *td, uint64_t at)
{
	uint64_t due = atomic_load_explicit(&td->due, memory_order_relaxed);

	if (!at || (due && due <= at))
		return;
	atomic_store_explicit(&td->due, at, memory_order_relaxed);
	/* While the process is active somebody looks; who lets it fall asleep looks as well. */
	if (rt_asleep())
		sleep_arm(at);
}

static void deadlines(struct soft_td *td, uint64_t now)
{
	uint64_t next = 0;

	for (struct soft_qp *qp = td->qps; qp; qp = qp->td_next) {
		uint64_t at = qp->priv->timer_set;

		if (at && at <= now) {
			qp->priv->timer_set = 0;
			td_again(td, qp);
		} else if (at && (!next || at < next)) {
			next = at;
		}
	}
	atomic_store_explicit(&td->due, next, memory_order_relaxed);
}

static bool clock_look(struct soft_td *td)
{
	struct wire *watched = atomic_load_explicit(&td->watched, memory_order_relaxed);
	uint64_t due = atomic_load_explicit(&td->due, memory_order_relaxed), now;

	if (!watched && !due)
		return false;
	now = rt_now();
	if (watched)
		atomic_store_explicit(&td->watched, watch_prune(watched, now), memory_order_relaxed);
	if (!due || now < due)
		return false;
	deadlines(td, now);
	return run_all(td);
}

/* --- rounds ------------------------------------------------------------------------------------------------------------------ */

bool td_round(struct soft_td *td, bool clock)
{
	bool did = hot_serve(&td->hot);

	if (td->n_cold)
		did |= serve_cold(td);
	if (atomic_load_explicit(&td->mail, memory_order_relaxed))
		take_mail(td);
	if (atomic_load_explicit(&td->run, memory_order_relaxed))
		did |= run_all(td);
	if (clock || ++td->rounds % CLOCK_ROUNDS == 0)
		did |= clock_look(td);
	return did;
}
