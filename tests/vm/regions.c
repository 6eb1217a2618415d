/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared regions on a real device, in a program that links the real library and runs under the preload.
 *
 *	regions DEVICE talk SIZE listen|connect PATH	two ends, one region: each writes into it by RDMA, the other looks
 *	regions DEVICE rules SIZE			one process: what is refused, and what stands in what's way
 *	regions DEVICE orphan SIZE			dies with a region registered; a child keeps the device's file
 *	regions DEVICE once SIZE			a region is made and given back
 *	regions DEVICE repeat SIZE			the same, the device opened anew, for each byte of its standard input
 *	regions DEVICE seal SIZE			a sealed region is registered by who may only read it
 *
 * talk prints "talked" and waits for the end of its standard input; orphan prints "orphaned" and its child waits so; repeat prints
 * "again" each time. Status 0, or a line on stderr that says what was wrong and status 1.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "client/verbsd.h"
#include "tests/lib/need.h"

#define GID_INDEX 1 /* 0 is of the link-local address */
#define ALL       (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* The calls of <verbsd.h>, which come with the preload. */
#define CALL(name) ((__typeof__(&name))symbol(#name))

static void *symbol(const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	NEED(found);
	return found;
}

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct verbsd_mr_info info;
};

struct address {
	uint32_t qpn, rkey;
	uint64_t base;
	union ibv_gid gid;
};

static void device_open(struct end *end, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	NEED(list);
	for (unsigned i = 0; list[i] && !end->ctx; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			end->ctx = ibv_open_device(list[i]);
	}
	NEED(end->ctx);
	ibv_free_device_list(list);
	end->pd = ibv_alloc_pd(end->ctx);
	NEED(end->pd);
}

static struct ibv_mr *alloc(struct ibv_pd *pd, size_t size)
{
	const struct verbsd_mr_attr attr = { .size = size, .access = ALL };

	return CALL(verbsd_alloc_mr)(pd, &attr);
}

/* Bytes that say where they are, and whose they are. */
static void fill(uint8_t *memory, size_t n, uint64_t seed)
{
	for (size_t i = 0; i + 8 <= n; i += 8) {
		uint64_t word = (seed + i) * 0x9e3779b97f4a7c15ull;

		memcpy(memory + i, &word, 8);
	}
}

static bool filled(const uint8_t *memory, size_t n, uint64_t seed)
{
	for (size_t i = 0; i + 8 <= n; i += 8) {
		uint64_t word = (seed + i) * 0x9e3779b97f4a7c15ull;

		if (memcmp(memory + i, &word, 8) != 0)
			return false;
	}
	return true;
}

/* --- two ends -------------------------------------------------------------------------------------------------------- */

static int meet(const char *path, bool listening)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), peer;

	/* The name is there once somebody listens: who sees it connects. */
	NEED(snprintf(address.sun_path, sizeof(address.sun_path), "%s%s", path, listening ? ".new" : "") <
		(int)sizeof(address.sun_path));
	if (!listening) {
		NEED(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
		return fd;
	}
	NEED(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 1) == 0);
	NEED(rename(address.sun_path, path) == 0);
	peer = accept(fd, NULL, NULL);
	NEED(peer >= 0);
	close(fd);
	return peer;
}

static void exchange(int fd, const void *mine, void *theirs, size_t size)
{
	NEED(write(fd, mine, size) == (ssize_t)size);
	NEED(recv(fd, theirs, size, MSG_WAITALL) == (ssize_t)size);
}

/* Both have come so far. */
static void together(int fd)
{
	char byte = 'x';

	exchange(fd, &byte, &byte, 1);
}

static void queues_make(struct end *end)
{
	struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL };

	end->cq = ibv_create_cq(end->ctx, 16, NULL, NULL, 0);
	NEED(end->cq);
	init.send_cq = init.recv_cq = end->cq;
	end->qp = ibv_create_qp(end->pd, &init);
	NEED(end->qp);
	NEED(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
}

