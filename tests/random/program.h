/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program of the randomised tester: a list of operations. It is a pure function of its seed, and every operation
 * names what it works on by number, so that any part of the list is a program too: what works on an object that was not
 * made is left out when it runs. Programs are written to and read from text, one operation a line.
 */
#ifndef RANDOM_PROGRAM_H
#define RANDOM_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
	WORKERS = 4,
	ARENA = 8 << 20, /* bytes of memory of each process that its regions lie in */
	DMS = 16,	 /* pieces of device memory that a process has at a time, */
	DM_MAX = 64 << 10, /* of that size at most; the model has them behind the arena */
	PAGED = ARENA + DMS * DM_MAX, /* behind them memory whose pages come and go */
	PAGE = 4096,
	PAGES = 64,
	SPACE = PAGED + PAGES * PAGE,
	SGES = 4,
	GROUPS = 4, /* of multicast */
	THREADS_MAX = 4,
	TAGS_MAX = 8,  /* entries of a list */
	TAG_PLAINS = 8, /* receives without a tag */
	TAG_SLOT = 48 << 10, /* bytes for each of them, and for each message */
	TAG_SENDS = 4,
	OP_ARGS = 34,
};

enum op_kind {
	OP_TD,
	OP_PD,
	OP_PARENT,
	OP_CQ,
	OP_SRQ,
	OP_MR,
	OP_MW,
	OP_QP,
	OP_FREE,
	OP_REREG,
	OP_RESIZE,
	OP_LIMIT,
	OP_CONNECT,
	OP_DATAGRAM,
	OP_STATE,
	OP_SEND,
	OP_RECV,
	OP_POLL,
	OP_ARM,
	OP_FILL,
	OP_DM,
	OP_DM_COPY,
	OP_TAGS,
	OP_TAG,
	OP_THREADS,
	OP_XRCD,
	OP_GROUP,
	OP_PAGES,
	OP_ADVISE,
	OP_SETTLE, /* wait until all is done, and look at everything */
	OP_KINDS,
};

/* What programs are made of beyond the base; what is not among a program's kinds takes no part in it. */
enum {
	KIND_ATOMIC_WRITE = 1 << 0,
	KIND_DM = 1 << 1,
	KIND_ODP = 1 << 2,
	KIND_MCAST = 1 << 3,
	KIND_XRC = 1 << 4,
	KIND_OVERRUN = 1 << 5,
	KIND_THREADS = 1 << 6,
	KIND_TAGS = 1 << 7,
	KINDS_ALL = (1 << 8) - 1,
};

