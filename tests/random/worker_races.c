/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What ThreadSanitizer shall not tell of a worker: that its memory is written while something else looks at it. Programs do
 * that here on purpose, or the coordinator, whom it cannot see, has put the two in order; and the model says what must be
 * there in the end. All that the library keeps for itself is looked at.
 */
#include "tests/random/worker.h"

/* The sanitizer's, where it is. */
__attribute__((weak)) void AnnotateBenignRaceSized(const char *file, int line, const volatile void *at, size_t size,
	const char *why);

void worker_races_in(const void *memory, size_t size)
{
	if (AnnotateBenignRaceSized)
		AnnotateBenignRaceSized(__FILE__, __LINE__, memory, size, "programs race here on purpose");
}

/*
 * Device memory is where the program cannot know. So by the functions that touch what is the program's, and nothing else, one
 * of which is on either side of such a race.
 */
#ifdef VERBSD_SANITIZED
const char *__tsan_default_suppressions(void);

__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void)
{
	return "race:^to_dm$\n"
	       "race:^from_dm$\n"
	       "race:^copy_ordered$\n"
	       "race:^copy_from_program$\n"
	       "race:^atomic_apply$\n";
}
#endif
