/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * This end of a copy that the kernel does between two processes (process_vm_readv(2), process_vm_writev(2)): where SGEs are,
 * their regions held.
 */
#ifndef SOFT_PIECES_H
#define SOFT_PIECES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "client/soft/mr.h"
#include "client/soft/wire.h"

#define PIECES_MAX 32u

struct pieces {
	struct iovec iov[PIECES_MAX + 1]; /* and one more for the call */
	struct mr_ref refs[PIECES_MAX];	  /* of the first n_refs */
	unsigned n, n_refs;
};

/*
 * Appends where the @n bytes are that begin at byte @off of the SGEs, for @access. 0, or a negative errno: -E2BIG when they
 * are too many, -EINVAL of a null region, -ERANGE when the SGEs end before, or as mr_ref_in(). What was found until then is held
 * all the same: pieces_release().
 */
int pieces_find(struct pieces *p, struct soft_td *td, const struct soft_pd *pd, const struct ibv_sge *sge, uint32_t n_sge,
		uint64_t off, uint32_t n, unsigned access);
void pieces_release(struct pieces *p);

/*
 * Fills the pieces, which are of this process, with the @n bytes at @addr of the peer's. @last: with the last 8 bytes of the
 * message, which are stored after the rest. 0, -EPERM and -ENOSYS when that is not allowed, -ESRCH when the peer is gone, -EFAULT.
 */
int pieces_read(struct pair *pair, struct pieces *p, uint64_t addr, uint32_t n, bool last);

#endif
