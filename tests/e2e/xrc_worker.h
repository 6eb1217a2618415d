/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes with XRC objects, for a test that tells them what to do, one step at a time: a worker is forked before anything
 * is opened, does one step when it is told, and answers.
 */
#ifndef TESTS_E2E_XRC_WORKER_H
#define TESTS_E2E_XRC_WORKER_H

#include <stdbool.h>
#include <sys/types.h>

#include "kit.h"

#define HALF 131072u /* bytes of a worker's memory that are sent from; as many are received into */

enum step {
	XRCD,	  /* opens file `a` (0: none) with flags `b` */
	XRCD_CLOSE,
	SRQ,	  /* on the PD (a: on a parent domain with a thread domain) with CQ; answer: number */
	SRQ_DESTROY,
	SRQ_LIMIT,
	RECV_NEW, /* receive QP; answer: number */
	RECV_OPEN,
	RECV_UP,  /* from where it is to RTS, to the send QP `a`, with access `b` */
	RECV_STATE, /* answer: its state as ibv_query_qp() says it */
	RECV_MODIFY, /* to state `a` */
	RECV_DESTROY,
	SEND_NEW,
	SEND_UP, /* to the receive QP `a`, with `b` RNR retries */
	SEND_RESET,
	SEND_DESTROY,
	POST_RECV, /* `a` of them, of `b` bytes */
	POST,	   /* opcode `a`, to SRQ `b`, `length` bytes of `fill`, to `remote` with `rkey` */
	POST_EX,   /* a SEND by ibv_wr_* to SRQ `b` */
	POLL_SEND, /* answer: status */
	POLL_RECV, /* answer: byte_len, opcode, qp_num, src_qp, imm; and the first byte */
	EVENT,	   /* waits for event `a` of the receive QP (b 0) or the SRQ (b 1) */
	EVENTS_ON, /* a completion channel: POLL_RECV waits for its events */
	MEMORY,	   /* answer: address and key of what is received into; rkey of a region of another PD */
	BYTE,	   /* answer: the byte at offset `a` of what is received into, of what is sent from */
	CHILD,	   /* a child of fork can do nothing with any of it */
	QUIT,
};

struct order {
	enum step step;
	uint32_t a, b, length, rkey;
	uint64_t remote;
	uint8_t fill;
};

struct answer {
	int r; /* 0 or the errno */
	uint32_t a, b, c, d, e;
	uint64_t address;
};

struct worker {
	pid_t pid;
	int socket;
};

/* Forks @n of them; nothing may be open. */
void workers_start(struct worker *workers, unsigned n);
/* They end, each with nothing left that it cannot destroy. */
void workers_end(struct worker *workers, unsigned n);
void worker_kill(struct worker *worker);
struct answer worker_try(const struct worker *worker, struct order order);
/* The same, which must succeed. */
struct answer worker_do(const struct worker *worker, struct order order);
/* Files that XRC domains are of, by number from 1 on; made before the workers. */
void files_make(void);

#endif
