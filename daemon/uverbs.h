/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The few verbs that the daemon makes itself, on a client's device: a memory region for memory of ours, on a PD of the
 * client's. They take as long as the memory is large, so threads make them: nothing here touches the daemon's state.
 */
#ifndef DAEMON_UVERBS_H
#define DAEMON_UVERBS_H

#include <stdbool.h>
#include <stdint.h>

/* The first ones are filled in by the caller. */
struct uverbs_mr {
	int fd;		 /* of the device */
	uint32_t driver; /* enum rdma_driver_id */
	int memfd;
	uint64_t size;
	bool sealed;  /* nobody maps it for writing any more, */
	void *memory; /* but it is mapped so already; NULL: it is not */
	uint64_t iova;
	uint32_t access, pd;
	uint32_t handle, lkey, rkey; /* the kernel's */
	bool missing;		     /* of -EFAULT: not all pages were there */
};

/*
 * Whether the kernel's part of such a driver needs nothing from the client's part for a region, and tells it nothing. Of
 * others only the client's part can register.
 */
bool uverbs_plain_mr(uint32_t driver);
/* Whether the client's part can import contexts, PDs and MRs that another process made. */
bool uverbs_imports(uint32_t driver);
/* The provider's name; "unknown": no driver that we know. */
const char *uverbs_provider(uint32_t driver);

/* Pins the memory, on our account. 0 or a negative errno. */
int uverbs_reg_mr(struct uverbs_mr *mr);
/* 0 or a negative errno; what is there no more is no error. */
int uverbs_dereg_mr(const struct uverbs_mr *mr);

#endif