/* Arguments, by kind: places in op.a[]. Absent objects are -1. */
enum { PARENT_PD, PARENT_TD, PARENT_ALLOC };
enum { CQ_SIZE, CQ_CHANNEL, CQ_PARENT, CQ_EX, CQ_OVERRUN /* it may come to that */ };
enum { SRQ_PD, SRQ_WR, SRQ_SGE, SRQ_XRCD /* 1 more than its number */, SRQ_CQ };
enum { XRCD_FILE /* 0: private */ };
enum { MR_PD, MR_OFF, MR_LEN, MR_ACCESS, MR_SHIFT, MR_DM /* 1 more than its number */, MR_IMPLICIT };
enum { MW_PD, MW_TYPE };
enum { QP_PD, QP_TYPE, QP_SEND_CQ, QP_RECV_CQ, QP_SRQ, QP_SEND_WR, QP_RECV_WR, QP_SGE, QP_INLINE, QP_SIG_ALL, QP_EX, QP_XRCD };
enum { FREE_WHAT, FREE_FILL }; /* an op_kind; a pattern for what the object gave access to, 0: none */
enum { REREG_FLAGS, REREG_PD, REREG_OFF, REREG_LEN, REREG_ACCESS };
enum { RESIZE_TO };
enum { LIMIT_TO, LIMIT_NEAR }; /* near: not 0, then so many below two more than are there */
enum {
	CONNECT_PEER,
	CONNECT_HOW,
	CONNECT_TIMER,
	CONNECT_TIMEOUT,
	CONNECT_RETRY,
	CONNECT_MTU,
	CONNECT_ACCESS, /* of id, then of the peer */
	CONNECT_RNR = CONNECT_ACCESS + 2,
	CONNECT_RD = CONNECT_RNR + 2,
	CONNECT_DEST_RD = CONNECT_RD + 2,
};
enum connect_how { HOW_BOTH, HOW_PEER_RTR, HOW_WRONG_PSN };
enum { DATAGRAM_QKEY };
enum { STATE_TO, STATE_FILL, STATE_NOTIFY };
enum { SGE_MR, SGE_OFF, SGE_LEN, SGE_TWEAK, SGE_ARGS }; /* of a list of SGEs: for each one */
enum {
	SEND_OPCODE,
	SEND_FLAGS,
	SEND_MORE, /* one call with the next */
	SEND_IMM,
	SEND_TWEAK,
	SEND_TARGET, /* a region or window of the peer's, the QP of a datagram, the window of a bind or an invalidation */
	SEND_IS_MW,
	SEND_OFF,
	SEND_COMPARE, /* or the length of a bind */
	SEND_SWAP,    /* or its access */
	SEND_MR,      /* of a bind */
	SEND_GRH,
	SEND_SGES,
	SEND_SGE,
	SEND_GROUP = SEND_SGE + SGES * SGE_ARGS, /* 1 more than its number: a datagram to all of it */
	SEND_SRQ,				 /* of XRC: 1 more than its number */
};
enum { RECV_IS_SRQ, RECV_MORE, RECV_SGES, RECV_SGE };
enum { DM_LEN, DM_ALIGN, DM_SEED };
enum { DMCOPY_OFF, DMCOPY_LEN, DMCOPY_SEED };
enum { THREADS_N };
enum { TAGS_CLIENT }; /* a worker; the SRQ is the operation's worker's */
enum { TAG_WHAT, TAG_TAG, TAG_MASK, TAG_LEN, TAG_FLAGS, TAG_COUNT, TAG_SEED, TAG_N }; /* COUNT: of a list, or of messages */
enum tag_what { WHAT_ADD, WHAT_DEL, WHAT_SYNC, WHAT_PLAIN, WHAT_SEND, WHAT_SEND_NO_TAG };
enum { GROUP_NUMBER, GROUP_IN };
enum { PAGES_FROM, PAGES_N, PAGES_THERE, PAGES_SEED };
enum { ADVISE_HOW, ADVISE_FLAGS, ADVISE_SGES, ADVISE_SGE }; /* in the PD of its number */
enum { ARM_SOLICITED };
enum { FILL_OFF, FILL_LEN, FILL_SEED };

struct op {
	uint8_t kind;
	uint8_t worker; /* where objects are made */
	uint32_t id;	/* of the object that it makes or works on */
	int64_t a[OP_ARGS];
};

struct program {
	struct op *ops;
	size_t n, room;
};

struct op *program_add(struct program *program, enum op_kind kind, unsigned worker, uint32_t id);
void program_free(struct program *program);
const char *op_name(enum op_kind kind);
void op_print(FILE *to, const struct op *op);
void program_print(FILE *to, const struct program *program);
/* False: a line that is none, told on stderr. */
bool program_read(FILE *from, struct program *program);

/* generate.c: @kinds of KIND_*. Seeds mean the same programs as long as the kinds are the same. */
void program_generate(struct program *program, uint64_t seed, size_t ops, unsigned workers, unsigned kinds);

/* kinds.c: a list of names with commas. False: there is no such kind. */
bool kinds_read(char *list, unsigned *kinds);
/* Without one of these kinds it never happens; 0: it always may. */
unsigned op_needs(enum op_kind kind);

/* The byte at @at that a fill stores. */
static inline uint8_t pattern(uint64_t seed, size_t at)
{
	uint64_t x = (seed + at / 8) * 0x9e3779b97f4a7c15ull;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ull;
	return (uint8_t)(x >> (at % 8 * 8));
}

/* All of them from @lo up to @hi. */
void pattern_fill(uint8_t *memory, uint64_t seed, size_t lo, size_t hi);

#endif
