/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that have no home elsewhere: words, rates, devices, and functions that this device refuses. */
#include "calls.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/e2e/counted.h"

#define PAIRS 500

/* Not in the header, or newer than the one that this is built with. */
static void *known(const char *name)
{
	void *fn = dlsym(RTLD_DEFAULT, name);

	if (!fn)
		fprintf(stderr, "no %s\n", name);
	NEED(fn);
	return fn;
}

/* Each value has a word, no two the same one; what is none of them is unknown. */
static void words_of(const char *(*word)(int value), int first, int last)
{
	for (int i = first; i <= last; i++) {
		NEED(word(i) && word(i)[0] && strcmp(word(i), "unknown") != 0);
		for (int k = first; k < i; k++)
			NEED(strcmp(word(i), word(k)) != 0);
	}
}

static const char *status_word(int status)
{
	return ibv_wc_status_str((enum ibv_wc_status)status);
}

static const char *event_word(int event)
{
	return ibv_event_type_str((enum ibv_event_type)event);
}

static const char *state_word(int state)
{
	return ibv_port_state_str((enum ibv_port_state)state);
}

static const char *node_word(int node)
{
	return ibv_node_type_str((enum ibv_node_type)node);
}

static void words(int argc, char **argv)
{
	words_of(status_word, IBV_WC_SUCCESS, IBV_WC_TM_RNDV_INCOMPLETE);
	words_of(event_word, IBV_EVENT_CQ_ERR, IBV_EVENT_WQ_FATAL);
	words_of(state_word, IBV_PORT_NOP, IBV_PORT_ACTIVE_DEFER);
	words_of(node_word, IBV_NODE_CA, IBV_NODE_UNSPECIFIED);
	NEED(strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "success") == 0);
	NEED(strcmp(ibv_wc_status_str((enum ibv_wc_status)999), "unknown") == 0);
	NEED(strstr(ibv_wc_status_str(IBV_WC_RNR_RETRY_EXC_ERR), "RNR"));
	NEED(strcmp(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter") == 0);
	NEED(strcmp(ibv_port_state_str(IBV_PORT_ACTIVE), "PORT_ACTIVE") == 0 ||
		strcmp(ibv_port_state_str(IBV_PORT_ACTIVE), "active") == 0);
	NEED(strstr(ibv_event_type_str(IBV_EVENT_CQ_ERR), "CQ"));
}

/* There and back, for each rate that there is. */
static void rates(int argc, char **argv)
{
	static const struct {
		enum ibv_rate rate;
		int mult; /* of 2.5 Gbit/s */
	} multiples[] = { { IBV_RATE_2_5_GBPS, 1 }, { IBV_RATE_5_GBPS, 2 }, { IBV_RATE_10_GBPS, 4 }, { IBV_RATE_20_GBPS, 8 },
		{ IBV_RATE_30_GBPS, 12 }, { IBV_RATE_40_GBPS, 16 }, { IBV_RATE_60_GBPS, 24 }, { IBV_RATE_80_GBPS, 32 },
		{ IBV_RATE_120_GBPS, 48 } };

	for (size_t i = 0; i < sizeof(multiples) / sizeof(multiples[0]); i++) {
		NEED(ibv_rate_to_mult(multiples[i].rate) == multiples[i].mult);
		NEED(mult_to_ibv_rate(multiples[i].mult) == multiples[i].rate);
		NEED(ibv_rate_to_mbps(multiples[i].rate) == multiples[i].mult * 2500);
	}
	for (int rate = IBV_RATE_2_5_GBPS; rate <= IBV_RATE_1200_GBPS; rate++) {
		NEED(ibv_rate_to_mbps((enum ibv_rate)rate) > 0);
		NEED((int)mbps_to_ibv_rate(ibv_rate_to_mbps((enum ibv_rate)rate)) == rate);
	}
	NEED(ibv_rate_to_mbps(IBV_RATE_100_GBPS) == 103125 && mbps_to_ibv_rate(103125) == IBV_RATE_100_GBPS);
	NEED(mult_to_ibv_rate(3) == IBV_RATE_MAX && mbps_to_ibv_rate(3) == IBV_RATE_MAX);
	NEED(ibv_flow_label_to_udp_sport(0) >= 0xc000);
	NEED(ibv_rate_to_mult((enum ibv_rate)999) == -1 && ibv_rate_to_mbps((enum ibv_rate)999) == -1);
}

static void devices(int argc, char **argv)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	int (*read_file)(const char *, const char *, char *, size_t);
	char text[64];

	NEED(list && n >= 1 && list[n] == NULL);
	NEED(ibv_get_device_name(list[0])[0] && ibv_get_device_guid(list[0]));
	NEED(ibv_get_device_index(list[0]) >= 0);
	read_file = (int (*)(const char *, const char *, char *, size_t))known("ibv_read_sysfs_file");
	NEED(read_file(list[0]->ibdev_path, "node_type", text, sizeof(text)) > 0 && text[0] == '1');
	NEED(((const char *(*)(void))known("ibv_get_sysfs_path"))()[0] == '/');

	struct ibv_context *ctx = ibv_open_device(list[0]);

	ibv_free_device_list(list);
	NEED(ctx && ibv_is_qpt_supported(0, IBV_QPT_RC) == 0 && ibv_is_qpt_supported(1u << IBV_QPT_RC, IBV_QPT_RC));
	NEED(!ibv_is_qpt_supported(1u << IBV_QPT_UC, IBV_QPT_RC));
	NEED(ibv_close_device(ctx) == 0);
}

