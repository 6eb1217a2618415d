/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A worker: a plain verbs program that does what it is told and says what came of it. It knows nothing of what ought
 * to come of it.
 */
#include "tests/random/worker.h"

#include "tests/random/by_itself.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what)
{
	fprintf(stderr, "worker %d: %s: %s\n", (int)getpid(), what, strerror(errno));
	exit(1);
}

void worker_pause(struct worker *w)
{
	if (!w->jitter)
		return;
	w->jitter = (w->jitter * 1103515245 + 12345) | 1;
	if ((w->jitter >> 16 & 15) == 0)
		nanosleep(&(struct timespec){ .tv_nsec = (w->jitter >> 20) * 1000 }, NULL); /* on purpose: see worker.h */
}

void worker_fill(struct worker *w, const struct fill *fill)
{
	for (uint32_t i = 0; i < fill->n; i++) {
		uint32_t off = fill->at[i].off;

		if (off < ARENA || off >= PAGED)
			pattern_fill(w->arena, fill->seed, off, (size_t)off + fill->at[i].len);
		else
			worker_dm_fill(w, fill->seed, off, fill->at[i].len);
	}
}

/* --- objects --- */

static int of_pointer(const void *object)
{
	return object ? 0 : errno;
}

static int make_td(struct worker *w, const struct cmd *cmd, struct result *result)
{
	(void)result;
	w->tds[cmd->id] = ibv_alloc_td(w->ctx, &(struct ibv_td_init_attr){ 0 });
	return of_pointer(w->tds[cmd->id]);
}

static int make_pd(struct worker *w, const struct cmd *cmd, struct result *result)
{
	(void)result;
	w->pds[cmd->id].pd = ibv_alloc_pd(w->ctx);
	return of_pointer(w->pds[cmd->id].pd);
}

static void *buffer_alloc(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	struct domain *domain = context;
	void *buffer;

	(void)pd;
	(void)type;
	if (domain->use_default)
		return IBV_ALLOCATOR_USE_DEFAULT;
	if (posix_memalign(&buffer, alignment, size))
		return NULL;
	domain->allocated++;
	return buffer;
}

static void buffer_free(struct ibv_pd *pd, void *context, void *buffer, uint64_t type)
{
	struct domain *domain = context;

	(void)pd;
	(void)type;
	domain->allocated--;
	free(buffer);
}

static int make_parent(struct worker *w, const struct cmd *cmd, struct result *result)
{
	struct domain *domain = &w->pds[cmd->id];
	struct ibv_parent_domain_init_attr attr = {
		.pd = w->pds[cmd->a[PARENT_PD]].pd,
		.td = cmd->a[PARENT_TD] < 0 ? NULL : w->tds[cmd->a[PARENT_TD]],
		.pd_context = domain,
	};

	(void)result;
	if (cmd->a[PARENT_ALLOC]) {
		attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
		attr.alloc = buffer_alloc;
		attr.free = buffer_free;
		domain->use_default = cmd->a[PARENT_ALLOC] == 2;
	}
	w->pd_td[cmd->id] = (uint32_t)(cmd->a[PARENT_TD] + 1);
	domain->pd = ibv_alloc_parent_domain(w->ctx, &attr);
	return of_pointer(domain->pd);
}

static int make_cq(struct worker *w, const struct cmd *cmd, struct result *result)
{
	struct ibv_comp_channel *channel = cmd->a[CQ_CHANNEL] ? w->channel : NULL;
	void *context = (void *)(uintptr_t)cmd->id;

	(void)result;
	if (cmd->a[CQ_EX]) {
		struct ibv_cq_init_attr_ex attr = {
			.cqe = (uint32_t)cmd->a[CQ_SIZE],
			.cq_context = context,
			.channel = channel,
			.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM |
				    IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID,
		};

		if (cmd->a[CQ_PARENT] >= 0) {
			struct ibv_pd *parent = w->pds[cmd->a[CQ_PARENT]].pd;

			attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
			attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
			attr.parent_domain = parent;
			w->cq_td[cmd->id] = w->pd_td[cmd->a[CQ_PARENT]];
		}
		w->cqs_ex[cmd->id] = ibv_create_cq_ex(w->ctx, &attr);
		w->cqs[cmd->id] = w->cqs_ex[cmd->id] ? ibv_cq_ex_to_cq(w->cqs_ex[cmd->id]) : NULL;
	} else {
		w->cqs[cmd->id] = ibv_create_cq(w->ctx, (int)cmd->a[CQ_SIZE], context, channel, 0);
	}
	if (w->cqs_top <= cmd->id)
		w->cqs_top = cmd->id + 1;
	return of_pointer(w->cqs[cmd->id]);
}

