/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of abi/ share. Each entry point does, in this order: an object of the real library goes there; a
 * child of fork is refused; arguments are checked; the daemon is asked; the data path is told.
 */
#ifndef CLIENT_ABI_H
#define CLIENT_ABI_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "client/abi/real.h"
#include "client/control/conn.h"
#include "client/soft/cq.h"
#include "client/soft/mr.h"
#include "client/soft/objects.h"
#include "client/soft/qp.h"
#include "client/soft/rt.h"
#include "client/soft/srq.h"

/* The headers make macros of these two; here they are functions to be defined. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_get_device_list

/* Visible outside: every verbs name. The map has no local pattern, so this alone decides. */
#define VERBS_API __attribute__((visibility("default")))

/* What a child of fork gets for its copies of the parent's objects. */
#define ABI_CHILD_ERRNO ENOTCONN

/* Bytes of inline data that a QP may ask for. */
#define ABI_MAX_INLINE 1024

/*
 * An open context: what the data path knows of it, and how many objects stand on it, besides whoever opened it. One that
 * is closed goes with its last object.
 */
struct abi_context {
	_Atomic unsigned users;
	_Atomic unsigned shared; /* of them: PDs and DMs, which are the context's */
	_Atomic bool closed;
	bool detached; /* the daemon's side is closed: only such were left, which are whoever's imported them */
	struct soft_context *here; /* in a child of fork, whose parent's this is: the same, imported */
	struct conn_fd capability; /* soft.capability, and which file it is */
	struct soft_context soft; /* ends in the program's ibv_context */
};

/* The address in an unused slot of the context that says "ours"; never called. */
void *abi_marker(void);

static inline bool abi_ours(const struct ibv_context *ctx)
{
	return ctx->ops._compat_alloc_pd == abi_marker;
}

/* The context is a parent's: no verb may do anything with it. Also in a child of vfork, for the price of a system call. */
static inline bool abi_foreign(const struct ibv_context *ctx)
{
	return rt_foreign(soft_container(ctx, struct soft_context, v.context)) || process_borrowed();
}

static inline struct abi_context *abi_context_of(struct soft_context *soft)
{
	return soft_container(soft, struct abi_context, soft);
}

static inline void abi_context_ref(struct soft_context *soft)
{
	abi_context_of(soft)->users++;
}

/* May end the context: nothing of it is touched after this. */
void abi_context_unref(struct soft_context *soft);

/* A context from the daemon's answer to @op; NULL with errno. */
struct abi_context_source {
	uint16_t op; /* whose answer is a ContextReply */
	const ProtobufCMessage *request;
	const struct ibv_device *dev; /* NULL: the one that the answer names */
	int cmd_fd;		      /* taken over on success, to be the context's; -1: what the answer has */
};
struct ibv_context *abi_context_new(const struct abi_context_source *source);
/* The context that @capability stands for, once more; @cmd_fd as above. */
struct ibv_context *abi_context_attach(int capability, int cmd_fd);

/* Results in the manner of verbs: NULL with errno, -1 with errno. */
static inline void *abi_null(int error)
{
	errno = error;
	return NULL;
}

static inline int abi_minus(int error)
{
	errno = error;
	return -1;
}

/* Of a negative errno: what verbs returns, a positive one, also stored in errno. */
static inline int abi_errno(int r)
{
	if (r < 0)
		errno = -r;
	return -r;
}

/* An entry point's head: real objects leave here, and so does a child of fork. */
#define ABI_ENTER_INT(ctx, name, version, ...)                                                    \
	do {                                                                                      \
		if (!abi_ours(ctx))                                                               \
			return REAL_INT(EOPNOTSUPP, name, version, __VA_ARGS__);                  \
		if (abi_foreign(ctx))                                                             \
			return abi_errno(-ABI_CHILD_ERRNO);                                       \
	} while (0)

#define ABI_ENTER_MINUS(ctx, name, version, ...)                                                  \
	do {                                                                                      \
		if (!abi_ours(ctx))                                                               \
			return REAL_INT(abi_minus(EOPNOTSUPP), name, version, __VA_ARGS__);       \
		if (abi_foreign(ctx))                                                             \
			return abi_minus(ABI_CHILD_ERRNO);                                        \
	} while (0)

