/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A treap of edges: addresses from which on another number of ranges lies over each byte than before. Adding a range makes an
 * edge at each of its ends and raises all between, which is noted at the root of what lies between and passed down later.
 * Edges where nothing changes are dropped, so there are never more than two for a range, and taking one away needs no more
 * memory than adding it did. Lowest and highest number of each subtree lead to holes and parts without a walk.
 */
#include "client/soft/cover.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

struct cover_node {
	uintptr_t at;
	int32_t count; /* over the bytes from here to the next edge; less what is noted above */
	int32_t min, max;
	int32_t add; /* noted for both children */
	uint32_t left, right; /* of a spare node, left: the next */
	uint32_t prio;
};

static const struct cover_node none = { .min = INT32_MAX, .max = INT32_MIN };

static struct cover_node *node_of(const struct cover *cover, uint32_t i)
{
	return &cover->nodes[i];
}

static void raise_by(struct cover *cover, uint32_t i, int32_t by)
{
	if (!i)
		return;

	struct cover_node *n = node_of(cover, i);

	n->count += by;
	n->min += by;
	n->max += by;
	n->add += by;
}

static void pass_down(struct cover *cover, uint32_t i)
{
	struct cover_node *n = node_of(cover, i);

	if (!n->add)
		return;
	raise_by(cover, n->left, n->add);
	raise_by(cover, n->right, n->add);
	n->add = 0;
}

static void look_below(struct cover *cover, uint32_t i)
{
	struct cover_node *n = node_of(cover, i);
	const struct cover_node *l = node_of(cover, n->left), *r = node_of(cover, n->right);

	n->min = n->max = n->count;
	if (l->min < n->min)
		n->min = l->min;
	if (r->min < n->min)
		n->min = r->min;
	if (l->max > n->max)
		n->max = l->max;
	if (r->max > n->max)
		n->max = r->max;
}

/* Edges before @at, and the others. */
static void split(struct cover *cover, uint32_t i, uintptr_t at, uint32_t *before, uint32_t *after)
{
	if (!i) {
		*before = *after = 0;
		return;
	}

	struct cover_node *n = node_of(cover, i);

	pass_down(cover, i);
	if (n->at < at) {
		split(cover, n->right, at, &n->right, after);
		*before = i;
	} else {
		split(cover, n->left, at, before, &n->left);
		*after = i;
	}
	look_below(cover, i);
}

static uint32_t join(struct cover *cover, uint32_t l, uint32_t r)
{
	struct cover_node *left = node_of(cover, l), *right = node_of(cover, r);

	if (!l || !r)
		return l ? l : r;
	if (left->prio > right->prio) {
		pass_down(cover, l);
		left->right = join(cover, left->right, r);
		look_below(cover, l);
		return l;
	}
	pass_down(cover, r);
	right->left = join(cover, l, right->left);
	look_below(cover, r);
	return r;
}

/* --- nodes --------------------------------------------------------------------------------------------------------- */

/* Room for @edges, and for two more while a change is made. */
static int reserve(struct cover *cover, uint64_t edges)
{
	uint64_t want = edges + 3, size = cover->size ? cover->size : 32;
	struct cover_node *nodes;

	if (want <= cover->size)
		return 0;
	while (size < want)
		size *= 2;
	if (size > UINT32_MAX)
		return -ENOMEM;
	nodes = realloc(cover->nodes, size * sizeof(*nodes));
	if (!nodes)
		return -ENOMEM;
	nodes[0] = none;
	cover->nodes = nodes;
	cover->size = (uint32_t)size;
	if (!cover->used)
		cover->used = 1;
	return 0;
}

static uint32_t random_next(struct cover *cover)
{
	uint32_t x = cover->seed ? cover->seed : 2463534242u;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	cover->seed = x;
	return x;
}

static uint32_t node_new(struct cover *cover, uintptr_t at, int32_t count)
{
	uint32_t i = cover->spare;

	if (i)
		cover->spare = node_of(cover, i)->left;
	else
		i = cover->used++;
	cover->edges++;
	*node_of(cover, i) = (struct cover_node){
		.at = at, .count = count, .min = count, .max = count, .prio = random_next(cover)
	};
	return i;
}

static void node_free(struct cover *cover, uint32_t i)
{
	node_of(cover, i)->left = cover->spare;
	cover->spare = i;
	cover->edges--;
}