/* Nothing of another order is promised than that the last bytes come last. */
static void order_is_not_promised(int argc, char **argv)
{
	struct ibv_context *ctx = kit_open();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = kit_cq(ctx, 4);
	struct ibv_qp *qp = kit_qp(pd, cq, NULL);

	NEED(ibv_query_qp_data_in_order(qp, IBV_WR_SEND, 0) == 0);
	NEED(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 1) == 0);
	NEED(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(ctx) == 0);
}

/* The address of an adapter is in a GID that was made of it; others have none to tell. */
static void addresses_of_ethernet(int argc, char **argv)
{
	struct ibv_context *ctx = kit_open();
	struct ibv_ah_attr attr = { .is_global = 1,
		.grh.dgid.raw = { 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55 } };
	static const uint8_t want[6] = { 0x00, 0x11, 0x22, 0x33, 0x44, 0x55 };
	uint8_t mac[6];
	uint16_t vid = 0;

	RETURNS(ibv_resolve_eth_l2_from_gid(ctx, &attr, mac, &vid), 0);
	NEED(memcmp(mac, want, 6) == 0 && vid == 0xffff);
	attr.grh.dgid.raw[0] = 0x20;
	RETURNS(ibv_resolve_eth_l2_from_gid(ctx, &attr, mac, &vid), EINVAL);
	attr.is_global = 0;
	RETURNS(ibv_resolve_eth_l2_from_gid(ctx, &attr, mac, &vid), EINVAL);
	NEED(ibv_close_device(ctx) == 0);
}

typedef int range_fn(void *base, size_t size);

/* Which of the pages a child has, a digit each. */
static void child_has(uint8_t *memory, const char *want)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		for (size_t i = 0; want[i]; i++)
			if ((msync(memory + i * page, page, MS_ASYNC) == 0) != (want[i] == '1'))
				_exit(1 + (int)i);
		_exit(0);
	}
	NEED(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	if (WEXITSTATUS(status))
		fprintf(stderr, "page %d is not as \"%s\" has it\n", WEXITSTATUS(status) - 1, want);
	NEED(WEXITSTATUS(status) == 0);
}

static uint8_t *pages_new(size_t n)
{
	uint8_t *memory = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(memory != MAP_FAILED);
	return memory;
}

/* What a program keeps from its children by itself, once fork is asked for: as long as one of its ranges is on the page. */
static void ranges_of_ones_own(int argc, char **argv)
{
	range_fn *dont = (range_fn *)known("ibv_dontfork_range"), *may = (range_fn *)known("ibv_dofork_range");
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *memory = pages_new(4 * page);

	RETURNS(ibv_fork_init(), 0);
	child_has(memory, "1111");
	RETURNS(dont(memory + page, page), 0);
	child_has(memory, "1011");
	RETURNS(dont(memory + page, 2 * page), 0);
	child_has(memory, "1001");
	RETURNS(may(memory + page, page), 0);
	child_has(memory, "1001");
	RETURNS(may(memory + page, 2 * page), 0);
	child_has(memory, "1111");
	NEED(munmap(memory, 4 * page) == 0);
}

/* Before it is asked for they keep nothing, but it is too late to ask then, as after a registration. */
static void ranges_without_fork_init(int argc, char **argv)
{
	range_fn *dont = (range_fn *)known("ibv_dontfork_range"), *may = (range_fn *)known("ibv_dofork_range");
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *memory = pages_new(page);

	RETURNS(dont(memory, page), 0);
	child_has(memory, "1");
	RETURNS(ibv_fork_init(), EINVAL);
	RETURNS(may(memory, page), 0);
	NEED(munmap(memory, page) == 0);
}

/* --- refused -------------------------------------------------------------------------------------------------------------- */

typedef void *pointer_fn(void *object, void *arg);
typedef int int_fn(void *object, void *arg, void *more);

