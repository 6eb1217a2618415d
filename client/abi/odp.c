/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Advice about regions that are paged on demand. Everything is checked before anything is paged in.
 */
#include "client/abi/abi.h"

static bool advice_known(enum ibv_advise_mr_advice advice)
{
	return advice == IBV_ADVISE_MR_ADVICE_PREFETCH || advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE ||
	       advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
}

int abi_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sge,
	uint32_t n)
{
	bool write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, wait = flags & IBV_ADVISE_MR_FLAG_FLUSH;
	int r = 0;

	if (abi_foreign(pd->context))
		return abi_errno(-ABI_CHILD_ERRNO);
	if (!advice_known(advice))
		return abi_errno(-ENOTSUP);
	if (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH || !n || !sge)
		return abi_errno(-EINVAL);
	for (uint32_t i = 0; i < n && r == 0; i++)
		r = mr_advise_check(soft_pd_of(pd), &sge[i], write);
	/* What is present for the processor is present for the device: there is nothing to do for that. */
	for (uint32_t i = 0; i < n && r == 0 && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT; i++)
		r = mr_prefetch(&sge[i], write, wait);
	return abi_errno(r);
}
