/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each call that makes something, with the n-th step of it failing, for n from 1 until it succeeds: it says why, leaves
 * nothing behind (file descriptors, objects of the daemon; memory is LeakSanitizer's), and the next try works. G4 of the
 * field reports. Runs with fault.so loaded before libverbsd. One kind of fault a run, named by the first argument.
 */
#include "steps.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "proto/frame.h"
#include "proto/sock.h"
#include "proto/verbsd.pb-c.h"

#define REFUSAL	  EDQUOT /* no other fault gives it */

static fault_arm_fn *arm;
static fault_disarm_fn *disarm;

/* --- what there is ---------------------------------------------------------------------------------------------------------- */

static int link_fd = -1;
static uint32_t serial;

static ProtobufCMessage *ask(unsigned op, const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type)
{
	static uint8_t buf[65536];
	struct frame_header header = { .version = VSD_VERSION_MAX, .opcode = (uint16_t)op, .serial = ++serial };
	struct fdlist fds = FDLIST_NULL;
	ProtobufCMessage *reply = NULL;
	size_t n;
	int r = frame_pack(buf, sizeof(buf), &header, request);

	NEED(r > 0 && sock_send(link_fd, buf, (size_t)r, NULL, true) == 0);
	NEED(sock_recv(link_fd, buf, sizeof(buf), true, &fds, &n) == 0 && frame_parse(buf, n, &header) == 0);
	NEED(header.status == 0);
	NEED(frame_unpack_heap(type, buf + sizeof(header), header.length, &reply) == 0);
	return reply;
}

static void link_make(void)
{
	Vsd__HelloRequest hello = VSD__HELLO_REQUEST__INIT;

	link_fd = sock_connect(getenv("VERBSD_SOCKET"));
	NEED(link_fd >= 0);
	hello.min_version = VSD_VERSION_MIN;
	hello.max_version = VSD_VERSION_MAX;
	protobuf_c_message_free_unpacked(ask(VSD__OP__OP_HELLO, &hello.base, &vsd__hello_reply__descriptor), NULL);
}

struct count {
	unsigned objects, contexts, regions, fds;
};

static struct count counted(void)
{
	ProtobufCMessage *message = ask(VSD__OP__OP_STATUS, NULL, &vsd__status_reply__descriptor);
	const Vsd__StatusReply *status = (const Vsd__StatusReply *)message;
	struct count count = { .objects = status->objects, .contexts = status->contexts, .regions = status->regions };
	DIR *folder = opendir("/proc/self/fd");

	protobuf_c_message_free_unpacked(message, NULL);
	NEED(folder);
	while (readdir(folder))
		count.fds++;
	closedir(folder);
	return count;
}

static bool same(struct count a, struct count b)
{
	return a.objects == b.objects && a.contexts == b.contexts && a.regions == b.regions && a.fds == b.fds;
}

static void must_be_same(const char *name, unsigned n, const char *when, struct count before)
{
	struct count now = counted();

	/* A context that was opened goes in slices of the daemon's loop. */
	for (unsigned i = 0; i < 1000 && !same(now, before); i++)
		now = counted();
	if (same(now, before))
		return;
	fprintf(stderr, "%s, step %u, %s: %u objects, %u contexts, %u regions, %u fds instead of %u, %u, %u, %u\n", name, n, when,
		now.objects, now.contexts, now.regions, now.fds, before.objects, before.contexts, before.regions, before.fds);
	_exit(1);
}

/* --- the ground -------------------------------------------------------------------------------------------------------------- */

static void *give(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	struct ground *g = context;
	void *memory = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);

	(void)pd, (void)type;
	NEED(memory);
	g->allocations++;
	return memory;
}

static void take(struct ibv_pd *pd, void *context, void *memory, uint64_t type)
{
	struct ground *g = context;

	(void)pd, (void)type;
	g->allocations--;
	free(memory);
}

