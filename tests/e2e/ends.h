/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For test programs: one end of an RC connection, and the processes at its ends. A case is a function; status 0, or a
 * line on stderr that says what was wrong and status 1, or a line on stdout that says why there is nothing to test and
 * status 77.
 */
#ifndef TESTS_E2E_ENDS_H
#define TESTS_E2E_ENDS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <infiniband/verbs.h>

#include "tests/lib/need.h"

#define ALL_ACCESS                                                                                \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |              \
		IBV_ACCESS_REMOTE_ATOMIC)

/* --- cases ---------------------------------------------------------------------------------------------------------- */

struct end_case {
	const char *name;
	void (*run)(void);
};

/* Without arguments: prints the names; with one: runs that case. */
int end_main(int argc, char **argv, const struct end_case *cases, size_t n);
/* There is nothing to test here, because ... */
_Noreturn void end_skip(const char *why);

/* --- processes ------------------------------------------------------------------------------------------------------ */

struct child {
	pid_t pid;
	int fd; /* a socket to it */
};

/* To be made before this process opens a device. Ends with status 0 when @run returns. */
struct child child_start(void (*run)(int fd, void *arg), void *arg);
/* It has to end well. */
void child_end(struct child *child);
void child_kill(struct child *child);

void say(int fd, const void *what, size_t n);
void hear(int fd, void *what, size_t n);
/* A byte each: "go on". */
void nod(int fd);
void nod_wait(int fd);
void fd_say(int fd, int sent);
int fd_hear(int fd);

/* --- an end --------------------------------------------------------------------------------------------------------- */

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

struct end_address {
	uint32_t qpn;
	uint16_t lid;
};

struct ibv_context *end_device(void);
/* A device, a PD, and a QP that lets peers do all that is in ALL_ACCESS. */
void end_open(struct end *end);
void end_close(struct end *end);
/* CQ and QP on a PD that is there. */
void end_qp(struct end *end);
void end_qp_destroy(struct end *end);
struct end_address end_here(const struct end *end);
void end_connect(struct end *end, struct end_address peer);
/* Two connected QPs of this process, with PDs that are there. */
void end_pair(struct end *a, struct end *b);
/* With the other end behind a socket. */
void end_meet(struct end *end, int fd);

struct work {
	enum ibv_wr_opcode opcode;
	uint64_t addr; /* local */
	uint32_t length, lkey;
	uint64_t raddr;
	uint32_t rkey;
	uint64_t compare_add, swap;
};

/* Posts it and waits for its completion. */
enum ibv_wc_status end_work(struct end *end, const struct work *work);
void end_recv(struct end *end, uint64_t addr, uint32_t length, uint32_t lkey);
enum ibv_wc_status end_wait(struct end *end);

#endif
