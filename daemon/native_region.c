/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: memory that processes share is to be registered on their real devices too, which pins it: more than a client may
 * lock. Guarantees: what is pinned is charged before; a thread does what takes long, and touches fds of its own alone;
 * whatever ends first, session, device or request, no registration outlives all three; the address in work requests is
 * the region's own, never one that a client said.
 */
#include "daemon/native_region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cleanup.h"
#include "daemon/dispatch.h"
#include "daemon/fd.h"
#include "daemon/job.h"
#include "daemon/later.h"
#include "daemon/log.h"
#include "daemon/native.h"
#include "daemon/native_domain.h"
#include "daemon/refuse.h"
#include "daemon/region.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/uverbs.h"
#include "daemon/window.h"
#include "daemon/worker.h"

#define HANDLE_TYPE 1

/* enum ibv_access_flags: LOCAL_WRITE to MW_BIND, RELAXED_ORDERING. Not: what would need us to keep the memory mapped. */
#define ACCESS_KNOWN  (0x1fu | 1u << 20)
#define ACCESS_WRITES 0x1bu /* REMOTE_READ is none */
#define ACCESS_REMOTE_WRITES 0xau

static int check_access(bool writable, uint32_t access)
{
	if (access & ~ACCESS_KNOWN)
		return refuse(-EINVAL, "access flags 0x%x", access);
	if (access & ACCESS_REMOTE_WRITES && !(access & 1))
		return refuse(-EINVAL, "remote write without local write");
	if (!writable && access & ACCESS_WRITES)
		return refuse(-EACCES, "access flags 0x%x, and it may only read", access);
	return 0;
}

/* Why the client has to register it, in the log; and what can be done about its limit. */
static void explain(struct native_region *region)
{
	struct native *native = region->native;
	bool enough = native_raise_memlock(native, region->region->size);

	session_log(region->session, LOG_LEVEL_INFO, NULL,
		"%s: region %u is registered by the client itself: provider %s has a part of its own in registrations; its "
		"memory lock limit %s",
		native->device, region->region->number, uverbs_provider(native->driver),
		enough ? "is large enough" : "is smaller than the region");
}

static int charge(struct native_region *region)
{
	struct account *account = &region->session->domain->account;
	int r = charge_take(&region->charge, account, SLOT_MRS, 1);

	if (r == 0 && region->registers)
		r = charge_take(&region->pinned, account, SLOT_PINNED_BYTES, region->region->size);
	return r;
}

int native_region_new(struct session *session, struct native *native, struct region *region, bool writable,
	uint32_t access, struct native_region **made)
{
	struct native_region *new;
	int r = check_access(writable, access);

	if (r < 0)
		return r;
	new = calloc(1, sizeof(*new));
	if (!new)
		return -ENOMEM;
	*new = (struct native_region){ .session = session,
		.native = native,
		.region = region,
		.writable = writable,
		.access = access,
		.registers = native && uverbs_plain_mr(native->driver) };
	list_init(&new->link);
	region_ref(region);
	r = charge(new);
	if (r == 0)
		r = handle_insert(&session->native_regions, HANDLE_TYPE, new, &new->id);
	if (r < 0) {
		native_region_free(new);
		return r;
	}
	list_append(native ? &native->regions : &session->own_regions, &new->link);
	if (native && !new->registers)
		explain(new);
	*made = new;
	return 0;
}

struct native_region *native_region_get(const struct session *session, uint32_t id)
{
	return handle_get(&session->native_regions, id, HANDLE_TYPE);
}

void native_region_free(struct native_region *region)
{
	if (region->id)
		handle_remove(&region->session->native_regions, region->id, HANDLE_TYPE);
	list_remove(&region->link);
	charge_release(&region->charge);
	charge_release(&region->pinned);
	if (region->shared)
		native_domain_mr_put(region->shared);
	region_unref(region->region);
	free(region);
}

/* --- what threads do ------------------------------------------------------------------------------------------------- */

/* A registration that is made or undone on request, with fds of its own. */
struct doing {
	struct later later;
	struct jobs *jobs;
	uid_t uid;
	uint32_t id;
	struct uverbs_mr mr;
	struct window *window;
	bool kept; /* whoever asked for it has it */
	bool own;  /* of the daemon's own user, who could write what the daemon may */
	int r;
};

/* Registrations that nobody wants any more; the file goes after them. */
struct undoing {
	struct job job;
	int fd;
	uint32_t driver;
	unsigned n;
	uint32_t handles[];
};

static void close_once(int *fd)
{
	cleanup_close(fd);
	*fd = -1;
}

static void undo(struct job *job)
{
	struct undoing *undoing = container_of(job, struct undoing, job);

	for (unsigned i = 0; i < undoing->n; i++) {
		const struct uverbs_mr mr = {
			.fd = undoing->fd, .driver = undoing->driver, .handle = undoing->handles[i]
		};

		(void)uverbs_dereg_mr(&mr);
	}
	close_once(&undoing->fd);
}

