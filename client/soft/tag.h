/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tag matching: the list of tagged receives of an SRQ, what the responders of its QPs find in it, and the READ and the
 * answer by which a QP fetches what a rendezvous message offers.
 */
#ifndef SOFT_TAG_H
#define SOFT_TAG_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>

#include "proto/limits.h"

#define TAG_OPS_MAX    256u /* list operations whose completions are not read */
#define TAG_SGES       8u   /* elements of a tagged receive */
#define TAG_HEADER_MAX 256u /* of a rendezvous request, what follows its two headers included */
#define TAG_FETCHES    32u  /* rendezvous that a QP has under way */
#define TAG_WRS	       (2 * TAG_FETCHES) /* places in its send queue for them */

struct soft_cq;
struct soft_qp;
struct soft_srq;
struct swqe;
struct tag_entry;
struct vsd_req;

struct tag_list {
	struct soft_cq *cq; /* all completions of the SRQ are here */
	uint32_t max_tags, max_ops;
	uint32_t n, generation;
	struct tag_entry *entries, *free, *first, **last; /* in the order of posting */
	uint32_t unexpected; /* messages that came unexpected */
	uint32_t handled;    /* as the program said last */
	uint64_t ops;	     /* posted with a completion */
	_Atomic uint64_t ops_read;
};

enum tag_kind {
	TAG_NONE,	/* no message of a tag matching SRQ */
	TAG_PLAIN,	/* it has no tag, or answers a rendezvous */
	TAG_UNEXPECTED, /* no receive has its tag: into one without */
	TAG_EAGER,	/* matched, its payload follows */
	TAG_RENDEZVOUS, /* matched, its payload is to be fetched */
};

/* Of the message in progress. */
struct tag_match {
	enum tag_kind kind;
	uint64_t tag; /* host order, as the rest */
	uint32_t app_ctx;
	uint64_t va;
	uint32_t rkey, length;
};

/* Who a WR of the send queue is for. */
enum tag_wr {
	TAG_WR_NO, /* the program's */
	TAG_WR_READ,
	TAG_WR_FIN,
};

struct tag_fetch {
	struct ibv_sge sge[TAG_SGES];
	struct ibv_tmh fin;
};

int soft_tag_init(struct soft_srq *srq, struct soft_cq *cq, uint32_t max_tags, uint32_t max_ops);
void soft_tag_deinit(struct soft_srq *srq);
int soft_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad);

/* --- for the responder (both locks of the QP) ---------------------------------------------------------------------------- */
enum tag_result {
	TAG_TAKEN,	/* a receive was taken, and resp->tag is filled in */
	TAG_NO_RECEIVE, /* RNR */
	TAG_TOO_LONG,	/* a receive was taken, and is too short */
	TAG_MALFORMED,
};
/* The first descriptor of a SEND. */
enum tag_result tag_begin(struct soft_qp *qp, const struct vsd_req *head, const uint8_t *payload);
/* Stores what a matched message brings. 0 or an error of the receive. */
int tag_place(struct soft_qp *qp, const struct vsd_req *head, const uint8_t *payload);
/* Completes the receive. */
void tag_complete(struct soft_qp *qp, const struct vsd_req *first);
/* The READ or the answer ended (sq lock). */
void tag_fetched(struct soft_qp *qp, const struct swqe *w, enum ibv_wc_status status);

#endif
