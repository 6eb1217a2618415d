/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The calls, one row each: shared regions, what is imported from another process, other memory that can be registered, and
 * every change of a region.
 */
#include "steps.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "client/verbsd.h"

#define SIZE 8192

/* --- the process that everything is imported from --------------------------------------------------------------------------- */

static struct given {
	uint32_t pd, region, memfd, device, dm;
} given;
static int given_fd = -1, giver = -1;
static pid_t giver_pid;

static int memfd_make(void)
{
	int fd = memfd_create("steps", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	NEED(fd >= 0 && ftruncate(fd, SIZE) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	return fd;
}

static void fd_send(int link, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	*cmsg = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int)) };
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	NEED(sendmsg(link, &msg, 0) == 1);
}

static int fd_receive(int link)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	int fd;

	NEED(recvmsg(link, &msg, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&msg));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

_Noreturn static void give_all(int link)
{
	const struct verbsd_mr_attr attr = { .size = SIZE, .access = KIT_ACCESS };
	struct ibv_alloc_dm_attr dm_attr = { .length = SIZE };
	struct ibv_context *ctx = kit_open();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	uint8_t *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_make(), 0);
	struct ibv_mr *region = verbsd_alloc_mr(pd, &attr), *mr = ibv_reg_mr(pd, memory, SIZE, KIT_ACCESS);
	struct ibv_dm *dm = ibv_alloc_dm(ctx, &dm_attr);
	struct ibv_mr *device = ibv_reg_dm_mr(pd, dm, 0, SIZE, KIT_ACCESS | IBV_ACCESS_ZERO_BASED);

	NEED(region && mr && dm && device);
	given = (struct given){ pd->handle, region->handle, mr->handle, device->handle, dm->handle };
	NEED(write(link, &given, sizeof(given)) == sizeof(given));
	fd_send(link, ctx->cmd_fd);
	NEED(read(link, &given, 1) == 0);
	_exit(0);
}