static void undone(struct job *job)
{
	struct undoing *undoing = container_of(job, struct undoing, job);

	close_once(&undoing->fd);
	free(undoing);
}

static struct undoing *undoing_new(int fd, uint32_t driver, unsigned n)
{
	struct undoing *undoing = calloc(1, sizeof(*undoing) + n * sizeof(undoing->handles[0]));

	if (!undoing)
		return NULL;
	undoing->job.run = undo;
	undoing->job.done = undone;
	undoing->fd = fd;
	undoing->driver = driver;
	return undoing;
}

/* In @queue, or one of its own. What cannot be undone so is the kernel's to undo, when the file's last fd goes. */
static void undoing_start(struct undoing *undoing, struct session *session, struct jobs *jobs, uid_t uid)
{
	struct job_queue *own = session ? NULL : job_queue_new(uid), *queue = session ? session_queue(session) : own;

	if (!queue || job_submit(jobs, queue, &undoing->job) < 0)
		undone(&undoing->job);
	if (own)
		job_queue_end(jobs, own, false);
}

static struct doing *doing_of(struct later *later)
{
	return container_of(later, struct doing, later);
}

static void do_register(struct later *later)
{
	struct doing *doing = doing_of(later);

	doing->r = uverbs_reg_mr(&doing->mr);
	/* Whoever lets go last frees all of it. */
	doing->window = window_unref(doing->window);
	close_once(&doing->mr.memfd);
	/* Here, for it may be the last one. */
	if (doing->r < 0)
		close_once(&doing->mr.fd);
}

static void do_release(struct later *later)
{
	struct doing *doing = doing_of(later);

	doing->r = uverbs_dereg_mr(&doing->mr);
	close_once(&doing->mr.fd);
}

static void doing_drop(struct later *later)
{
	struct doing *doing = doing_of(later);

	close_once(&doing->mr.fd);
	close_once(&doing->mr.memfd);
	window_unref(doing->window);
	free(doing);
}

/* Nobody knows of it whom its client's end would tell. */
static void register_drop(struct later *later)
{
	struct doing *doing = doing_of(later);
	struct undoing *undoing;

	if (doing->r == 0 && !doing->kept && !later->job.skipped) {
		undoing = undoing_new(doing->mr.fd, doing->mr.driver, 1);
		if (undoing) {
			undoing->handles[undoing->n++] = doing->mr.handle;
			doing->mr.fd = -1;
			undoing_start(undoing, NULL, doing->jobs, doing->uid);
		}
	}
	doing_drop(later);
}