static int make_srq(struct worker *w, const struct cmd *cmd, struct result *result)
{
	if (cmd->a[SRQ_XRCD])
		return worker_xrc_srq(w, cmd, result);


	struct ibv_srq_init_attr attr = {
		.srq_context = (void *)(uintptr_t)cmd->id,
		.attr = { .max_wr = (uint32_t)cmd->a[SRQ_WR], .max_sge = (uint32_t)cmd->a[SRQ_SGE] },
	};

	w->srq_td[cmd->id] = w->pd_td[cmd->a[SRQ_PD]];
	w->srqs[cmd->id] = ibv_create_srq(w->pds[cmd->a[SRQ_PD]].pd, &attr);
	result->value[0] = attr.attr.max_wr;
	result->value[1] = attr.attr.max_sge;
	return of_pointer(w->srqs[cmd->id]);
}

static int make_mr(struct worker *w, const struct cmd *cmd, struct result *result)
{
	uint8_t *at = w->arena + cmd->a[MR_OFF];
	struct ibv_pd *pd = w->pds[cmd->a[MR_PD]].pd;
	size_t length = (size_t)cmd->a[MR_LEN];
	struct ibv_mr *mr;

	if (cmd->a[MR_DM])
		mr = ibv_reg_dm_mr(pd, w->dms[cmd->a[MR_DM] - 1].dm, (uint64_t)cmd->a[MR_OFF], length,
			(unsigned)cmd->a[MR_ACCESS]);
	else if (cmd->a[MR_IMPLICIT])
		mr = ibv_reg_mr(pd, NULL, SIZE_MAX, (int)cmd->a[MR_ACCESS]);
	else if (cmd->a[MR_SHIFT])
		mr = ibv_reg_mr_iova(pd, at, length, (uintptr_t)at + (uint64_t)cmd->a[MR_SHIFT],
			(int)cmd->a[MR_ACCESS]);
	else
		mr = ibv_reg_mr(pd, at, length, (int)cmd->a[MR_ACCESS]);
	w->mrs[cmd->id] = mr;
	if (mr) {
		result->value[0] = mr->rkey;
		result->value[1] = mr->lkey;
	}
	return of_pointer(mr);
}

static int make_mw(struct worker *w, const struct cmd *cmd, struct result *result)
{
	struct ibv_mw *mw = ibv_alloc_mw(w->pds[cmd->a[MW_PD]].pd, (enum ibv_mw_type)cmd->a[MW_TYPE]);

	w->mws[cmd->id] = mw;
	if (mw)
		result->value[0] = mw->rkey;
	return of_pointer(mw);
}

static struct ibv_qp *qp_create(struct worker *w, const struct cmd *cmd, struct ibv_qp_init_attr_ex *attr)
{
	static const uint64_t rc_ops = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_WRITE;

	if (attr->qp_type == IBV_QPT_XRC_RECV) {
		attr->comp_mask = IBV_QP_INIT_ATTR_XRCD;
		attr->xrcd = w->xrcds[cmd->a[QP_XRCD]];
		return ibv_create_qp_ex(w->ctx, attr);
	}
	attr->comp_mask = IBV_QP_INIT_ATTR_PD;
	if (cmd->a[QP_EX]) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr->send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
		if (attr->qp_type != IBV_QPT_UD)
			attr->send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
						IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
						IBV_QP_EX_WITH_SEND_WITH_INV;
		if (attr->qp_type == IBV_QPT_RC || attr->qp_type == IBV_QPT_XRC_SEND)
			attr->send_ops_flags |= rc_ops;
	}
	return ibv_create_qp_ex(w->ctx, attr);
}

