/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a client with a small limit of locked memory has large regions. Guarantees: the memory is mapped here for as long
 * as the kernel takes to pin it, and never read or written.
 */
#include "daemon/uverbs.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "daemon/uverbs_call.h"

/* By enum rdma_driver_id, some of which older headers have no name for. */
static const struct {
	const char *name;
	bool plain_mr, imports;
} providers[] = {
	[RDMA_DRIVER_MLX5] = { "mlx5", true, true },
	[RDMA_DRIVER_MLX4] = { "mlx4", true, false },
	[RDMA_DRIVER_CXGB4] = { "cxgb4", true, false },
	[RDMA_DRIVER_MTHCA] = { "mthca", false, false },
	[RDMA_DRIVER_BNXT_RE] = { "bnxt_re", false, false },
	[RDMA_DRIVER_OCRDMA] = { "ocrdma", false, false },
	[RDMA_DRIVER_IRDMA] = { "irdma", false, false },
	[RDMA_DRIVER_VMW_PVRDMA] = { "vmw_pvrdma", false, false },
	[RDMA_DRIVER_QEDR] = { "qedr", false, false },
	[RDMA_DRIVER_HNS] = { "hns", true, false },
	[RDMA_DRIVER_USNIC] = { "usnic", false, false },
	[RDMA_DRIVER_RXE] = { "rxe", true, false },
	[RDMA_DRIVER_HFI1] = { "hfi1", true, false },
	[RDMA_DRIVER_QIB] = { "qib", false, false },
	[RDMA_DRIVER_EFA] = { "efa", true, false },
	[RDMA_DRIVER_SIW] = { "siw", false, false },
	[RDMA_DRIVER_ERDMA] = { "erdma", true, false },
	[20] = { "mana", true, false },
	[21] = { "ionic", true, false },
};

static bool is_known(uint32_t driver)
{
	return driver < sizeof(providers) / sizeof(providers[0]) && providers[driver].name;
}

bool uverbs_plain_mr(uint32_t driver)
{
	return is_known(driver) && providers[driver].plain_mr;
}

bool uverbs_imports(uint32_t driver)
{
	return is_known(driver) && providers[driver].imports;
}

const char *uverbs_provider(uint32_t driver)
{
	return is_known(driver) ? providers[driver].name : "unknown";
}

/* Pages that are not there yet would be paid for by us: whoever registers a region fills it first. */
static bool is_populated(const struct uverbs_mr *mr)
{
	struct stat st;

	return fstat(mr->memfd, &st) == 0 && (uint64_t)st.st_blocks * 512 >= mr->size;
}

int uverbs_reg_mr(struct uverbs_mr *mr)
{
	/* Some kernels pin pages for writing whatever the MR's rights are, which are what counts. */
	const int protection = mr->sealed ? PROT_READ : PROT_READ | PROT_WRITE;
	struct ib_uverbs_reg_mr request;
	struct ib_uverbs_reg_mr_resp response;
	void *memory;
	int r;

	mr->missing = !is_populated(mr);
	if (mr->missing)
		return -EFAULT;
	memory = mr->memory ? mr->memory : mmap(NULL, mr->size, protection, MAP_SHARED | MAP_NORESERVE, mr->memfd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	memset(&request, 0, sizeof(request));
	memset(&response, 0, sizeof(response));
	request.start = (uintptr_t)memory;
	request.length = mr->size;
	request.hca_va = mr->iova;
	request.pd_handle = mr->pd;
	request.access_flags = mr->access;
	r = uverbs_invoke(
		mr->fd, mr->driver, IB_USER_VERBS_CMD_REG_MR, &request, sizeof(request), &response, sizeof(response));
	/* The kernel has its pages now, and needs no mapping of them. */
	if (mr->memory)
		(void)madvise(memory, mr->size, MADV_DONTNEED);
	else
		munmap(memory, mr->size);
	mr->handle = response.mr_handle;
	mr->lkey = response.lkey;
	mr->rkey = response.rkey;
	return r;
}

int uverbs_dereg_mr(const struct uverbs_mr *mr)
{
	struct ib_uverbs_dereg_mr request;
	int r;

	memset(&request, 0, sizeof(request));
	request.mr_handle = mr->handle;
	r = uverbs_invoke(mr->fd, mr->driver, IB_USER_VERBS_CMD_DEREG_MR, &request, sizeof(request), NULL, 0);
	/* The client has the device as well: it may have done it; or the device is gone. */
	return r == -EINVAL || r == -ENOENT || r == -EIO ? 0 : r;
}