void giver_start(void)
{
	int ends[2];

	NEED(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	giver_pid = fork();
	NEED(giver_pid >= 0);
	if (giver_pid == 0) {
		close(ends[0]);
		give_all(ends[1]);
	}
	close(ends[1]);
	giver = ends[0];
	NEED(recv(giver, &given, sizeof(given), MSG_WAITALL) == sizeof(given));
	given_fd = fd_receive(giver);
}

void giver_end(void)
{
	int status;

	close(given_fd);
	close(giver);
	NEED(waitpid(giver_pid, &status, 0) == giver_pid && status == 0);
}

/* --- the ground ------------------------------------------------------------------------------------------------------------- */

static const char *name_of(const char *what)
{
	static char name[64];

	snprintf(name, sizeof(name), "steps/%s.%d", what, (int)getpid());
	return name;
}

void ground_regions_make(struct ground *g)
{
	const struct verbsd_mr_attr attr = { .size = SIZE, .access = KIT_ACCESS };
	struct ibv_alloc_dm_attr dm = { .length = SIZE };

	NEED(g->region = verbsd_alloc_mr(g->pd, &attr));
	NEED(g->unnamed = verbsd_alloc_mr(g->pd, &attr));
	RETURNS(verbsd_export_mr(g->region, name_of("ground"), 0), 0);
	g->capability = verbsd_export_mr_fd(g->region, 0);
	g->file = memfd_make();
	NEED(g->capability >= 0);
	NEED(g->dm = ibv_alloc_dm(g->ctx, &dm));
	NEED(g->imported = ibv_import_device(fcntl(given_fd, F_DUPFD_CLOEXEC, 0)));
	NEED(g->same = ibv_import_pd(g->imported, given.pd));
}

void ground_regions_end(struct ground *g)
{
	ibv_unimport_pd(g->same);
	RETURNS(ibv_close_device(g->imported), 0);
	RETURNS(ibv_free_dm(g->dm), 0);
	close(g->file);
	close(g->capability);
	RETURNS(ibv_dereg_mr(g->unnamed), 0);
	RETURNS(ibv_dereg_mr(g->region), 0);
}

void regions_clean(void)
{
	struct ibv_context *ctx = kit_open();
	struct verbsd_mr_info *info = calloc(STEPS_MAX, sizeof(*info));
	int n = verbsd_list_mr(ctx, info, STEPS_MAX);

	NEED(info && n >= 0 && n <= STEPS_MAX);
	for (int i = 0; i < n; i++)
		if (info[i].users == 0)
			RETURNS(verbsd_release_mr(ctx, info[i].name), 0);
	free(info);
	RETURNS(ibv_close_device(ctx), 0);
}

/* --- shared regions --------------------------------------------------------------------------------------------------------- */

static void *alloc_make(struct ground *g)
{
	const struct verbsd_mr_attr attr = { .size = SIZE, .access = KIT_ACCESS, .flags = VERBSD_MR_POPULATE };

	return verbsd_alloc_mr(g->parent, &attr);
}

static void *attach_make(struct ground *g)
{
	const struct verbsd_mr_attr attr = { .size = SIZE, .access = KIT_ACCESS };
	bool created;
	struct ibv_mr *mr = verbsd_attach_mr(g->pd, name_of("new"), &attr, 0, &created);

	NEED(!mr || created);
	return mr;
}

static void *attach_again_make(struct ground *g)
{
	const struct verbsd_mr_attr attr = { .size = SIZE, .access = KIT_ACCESS };

	return verbsd_attach_mr(g->pd, name_of("ground"), &attr, 0, NULL);
}

static void *import_make(struct ground *g)
{
	return verbsd_import_mr(g->pd, name_of("ground"), KIT_ACCESS);
}

static void *import_fd_make(struct ground *g)
{
	return verbsd_import_mr_fd(g->pd, g->capability, KIT_ACCESS);
}

static int mr_unmake(struct ground *g, void *made)
{
	(void)g;
	return ibv_dereg_mr(made);
}

/* On a region: its address is the one that the program sees, too. */
static void region_use(struct ground *g, void *made)
{
	struct ibv_mr *mr = made;

	kit_connect(g->qp, g->peer);
	NEED(kit_run(g->qp, IBV_WR_RDMA_WRITE, g->mr, g->memory, 100, (uintptr_t)mr->addr, mr->rkey) == IBV_WC_SUCCESS);
}

static void *export_fd_make(struct ground *g)
{
	int fd = verbsd_export_mr_fd(g->region, VERBSD_EXPORT_READ_ONLY);

	return fd < 0 ? NULL : (void *)(intptr_t)fd;
}

static int fd_unmake(struct ground *g, void *made)
{
	(void)g;
	return close((int)(intptr_t)made);
}

static void *on_error(int r, void *made)
{
	if (r == 0)
		return made;
	NEED(errno == r);
	return NULL;
}

/* A fault fails one of two calls; what the other did goes. */
static void *name_make(struct ground *g)
{
	int r = verbsd_export_mr(g->unnamed, name_of("given"), 0), error;

	if (r == 0)
		r = verbsd_release_mr(g->ctx, name_of("given"));
	error = r;
	if (r)
		(void)verbsd_release_mr(g->ctx, name_of("given"));
	errno = error;
	return on_error(error, g->unnamed);
}

static void *persist_make(struct ground *g)
{
	int r = verbsd_persist_mr(g->region, true), error;

	if (r == 0)
		r = verbsd_persist_mr(g->region, false);
	error = r;
	if (r)
		(void)verbsd_persist_mr(g->region, false);
	errno = error;
	return on_error(error, g->region);
}

static void *query_make(struct ground *g)
{
	struct verbsd_mr_info info;

	return on_error(verbsd_query_mr(g->region, &info), g->region);
}

static void *list_make(struct ground *g)
{
	struct verbsd_mr_info info[4];

	return verbsd_list_mr(g->ctx, info, 4) < 0 ? NULL : g->region;
}

const struct path paths_regions[] = {
	{ "verbsd_alloc_mr", alloc_make, region_use, mr_unmake, false, 1 },
	{ "verbsd_attach_mr of a new one", attach_make, region_use, mr_unmake, false, 1 },
	{ "verbsd_attach_mr of one that is there", attach_again_make, NULL, mr_unmake, false, 1 },
	{ "verbsd_import_mr", import_make, NULL, mr_unmake, false, 1 },
	{ "verbsd_import_mr_fd", import_fd_make, NULL, mr_unmake, false, 1 },
	{ "verbsd_export_mr_fd", export_fd_make, NULL, fd_unmake, false, 1, true },
	{ "verbsd_export_mr and verbsd_release_mr", name_make, NULL, nothing_to_undo, false, 2 },
	{ "verbsd_persist_mr", persist_make, NULL, nothing_to_undo, false, 2 },
	{ "verbsd_query_mr", query_make, NULL, nothing_to_undo, false, 1 },
	{ "verbsd_list_mr", list_make, NULL, nothing_to_undo, false, 1 },
	{ NULL, NULL, NULL, NULL, false, 0 },
};

/* --- imports ---------------------------------------------------------------------------------------------------------------- */

/* On failure the fd stays the caller's. */
static void *device_make(struct ground *g)
{
	int fd = fcntl(given_fd, F_DUPFD_CLOEXEC, 0), error;
	struct ibv_context *ctx = ibv_import_device(fd);

	(void)g;
	error = errno;
	if (!ctx)
		NEED(close(fd) == 0);
	errno = error;
	return ctx;
}

static int device_unmake(struct ground *g, void *made)
{
	(void)g;
	return ibv_close_device(made);
}

static void *pd_make(struct ground *g)
{
	return ibv_import_pd(g->imported, given.pd);
}

static int pd_unmake(struct ground *g, void *made)
{
	(void)g;
	ibv_unimport_pd(made);
	return 0;
}

static void *import_region_make(struct ground *g)
{
	return ibv_import_mr(g->same, given.region);
}

static void *import_memfd_make(struct ground *g)
{
	return ibv_import_mr(g->same, given.memfd);
}

static void *import_device_make(struct ground *g)
{
	return ibv_import_mr(g->same, given.device);
}

static int mr_unimport(struct ground *g, void *made)
{
	(void)g;
	ibv_unimport_mr(made);
	return 0;
}

static void *dm_make(struct ground *g)
{
	struct ibv_alloc_dm_attr attr = { .length = SIZE, .log_align_req = 16 };

	return ibv_alloc_dm(g->ctx, &attr);
}

static void dm_use(struct ground *g, void *made)
{
	RETURNS(ibv_memcpy_to_dm(made, 0, g->memory, SIZE), 0);
}

static int dm_unmake(struct ground *g, void *made)
{
	(void)g;
	return ibv_free_dm(made);
}

static void *dm_import_make(struct ground *g)
{
	return ibv_import_dm(g->imported, given.dm);
}

static int dm_unimport(struct ground *g, void *made)
{
	(void)g;
	ibv_unimport_dm(made);
	return 0;
}

static void *dm_mr_make(struct ground *g)
{
	return ibv_reg_dm_mr(g->pd, g->dm, 0, SIZE, KIT_ACCESS | IBV_ACCESS_ZERO_BASED);
}

static void *dmabuf_make(struct ground *g)
{
	return ibv_reg_dmabuf_mr(g->pd, 0, SIZE, 0, g->file,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
}

/* Zero-based. */
static void offset_use(struct ground *g, void *made)
{
	struct ibv_mr *mr = made;

	kit_connect(g->qp, g->peer);
	NEED(kit_run(g->qp, IBV_WR_RDMA_WRITE, g->mr, g->memory, 100, 4096, mr->rkey) == IBV_WC_SUCCESS);
}

const struct path paths_imports[] = {
	{ "import_device", device_make, NULL, device_unmake, false, 1 },
	{ "import_device, the first", device_make, NULL, device_unmake, true, 2 },
	{ "import_pd", pd_make, NULL, pd_unmake, false, 1 },
	{ "import_mr of a region", import_region_make, NULL, mr_unimport, false, 1 },
	{ "import_mr of a memfd", import_memfd_make, NULL, mr_unimport, false, 1 },
	{ "import_mr of a memfd, deregistered", import_memfd_make, NULL, mr_unmake, false, 1 },
	{ "import_mr of device memory", import_device_make, NULL, mr_unimport, false, 1 },
	{ "alloc_dm", dm_make, dm_use, dm_unmake, false, 1 },
	{ "import_dm", dm_import_make, dm_use, dm_unimport, false, 1 },
	{ "reg_dm_mr", dm_mr_make, offset_use, mr_unmake, false, 1 },
	{ "reg_dmabuf_mr", dmabuf_make, offset_use, mr_unmake, false, 1 },
	{ NULL, NULL, NULL, NULL, false, 0 },
};

/* --- changes of a region: it is as it was when they fail ------------------------------------------------------------------- */

static void *rereg(struct ground *g, int flags)
{
	struct ibv_mr before = *g->mr;
	int r = ibv_rereg_mr(g->mr, flags, flags & IBV_REREG_MR_CHANGE_PD ? (before.pd == g->pd ? g->parent : g->pd) : NULL,
		flags & IBV_REREG_MR_CHANGE_TRANSLATION ? g->memory : NULL, flags & IBV_REREG_MR_CHANGE_TRANSLATION ? SIZE : 0,
		flags & IBV_REREG_MR_CHANGE_ACCESS ? KIT_ACCESS : 0);

	if (r == 0)
		return g->mr;
	/* The old region is valid, is what this says. */
	NEED(r == IBV_REREG_MR_ERR_INPUT);
	NEED(before.pd == g->mr->pd && before.addr == g->mr->addr && before.length == g->mr->length &&
		before.lkey == g->mr->lkey && before.rkey == g->mr->rkey);
	return NULL;
}

static void changed_use(struct ground *g, void *made)
{
	(void)made;
	kit_connect(g->qp, g->peer);
	kit_message(g->qp, g->peer, g->mr, g->memory, g->memory + 4096, 100);
}

#define REREG(name, flags)                       \
	static void *name(struct ground *g)      \
	{                                        \
		return rereg(g, flags);          \
	}

REREG(rereg_t, IBV_REREG_MR_CHANGE_TRANSLATION)
REREG(rereg_p, IBV_REREG_MR_CHANGE_PD)
REREG(rereg_a, IBV_REREG_MR_CHANGE_ACCESS)
REREG(rereg_tp, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD)
REREG(rereg_ta, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS)
REREG(rereg_pa, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS)
REREG(rereg_tpa, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS)

const struct path paths_reregs[] = {
	{ "rereg_mr: translation", rereg_t, changed_use, nothing_to_undo, false, 0 },
	{ "rereg_mr: PD", rereg_p, changed_use, nothing_to_undo, false, 0 },
	{ "rereg_mr: access", rereg_a, changed_use, nothing_to_undo, false, 0 },
	{ "rereg_mr: translation and PD", rereg_tp, changed_use, nothing_to_undo, false, 0 },
	{ "rereg_mr: translation and access", rereg_ta, changed_use, nothing_to_undo, false, 0 },
	{ "rereg_mr: PD and access", rereg_pa, changed_use, nothing_to_undo, false, 0 },
	{ "rereg_mr: all", rereg_tpa, changed_use, nothing_to_undo, false, 0 },
	{ NULL, NULL, NULL, NULL, false, 0 },
};
