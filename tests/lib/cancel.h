/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For programs that cancel a thread which sleeps in the library. ThreadSanitizer takes a thread that is cancelled in
 * poll(2) to be in there still, and does not see the locks that its clean-up handler takes.
 */
#ifndef TEST_CANCEL_H
#define TEST_CANCEL_H

#ifdef VERBSD_SANITIZED
const char *__tsan_default_suppressions(void);

__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void)
{
	return "race:block_end\n";
}
#endif

#endif