static int make_qp(struct worker *w, const struct cmd *cmd, struct result *result)
{
	struct queue_pair *qp = &w->qps[cmd->id];
	struct ibv_qp_init_attr_ex attr = {
		.qp_context = (void *)(uintptr_t)cmd->id,
		.pd = cmd->a[QP_PD] < 0 ? NULL : w->pds[cmd->a[QP_PD]].pd,
		.qp_type = (enum ibv_qp_type)cmd->a[QP_TYPE],
		.send_cq = cmd->a[QP_SEND_CQ] < 0 ? NULL : w->cqs[cmd->a[QP_SEND_CQ]],
		.recv_cq = cmd->a[QP_RECV_CQ] < 0 ? NULL : w->cqs[cmd->a[QP_RECV_CQ]],
		.srq = cmd->a[QP_SRQ] < 0 || cmd->a[QP_TYPE] == IBV_QPT_XRC_RECV ? NULL : w->srqs[cmd->a[QP_SRQ]],
		.cap = {
			.max_send_wr = (uint32_t)cmd->a[QP_SEND_WR],
			.max_recv_wr = (uint32_t)cmd->a[QP_RECV_WR],
			.max_send_sge = (uint32_t)cmd->a[QP_SGE],
			.max_recv_sge = (uint32_t)cmd->a[QP_SGE],
			.max_inline_data = (uint32_t)cmd->a[QP_INLINE],
		},
		.sq_sig_all = (int)cmd->a[QP_SIG_ALL],
	};

	w->qp_td[cmd->id] = cmd->a[QP_PD] < 0 ? 0 : w->pd_td[cmd->a[QP_PD]];
	qp->qp = qp_create(w, cmd, &attr);
	if (!qp->qp)
		return errno;
	qp->ex = cmd->a[QP_EX] ? ibv_qp_to_qp_ex(qp->qp) : NULL;
	if (w->qps_top <= cmd->id)
		w->qps_top = cmd->id + 1;
	result->value[0] = qp->qp->qp_num;
	result->value[1] = attr.cap.max_send_wr;
	if (attr.qp_type == IBV_QPT_XRC_RECV)
		return 0;
	if (attr.cap.max_send_wr != (uint32_t)cmd->a[QP_SEND_WR] ||
		(!attr.srq && attr.qp_type != IBV_QPT_XRC_SEND && attr.cap.max_recv_wr != (uint32_t)cmd->a[QP_RECV_WR]) ||
		attr.cap.max_inline_data != (uint32_t)cmd->a[QP_INLINE])
		return -EPROTO; /* the model counts on exact sizes */
	return 0;
}

/* --- the end of objects --- */

static int free_pd(struct worker *w, uint32_t id)
{
	struct domain *domain = &w->pds[id];
	int err;

	for (int i = 0; i < 2; i++) {
		err = domain->ah[i] ? ibv_destroy_ah(domain->ah[i]) : 0;
		if (err)
			return err;
		domain->ah[i] = NULL;
	}
	for (int i = 0; i < GROUPS; i++) {
		err = domain->groups[i] ? ibv_destroy_ah(domain->groups[i]) : 0;
		if (err)
			return err;
		domain->groups[i] = NULL;
	}
	err = ibv_dealloc_pd(domain->pd);
	if (err)
		return err;
	domain->pd = NULL;
	return domain->allocated ? -EPROTO : 0;
}

#define FREE(array, verb)                                                                         \
	do {                                                                                      \
		int err = verb(w->array[id]);                                                     \
		if (!err)                                                                         \
			w->array[id] = NULL;                                                      \
		return err;                                                                       \
	} while (0)

static int object_free(struct worker *w, enum op_kind what, uint32_t id)
{
	switch ((int)what) {
	case OP_TD:
		FREE(tds, ibv_dealloc_td);
	case OP_PD:
	case OP_PARENT:
		return free_pd(w, id);
	case OP_CQ:
		FREE(cqs, ibv_destroy_cq);
	case OP_SRQ:
		FREE(srqs, ibv_destroy_srq);
	case OP_MR:
		FREE(mrs, ibv_dereg_mr);
	case OP_XRCD:
		FREE(xrcds, ibv_close_xrcd);
	case OP_DM:
		return worker_dm_free(w, id);
	case OP_MW:
		FREE(mws, ibv_dealloc_mw);
	case OP_QP: {
		int err = ibv_destroy_qp(w->qps[id].qp);

		if (!err)
			w->qps[id].qp = NULL;
		return err;
	}
	default:
		return -EINVAL;
	}
}

