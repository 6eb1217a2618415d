/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Gather and scatter: bytes of a message to and from the program's memory, through the keys of its SGEs. Every piece
 * is looked up when it is copied, so that a region that is deregistered half way is not touched after that.
 */
#include "client/soft/qp_private.h"

#include <errno.h>
#include <string.h>

#include "client/soft/copy.h"

typedef int copy_fn(void *program, void *buf, size_t n, bool paged);

static int copy_in(void *program, void *buf, size_t n, bool paged)
{
	return paged ? copy_from_paged(buf, program, n) : copy_from_program(buf, program, n);
}

static int copy_out(void *program, void *buf, size_t n, bool paged)
{
	return paged ? copy_to_paged(program, buf, n) : copy_to_program(program, buf, n);
}

static int copy_across(void *program, void *buf, size_t n, bool paged)
{
	return paged ? copy_to_paged(buf, program, n) : copy_to_program(buf, program, n);
}

static int copy_piece(struct soft_qp *qp, const struct soft_pd *pd, const struct ibv_sge *sge, uint64_t at, void *buf,
	size_t n, unsigned access, copy_fn *copy)
{
	struct mr_ref ref;
	void *ptr;
	int err = mr_ref_in(qp_td(qp), sge->lkey, pd, NULL, sge->addr + at, n, access, false, &ref, &ptr);

	if (err < 0)
		return err;
	if (!ref.mr || !ref.mr->null)
		err = copy(ptr, buf, n, mr_is_paged(&ref));
	else if (copy != copy_out)
		memset(buf, 0, n); /* reads of a null region give zeros, writes are dropped */
	mr_unref(&ref);
	return err;
}

static int sge_copy(struct soft_qp *qp, const struct soft_pd *pd, const struct ibv_sge *sge, uint32_t n_sge,
	uint64_t off, uint8_t *buf, size_t n, unsigned access, copy_fn *copy)
{
	for (uint32_t i = 0; i < n_sge && n; i++) {
		if (off >= sge[i].length) {
			off -= sge[i].length;
			continue;
		}
		size_t piece = sge[i].length - off;

		if (piece > n)
			piece = n;
		int err = copy_piece(qp, pd, &sge[i], off, buf, piece, access, copy);

		if (err < 0)
			return err;
		buf += piece;
		n -= piece;
		off = 0;
	}
	return n ? -ERANGE : 0;
}

int sge_gather(struct soft_qp *qp, const struct ibv_sge *sge, uint32_t n_sge, uint64_t off, void *buf,
	size_t n)
{
	return sge_copy(qp, qp->pd, sge, n_sge, off, buf, n, 0, copy_in);
}

int sge_gather_across(struct soft_qp *qp, const struct ibv_sge *sge, uint32_t n_sge, uint64_t off,
	void *program, size_t n)
{
	return sge_copy(qp, qp->pd, sge, n_sge, off, program, n, 0, copy_across);
}

int sge_scatter(struct soft_qp *qp, const struct ibv_sge *sge, uint32_t n_sge, uint64_t off,
	const void *buf, size_t n)
{
	return sge_copy(qp, qp->pd, sge, n_sge, off, (uint8_t *)(uintptr_t)buf, n, IBV_ACCESS_LOCAL_WRITE,
		copy_out);
}

/* A receive of an SRQ is of the SRQ's protection domain, whichever QP takes it. */
int sge_receive(struct soft_qp *qp, uint64_t off, const void *buf, size_t n)
{
	const struct soft_rwqe *recv = &qp->priv->resp.recv;

	return sge_copy(qp, qp->srq ? qp->srq->pd : qp->pd, recv->sge, recv->n_sge, off, (uint8_t *)(uintptr_t)buf, n,
		IBV_ACCESS_LOCAL_WRITE, copy_out);
}

int sge_check(struct soft_qp *qp, const struct ibv_sge *sge, uint32_t n_sge, unsigned access)
{
	for (uint32_t i = 0; i < n_sge; i++) {
		struct mr_ref ref;
		void *ptr;

		if (!sge[i].length)
			continue;
		int err = mr_ref_in(qp_td(qp), sge[i].lkey, qp->pd, NULL, sge[i].addr, sge[i].length, access, false,
			&ref, &ptr);

		if (err < 0)
			return err;
		mr_unref(&ref);
	}
	return 0;
}

int swqe_gather(struct soft_qp *qp, const struct swqe *w, uint64_t off, void *buf, size_t n)
{
	if (!(w->flags & IBV_SEND_INLINE))
		return sge_gather(qp, w->sge, w->n_sge, off, buf, n);
	memcpy(buf, (w->opcode == IBV_WR_ATOMIC_WRITE ? (const uint8_t *)&w->swap : w->data) + off, n);
	return 0;
}