static void queues_connect(struct end *end, const struct address *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .grh = { .dgid = peer->gid, .sgid_index = GID_INDEX, .hop_limit = 1 },
			.is_global = 1,
			.port_num = 1 } };

	NEED(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 18;
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	NEED(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void rdma_write(struct end *end, const struct address *peer, size_t from, size_t to, size_t n)
{
	struct ibv_sge sge = { end->info.base + from, (uint32_t)n, end->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { peer->base + to, peer->rkey } };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int r;

	NEED(ibv_post_send(end->qp, &wr, &bad) == 0);
	while ((r = ibv_poll_cq(end->cq, 1, &wc)) == 0)
		;
	NEED(r == 1);
	NEED(wc.status == IBV_WC_SUCCESS);
}

/* The region has four parts: what each writes from, and what each is written into. */
static void talk(struct end *end, int fd, size_t size, unsigned me)
{
	const size_t part = size / 4;
	struct address mine = { .qpn = end->qp->qp_num, .rkey = end->mr->rkey, .base = end->info.base }, peer;
	uint8_t *memory = end->mr->addr;

	NEED(ibv_query_gid(end->ctx, 1, GID_INDEX, &mine.gid) == 0);
	exchange(fd, &mine, &peer, sizeof(mine));
	NEED(peer.base == mine.base);
	queues_connect(end, &peer);
	fill(memory + me * part, part, me + 1);
	together(fd);
	for (size_t at = 0; at < part; at += 1u << 20)
		rdma_write(end, &peer, me * part + at, (2 + me) * part + at, part - at < 1u << 20 ? part - at : 1u << 20);
	together(fd);
	NEED(filled(memory + (3 - me) * part, part, 2 - me));
	NEED(filled(memory + (2 + me) * part, part, me + 1));
	together(fd);
}

static void wait_for_end(const char *word)
{
	char byte;

	puts(word);
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
}

static void run_talk(struct end *end, size_t size, bool listening, const char *path)
{
	int fd = meet(path, listening);

	if (listening) {
		end->mr = alloc(end->pd, size);
		NEED(end->mr);
		NEED(CALL(verbsd_export_mr)(end->mr, "vm/talk", 0) == 0);
	}
	together(fd);
	if (!listening) {
		end->mr = CALL(verbsd_import_mr)(end->pd, "vm/talk", ALL);
		NEED(end->mr);
	}
	NEED(CALL(verbsd_query_mr)(end->mr, &end->info) == 0);
	NEED(end->info.size == size && end->mr->length == size);
	queues_make(end);
	talk(end, fd, size, !listening);
	wait_for_end("talked");
	NEED(ibv_destroy_qp(end->qp) == 0);
	NEED(ibv_destroy_cq(end->cq) == 0);
}

/* --- one process ----------------------------------------------------------------------------------------------------- */

static void run_rules(struct end *end, size_t size)
{
	struct verbsd_mr_attr attr = { .size = size, .access = ALL };
	struct ibv_mr *mr, *again;
	void *own = aligned_alloc(4096, size);

	/* What is not shared is on the program's own limit. */
	NEED(own);
	memset(own, 1, size);
	NEED(!ibv_reg_mr(end->pd, own, size, ALL) && errno == ENOMEM);
	mr = alloc(end->pd, size);
	NEED(mr);
	NEED(mr->pd == end->pd && mr->context == end->ctx && mr->length == size && mr->lkey);
	NEED(ibv_dealloc_pd(end->pd) == EBUSY);
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) != 0 && errno == EOPNOTSUPP);
	NEED(CALL(verbsd_export_mr)(mr, "vm/rules", VERBSD_EXPORT_READ_ONLY) == 0);
	NEED(!CALL(verbsd_import_mr)(end->pd, "vm/rules", ALL) && errno == EACCES);
	NEED(!CALL(verbsd_import_mr)(end->pd, "vm/none", 0) && errno == ENOENT);
	again = CALL(verbsd_import_mr)(end->pd, "vm/rules", IBV_ACCESS_REMOTE_READ);
	NEED(again && again->rkey != mr->rkey);
	/* Its name goes, and it stays for who has it. */
	NEED(CALL(verbsd_release_mr)(end->ctx, "vm/rules") == 0);
	memset(mr->addr, 2, size);
	NEED(ibv_dereg_mr(mr) == 0);
	NEED(ibv_dealloc_pd(end->pd) == EBUSY);
	NEED(ibv_dereg_mr(again) == 0);
	attr.access |= IBV_ACCESS_ON_DEMAND;
	NEED(!CALL(verbsd_alloc_mr)(end->pd, &attr) && errno == EINVAL);
	free(own);
}

static void run_orphan(struct end *end, size_t size)
{
	end->mr = alloc(end->pd, size);
	NEED(end->mr);
	if (fork() == 0) {
		wait_for_end("orphaned");
		_exit(0);
	}
	_exit(0);
}

static void run_repeat(const char *name, size_t size)
{
	char byte;

	puts("waits");
	while (fflush(stdout) == 0 && read(0, &byte, 1) == 1) {
		struct end end = { .ctx = NULL };

		device_open(&end, name);
		end.mr = alloc(end.pd, size);
		NEED(end.mr);
		NEED(ibv_dereg_mr(end.mr) == 0);
		NEED(ibv_dealloc_pd(end.pd) == 0);
		NEED(ibv_close_device(end.ctx) == 0);
		puts("again");
	}
}

static void run_seal(struct end *end, size_t size)
{
	struct ibv_mr *mr = alloc(end->pd, size), *again;

	NEED(mr);
	fill(mr->addr, size, 7);
	NEED(CALL(verbsd_export_mr)(mr, "vm/seal", VERBSD_EXPORT_SEAL) == 0);
	again = CALL(verbsd_import_mr)(end->pd, "vm/seal", IBV_ACCESS_REMOTE_READ);
	NEED(again);
	NEED(filled(again->addr, size, 7));
	NEED(ibv_dereg_mr(again) == 0);
	NEED(ibv_dereg_mr(mr) == 0);
}

int main(int argc, char **argv)
{
	struct end end = { .ctx = NULL };
	const char *what = argc > 3 ? argv[2] : "";
	size_t size = argc > 3 ? strtoull(argv[3], NULL, 0) : 0;

	if (!size)
		return 2;
	if (strcmp(what, "repeat") == 0) {
		run_repeat(argv[1], size);
		return 0;
	}
	device_open(&end, argv[1]);
	if (strcmp(what, "talk") == 0 && argc == 6) {
		run_talk(&end, size, strcmp(argv[4], "listen") == 0, argv[5]);
	} else if (strcmp(what, "rules") == 0) {
		run_rules(&end, size);
	} else if (strcmp(what, "seal") == 0) {
		run_seal(&end, size);
	} else if (strcmp(what, "orphan") == 0) {
		run_orphan(&end, size);
	} else {
		end.mr = alloc(end.pd, size);
		NEED(end.mr);
	}
	NEED(!end.mr || ibv_dereg_mr(end.mr) == 0);
	NEED(ibv_dealloc_pd(end.pd) == 0);
	NEED(ibv_close_device(end.ctx) == 0);
	return 0;
}
