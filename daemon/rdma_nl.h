/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel's RDMA subsystem says over netlink: devices by index and name, and which driver a uverbs node belongs
 * to. Anybody may ask.
 */
#ifndef DAEMON_RDMA_NL_H
#define DAEMON_RDMA_NL_H

#include <stddef.h>
#include <stdint.h>

struct rdma_nl_device {
	uint32_t index;
	char name[64];
};

/* A socket, or a negative errno. */
int rdma_nl_open(void);
/* Up to @max devices; how many, or a negative errno. */
int rdma_nl_devices(int fd, struct rdma_nl_device *devices, unsigned max);
/* enum rdma_driver_id of the device with that index. 0 or a negative errno. */
int rdma_nl_driver(int fd, uint32_t index, uint32_t *driver);

enum rdma_nl_resource {
	RDMA_NL_CONTEXTS,
	RDMA_NL_PDS,
	RDMA_NL_MRS,
	RDMA_NL_QPS,
	RDMA_NL_CQS,
	RDMA_NL_SRQS,
	RDMA_NL_RESOURCES,
};

/*
 * Calls @fn with the pid of each resource of @kind on the device with that index. 0 or a negative errno; kernels that do not
 * say: -EOPNOTSUPP.
 */
int rdma_nl_owners(int fd, uint32_t index, enum rdma_nl_resource kind, void (*fn)(void *data, uint32_t pid), void *data);

#endif