static int dup_of(int fd)
{
	return fd_admit(fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

static struct doing *doing_new(const struct native_region *region, bool memory, int *error)
{
	const struct server *server = region->session->server;
	struct doing *doing = calloc(1, sizeof(*doing));

	if (!doing) {
		*error = -ENOMEM;
		return NULL;
	}
	doing->jobs = server->jobs;
	doing->uid = region->session->uid;
	doing->own = region_is_of_own_user(region->region);
	doing->id = region->id;
	doing->r = -ECANCELED;
	doing->mr = (struct uverbs_mr){ .fd = dup_of(region->native->fd),
		.driver = region->native->driver,
		.memfd = -1,
		.size = region->region->size,
		.sealed = region->region->sealed,
		.memory = window_at(region->region->window),
		.iova = region->region->range.base,
		.access = region->access,
		.handle = region->handle };
	doing->window = window_ref(region->region->window);
	*error = doing->mr.fd;
	if (memory && doing->mr.fd >= 0)
		*error = doing->mr.memfd = dup_of(region->region->memfd);
	if (*error < 0) {
		doing_drop(&doing->later);
		return NULL;
	}
	return doing;
}

/* --- registering ----------------------------------------------------------------------------------------------------- */

static int register_failed(const struct doing *doing)
{
	if (doing->r == -EFAULT && doing->mr.missing)
		return refuse(-EFAULT, "not all of its pages are there");
	if (doing->r == -EFAULT && doing->mr.sealed)
		return refuse(-EFAULT, "it is sealed, this kernel pins nothing that cannot be written (Linux 6.2 does), and %s",
			doing->own ? "its clients are of the daemon's own user" : "it is not mapped from before");
	if (doing->r == -EINVAL)
		return refuse(-EINVAL, "pd %u is none of that device's", doing->mr.pd);
	if (doing->r == -ENOMEM)
		return refuse(-ENOMEM, "0x%llx bytes cannot be locked", (unsigned long long)doing->mr.size);
	return refuse(doing->r, "the kernel's word");
}

static int registered(struct call *call, struct native_region *region, uint32_t handle, uint32_t lkey, uint32_t rkey)
{
	Vsd__NativeRegReply *reply = call_alloc(call, sizeof(*reply));

	if (!reply)
		return -ENOMEM;
	vsd__native_reg_reply__init(reply);
	reply->mr = region->handle = handle;
	reply->lkey = lkey;
	reply->rkey = rkey;
	region->registered = true;
	call->reply = &reply->base;
	return 0;
}

/* The registration that another member has; false: there is none. */
static bool share(struct native_region *region)
{
	if (region->native->shared)
		region->shared = native_domain_mr_get(region->native->shared, region->region, region->access);
	return region->shared != NULL;
}

static int registered_shared(struct call *call, struct native_region *region)
{
	return registered(call, region, region->shared->handle, region->shared->lkey, region->shared->rkey);
}

static int share_first(struct native_region *region, const struct uverbs_mr *mr)
{
	const struct native_domain_mr like = {
		.region = region->region, .access = region->access, .handle = mr->handle, .lkey = mr->lkey, .rkey = mr->rkey
	};

	region->shared = native_domain_mr_new(region->native->shared, &like);
	return region->shared ? 0 : -ENOMEM;
}

static int register_finish(struct later *later, struct call *call)
{
	struct doing *doing = doing_of(later);
	struct native_region *region = native_region_get(call->session, doing->id);
	int r = 0;

	if (doing->r < 0)
		return register_failed(doing);
	if (!region)
		return refuse(-EINVAL, "its device was closed meanwhile");
	/* Of two members that did it at once one was first. */
	if (share(region))
		return registered_shared(call, region);
	if (region->native->shared)
		r = share_first(region, &doing->mr);
	if (r == 0)
		r = registered(call, region, doing->mr.handle, doing->mr.lkey, doing->mr.rkey);
	doing->kept = r == 0;
	if (r < 0 && region->shared) {
		native_domain_mr_put(region->shared);
		region->shared = NULL;
	}
	return r;
}

int native_region_register(struct call *call, struct native_region *region, uint32_t pd)
{
	struct doing *doing;
	int r;

	if (!region->registers || region->native->fd < 0)
		return refuse(-EOPNOTSUPP, "the client registers region %u itself", region->region->number);
	if (region->registered)
		return refuse(-EBUSY, "region %u is registered, as mr %u", region->region->number, region->handle);
	if (region->native->shared && pd != region->native->shared->pd)
		return refuse(-EINVAL, "pd %u is not the domain's", pd);
	if (share(region))
		return registered_shared(call, region);
	doing = doing_new(region, true, &r);
	if (!doing)
		return r;
	doing->mr.pd = pd;
	doing->later.run = do_register;
	doing->later.finish = register_finish;
	doing->later.drop = register_drop;
	return call_later(call, &doing->later);
}

/* --- and the end ----------------------------------------------------------------------------------------------------- */

static int release_finish(struct later *later, struct call *call)
{
	const struct doing *doing = doing_of(later);
	struct native_region *region = native_region_get(call->session, doing->id);

	if (doing->r < 0 && region && region->shared && region->native->shared)
		list_append(&region->native->shared->mrs, &region->shared->link);
	if (doing->r < 0)
		return refuse(doing->r, "mr %u", doing->mr.handle);
	if (region)
		native_region_free(region);
	return 0;
}

int native_region_release(struct call *call, struct native_region *region)
{
	struct doing *doing;
	int r;

	/* What others have as well stays. */
	if (!region->registered || (region->shared && region->shared->users > 1)) {
		native_region_free(region);
		return 0;
	}
	doing = doing_new(region, false, &r);
	if (!doing)
		return r;
	/* Nobody is to find it from here on. */
	if (region->shared)
		list_remove(&region->shared->link);
	doing->later.run = do_release;
	doing->later.finish = release_finish;
	doing->later.drop = doing_drop;
	return call_later(call, &doing->later);
}

void native_regions_end(struct native *native, int fd)
{
	struct session *session = native->session;
	struct undoing *undoing = NULL;
	unsigned n = 0;

	list_for_each (pos, &native->regions)
		n += container_of(pos, struct native_region, link)->registered;
	if (n > 0 && fd >= 0)
		undoing = undoing_new(fd, native->driver, n);
	while (!list_empty(&native->regions)) {
		struct native_region *region = container_of(native->regions.next, struct native_region, link);

		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it has left the list */
		if (undoing && region->registered && !(region->shared && region->shared->users > 1))
			undoing->handles[undoing->n++] = region->handle;
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): as above */
		native_region_free(region);
	}
	if (undoing)
		undoing_start(undoing, session, session->server->jobs, session->uid);
	else
		worker_close(session->server->worker, fd);
}

void native_regions_drop(struct session *session)
{
	while (!list_empty(&session->own_regions))
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it has left the list */
		native_region_free(container_of(session->own_regions.next, struct native_region, link));
}
