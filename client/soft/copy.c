/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies to and from program memory. Why they are not plain memcpy: programs poll the last byte of a message, so it
 * has to land last; and a fault in the progress thread would be a signal in a thread that the program does not know.
 */
#include "client/soft/copy.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "client/soft/mr.h"
#include "client/soft/rt.h"

/* @n <= 8. An aligned eight is one store; less is stored upwards, so that the last byte is the last. */
static void store_tail(uint8_t *dst, const uint8_t *src, size_t n)
{
	if (n == 8 && ((uintptr_t)dst & 7) == 0) {
		uint64_t word;

		memcpy(&word, src, 8);
		__atomic_store_n((uint64_t *)(void *)dst, word, __ATOMIC_RELEASE);
		return;
	}
	for (size_t i = 0; i < n; i++)
		__atomic_store_n(dst + i, src[i], i + 1 == n ? __ATOMIC_RELEASE : __ATOMIC_RELAXED);
}

/*
 * Some processors (AMD's Zen 3) copy a long string, as the C library lets them from 4 KiB on, twenty times slower when its
 * destination stands up to 31 bytes behind its source within their pages. So it is with each malloc() of a big block, which
 * begins 16 bytes into a page, as the destination of a page. Of short pieces the library copies each word by itself.
 */
#define PIECE 2048u

static bool stumbles(const void *dst, const void *src)
{
	size_t distance = ((uintptr_t)dst - (uintptr_t)src) & 4095;

	return distance && distance < 32;
}

/* Not memcpy(): a program may write onto what it reads. What is there then is open, but it is no error. */
void copy_plain(void *dst, const void *src, size_t n)
{
	uint8_t *to = dst;
	const uint8_t *from = src;

	if (n > PIECE && stumbles(dst, src) && (to + n <= from || from + n <= to)) {
		for (; n > PIECE; n -= PIECE, to += PIECE, from += PIECE)
			memmove(to, from, PIECE);
	}
	memmove(to, from, n);
}

void copy_ordered(void *dst, const void *src, size_t n)
{
	if (n == 0)
		return;

	size_t tail = copy_tail((uintptr_t)dst + n, n);

	if (n > tail)
		copy_plain(dst, src, n - tail);
	store_tail((uint8_t *)dst + n - tail, (const uint8_t *)src + n - tail, tail);
}

/* By the kernel, which says what a fault is; the last @tail bytes go last, in a piece of their own: it goes piece by piece. */
static int copy_guarded(uint8_t *to, const uint8_t *from, size_t n, size_t tail, bool write)
{
	pid_t self = getpid();

	while (n) {
		size_t last = tail < n ? tail : n;
		struct iovec from_here = { (void *)(uintptr_t)from, n };
		struct iovec pieces[2] = { { to, n - last }, { to + n - last, last } };
		ssize_t done = write ? process_vm_writev(self, &from_here, 1, pieces, 2, 0) :
				       process_vm_readv(self, pieces, 2, &from_here, 1, 0);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0 && (errno == EPERM || errno == ENOSYS))
			return -ENOSYS;
		if (done <= 0)
			return -EFAULT;
		n -= (size_t)done;
		to += done;
		from += done;
	}
	return 0;
}

static int to_guarded(void *dst, const void *src, size_t n)
{
	return copy_guarded(dst, src, n, copy_tail((uintptr_t)dst + n, n), true);
}

/* Where a sandbox forbids the call, only the progress thread's word for it is missing: the manual says what that means. */
int copy_to_program(void *dst, const void *src, size_t n)
{
	if (n && rt_in_progress_thread()) {
		int r = to_guarded(dst, src, n);

		if (r != -ENOSYS)
			return r;
	}
	copy_ordered(dst, src, n);
	return 0;
}

int copy_from_program(void *dst, const void *src, size_t n)
{
	if (n && rt_in_progress_thread()) {
		int r = copy_guarded(dst, src, n, 0, false);

		if (r != -ENOSYS)
			return r;
	}
	copy_plain(dst, src, n);
	return 0;
}

/* Here it is looked first whether memory is there, which is nearly as good. */
int copy_to_paged(void *dst, const void *src, size_t n)
{
	int r = n ? to_guarded(dst, src, n) : 0;

	if (r != -ENOSYS)
		return r;
	if (mr_probe(dst, n, true) < 0 || mr_probe(src, n, false) < 0)
		return -EFAULT;
	copy_ordered(dst, src, n);
	return 0;
}

int copy_from_paged(void *dst, const void *src, size_t n)
{
	int r = n ? copy_guarded(dst, src, n, 0, false) : 0;

	if (r != -ENOSYS)
		return r;
	if (mr_probe(src, n, false) < 0)
		return -EFAULT;
	copy_plain(dst, src, n);
	return 0;
}
