/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is acknowledged is completed before what the peer sent after that is received. Who looks for it has the message's wire,
 * and so the hot set that it is in: the progress lock, or the domain. Of the QPs that others have it only tries the send lock.
 */
#include "client/soft/order.h"

#include "client/soft/lane.h"
#include "client/soft/qp_private.h"
#include "client/soft/rt_private.h"

/* --- awaited wires ------------------------------------------------------------------------------------------------------- */

static uint64_t bit_of(const struct wire *wire)
{
	return 1ull << (wire->index % 64);
}

/* One of this process's own has no ready bit: it becomes hot. */
static void heat(struct wire *wire)
{
	struct soft_td *td = atomic_load(&wire->td);

	if (wire_is_folded(wire))
		return;
	if (td)
		td_again(td, atomic_load(&wire->qp));
	else
		loop_heat(wire);
}

void order_await(struct wire *wire)
{
	struct pair_private *priv = wire->pair->priv;
	_Atomic uint64_t *word;

	if (!atomic_load_explicit(&wire->qp, memory_order_relaxed))
		return; /* of datagrams, which nobody acknowledges */
	if (!wire_untaken(wire))
		return;
	if (!wire->pair->segment) {
		heat(wire);
		return;
	}
	word = &priv->awaited[wire->index / 64];
	if (atomic_load_explicit(word, memory_order_relaxed) & bit_of(wire) || atomic_fetch_or(word, bit_of(wire)) & bit_of(wire))
		return;
	atomic_fetch_add(&priv->n_awaited, 1);
	atomic_fetch_add(&wire->set->crowd, HOT_AWAITED);
}

void order_forget(struct wire *wire)
{
	struct pair_private *priv = wire->pair->priv;
	_Atomic uint64_t *word = &priv->awaited[wire->index / 64];

	if (!wire->pair->segment || !(atomic_load_explicit(word, memory_order_relaxed) & bit_of(wire)) ||
	    !(atomic_fetch_and(word, ~bit_of(wire)) & bit_of(wire)))
		return;
	atomic_fetch_sub(&priv->n_awaited, 1);
	atomic_fetch_sub(&wire->set->crowd, HOT_AWAITED);
}

/* --- a message ------------------------------------------------------------------------------------------------------------ */

/* Completes what is acknowledged. False: another thread has the QP, and may be at it. */
static bool take(struct wire *wire)
{
	struct soft_qp *qp;

	if (atomic_load_explicit(&wire->theirs->acked, memory_order_relaxed) ==
	    atomic_load_explicit(&wire->seen_acked, memory_order_acquire))
		return true;
	qp = atomic_load_explicit(&wire->qp, memory_order_relaxed);
	if (!qp || atomic_load_explicit(&wire->released, memory_order_relaxed) || !wire_is_open(wire) || wire->broken ||
	    atomic_load_explicit(&qp->wire, memory_order_relaxed) != wire)
		return true;
	if (!soft_trylock(&qp->sq_lock))
		return false;
	if (atomic_load_explicit(&qp->wire, memory_order_relaxed) == wire)
		requester_acks_first(qp, wire);
	soft_unlock(&qp->sq_lock);
	return true;
}

/* Those of one word that are awaited and have something: all were put there before they were sent, and found since. */
static bool take_word(const struct pair *pair, unsigned index, uint64_t among, const struct wire *but)
{
	uint64_t bits = atomic_load_explicit(&pair->priv->awaited[index], memory_order_relaxed) & among;
	bool all = true;

	if (bits)
		bits &= ready_bits(pair, index);
	for (; bits; bits &= bits - 1) {
		struct wire *wire = pair->priv->wires[index * 64 + (unsigned)__builtin_ctzll(bits)];

		if (!wire || wire == but || atomic_load_explicit(&wire->td, memory_order_relaxed) != but->td)
			continue;
		all &= take(wire);
		if (wire_untaken(wire))
			continue;
		order_forget(wire);
		order_await(wire); /* who posted meanwhile may have seen that it was */
	}
	return all;
}

/* Of a domain's words the wires that are in them stay as they are, whoever has the progress lock. */
static bool take_awaited(const struct wire *wire)
{
	const struct soft_td *td = atomic_load_explicit(&wire->td, memory_order_relaxed);
	const struct pair *pair = wire->pair;
	bool all = true;

	for (unsigned i = 0; td && i < td->n_words; i++)
		if (td->words[i].pair == pair)
			all &= take_word(pair, td->words[i].index,
				atomic_load_explicit(&td->words[i].cold, memory_order_relaxed), wire);
	for (unsigned i = 0; !td && i * 64 < pair->priv->n_wires; i++)
		all &= take_word(pair, i, UINT64_MAX, wire);
	return all;
}

/* Behind the descriptors that are there now: one look at the other wires is enough for all of them. */
static uint64_t behind(const struct wire *wire)
{
	uint64_t first = wire->req_in.pos, pos = first;

	while (pos - first < QP_TURN_WRS && lane_in_valid(&wire->req_in, pos))
		pos++;
	return pos;
}

bool order_keep(struct wire *wire)
{
	const struct hot_set *set = wire->set;
	uint64_t end = behind(wire);
	struct soft_qp *qp = atomic_load_explicit(&wire->qp, memory_order_relaxed);
	bool all = true;

	if (!atomic_load_explicit(&wire->td, memory_order_relaxed) && !rt_inside()) {
		all = false; /* the wires are another thread's */
	} else {
		for (unsigned place = 0; place < set->top; place++) {
			struct wire *other = hot_at(set, place);

			if (other && other != wire && !take(other))
				all = false;
		}
		if (wire->pair->segment && atomic_load_explicit(&wire->pair->priv->n_awaited, memory_order_relaxed))
			all &= take_awaited(wire);
	}
	if (all)
		wire->kept_to = end;
	else if (qp)
		rt_run_later(qp);
	return all;
}