/* Without its first edge. */
static uint32_t drop_first(struct cover *cover, uint32_t tree, uintptr_t at)
{
	uint32_t first, rest;

	split(cover, tree, at + 1, &first, &rest);
	node_free(cover, first);
	return rest;
}

static const struct cover_node *first_of(struct cover *cover, uint32_t tree)
{
	for (;;) {
		pass_down(cover, tree);
		if (!node_of(cover, tree)->left)
			return node_of(cover, tree);
		tree = node_of(cover, tree)->left;
	}
}

/* The number after the last edge; @fallback when there is none. */
static int32_t last_count(const struct cover *cover, uint32_t tree, int32_t fallback)
{
	int32_t noted = 0;

	if (!tree)
		return fallback;
	while (node_of(cover, tree)->right) {
		noted += node_of(cover, tree)->add;
		tree = node_of(cover, tree)->right;
	}
	return node_of(cover, tree)->count + noted;
}

/* --- changes ------------------------------------------------------------------------------------------------------- */

static uint32_t insert(struct cover *cover, uint32_t i, uint32_t edge)
{
	struct cover_node *n = node_of(cover, i), *e = node_of(cover, edge);

	if (!i || e->prio > n->prio) {
		split(cover, i, e->at, &e->left, &e->right);
		look_below(cover, edge);
		return edge;
	}
	pass_down(cover, i);
	if (e->at < n->at)
		n->left = insert(cover, n->left, edge);
	else
		n->right = insert(cover, n->right, edge);
	look_below(cover, i);
	return i;
}

static uint32_t erase(struct cover *cover, uint32_t i, uintptr_t at)
{
	struct cover_node *n = node_of(cover, i);
	uint32_t rest;

	pass_down(cover, i);
	if (n->at == at) {
		rest = join(cover, n->left, n->right);
		node_free(cover, i);
		return rest;
	}
	if (at < n->at)
		n->left = erase(cover, n->left, at);
	else
		n->right = erase(cover, n->right, at);
	look_below(cover, i);
	return i;
}

/* The first edge from @at on, with its number; NULL: none. The number before @at as well. */
static const struct cover_node *look(const struct cover *cover, uintptr_t at, int32_t *before, int32_t *count)
{
	const struct cover_node *first = NULL;
	int32_t noted = 0;
	uint32_t i = cover->root;

	*before = *count = 0;
	while (i) {
		const struct cover_node *n = node_of(cover, i);

		if (n->at < at) {
			*before = n->count + noted;
			i = n->right;
		} else {
			first = n;
			*count = n->count + noted;
			i = n->left;
		}
		noted += n->add;
	}
	return first;
}

/* What most changes are, a range that touches no other: its two edges come, or go. False: nothing was done. */
static bool change_alone(struct cover *cover, uintptr_t start, uintptr_t end, int32_t by)
{
	int32_t before, count, within, count_end;
	const struct cover_node *first = look(cover, start, &before, &count);

	if (!first || first->at > end) {
		cover->root = insert(cover, cover->root, node_new(cover, start, before + by));
		cover->root = insert(cover, cover->root, node_new(cover, end, before));
		return true;
	}
	if (first->at != start || count + by != before)
		return false;
	first = look(cover, start + 1, &within, &count_end);
	if (!first || first->at != end || count_end != before)
		return false;
	cover->root = erase(cover, cover->root, start);
	cover->root = erase(cover, cover->root, end);
	return true;
}

static void change(struct cover *cover, uintptr_t start, uintptr_t end, int32_t by)
{
	uint32_t before, within, after;
	int32_t count, count_end;

	if (change_alone(cover, start, end, by))
		return;
	split(cover, cover->root, start, &before, &within);
	split(cover, within, end, &within, &after);
	count = last_count(cover, before, 0);
	count_end = last_count(cover, within, count);
	if (!within || first_of(cover, within)->at != start)
		within = join(cover, node_new(cover, start, count), within);
	if (!after || first_of(cover, after)->at != end)
		after = join(cover, node_new(cover, end, count_end), after);
	raise_by(cover, within, by);
	if (first_of(cover, within)->count == count)
		within = drop_first(cover, within, start);
	if (first_of(cover, after)->count == last_count(cover, within, count))
		after = drop_first(cover, after, end);
	cover->root = join(cover, join(cover, before, within), after);
}

int cover_promise(struct cover *cover)
{
	int r = cover->ranges == INT32_MAX ? -ENOMEM : reserve(cover, 2 * (uint64_t)(cover->ranges + 1));

	if (r == 0)
		cover->ranges++;
	return r;
}