static void ground_make(struct ground *g)
{
	struct ibv_td_init_attr td = { .comp_mask = 0 };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_parent_domain_init_attr parent = {
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.alloc = give,
		.free = take,
		.pd_context = g,
	};

	NEED(g->ctx = ibv_open_device(g->list[0]));
	NEED(g->memory = aligned_alloc(4096, 8192));
	NEED(g->pd = ibv_alloc_pd(g->ctx));
	NEED(g->td = ibv_alloc_td(g->ctx, &td));
	parent.pd = g->pd;
	NEED(g->parent = ibv_alloc_parent_domain(g->ctx, &parent));
	NEED(g->channel = ibv_create_comp_channel(g->ctx));
	g->cq = kit_cq(g->ctx, 64);
	NEED(g->srq = ibv_create_srq(g->pd, &srq));
	NEED(g->mr = ibv_reg_mr(g->pd, g->memory, 8192, KIT_ACCESS));
	g->qp = kit_qp(g->pd, g->cq, NULL);
	g->peer = kit_qp(g->pd, g->cq, g->srq);
	ground_regions_make(g);
}

static void ground_end(struct ground *g)
{
	NEED(g->allocations == 0);
	ground_regions_end(g);
	RETURNS(ibv_destroy_qp(g->qp), 0);
	RETURNS(ibv_destroy_qp(g->peer), 0);
	RETURNS(ibv_dereg_mr(g->mr), 0);
	RETURNS(ibv_destroy_srq(g->srq), 0);
	RETURNS(ibv_destroy_cq(g->cq), 0);
	RETURNS(ibv_destroy_comp_channel(g->channel), 0);
	RETURNS(ibv_dealloc_pd(g->parent), 0);
	RETURNS(ibv_dealloc_td(g->td), 0);
	RETURNS(ibv_dealloc_pd(g->pd), 0);
	RETURNS(ibv_close_device(g->ctx), 0);
	free(g->memory);
}

/* --- faults ------------------------------------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	int error; /* what the verb says */
} kinds[FAULT_KINDS] = {
	[FAULT_MEMORY] = { "memory", ENOMEM },
	[FAULT_FILES] = { "files", EMFILE },
	[FAULT_THREADS] = { "threads", EAGAIN },
	[FAULT_REFUSAL] = { "refusal", REFUSAL },
	[FAULT_HANGUP] = { "hangup", ENOTCONN },
	[FAULT_LOST] = { "lost", ENOTCONN },
};

/* One try with a fault in its n-th step. True when it came. */
static bool try_once(struct ground *g, const struct path *path, enum fault_kind kind, unsigned n)
{
	struct count before = counted();
	unsigned allocations = g->allocations;
	void *made;
	bool fired;
	int error;

	arm(kind, n, REFUSAL);
	errno = 0;
	made = path->make(g);
	error = errno;
	fired = disarm();
	if (!made && (!fired || error != kinds[kind].error)) {
		fprintf(stderr, "%s, step %u: %s\n", path->name, n, strerror(error));
		_exit(1);
	}
	if (made) {
		if (path->use)
			path->use(g, made);
		RETURNS(path->unmake(g, made), 0);
	}
	must_be_same(path->name, n, made ? "after all" : "after the fault", before);
	NEED(g->allocations == allocations);
	/* And the next one works. */
	made = path->make(g);
	NEED(made);
	if (path->use)
		path->use(g, made);
	RETURNS(path->unmake(g, made), 0);
	must_be_same(path->name, n, "after the next try", before);
	return fired;
}

/* How many faults a kind has in a call at least: all allocate, and most ask the daemon. */
static void must_be_enough(const struct path *path, enum fault_kind kind, unsigned n)
{
	unsigned least = kind == FAULT_MEMORY			 ? path->unmake != nothing_to_undo && !path->light :
			 kind == FAULT_FILES || kind == FAULT_THREADS ? path->alone :
									path->calls;

	printf("# %s: %u steps\n", path->name, n);
	fflush(stdout);
	if (n >= least)
		return;
	fprintf(stderr, "%s: only %u faults of %s\n", path->name, n, kinds[kind].name);
	_exit(1);
}