static int do_free(struct worker *w, const struct cmd *cmd, struct result *result)
{
	int err = object_free(w, (enum op_kind)cmd->a[FREE_WHAT], cmd->id);

	(void)result;
	if (!err)
		worker_fill(w, &cmd->fill);
	return err;
}

static int do_rereg(struct worker *w, const struct cmd *cmd, struct result *result)
{
	struct ibv_mr *mr = w->mrs[cmd->id];
	int err = ibv_rereg_mr(mr, (int)cmd->a[REREG_FLAGS],
		cmd->a[REREG_PD] < 0 ? NULL : w->pds[cmd->a[REREG_PD]].pd, w->arena + cmd->a[REREG_OFF],
		(size_t)cmd->a[REREG_LEN], (int)cmd->a[REREG_ACCESS]);

	result->value[0] = mr->rkey;
	result->value[1] = (uint32_t)err;
	return err ? errno : 0;
}

static int do_resize(struct worker *w, const struct cmd *cmd, struct result *result)
{
	(void)result;
	return ibv_resize_cq(w->cqs[cmd->id], (int)cmd->a[RESIZE_TO]);
}

static int do_limit(struct worker *w, const struct cmd *cmd, struct result *result)
{
	struct ibv_srq_attr attr = { .srq_limit = (uint32_t)cmd->a[LIMIT_TO] };

	(void)result;
	return ibv_modify_srq(w->srqs[cmd->id], &attr, IBV_SRQ_LIMIT);
}

static int do_modify(struct worker *w, const struct cmd *cmd, struct result *result)
{
	struct ibv_qp_attr attr = cmd->modify.attr;
	int err = ibv_modify_qp(w->qps[cmd->id].qp, &attr, cmd->modify.mask);

	(void)result;
	if (!err)
		worker_fill(w, &cmd->fill);
	return err;
}

static int do_group(struct worker *w, const struct cmd *cmd, struct result *result)
{
	struct ibv_qp *qp = w->qps[cmd->id].qp;
	union ibv_gid gid = group_gid(cmd->a[GROUP_NUMBER]);
	uint16_t lid = group_lid(cmd->a[GROUP_NUMBER]);

	(void)result;
	return cmd->a[GROUP_IN] ? ibv_attach_mcast(qp, &gid, lid) : ibv_detach_mcast(qp, &gid, lid);
}

static int do_threads(struct worker *w, const struct cmd *cmd, struct result *result)
{
	(void)result;
	w->threads = (unsigned)cmd->a[THREADS_N];
	return 0;
}

static int do_arm(struct worker *w, const struct cmd *cmd, struct result *result)
{
	(void)result;
	return ibv_req_notify_cq(w->cqs[cmd->id], (int)cmd->a[ARM_SOLICITED]);
}

static int do_fill(struct worker *w, const struct cmd *cmd, struct result *result)
{
	(void)result;
	worker_fill(w, &cmd->fill);
	return 0;
}

typedef int do_fn(struct worker *w, const struct cmd *cmd, struct result *result);

static do_fn *const table[] = {
	[CMD_TD] = make_td,
	[CMD_PD] = make_pd,
	[CMD_PARENT] = make_parent,
	[CMD_CQ] = make_cq,
	[CMD_SRQ] = make_srq,
	[CMD_MR] = make_mr,
	[CMD_MW] = make_mw,
	[CMD_QP] = make_qp,
	[CMD_FREE] = do_free,
	[CMD_REREG] = do_rereg,
	[CMD_RESIZE] = do_resize,
	[CMD_LIMIT] = do_limit,
	[CMD_MODIFY] = do_modify,
	[CMD_ARM] = do_arm,
	[CMD_FILL] = do_fill,
	[CMD_TAG_SERVER] = worker_tag_server,
	[CMD_TAG_CLIENT] = worker_tag_client,
	[CMD_TAG_UP] = worker_tag_up,
	[CMD_TAG_OP] = worker_tag_op,
	[CMD_TAG_POLL] = worker_tag_poll,
	[CMD_TAG_SENT] = worker_tag_sent,
	[CMD_THREADS] = do_threads,
	[CMD_XRCD] = worker_xrcd,
	[CMD_GROUP] = do_group,
	[CMD_PAGES] = worker_pages,
	[CMD_ADVISE] = worker_advise,
	[CMD_DM] = worker_dm,
	[CMD_DM_COPY] = worker_dm_copy,
	[CMD_DM_LOOK] = worker_dm_look,
};

