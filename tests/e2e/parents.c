/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Thread domains and parent domains, as ibv_alloc_td(3) and ibv_alloc_parent_domain(3) have them, for every object that
 * takes one. One test a run, named by the first argument; status 0, or a line on stderr and status 1.
 */
#include "parents.h"

static const struct kit_test tests[] = {
	{ "exact", test_exact },
	{ "garbage", test_garbage },
	{ "default", test_default },
	{ "null", test_null },
	{ "misaligned", test_misaligned },
	{ "second-fails", test_second_fails },
	{ "callbacks-call-verbs", test_callbacks_call_verbs },
	{ "masks", test_masks },
	{ "mix", test_mix },
	{ "mix-processes", test_mix_processes },
	{ "windows", test_windows },
	{ "datagrams", test_datagrams },
	{ "every-order", test_every_order },
	{ "random-orders", test_random_orders },
	{ "xrc-orders", test_xrc_orders },
	{ "close", test_close },
	{ NULL, NULL },
};

/* These need something of the script. */
static const struct kit_test arranged[] = {
	{ "refused", test_refused },
	{ "resize", test_resize },
	{ "td-limit", test_td_limit },
	{ "named", test_named },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	for (const struct kit_test *test = arranged; argc > 1 && test->name; test++)
		if (strcmp(argv[1], test->name) == 0)
			return kit_main(test, argc, argv);
	return kit_main(tests, argc, argv);
}