static void newer_functions_that_are_refused(int argc, char **argv)
{
	struct ibv_context *ctx = kit_open();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	uint64_t arg[32] = { 0 };

	NEED(pd);
	REFUSED(((pointer_fn *)known("ibv_reg_mr_ex"))(pd, arg), EOPNOTSUPP);
	REFUSED(((pointer_fn *)known("ibv_alloc_dmah"))(ctx, arg), EOPNOTSUPP);
	REFUSED(((pointer_fn *)known("ibv_create_comp_cntr"))(ctx, arg), EOPNOTSUPP);
	RETURNS(((int_fn *)known("_ibv_query_comp_cntr_caps"))(ctx, arg, (void *)sizeof(arg)), EOPNOTSUPP);
	RETURNS(((int_fn *)known("ibv_query_port_speed"))(ctx, (void *)1, arg), EOPNOTSUPP);
	/* Objects of these no soft device ever gave: they are the real library's, or nobody's. */
	NEED(known("ibv_dealloc_dmah") && known("ibv_destroy_comp_cntr") && known("ibv_inc_comp_cntr"));
	NEED(known("ibv_inc_err_comp_cntr") && known("ibv_read_comp_cntr") && known("ibv_read_err_comp_cntr"));
	NEED(known("ibv_set_comp_cntr") && known("ibv_set_err_comp_cntr") && known("ibv_qp_attach_comp_cntr"));
	NEED(ibv_dealloc_pd(pd) == 0 && ibv_close_device(ctx) == 0);
}

static void buffers_are_not_dmabufs(int argc, char **argv)
{
	struct ibv_context *ctx = kit_open();
	struct ibv_alloc_dm_attr attr = { .length = 4096 };
	struct ibv_dm *dm = ibv_alloc_dm(ctx, &attr);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	void *buf = NULL, *memory;

	NEED(dm && pd);
	errno = 0;
	NEED(((int_fn *)known("ibv_dm_export_dmabuf_fd"))(dm, NULL, NULL) == -1 && errno == EOPNOTSUPP);
	memory = ((void *(*)(struct ibv_pd *, size_t, void **))known("ibv_alloc_buf"))(pd, 4096, &buf);
	NEED(memory && buf);
	errno = 0;
	NEED(((int_fn *)known("ibv_export_buf_dmabuf_fd"))(buf, NULL, NULL) == -1 && errno == EOPNOTSUPP);
	((void (*)(void *))known("ibv_free_buf"))(buf);
	NEED(ibv_free_dm(dm) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(ctx) == 0);
}

/* --- what connections do not take ------------------------------------------------------------------------------------------ */

/* Pairs of connected QPs. */
struct pairs {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint64_t words[2];
	struct ibv_qp *qps[2 * PAIRS];
};

static void pair_make(struct pairs *p, unsigned i)
{
	struct ibv_qp **qp = &p->qps[2 * (size_t)i];

	qp[0] = kit_qp(p->pd, p->cq, NULL);
	qp[1] = kit_qp(p->pd, p->cq, NULL);
	kit_connect(qp[0], qp[1]);
}

static void pairs_talk(struct pairs *p, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		kit_message(p->qps[2 * (size_t)i], p->qps[2 * (size_t)i + 1], p->mr, &p->words[0], &p->words[1], 8);
}

static void queue_pairs_have_no_fds(int argc, char **argv)
{
	static struct pairs p;
	struct ibv_context *ctx = kit_open();
	unsigned before;

	NEED(p.pd = ibv_alloc_pd(ctx));
	p.cq = kit_cq(ctx, 64);
	NEED(p.mr = ibv_reg_mr(p.pd, p.words, sizeof(p.words), KIT_ACCESS));
	pair_make(&p, 0);
	pairs_talk(&p, 1);
	before = open_fds();
	for (unsigned i = 1; i < PAIRS; i++)
		pair_make(&p, i);
	NEED(open_fds() == before);
	pairs_talk(&p, PAIRS);
	NEED(open_fds() == before);
	for (unsigned i = 0; i < 2 * PAIRS; i++)
		RETURNS(ibv_destroy_qp(p.qps[i]), 0);
	NEED(open_fds() == before);
	NEED(ibv_dereg_mr(p.mr) == 0 && ibv_destroy_cq(p.cq) == 0 && ibv_dealloc_pd(p.pd) == 0 && ibv_close_device(ctx) == 0);
}

int main(int argc, char **argv)
{
	static const struct kit_test tests[] = {
		{ "words", words },
		{ "rates", rates },
		{ "devices", devices },
		{ "order-is-not-promised", order_is_not_promised },
		{ "addresses-of-ethernet", addresses_of_ethernet },
		{ "newer-functions-that-are-refused", newer_functions_that_are_refused },
		{ "buffers-are-not-dmabufs", buffers_are_not_dmabufs },
		{ "ranges-of-ones-own", ranges_of_ones_own },
		{ "ranges-without-fork-init", ranges_without_fork_init },
		{ "queue-pairs-have-no-fds", queue_pairs_have_no_fds },
		{ "extended-completions", extended_completions },
		{ "extended-completions-of-datagrams", extended_completions_of_datagrams },
		{ "overrun-that-is-ignored", overrun_that_is_ignored },
		{ "extras-of-adapters", extras_of_adapters },
		{ "no-negotiation", no_negotiation },
		{ "rate-limits", rate_limits },
		{ "reliable-connections-that-share", reliable_connections_that_share },
		{ "no-tags", no_tags },
		{ NULL, NULL },
	};

	return kit_main(tests, argc, argv);
}
