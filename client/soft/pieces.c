/* SPDX-License-Identifier: BSD-2-Clause */
/* The pieces of memory that the kernel copies to and from, for the cma engine (engines.c) and for fetched SENDs (pull.c). */
#include "client/soft/pieces.h"

#include <errno.h>

#include "client/soft/copy.h"

int pieces_find(struct pieces *p, struct soft_td *td, const struct soft_pd *pd, const struct ibv_sge *sge, uint32_t n_sge,
		uint64_t off, uint32_t n, unsigned access)
{
	for (uint32_t i = 0; i < n_sge && n; i++) {
		void *ptr;

		if (off >= sge[i].length) {
			off -= sge[i].length;
			continue;
		}
		uint32_t piece = sge[i].length - off < n ? sge[i].length - off : n;

		if (p->n_refs == PIECES_MAX || p->n == PIECES_MAX)
			return -E2BIG;
		int err = mr_ref_in(td, sge[i].lkey, pd, NULL, sge[i].addr + off, piece, access, false, &p->refs[p->n_refs], &ptr);

		if (err < 0)
			return err;
		if (p->refs[p->n_refs++].mr->null)
			return -EINVAL;
		p->iov[p->n++] = (struct iovec){ ptr, piece };
		n -= piece;
		off = 0;
	}
	return n || !p->n ? -ERANGE : 0;
}

void pieces_release(struct pieces *p)
{
	while (p->n_refs)
		mr_unref(&p->refs[--p->n_refs]);
}

static int store(const struct pieces *p, void *to, const void *from, size_t n)
{
	return p->n_refs && mr_is_paged(&p->refs[p->n_refs - 1]) ? copy_to_paged(to, from, n) : copy_to_program(to, from, n);
}

/*
 * The last 8 bytes, as the destination is aligned, are fetched with the rest and stored here: a piece of their own at the peer's
 * end would cost the kernel another walk through its pages. Of 8 bytes and less all are the last ones.
 */
int pieces_read(struct pair *pair, struct pieces *p, uint64_t addr, uint32_t n, bool last)
{
	struct iovec remote = { (void *)(uintptr_t)addr, n }, *end = &p->iov[p->n - 1];
	uint8_t bytes[COPY_TAIL], *to = (uint8_t *)end->iov_base + end->iov_len;
	size_t tail = last && n > COPY_TAIL ? copy_tail((uintptr_t)to, end->iov_len) : 0;
	ssize_t moved;

	end->iov_len -= tail;
	p->iov[p->n] = (struct iovec){ bytes, tail };
	moved = process_vm_readv(pair->pid, p->iov, p->n + (tail != 0), &remote, 1, 0);
	if (moved < 0)
		return -errno;
	/* What another process has there, which has the pid by now, is thrown away (tests/models/README.md, proto-kill.c). */
	if (!pair_is_alive(pair))
		return -ESRCH;
	if (moved != (ssize_t)n)
		return -EFAULT;
	return tail ? store(p, to - tail, bytes, tail) : 0;
}
