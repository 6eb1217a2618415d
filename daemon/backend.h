/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a device must offer. The daemon's objects are the same for every backend; a backend may refuse to make one, and
 * is told when one goes.
 */
#ifndef DAEMON_BACKEND_H
#define DAEMON_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

struct device;
struct object;

struct device_attr {
	bool soft;
	uint32_t node_type, transport; /* enum ibv_node_type, ibv_transport_type */
	uint32_t max_qp, max_qp_wr, max_sge, max_inline;
	uint32_t max_cq, max_cqe, max_mr, max_pd, max_td, max_parent_domain;
	uint32_t max_srq, max_srq_wr, max_ah, max_mw, max_rd_atom, max_dm, max_xrcd;
	uint32_t max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach; /* of a context */
	uint64_t max_mr_size, max_dm_size;
	uint32_t max_msg_sz;
	uint32_t pkey;
};

struct backend {
	const char *name;
	/* 0 or a negative errno; @attr is written on success. */
	int (*open)(struct device *device, struct device_attr *attr);
	void (*close)(struct device *device);
	/* Called when an object was checked and charged, before anybody can see it. */
	int (*object_new)(struct device *device, struct object *object);
	void (*object_free)(struct device *device, struct object *object);
};

extern const struct backend backend_soft;

/* For tests: the soft device, but the n-th call of object_new or open from now on fails with @error (0: none fails). */
extern const struct backend backend_fake;
void backend_fake_fail(unsigned nth, int error);
/* Objects that the fake has seen made and not yet gone. */
unsigned backend_fake_objects(void);

#endif