#define ABI_ENTER_PTR(ctx, name, version, ...)                                                    \
	do {                                                                                      \
		if (!abi_ours(ctx))                                                               \
			return REAL_PTR(name, version, __VA_ARGS__);                              \
		if (abi_foreign(ctx))                                                             \
			return abi_null(ABI_CHILD_ERRNO);                                         \
	} while (0)

/* --- fork.c -------------------------------------------------------------------------------------------------------- */

/* The head of entry points that name no object of ours, before any lock: see process_enter(). */
void abi_enter(void);
/* The same, and what the environment asks for is done: of those that give out devices and contexts. */
void abi_first_use(void);
/* In a child: what these files have of the parent's goes, and their locks are made anew. */
void abi_buffer_in_child(void);
void abi_child_in_child(void);
void abi_context_in_child(void);
void abi_device_in_child(void);
/* Around a fork. */
void abi_device_prepare(void);
void abi_device_parent(void);
void abi_file_prepare(void);
void abi_file_parent(void);
void abi_file_child(void);
void abi_file_in_child(void);
void abi_region_in_child(void);

/* --- device.c ------------------------------------------------------------------------------------------------------ */

/* A soft device. Programs and real providers look behind ibv_device for a provider's own: there is nothing there. */
struct abi_device {
	struct ibv_device dev;
	uint8_t tail[512];
	unsigned refs; /* lists and contexts that name it */
	Vsd__Device *info;
	struct abi_device *next;
};

/* Ours, with a reference, or NULL. */
struct abi_device *abi_device_ref(const struct ibv_device *dev);
void abi_device_unref(struct abi_device *device);
/* The device that the daemon described so, with a reference; NULL: no memory. */
struct abi_device *abi_device_known(const Vsd__Device *info);
/* The soft device whose ibdev_path is @path (or NULL), with a reference. */
struct abi_device *abi_device_by_path(const char *path);
/* Whether the real library lists a device; it is asked, unless it was before. */
bool abi_real_devices(void);

/* --- context.c, query.c -------------------------------------------------------------------------------------------- */

const Vsd__Port *abi_port(const struct soft_context *ctx, uint32_t number);
/* The port's GID table has empty entries too, as on a fabric; NULL at one of those. */
uint32_t abi_gid_table_len(const Vsd__Port *port);
const Vsd__Gid *abi_gid(const Vsd__Port *port, uint32_t index);

int abi_query_port(
	struct ibv_context *ctx, uint8_t number, struct ibv_port_attr *attr, size_t size);
int abi_query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *input,
	struct ibv_device_attr_ex *attr, size_t size);
int abi_query_rt_values(struct ibv_context *ctx, struct ibv_values_ex *values);

/* --- the slots of verbs_context ------------------------------------------------------------------------------------- */

struct ibv_td *abi_alloc_td(struct ibv_context *ctx, struct ibv_td_init_attr *attr);
int abi_dealloc_td(struct ibv_td *td);
struct ibv_pd *abi_alloc_parent_domain(
	struct ibv_context *ctx, struct ibv_parent_domain_init_attr *attr);
int abi_dealloc_parent_domain(struct soft_pd *pd);
struct ibv_mr *abi_alloc_null_mr(struct ibv_pd *pd);
struct ibv_dm *abi_alloc_dm(struct ibv_context *ctx, struct ibv_alloc_dm_attr *attr);
int abi_free_dm(struct ibv_dm *dm);
struct ibv_mr *abi_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned access);
struct ibv_cq_ex *abi_create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *attr);
int abi_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
struct ibv_qp *abi_create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr);
struct ibv_srq *abi_create_srq_ex(struct ibv_context *ctx, struct ibv_srq_init_attr_ex *attr);
struct ibv_xrcd *abi_open_xrcd(struct ibv_context *ctx, struct ibv_xrcd_init_attr *attr);
int abi_close_xrcd(struct ibv_xrcd *xrcd);
int abi_get_srq_num(struct ibv_srq *srq, uint32_t *number);
struct ibv_qp *abi_open_qp(struct ibv_context *ctx, struct ibv_qp_open_attr *attr);
int abi_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sge,
	uint32_t n);
struct ibv_mw *abi_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int abi_dealloc_mw(struct ibv_mw *mw);

/* --- qp_extras.c ---------------------------------------------------------------------------------------------------- */

void abi_pacing_caps(struct ibv_packet_pacing_caps *caps);
int abi_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr);

/* --- srq.c, tag.c --------------------------------------------------------------------------------------------------- */