void cover_keep(struct cover *cover, uintptr_t start, uintptr_t end)
{
	change(cover, start, end, 1);
}

void cover_break(struct cover *cover)
{
	cover->ranges--;
}

int cover_add(struct cover *cover, uintptr_t start, uintptr_t end)
{
	int r = cover_promise(cover);

	if (r == 0)
		cover_keep(cover, start, end);
	return r;
}

int cover_del(struct cover *cover, uintptr_t start, uintptr_t end)
{
	uintptr_t from, to;

	if (!cover->ranges || cover_hole(cover, start, end, &from, &to))
		return -EINVAL;
	cover->ranges--;
	change(cover, start, end, -1);
	return 0;
}

int cover_fill(struct cover *cover, uintptr_t start, uintptr_t end)
{
	uintptr_t from, to;

	while (cover_hole(cover, start, end, &from, &to)) {
		int r = reserve(cover, cover->edges);

		if (r < 0)
			return r;
		change(cover, from, to, 1);
		start = to;
	}
	return 0;
}

int cover_cut(struct cover *cover, uintptr_t start, uintptr_t end)
{
	uintptr_t from, to;

	while (cover_part(cover, start, end, &from, &to)) {
		int r = reserve(cover, cover->edges);

		if (r < 0)
			return r;
		change(cover, from, to, -1);
		start = to;
	}
	return 0;
}

void cover_clear(struct cover *cover)
{
	free(cover->nodes);
	*cover = (struct cover){ 0 };
}

/* --- questions ----------------------------------------------------------------------------------------------------- */

static int32_t count_at(const struct cover *cover, uintptr_t at)
{
	int32_t noted = 0, count = 0;
	uint32_t i = cover->root;

	while (i) {
		const struct cover_node *n = node_of(cover, i);

		if (n->at <= at)
			count = n->count + noted;
		noted += n->add;
		i = n->at <= at ? n->right : n->left;
	}
	return count;
}

/* The first edge after @at, from which on there is a hole (or none), in the subtree @i; @noted is its ancestors'. */
static uint32_t edge_after(const struct cover *cover, uint32_t i, int32_t noted, uintptr_t at, bool hole)
{
	uint32_t found;

	if (!i)
		return 0;

	const struct cover_node *n = node_of(cover, i);

	if (hole ? n->min + noted > 0 : n->max + noted == 0)
		return 0;
	if (n->at > at) {
		found = edge_after(cover, n->left, noted + n->add, at, hole);
		if (found)
			return found;
		if ((n->count + noted == 0) == hole)
			return i;
	}
	return edge_after(cover, n->right, noted + n->add, at, hole);
}

static bool stretch(const struct cover *cover, uintptr_t from, uintptr_t to, bool hole, uintptr_t *start, uintptr_t *end)
{
	uintptr_t first = from;
	uint32_t edge;

	if (from >= to)
		return false;
	if ((count_at(cover, from) == 0) != hole) {
		edge = edge_after(cover, cover->root, 0, from, hole);
		if (!edge || node_of(cover, edge)->at >= to)
			return false;
		first = node_of(cover, edge)->at;
	}
	edge = edge_after(cover, cover->root, 0, first, !hole);
	*start = first;
	*end = edge && node_of(cover, edge)->at < to ? node_of(cover, edge)->at : to;
	return true;
}

bool cover_hole(const struct cover *cover, uintptr_t from, uintptr_t to, uintptr_t *start, uintptr_t *end)
{
	return stretch(cover, from, to, true, start, end);
}

bool cover_part(const struct cover *cover, uintptr_t from, uintptr_t to, uintptr_t *start, uintptr_t *end)
{
	return stretch(cover, from, to, false, start, end);
}

bool cover_gap(const struct cover *cover, uintptr_t from, uintptr_t to, uintptr_t *lo, uintptr_t *hi)
{
	uintptr_t before = 0, after = UINTPTR_MAX;
	int32_t noted = 0, count = 0;
	uint32_t i = cover->root;

	while (i) {
		const struct cover_node *n = node_of(cover, i);

		if (n->at <= from) {
			before = n->at;
			count = n->count + noted;
			i = n->right;
		} else {
			after = n->at;
			i = n->left;
		}
		noted += n->add;
	}
	if (count || after < to)
		return false;
	*lo = before > *lo ? before : *lo;
	*hi = after < *hi ? after : *hi;
	return true;
}
