/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the machine itself can do, measured in the run that measures us: a polled flag going back and forth between two
 * processes, memcpy, and a SOCK_SEQPACKET round trip with one fd in the answer. Prints "name<tab>value<tab>unit".
 *
 *	limits flag|memcpy|seqpacket|mutex
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

struct flags {
	_Alignas(64) _Atomic uint64_t there;
	_Alignas(64) _Atomic uint64_t back;
};

static int flag(void)
{
	enum { ROUNDS = 300000 };
	struct flags *f = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child = fork();

	if (child == 0) {
		pin(1);
		for (uint64_t i = 1; i <= 2 * ROUNDS; i++) {
			while (atomic_load_explicit(&f->there, memory_order_acquire) != i)
				;
			atomic_store_explicit(&f->back, i, memory_order_release);
		}
		_exit(0);
	}
	pin(0);
	uint64_t start = 0;
	for (uint64_t i = 1; i <= 2 * ROUNDS; i++) {
		if (i == ROUNDS + 1) /* the first half warms up */
			start = now();
		atomic_store_explicit(&f->there, i, memory_order_release);
		while (atomic_load_explicit(&f->back, memory_order_acquire) != i)
			;
	}
	printf("flag_one_way\t%.1f\tns\n", (double)(now() - start) / ROUNDS / 2);
	waitpid(child, NULL, 0);
	return 0;
}

static int copy(void)
{
	enum { SIZE = 1 << 20, ROUNDS = 4000 };
	char *a = aligned_alloc(4096, SIZE), *b = aligned_alloc(4096, SIZE);

	memset(a, 1, SIZE);
	memset(b, 2, SIZE);
	uint64_t start = 0;
	for (int i = 0; i < 2 * ROUNDS; i++) {
		if (i == ROUNDS)
			start = now();
		memcpy(a, b, SIZE);
		__asm__ volatile("" : : "r"(a) : "memory");
	}
	printf("memcpy_1MiB\t%.2f\tGB/s\n", (double)SIZE * ROUNDS / (double)(now() - start));
	return 0;
}

static void answer(int fd, int passed)
{
	char buf[64];

	while (read(fd, buf, sizeof(buf)) > 0) {
		union {
			struct cmsghdr header;
			char space[CMSG_SPACE(sizeof(int))];
		} control;
		struct iovec iov = { buf, sizeof(buf) };
		struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
				      .msg_controllen = sizeof(control) };

		control.header = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET,
						   .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.header), &passed, sizeof(passed));
		if (sendmsg(fd, &msg, 0) < 0)
			_exit(1);
	}
	_exit(0);
}

static int seqpacket(void)
{
	enum { ROUNDS = 20000 };
	int fds[2], passed = memfd_create("passed", MFD_CLOEXEC);
	uint64_t start = 0;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) || passed < 0)
		return 1;
	pid_t child = fork();
	if (child == 0) {
		close(fds[0]);
		answer(fds[1], passed);
	}
	close(fds[1]);
	for (int i = 0; i < 2 * ROUNDS; i++) {
		char buf[64] = { 0 };
		char space[CMSG_SPACE(sizeof(int))];
		struct iovec iov = { buf, sizeof(buf) };
		struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space,
				      .msg_controllen = sizeof(space) };
		int got;

		if (i == ROUNDS)
			start = now();
		if (write(fds[0], buf, sizeof(buf)) < 0 || recvmsg(fds[0], &msg, MSG_CMSG_CLOEXEC) <= 0)
			return 1;
		memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(got));
		close(got);
	}
	printf("seqpacket_fd_rtt\t%.2f\tus\n", (double)(now() - start) / ROUNDS / 1000);
	close(fds[0]);
	waitpid(child, NULL, 0);
	return 0;
}

static int mutex(void)
{
	enum { ROUNDS = 20000000 };
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	uint64_t start = 0;

	for (int i = 0; i < 2 * ROUNDS; i++) {
		if (i == ROUNDS)
			start = now();
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
	}
	printf("mutex\t%.2f\tns\n", (double)(now() - start) / ROUNDS);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} pieces[] = { { "flag", flag }, { "memcpy", copy }, { "seqpacket", seqpacket }, { "mutex", mutex } };

	for (size_t i = 0; argc == 2 && i < sizeof(pieces) / sizeof(pieces[0]); i++)
		if (strcmp(argv[1], pieces[i].name) == 0)
			return pieces[i].run();
	fprintf(stderr, "usage: limits flag|memcpy|seqpacket|mutex\n");
	return 2;
}
