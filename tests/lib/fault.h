/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults on demand: a preload (fault.so) that makes the n-th call of libverbsd fail, of those that the calling thread
 * makes it do from fault_arm() to fault_disarm(). Programs find the functions by dlsym(), so they run without it too.
 */
#ifndef TESTS_LIB_FAULT_H
#define TESTS_LIB_FAULT_H

enum fault_kind {
	FAULT_MEMORY,  /* malloc() and the like, mmap(): ENOMEM */
	FAULT_FILES,   /* what makes a file descriptor: EMFILE */
	FAULT_THREADS, /* pthread_create(): EAGAIN */
	FAULT_REFUSAL, /* the daemon refuses the request, with the errno that was given; it never sees it */
	FAULT_HANGUP,  /* the session ends instead of a request */
	FAULT_LOST,    /* the session ends instead of an answer: the daemon has done it */
	FAULT_KINDS,
};

/* @error counts for FAULT_REFUSAL alone. @n: 1 is the first call. */
typedef void fault_arm_fn(enum fault_kind kind, unsigned n, int error);
/* Whether the fault came: less than n calls were made otherwise. */
typedef int fault_disarm_fn(void);

#endif
