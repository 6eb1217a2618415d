/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a program without RDMA would use: TCP over loopback or a UNIX socket between two processes on two processors.
 * Prints "name<tab>value<tab>unit".
 *
 *	sockets tcp|unix lat SIZE     to and fro, both sides polling: half the time of a round
 *	sockets tcp|unix sleep SIZE   the same, both sides blocking
 *	sockets tcp|unix rate SIZE    messages one way
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

static int sock;
static char *buf;
static size_t size;
static bool spin;

static void tcp_pair(int fds[2])
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	socklen_t length = sizeof(at);

	fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&at, length) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&at, &length) || connect(fds[0], (struct sockaddr *)&at, length))
		fail("TCP");
	fds[1] = accept(listener, NULL, NULL);
	if (fds[1] < 0)
		fail("accept");
	close(listener);
	for (int i = 0; i < 2; i++)
		setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static void send_all(void)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = send(sock, buf + done, size - done, MSG_NOSIGNAL);

		if (n < 0)
			fail("send");
		done += (size_t)n;
	}
}

/* False: the peer has closed. */
static bool recv_all(void)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = recv(sock, buf + done, size - done, spin ? MSG_DONTWAIT : 0);

		if (n == 0)
			return false;
		if (n < 0 && errno != EAGAIN)
			fail("recv");
		done += n > 0 ? (size_t)n : 0;
	}
	return true;
}

static void answer(bool echo)
{
	while (recv_all())
		if (echo)
			send_all();
}

/* Rounds or messages for a fifth of a second; how many, and *@ns. */
static uint64_t go_on(bool echo, uint64_t *ns)
{
	uint64_t start = now(), n = 0;

	do {
		send_all();
		if (echo && !recv_all())
			fail("the other side");
		n++;
		*ns = now() - start;
	} while (*ns < 200000000u);
	return n;
}

int main(int argc, char **argv)
{
	bool rate = argc == 4 && strcmp(argv[2], "rate") == 0, tcp = argc == 4 && strcmp(argv[1], "tcp") == 0;
	uint64_t n, ns;
	int fds[2];

	if (argc != 4 || (!tcp && strcmp(argv[1], "unix") != 0)) {
		fprintf(stderr, "usage: sockets tcp|unix lat|sleep|rate SIZE\n");
		return 2;
	}
	size = strtoull(argv[3], NULL, 10);
	spin = strcmp(argv[2], "lat") == 0;
	buf = calloc(1, size);
	if (!buf || !size)
		fail("size");
	if (tcp)
		tcp_pair(fds);
	else if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		fail("socketpair");

	pid_t child = fork();

	pin(child == 0);
	sock = fds[child == 0];
	close(fds[child != 0]);
	if (child == 0) {
		answer(!rate);
		return 0;
	}
	n = go_on(!rate, &ns);
	close(sock);
	waitpid(child, NULL, 0);
	if (rate)
		printf("rate\t%.9f\tM/s\n", (double)n / (double)ns * 1e3);
	else
		printf("%s\t%.1f\tns\n", argv[2], (double)ns / (double)n / 2);
	return 0;
}