static void path_run(struct ground *g, const struct path *path, enum fault_kind kind)
{
	unsigned n = 1;

	while (try_once(g, path, kind, n))
		NEED(++n < STEPS_MAX);
	must_be_enough(path, kind, n - 1);
}

static void list_run(struct ground *g, const struct path *paths, enum fault_kind kind, bool alone)
{
	for (; paths->name; paths++)
		if (paths->alone == alone)
			path_run(g, paths, kind);
}

/* A session that ended is not made again, so each step has a process of its own; closing works, and leaves nothing. */
static bool ended_once(const struct path *path, enum fault_kind kind, unsigned n)
{
	struct ground g = { .step = 0 };
	pid_t pid = fork();
	int status;

	NEED(pid >= 0);
	if (pid > 0) {
		NEED(waitpid(pid, &status, 0) == pid);
		NEED(WIFEXITED(status) && WEXITSTATUS(status) <= 2);
		if (WEXITSTATUS(status) == 1)
			_exit(1);
		return WEXITSTATUS(status) == 0;
	}
	NEED(g.list = ibv_get_device_list(NULL));
	if (!path->alone)
		ground_make(&g);
	arm(kind, n, 0);

	void *made = path->make(&g);
	int error = errno;
	bool fired = disarm();

	if (!made && (!fired || error != ENOTCONN)) {
		fprintf(stderr, "%s, step %u: %s\n", path->name, n, strerror(error));
		_exit(1);
	}
	if (made)
		RETURNS(path->unmake(&g, made), 0);
	if (!path->alone)
		ground_end(&g);
	ibv_free_device_list(g.list);
	exit(fired ? 0 : 2);
}

static void ended_run(const struct path *paths, enum fault_kind kind)
{
	for (; paths->name; paths++) {
		unsigned n = 1;

		while (ended_once(paths, kind, n))
			NEED(++n < STEPS_MAX);
		must_be_enough(paths, kind, n - 1);
	}
}

static const struct path *const lists[] = { paths_objects, paths_regions, paths_imports, paths_changes, paths_reregs };
#define LISTS (sizeof(lists) / sizeof(lists[0]))

/* What a process let persist whose session ended is there for whoever comes; to look needs a process of its own. */
static void clean(void)
{
	pid_t pid = fork();
	int status;

	NEED(pid >= 0);
	if (pid == 0) {
		regions_clean();
		exit(0);
	}
	NEED(waitpid(pid, &status, 0) == pid && status == 0);
}

static void run_ended(enum fault_kind kind)
{
	for (size_t i = 0; i < LISTS; i++)
		ended_run(lists[i], kind);
	clean();
}

static void run_here(enum fault_kind kind)
{
	struct ground g = { .step = 0 };

	link_make();

	unsigned contexts = counted().contexts;

	NEED(g.list = ibv_get_device_list(NULL));
	/* The session that listed the devices ends with the first context. */
	RETURNS(ibv_close_device(ibv_open_device(g.list[0])), 0);
	while (counted().contexts > contexts)
		;
	for (size_t i = 0; i < LISTS; i++)
		list_run(&g, lists[i], kind, true);
	ground_make(&g);
	for (size_t i = 0; i < LISTS; i++)
		list_run(&g, lists[i], kind, false);
	ground_end(&g);
	ibv_free_device_list(g.list);
	close(link_fd);
}

static void run(enum fault_kind kind)
{
	giver_start();
	if (kind == FAULT_HANGUP || kind == FAULT_LOST)
		run_ended(kind);
	else
		run_here(kind);
	giver_end();
}

int main(int argc, char **argv)
{
	arm = (fault_arm_fn *)dlsym(RTLD_DEFAULT, "fault_arm");
	disarm = (fault_disarm_fn *)dlsym(RTLD_DEFAULT, "fault_disarm");
	for (unsigned kind = 0; kind < FAULT_KINDS; kind++) {
		if (argc < 2) {
			puts(kinds[kind].name);
		} else if (strcmp(argv[1], kinds[kind].name) == 0) {
			NEED(arm && disarm);
			run((enum fault_kind)kind);
			return 0;
		}
	}
	return argc < 2 ? 0 : 2;
}
