/* SPDX-License-Identifier: BSD-2-Clause */
/* What the model consists of: the objects of all workers, work requests, and what was seen. */
#ifndef RANDOM_MODEL_OBJECTS_H
#define RANDOM_MODEL_OBJECTS_H

#include "tests/random/link.h"

enum tri { NO, MAYBE, YES };

#define STATUS(status) (1u << (status)) /* a set of enum ibv_wc_status */
/* Those with which a peer refuses a request, and both QPs are in error. */
#define REFUSALS (STATUS(IBV_WC_REM_ACCESS_ERR) | STATUS(IBV_WC_REM_INV_REQ_ERR) | STATUS(IBV_WC_REM_OP_ERR))

struct m_td {
	bool live;
	unsigned worker, users;
};

struct m_pd {
	bool live;
	unsigned worker, users;
	int base, td; /* of a parent domain; a PD is its own base */
};

struct m_cq {
	bool live;
	unsigned worker, users, size;
	int parent;
	bool channel;
	bool may_overrun, unsure; /* unsure: it may have */
	unsigned errors;	  /* events that say so */
	unsigned due; /* completions that may yet come, or were not read */
	/* notification: what was asked for, what came since, what was seen */
	enum { UNARMED, ARMED_NEXT, ARMED_SOLICITED } armed;
	unsigned armed_at;
	bool fired, maybe_fired, late;
	unsigned events;
};

struct m_xrcd {
	bool live;
	unsigned worker, users;
	int64_t domain; /* the same for all that share it */
};

struct m_tag {
	bool counts;
	uint64_t tag, mask;
	uint32_t handle, id, len;
	int slot;
};

/* A list of tags, and the two QPs of it. */
struct m_tags {
	bool live;
	unsigned server, client;
	uint64_t memory; /* of the server */
	struct m_tag entries[TAGS_MAX];
	unsigned n;
	uint32_t unexpected, handled, next_id, last_handle;
	unsigned first_plain, n_plains;
};

struct m_dm {
	bool live;
	unsigned worker, users;
	uint64_t len;
};

/* A byte range of a worker's arena. */
struct m_range {
	uint32_t lo, hi;
};

struct m_sge {
	uint64_t addr;
	uint32_t len, key;
	int64_t off; /* in the arena, if the key allows it */
	int mr;	     /* whose key it was made from */
};

enum recv_state { RECV_POSTED, RECV_TAKEN, RECV_FAILED, RECV_FLUSHED, RECV_GONE, RECV_NOT };

struct m_recv {
	uint32_t id; /* wr_id: RECV_ID | id */
	unsigned seq;
	int qp, srq;
	struct m_flow *life; /* of the QP */
	struct m_sge sge[SGES];
	unsigned n_sge;
	enum recv_state state;
	unsigned resolved_at;
	unsigned posted_at; /* when the program knew that it was posted; 0: not yet */
	struct m_wr *wr;    /* that it was taken by */
	enum ibv_wc_status status;
};

/* Receives in the order in which they were posted. */
struct m_queue {
	struct m_recv **at;
	size_t n, room;
	size_t head;	 /* all before are resolved */
	unsigned unread; /* no completion was read */
	unsigned reads;	 /* among the commands that are answered now, of a process with several threads */
};

struct m_srq {
	bool live;
	unsigned worker, users, max_wr, max_sge;
	int pd;
	struct m_queue queue;
	int xrcd, cq; /* of XRC, or -1 */
	uint32_t number;
	unsigned gone_at;
	unsigned lost; /* receives that messages may have taken whose completion nobody saw */
	unsigned limit;
	unsigned limit_most; /* of those that its events may be of */
	size_t waiting;	     /* receives at the last quiet point, or when it was armed since */
	size_t begun;	     /* of them, that messages may have taken which then ended in the middle */
	bool armed;
	bool may_be_armed; /* of several of which one fired, it is not known which */
	unsigned rearmed; /* in this batch */
	unsigned events;
};