/* --- life --- */

static void *arena_map(int image)
{
	void *arena = mmap(NULL, SPACE, PROT_READ | PROT_WRITE, MAP_PRIVATE, image, 0);

	if (arena == MAP_FAILED)
		die("mmap");
	close(image);
	worker_races_in(arena, SPACE);
	return arena;
}

static void nonblocking(int fd)
{
	if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0)
		die("fcntl");
}

static void set_up(struct worker *w, int image)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;

	if (!list || !list[0])
		die("no device");
	w->ctx = ibv_open_device(list[0]);
	if (!w->ctx)
		die("ibv_open_device");
	ibv_free_device_list(list);
	w->channel = ibv_create_comp_channel(w->ctx);
	if (!w->channel)
		die("ibv_create_comp_channel");
	nonblocking(w->channel->fd);
	nonblocking(w->ctx->async_fd);
	if (ibv_query_port(w->ctx, 1, &port) || ibv_query_gid(w->ctx, 1, 0, &w->hello.gid))
		die("ibv_query_port");
	w->hello.lid = port.lid;
	w->arena = arena_map(image);
	w->hello.arena = (uintptr_t)w->arena;
	if (send(w->sock, &w->hello, sizeof(w->hello), 0) != (ssize_t)sizeof(w->hello))
		die("hello");
}

static unsigned execute(struct worker *w, unsigned i, unsigned n)
{
	const struct cmd *cmd = &w->cmds[i];

	switch (cmd->kind) {
	case CMD_SEND:
		return worker_send(w, i, n);
	case CMD_RECV:
		return worker_recv(w, i, n);
	case CMD_POLL:
		worker_poll(w, i);
		return 1;
	default:
		w->reply.results[i].error = table[cmd->kind](w, cmd, &w->reply.results[i]);
		return 1;
	}
}

static void answer(struct worker *w)
{
	struct reply *reply = &w->reply;
	struct iovec parts[] = {
		{ reply, offsetof(struct reply, results) },
		{ reply->results, reply->n_results * sizeof(reply->results[0]) },
		{ reply->wcs, reply->n_wcs * sizeof(reply->wcs[0]) },
		{ reply->events, reply->n_events * sizeof(reply->events[0]) },
		{ reply->states, reply->n_states * sizeof(reply->states[0]) },
	};
	struct msghdr msg = { .msg_iov = parts, .msg_iovlen = sizeof(parts) / sizeof(parts[0]) };

	by_itself_look(&reply->by_itself);
	if (sendmsg(w->sock, &msg, 0) < 0)
		die("answer");
}

int worker_main(int sock, int image, unsigned jitter)
{
	static struct worker *w; /* what is left at the end is not lost */
	ssize_t got;

	w = calloc(1, sizeof(*w));
	if (!w)
		return 1;
	w->sock = sock;
	w->jitter = jitter;
	pthread_mutex_init(&w->ah_lock, NULL);
	unsetenv("LD_PRELOAD"); /* is not for what a sanitizer starts */
	set_up(w, image);
	while ((got = recv(sock, w->cmds, sizeof(w->cmds), 0)) > 0) {
		unsigned n = (unsigned)((size_t)got / sizeof(w->cmds[0]));

		w->reply.n_results = n;
		w->reply.n_wcs = w->reply.n_events = w->reply.n_states = 0;
		memset(w->reply.results, 0, sizeof(w->reply.results));
		for (unsigned i = 0; i < n;) {
			worker_pause(w);
			unsigned done = w->threads > 1 ? worker_parallel(w, i, n) : 0;

			i += done ? done : execute(w, i, n);
		}
		answer(w);
	}
	/* Everything is left as it is: the daemon clears up after us. */
	return got < 0;
}