/* What the daemon charges for it from now on. */
int abi_srq_charge(const struct soft_srq *srq, uint32_t max_wr, uint32_t max_tags);
struct ibv_srq *abi_create_tag_srq(struct ibv_context *ctx, struct ibv_srq_init_attr_ex *attr);
void abi_tag_let_go(struct soft_srq *srq);
void abi_tag_caps(struct ibv_tm_caps *caps);

/* --- child.c -------------------------------------------------------------------------------------------------------- */

/* @ctx, or in a child of fork whose parent's it is, the same context as this process's own; NULL with errno. */
struct soft_context *abi_context_here(struct soft_context *ctx);

/* --- xrcd.c, xrc_qp.c ------------------------------------------------------------------------------------------------ */

/* A handle of an XRC receive QP, new or opened by its number (0: new). NULL with errno. */
struct ibv_qp *abi_xrc_handle(struct ibv_context *ctx, struct ibv_xrcd *xrcd, uint32_t qpn, void *context);
int abi_xrc_destroy(struct soft_qp *qp);
int abi_xrc_query(struct soft_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init);
/* The state that it has, whoever brought it there, with its attributes. */
int abi_xrc_refresh(struct soft_qp *qp, struct ibv_qp_attr *attr);
/* Adds what is modified to the request. @values: SHARED_FIELDS of them. */
#define SHARED_FIELDS 27
void abi_xrc_fill(Vsd__SharedAttr *shared, uint32_t *values, const struct ibv_qp_attr *attr, int mask);

/* --- dm.c ----------------------------------------------------------------------------------------------------------- */

struct soft_dm;
/* A region on it goes. */
void abi_dm_unref(struct soft_dm *dm);

/* --- pd.c ----------------------------------------------------------------------------------------------------------- */

/* An object is made on this PD or parent domain, or goes; what was unimported meanwhile goes with the last. */
static inline void abi_pd_ref(struct soft_pd *pd)
{
	pd->users++;
}

void abi_pd_unref(struct soft_pd *pd);
/* The program lets go of the pointer, not of the PD. */
void abi_pd_unimport(struct soft_pd *pd);
/* A PD as the answer to PD_ALLOC or PD_IMPORT names it; NULL with errno. */
struct soft_pd *abi_pd_new(struct soft_context *ctx, uint16_t op, const ProtobufCMessage *request);

/* Whether objects on this PD take no lock: a parent domain with a thread domain. */
static inline bool abi_pd_single(const struct soft_pd *pd)
{
	return pd->td != NULL;
}

/* --- busy.c -------------------------------------------------------------------------------------------------------- */

/* -EBUSY, and whoever reads the daemon's log or VERBSD_DEBUG's lines learns which objects are in the way. */
int abi_busy(const struct soft_context *ctx, Vsd__ObjectType type, uint32_t handle, unsigned users);
/* The same of a region that mr_close() found busy. */
int abi_mr_busy(const struct soft_mr *mr);

/* --- mr.c ----------------------------------------------------------------------------------------------------------- */

/* 0, -EINVAL, -EOPNOTSUPP. */
int abi_access_check(unsigned access);
/* Whether memory of the program's may be registered so. */
int abi_range_check(const void *addr, size_t length, uint64_t iova, unsigned access);
/* A region with its visible fields and access; no key, no iova. NULL: no memory. */
struct soft_mr *abi_mr_alloc(struct ibv_pd *pd, void *addr, size_t length, unsigned access);
/* Makes it at the daemon, with a key of the lease, and opens it. On failure @mr is the caller's to free. */
int abi_mr_register(struct soft_mr *mr);
/* Lets go of a reference that mr_find() gave. */
void abi_mr_put(struct soft_mr *mr);
/* Opens one that the daemon knows already, by handle and key; destroys it there when that fails. */
int abi_mr_start(struct soft_mr *mr);
/* What was mapped for it alone goes. */
void abi_mr_unmap(struct soft_mr *mr);
/* Registers after all checks; the caller knows that @pd is ours. */
struct ibv_mr *abi_reg_mr(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access);
/* A key never used lately: an index of the lease and a tag. */
int abi_key_take(struct soft_context *ctx, uint32_t *key);
void abi_key_put(struct soft_context *ctx, uint32_t key);

/* --- ah.c ----------------------------------------------------------------------------------------------------------- */

/* Checks an address vector: 0 or a negative errno. */
int abi_ah_attr_check(const struct soft_context *ctx, const struct ibv_ah_attr *attr);

#endif
