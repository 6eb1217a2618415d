/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Contexts: opened at the daemon, and filled so that the inline functions of <infiniband/verbs.h>, compiled into the
 * program, find every slot that they read. What is not offered is an empty slot where they test for one.
 */
#include "client/abi/abi.h"
#include "client/soft/mr_place.h"
#include "client/soft/tag.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/native/native.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned contexts; /* open in this process */

void abi_context_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	contexts = 0;
}

/* Nobody calls this: its address is the mark. */
void *abi_marker(void)
{
	return NULL;
}

static int compat_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	return ibv_query_device(ctx, attr);
}

static int compat_query_port(
	struct ibv_context *ctx, uint8_t number, struct _compat_ibv_port_attr *attr)
{
	return ibv_query_port(ctx, number, attr);
}

static const struct ibv_context_ops context_ops = {
	._compat_query_device = compat_query_device,
	._compat_query_port = compat_query_port,
	._compat_alloc_pd = abi_marker,
	.alloc_mw = abi_alloc_mw,
	.bind_mw = soft_bind_mw,
	.dealloc_mw = abi_dealloc_mw,
	.poll_cq = soft_poll_cq,
	.req_notify_cq = soft_req_notify_cq,
	.post_srq_recv = soft_post_srq_recv,
	.post_send = soft_post_send,
	.post_recv = soft_post_recv,
};

static void slots_fill(struct verbs_context *v)
{
	v->query_port = abi_query_port;
	v->post_srq_ops = soft_post_srq_ops;
	v->modify_qp_rate_limit = abi_modify_qp_rate_limit;
	v->reg_dm_mr = abi_reg_dm_mr;
	v->alloc_dm = abi_alloc_dm;
	v->free_dm = abi_free_dm;
	v->advise_mr = abi_advise_mr;
	v->alloc_null_mr = abi_alloc_null_mr;
	v->alloc_parent_domain = abi_alloc_parent_domain;
	v->dealloc_td = abi_dealloc_td;
	v->alloc_td = abi_alloc_td;
	v->modify_cq = abi_modify_cq;
	v->query_rt_values = abi_query_rt_values;
	v->create_cq_ex = abi_create_cq_ex;
	v->query_device_ex = abi_query_device_ex;
	v->create_qp_ex = abi_create_qp_ex;
	v->create_srq_ex = abi_create_srq_ex;
	v->open_xrcd = abi_open_xrcd;
	v->close_xrcd = abi_close_xrcd;
	v->get_srq_num = abi_get_srq_num;
	v->open_qp = abi_open_qp;
	v->sz = sizeof(*v);
	v->context.ops = context_ops;
	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
}

static void daemon_close(uint32_t id)
{
	Vsd__ContextCloseRequest request = VSD__CONTEXT_CLOSE_REQUEST__INIT;

	request.context = id;
	control_call(VSD__OP__OP_CONTEXT_CLOSE, &request.base, NULL, NULL, NULL);
}

/* The daemon's side of a context: its id, what the device is, and the capability. */
static int daemon_open(struct soft_context *ctx, const struct abi_context_source *source)
{
	ProtobufCMessage *message = NULL;
	struct fdlist fds = FDLIST_NULL;
	int r = control_call(source->op, source->request, &vsd__context_reply__descriptor, &message, &fds);

	if (r < 0 && r != -EMFILE)
		return r;
	if (!message)
		return r;

	Vsd__ContextReply *reply = (Vsd__ContextReply *)message;

	if (r == 0 && fds.n != 1)
		r = -EPROTO;
	if (r < 0) {
		daemon_close(reply->context);
	} else {
		ctx->id = reply->context;
		ctx->info = reply->device;
		reply->device = NULL;
		ctx->capability = source->cmd_fd;
		if (source->cmd_fd < 0)
			ctx->capability = control_fd_high(fdlist_steal(&fds, 0));
	}
	fdlist_deinit(&fds);
	protobuf_c_message_free_unpacked(message, NULL);
	return r;
}

static void leases_close(struct soft_context *ctx)
{
	ctx->qpns = lease_free(ctx->qpns);
	ctx->keys = lease_free(ctx->keys);
	ctx->places = mr_places_free(ctx->places);
}

static int leases_open(struct soft_context *ctx)
{
	ctx->qpns = lease_new(ctx->id, VSD__LEASE_KIND__LEASE_QPN);
	ctx->keys = lease_new(ctx->id, VSD__LEASE_KIND__LEASE_KEY);
	ctx->places = mr_places_new(ctx->id);
	if (ctx->qpns && ctx->keys && ctx->places)
		return 0;
	leases_close(ctx);
	return -ENOMEM;
}

static void context_fields(struct soft_context *ctx, struct abi_device *device)
{
	struct ibv_context *c = &ctx->v.context;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	slots_fill(&ctx->v);
	ctx->epoch = process_epoch();
	c->device = &device->dev;
	c->cmd_fd = ctx->capability;
	c->async_fd = ctx->async.fd;
	c->num_comp_vectors = cpus > 0 ? (int)cpus : 1;
	pthread_mutex_init(&c->mutex, NULL);
}