struct m_mr_state {
	bool live;
	bool implicit; /* all memory of its process */
	int pd;
	int64_t off;
	uint64_t len;
	unsigned access;
};

/* A page of the memory whose pages come and go. */
struct m_page {
	bool away;
	uint64_t seed; /* what it was filled with when it came, or stands for it while it is away */
	unsigned changed;
};

struct m_mr {
	unsigned worker;
	uint32_t key;
	int64_t shift; /* of its iova against its address */
	int dm;	       /* that it lies on, or -1 */
	struct m_mr_state now, before;
	unsigned changed; /* when; 0: never */
	unsigned changes; /* in this batch */
	unsigned bound, maybe_bound;
};

struct m_mw {
	bool live;
	unsigned worker;
	int pd, type;
	uint32_t rkey; /* as the program knows it */
	/* the binding: */
	bool bound, wild; /* wild: the model lost track of it */
	uint32_t bound_key;
	int mr, qp;
	uint64_t addr, len;
	unsigned access;
	/* where the next use aims: the binding that was asked for last */
	uint64_t aim;
	int64_t aim_off, aim_shift;
	bool moved; /* an earlier binding had other addresses for the same bytes, or other bytes */
	unsigned touched; /* the last operation that may change it */
	unsigned touchers; /* flows that may, in this batch */
	struct m_flow *last_flow;
	unsigned freed_at;
};

enum outcome { OUT_NONE, OUT_OK, OUT_FAIL, OUT_FLUSH, OUT_GONE, OUT_NOT };

/* What a WR did to memory. */
enum effect { EFFECT_NONE, EFFECT_MAYBE, EFFECT_DONE };

struct m_wr {
	uint32_t id; /* wr_id */
	unsigned seq;
	struct m_flow *flow;
	size_t index; /* in the flow */
	size_t place; /* in the SQ */
	uint8_t opcode;
	bool signaled, fence, solicited, inlined, posted;
	uint32_t imm, rkey;
	uint64_t raddr, len, compare, swap;
	int64_t target; /* of raddr, in the peer's arena, if the key allows it */
	struct m_sge sge[SGES];
	unsigned n_sge;
	int mw, mr;  /* of a bind */
	int dst;     /* QP of a datagram */
	int srq;     /* that an XRC message names, or -1 */
	uint32_t qkey;
	bool grh;
	int group;	   /* of multicast, 1 more than its number: its copies are what arrives */
	struct m_wr *parent; /* of such a copy */
	unsigned n_copies;   /* behind it in its flow */
	uint8_t *payload; /* of an inline WR, when it was posted, and which bytes are not known */
	bool dirty;	  /* its source changed while it waited */
	unsigned mask;	  /* statuses that were possible so far */
	unsigned recv_mask; /* and those of its receive */
	enum outcome outcome;
	enum ibv_wc_status status;
	unsigned resolved_at; /* batch */
	uint64_t resolved_ms;
	unsigned resolved_look;
	bool delivered;	      /* a receive completed for it */
	struct m_wr *lost;    /* of an unreliable one: a later one that was delivered before it was */
	bool may_be_lost;     /* in an earlier batch something of an unreliable one may have been amiss */
	struct m_recv *recv;
	bool applied;	      /* its effect on memory was taken */
	bool unsure;	      /* in an earlier batch it may have had it */
	bool adrift;	      /* it ended in an earlier batch, and what it may do at its peer may be done later */
};

/* One access of a WR, or of the program, to memory. */
struct m_access {
	const struct m_wr *wr;
	unsigned worker, seq;
	uint32_t lo, hi;
	bool write, remote, maybe, atomic, old; /* old: its effect was taken in an earlier batch */
	int mr;			   /* whose key */
	const struct m_flow *life; /* of the QP on whose side it is */
	bool threads; /* its process has several: only what one QP posts has an order */
};

/*
 * What a QP sends from one reset to the next. It outlives the QP, since what it had sent may still be on its way, and a
 * receive completion may come for it.
 */