static int context_init(struct soft_context *ctx, const struct abi_context_source *source)
{
	struct conn_fd *capability = &abi_context_of(ctx)->capability;
	int r = daemon_open(ctx, source);

	if (r < 0)
		return r;

	struct abi_device *device = source->dev ? abi_device_ref(source->dev) : abi_device_known(ctx->info);

	r = device ? conn_fd_note(capability, ctx->capability) : -ENOMEM;
	if (r < 0)
		goto err_close;
	r = leases_open(ctx);
	if (r < 0)
		goto err_close;
	r = soft_async_init(&ctx->async);
	if (r < 0)
		goto err_leases;
	context_fields(ctx, device);
	return 0;

err_leases:
	leases_close(ctx);
err_close:
	if (source->cmd_fd < 0)
		close(ctx->capability);
	if (device)
		abi_device_unref(device);
	daemon_close(ctx->id);
	vsd__device__free_unpacked(ctx->info, NULL);
	return r;
}

/* All but the struct, which the program's pointers lead to. */
static void context_deinit(struct soft_context *ctx)
{
	struct ibv_context *c = &ctx->v.context;

	pthread_mutex_destroy(&c->mutex);
	soft_async_deinit(&ctx->async);
	leases_close(ctx);
	daemon_close(ctx->id);
	ctx->id = 0;
	vsd__device__free_unpacked(ctx->info, NULL);
	ctx->info = NULL;
	conn_fd_close(&abi_context_of(ctx)->capability);
	abi_device_unref(soft_container(c->device, struct abi_device, dev));
	c->device = NULL;
}

/* The runtime lives while a context is open. */
static int runtime_ref(void)
{
	int r = 0;

	pthread_mutex_lock(&lock);
	if (contexts == 0)
		r = control_connect();
	if (contexts == 0 && r == 0) {
		r = rt_start();
		if (r < 0) /* it may have joined already, and there is one JOIN in a session */
			control_close();
	}
	if (r == 0)
		contexts++;
	pthread_mutex_unlock(&lock);
	return r;
}

static void runtime_unref(void)
{
	pthread_mutex_lock(&lock);
	if (--contexts == 0) {
		rt_stop();
		control_close();
	}
	pthread_mutex_unlock(&lock);
}

struct ibv_context *abi_context_new(const struct abi_context_source *source)
{
	abi_first_use();

	struct abi_context *ctx = NULL;
	int r = process_borrowed() ? -ABI_CHILD_ERRNO : runtime_ref();

	if (r < 0)
		return abi_null(-r);
	ctx = calloc(1, sizeof(*ctx));
	if (ctx)
		ctx->users = 1;
	r = ctx ? context_init(&ctx->soft, source) : -ENOMEM;
	if (r < 0) {
		runtime_unref();
		free(ctx);
		return abi_null(-r);
	}
	return &ctx->soft.v.context;
}

VERBS_API struct ibv_context *ibv_open_device(struct ibv_device *dev)
{
	struct abi_device *device = abi_device_ref(dev);

	if (!device)
		return REAL_PTR(ibv_open_device, "IBVERBS_1.1", dev);

	Vsd__ContextOpenRequest request = VSD__CONTEXT_OPEN_REQUEST__INIT;
	const struct abi_context_source source = {
		.op = VSD__OP__OP_CONTEXT_OPEN,
		.request = &request.base,
		.dev = dev,
		.cmd_fd = -1,
	};

	request.device = device->info->name;

	struct ibv_context *c = abi_context_new(&source);
	int error = errno;

	if (!c)
		control_debug("open %s: %s", device->dev.name, strerror(error));
	abi_device_unref(device);
	return c ? c : abi_null(error);
}

static void context_detach(struct soft_context *ctx)
{
	context_deinit(ctx);
	runtime_unref();
}

void abi_context_unref(struct soft_context *ctx)
{
	struct abi_context *outer = abi_context_of(ctx);

	if (--outer->users)
		return;
	if (!outer->detached)
		context_detach(ctx);
	free(outer);
}

/* The daemon may have a dup of its file. */
static int real_close(struct ibv_context *c)
{
	int fd = c->cmd_fd;
	int r = REAL_INT(abi_minus(EOPNOTSUPP), ibv_close_device, "IBVERBS_1.1", c);

	if (r == 0 && !real_inside())
		native_closed(fd);
	return r;
}

/*
 * Objects that were not destroyed stay, and so does the context under them: their queues may be in use by a peer, and the
 * program may still hold pointers to them. It may destroy them later, or leave them to the end of the process. PDs and DMs
 * alone do not keep it: they are the context's, not this process's, and go with whoever else has it.
 */
VERBS_API int ibv_close_device(struct ibv_context *c)
{
	if (!abi_ours(c))
		return real_close(c);
	ABI_ENTER_MINUS(c, ibv_close_device, "IBVERBS_1.1", c);

	struct soft_context *ctx = soft_context_of(c);
	struct abi_context *outer = abi_context_of(ctx);
	unsigned left = outer->users - 1;

	if (atomic_exchange(&outer->closed, true))
		return abi_minus(EINVAL);
	if (left && left == outer->shared) {
		context_detach(ctx);
		outer->detached = true;
	} else if (left) {
		char *what = control_in_use(ctx->id, VSD__OBJECT_TYPE__OBJ_CONTEXT, ctx->id);

		control_debug("close: %u objects left: %s", left, what ? what : "the daemon does not say");
		free(what);
	}
	abi_context_unref(ctx);
	return 0;
}