struct m_flow {
	struct m_flow *next;
	int qp, peer;		  /* peer: -1 of datagrams, or never connected */
	struct m_flow *back;	  /* the flow of the other direction */
	enum ibv_qp_type type;
	struct m_wr **at;
	size_t n, room;
	size_t done;	/* all before are resolved */
	size_t deliver; /* the first message that may be delivered next */
	size_t copies; /* among them, that were never posted themselves */
	size_t freed_before; /* as freed was before the commands that are answered now */
	size_t posted, freed; /* places of the SQ that were taken, and given back */
	size_t sqd;	/* from here on nothing was begun before SQD */
	size_t revived; /* what was posted before that is of a time before the QP left SQE */
	bool failed;	/* a WR behind that failed or was flushed */
	enum ibv_wc_status failure; /* of the WR that failed, 0: flushed for another reason */
	const struct m_wr *failed_wr;
	bool linked;	/* both ends name each other and serve */
	unsigned unlinked_at; /* when that ended, by an operation */
	bool closed;	/* its QP was reset or destroyed */
	unsigned closed_at; /* batch */
	bool wrong_psn;
	bool wrecked; /* a CQ of one of its ends may have overrun: nothing is certain of it */
	unsigned rnr_retry, timeout, retry, rd; /* its QP's */
	unsigned access, dest_rd;		 /* what the peer allows */
	enum tri established; /* its QP had the event; maybe: it was one of the life before */
	enum tri last_wqe;    /* and this one */
};

struct m_qp {
	bool live;
	unsigned worker;
	uint32_t number;
	int pd, send_cq, recv_cq, srq;
	enum ibv_qp_type type; /* of XRC it is RC */
	enum { XRC_NOT, XRC_SEND, XRC_RECV } xrc;
	int xrcd;
	unsigned send_wr, recv_wr, sges, inline_max;
	bool sig_all, ex;
	int state;    /* as last observed or asked for */
	unsigned lives; /* that ended in this batch */
	bool failing; /* it was found in another state than asked for in this batch */
	bool draining;
	bool excused; /* in this batch a receive of its own failed */
	bool excused_before; /* or in the one before, at whose end it was not seen in error */
	bool flushed; /* in this batch a receive was flushed */
	unsigned state_at; /* the last operation that changed it */
	bool was_rtr;	   /* in this batch */
	bool established_late; /* or a life that ended in it, by a message of an earlier one */
	bool served;	   /* it was in RTR or RTS in this life */
	unsigned drain_due;	/* events that SQD may still bring */
	bool draining_left;	/* SQD was left in this batch */
	uint32_t qkey;
	unsigned groups;	      /* of multicast, that it is in */
	unsigned groups_at[GROUPS]; /* when that changed */
	struct m_flow *out, *in;
	struct m_queue rq;
	/* asynchronous events by type: seen, at least, at most */
	struct {
		uint8_t seen, least, most;
	} events[32];
};

struct fill_seen {
	unsigned seq, worker;
	bool waited_for; /* before the program went on */
	struct m_range range;
	uint64_t seed;
	int mr;		     /* that was deregistered before it, or -1 */
	struct m_flow *life; /* that ended before it: of the QP whose memory it is */
};

struct memory {
	uint8_t *bytes, *unknown; /* of an arena */
	uint64_t base;		  /* its address in the worker */
};

struct m_worker {
	int sock, pid;
	struct hello hello;
	struct memory memory;
	struct m_page pages[PAGES];
	struct cmd cmds[LINK_CMDS];
	struct m_wr *wrs[LINK_CMDS];	 /* of CMD_SEND */
	struct m_recv *recvs[LINK_CMDS]; /* of CMD_RECV */
	unsigned n_cmds;
	unsigned n_sent; /* commands that are not answered yet */
	bool threads;	 /* several post at once: its posts have no order but of one QP */
	struct reply reply;
};

enum { RECV_ID = 1u << 30, NO_CQ = OBJECTS - 1 /* of a QP that has none */ };

/* Byte ranges whose content is open. */
struct m_open {
	struct {
		unsigned worker;
		uint32_t lo, hi;
	} *at;
	size_t n, room;
};

#endif
