/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which memory children have: what ibv_fork_init(3) promises, and the reports D1 to D10 of people whose children crashed. One
 * case a run. Cases that end in "-asked" want RDMAV_FORK_SAFE or IBV_FORK_SAFE in the environment.
 */
#include "tests/e2e/fork.h"

#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#undef ibv_reg_mr

static struct ibv_context *ctx;

static void begin(void)
{
	ctx = end_device();
	NEED(case_pd = ibv_alloc_pd(ctx));
}

/* --- D8: the contract ---------------------------------------------------------------------------------------------- */

static void d8_init_first(void)
{
	NEED(ibv_fork_init() == 0);
	NEED(ibv_fork_init() == 0);
	NEED(ibv_is_fork_initialized() == IBV_FORK_UNNEEDED); /* whatever was asked for */
	begin();

	uint8_t *mem = pages(1);
	struct ibv_mr *mr = reg(mem, PAGE);

	NEED(page_out(mem));
	NEED(ibv_fork_init() == 0); /* again, with memory registered */
	dereg(mr);
	NEED(!page_out(mem));
}

static void d8_init_too_late(void)
{
	begin();

	uint8_t *mem = pages(1);
	struct ibv_mr *mr = reg(mem, PAGE);

	NEED(ibv_fork_init() == EINVAL);
	NEED(ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
	dereg(mr);
	NEED(ibv_fork_init() == EINVAL); /* "there had been" */
	mr = reg(mem, PAGE);
	NEED(!page_out(mem));
	dereg(mr);
}

/* With the environment alone. */
static void d8_asked(void)
{
	begin();

	uint8_t *mem = pages(1);
	struct ibv_mr *mr = reg(mem, PAGE);

	NEED(page_out(mem));
	NEED(ibv_fork_init() == 0);
	dereg(mr);
	NEED(!page_out(mem));
}

static void d8_not_asked(void)
{
	begin();

	uint8_t *mem = pages(1);
	struct ibv_mr *mr = reg(mem, PAGE);

	NEED(!page_out(mem));
	dereg(mr);
	NEED(ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
}

/* Where real devices are, it is their library that knows: it says what it was told to say. */
static void d8_real_devices(void)
{
	NEED(ibv_is_fork_initialized() == IBV_FORK_DISABLED);
	NEED(ibv_fork_init() == 0);
	NEED(ibv_is_fork_initialized() == IBV_FORK_ENABLED);
}

/* A real device's memory and the soft device's: one page is out while either of them has it. */
static void real_registrations(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *real;
	struct ibv_pd *real_pd;

	NEED(ibv_fork_init() == 0);
	NEED(list && list[0] && list[1]);
	NEED(strcmp(ibv_get_device_name(list[0]), "fake0") == 0);
	NEED(real = ibv_open_device(list[0]));
	NEED(real_pd = ibv_alloc_pd(real));
	NEED(ctx = ibv_open_device(list[1]));
	NEED(case_pd = ibv_alloc_pd(ctx));

	uint8_t *mem = pages(4);
	struct ibv_mr *real_mr = ibv_reg_mr(real_pd, mem + PAGE - 1, 2, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *mr = reg(mem + PAGE / 2, 2 * PAGE);

	NEED(real_mr);
	NEED(page_out(mem) && page_out(mem + PAGE) && !page_out(mem + 2 * PAGE));
	dereg(mr);
	NEED(page_out(mem) && page_out(mem + PAGE));
	mr = reg(mem + PAGE, 2 * PAGE);
	NEED(ibv_dereg_mr(real_mr) == 0);
	NEED(!page_out(mem) && page_out(mem + PAGE) && page_out(mem + 2 * PAGE));
	dereg(mr);
	NEED(!page_out(mem + PAGE));
}

/* Memory that a real device had before counts as well. */
static void real_registration_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	uint8_t *mem = pages(1);
	struct ibv_context *real = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *real_pd = real ? ibv_alloc_pd(real) : NULL;

	NEED(real_pd && ibv_reg_mr(real_pd, mem, PAGE, IBV_ACCESS_LOCAL_WRITE));
	NEED(!page_out(mem));
	NEED(ibv_fork_init() == EINVAL);
	NEED(ibv_is_fork_initialized() == IBV_FORK_DISABLED);
}

/* --- D1: mappings -------------------------------------------------------------------------------------------------- */

static void d1_churn(void)
{
	enum { ROUNDS = 100000, LIVE = 16, AREA = 256 };
	struct ibv_mr *live[LIVE] = { NULL };

	NEED(ibv_fork_init() == 0);
	begin();

	uint8_t *mem = pages(AREA);

	srand(3);
	for (unsigned i = 0; i < ROUNDS; i++) {
		size_t from = (size_t)rand() % ((AREA - 8) * PAGE), length = 1 + (size_t)rand() % (8 * PAGE);

		if (live[i % LIVE])
			dereg(live[i % LIVE]);
		live[i % LIVE] = reg(mem + from, length);
		if (i % 1000 == 0)
			NEED(mappings(mem, AREA * PAGE) <= 2 * LIVE + 1);
	}
	for (unsigned i = 0; i < LIVE; i++)
		dereg(live[i]);
	NEED(mappings(mem, AREA * PAGE) == 1);
	for (unsigned i = 0; i < AREA; i++)
		NEED(readable(mem + (size_t)i * PAGE));
	NEED(!page_out(mem) && !page_out(mem + (size_t)(AREA - 1) * PAGE));
}

/* Many small buffers, one after the other, as pools of messages are. */
static void d1_neighbours(void)
{
	enum { N = 1000, SIZE = 6000 };
	static struct ibv_mr *mrs[N];

	NEED(ibv_fork_init() == 0);
	begin();

	size_t size = (size_t)N * SIZE;
	uint8_t *mem = pages(N * SIZE / PAGE + 1);

	for (unsigned i = 0; i < N; i++)
		mrs[i] = reg(mem + (size_t)i * SIZE, SIZE);
	NEED(mappings(mem, size) <= 2);
	for (unsigned i = 0; i < N; i += 2)
		dereg(mrs[i]);
	for (unsigned i = 1; i < N; i += 2)
		dereg(mrs[i]);
	NEED(mappings(mem, size) == 1);
}

/* --- D2, D3, D10: what is beside registered memory ------------------------------------------------------------------ */

static void d2_half_a_page(void)
{
	NEED(ibv_fork_init() == 0);
	begin();

	uint8_t *mem = pages(3);
	struct ibv_mr *mr = reg(mem + PAGE / 2, 2 * PAGE);

	NEED(!page_out(mem) && page_out(mem + PAGE) && !page_out(mem + 2 * PAGE));

	pid_t pid = fork();

	if (pid == 0) {
		memset(mem, 7, PAGE);
		memset(mem + 2 * PAGE, 7, PAGE);
		_exit(readable(mem + PAGE)); /* that one is not there */
	}
	child_ends(pid);
	NEED(mem[0] == 1 && mem[2 * PAGE] == 1);
	dereg(mr);
}

/* Touches all of the heap, and uses it. */
static void heap_walk(void)
{
	void *blocks[200];

	for (unsigned i = 0; i < 200; i++) {
		NEED(blocks[i] = malloc(i * 97 + 1));
		memset(blocks[i], 3, i * 97 + 1);
	}
	for (unsigned i = 0; i < 200; i++)
		free(blocks[i]);

	FILE *nowhere = fopen("/dev/null", "we");

	NEED(nowhere && malloc_info(0, nowhere) == 0);
	fclose(nowhere);
}

static void d3_the_heap_in_the_child(void)
{
	static struct ibv_mr *mrs[300];
	static char *blocks[600];
	struct end end;

	NEED(ibv_fork_init() == 0);
	/* Registered blocks and others in turn, then the library's own among them. */
	for (unsigned i = 0; i < 600; i++)
		NEED(blocks[i] = malloc(200 + i * 31 % 9000));
	begin();
	for (unsigned i = 0; i < 300; i++)
		mrs[i] = reg(blocks[2 * i], 200 + 2 * i * 31 % 9000);
	end_open(&end);

	pid_t pid = fork();

	if (pid == 0) {
		for (unsigned i = 1; i < 600; i += 2) {
			memset(blocks[i], 9, 200 + i * 31 % 9000);
			free(blocks[i]);
		}
		heap_walk();
		exit(0);
	}
	child_ends(pid);
	end_close(&end);
	for (unsigned i = 0; i < 300; i++)
		dereg(mrs[i]);
}

static void d10_workers(void)
{
	struct things t;
	pid_t pids[8];

	NEED(ibv_fork_init() == 0);
	things_open(&t);
	things_use(&t, 1);
	for (unsigned i = 0; i < 8; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			child_limit();
			heap_walk();
			NEED(!readable(t.memory));
			exit(0);
		}
	}
	things_use(&t, 2);
	for (unsigned i = 0; i < 8; i++)
		child_ends(pids[i]);
	things_use(&t, 3);
	things_close(&t);
}

/* --- overlaps, page by page ---------------------------------------------------------------------------------------- */

static void need_out(const uint8_t *mem, const char *want)
{
	for (unsigned i = 0; want[i]; i++) {
		bool out = page_out(mem + (size_t)i * PAGE);

		if (out != (want[i] == 'x'))
			fprintf(stderr, "page %u of \"%s\" is %sout\n", i, want, out ? "" : "not ");
		NEED(out == (want[i] == 'x'));
	}
}

static void overlapping_registrations(void)
{
	NEED(ibv_fork_init() == 0);
	begin();

	uint8_t *mem = pages(8);
	struct ibv_mr *a = reg(mem, 4 * PAGE), *b = reg(mem + 2 * PAGE, 4 * PAGE), *c = reg(mem + 3 * PAGE, PAGE);

	need_out(mem, "xxxxxx..");
	dereg(a);
	need_out(mem, "..xxxx..");
	a = reg(mem + PAGE / 2, 6 * PAGE);
	need_out(mem, ".xxxxx..");
	dereg(b);
	need_out(mem, ".xxxxx..");
	dereg(c);
	need_out(mem, ".xxxxx..");
	dereg(a);
	need_out(mem, "........");
	/* The same range often. */
	a = reg(mem, PAGE);
	b = reg(mem, PAGE);
	dereg(a);
	need_out(mem, "x.");
	dereg(b);
	need_out(mem, "..");
	/* A child has what is out for nobody. */
	a = reg(mem + PAGE, 2 * PAGE);

	pid_t pid = fork();

	if (pid == 0)
		_exit(!(readable(mem) && !readable(mem + PAGE) && !readable(mem + 2 * PAGE) && readable(mem + 3 * PAGE)));
	child_ends(pid);
	dereg(a);
}

static void registered_anew(void)
{
	NEED(ibv_fork_init() == 0);
	begin();

	uint8_t *mem = pages(6);
	struct ibv_mr *mr = reg(mem, 2 * PAGE);

	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, mem + PAGE, 3 * PAGE, 0) == 0);
	need_out(mem, ".xxx..");
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) == 0);
	need_out(mem, ".xxx..");
	dereg(mr);
	need_out(mem, "......");
}

/* --- memory that goes while it is registered ------------------------------------------------------------------------ */

static void freed_while_registered(void)
{
	NEED(ibv_fork_init() == 0);
	begin();

	/* free() of a block that is a mapping of its own, and of one that is not. */
	size_t big = (size_t)64 * PAGE, small = (size_t)3 * PAGE;
	uint8_t *a = malloc(big), *b = malloc(small);

	NEED(a && b);

	struct ibv_mr *mr_a = reg(a, big), *mr_b = reg(b, small);

	free(a);
	free(b);
	dereg(mr_a);
	dereg(mr_b);

	uint8_t *c = malloc(small);

	NEED(c);
	for (size_t at = 0; at < small; at += PAGE)
		NEED(!page_out(c + at));
	free(c);
}

static void remapped_while_registered(void)
{
	NEED(ibv_fork_init() == 0);
	begin();

	uint8_t *mem = pages(4);
	struct ibv_mr *mr = reg(mem, 4 * PAGE);

	/* Something else at the same place. */
	NEED(mmap(mem, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == mem);
	need_out(mem, "....");

	struct ibv_mr *again = reg(mem, 4 * PAGE);

	need_out(mem, "xxxx");
	dereg(mr);
	need_out(mem, "xxxx");
	dereg(again);
	need_out(mem, "....");

	/* Moved away. */
	mr = reg(mem, 4 * PAGE);

	uint8_t *moved = mremap(mem, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, pages(4));

	NEED(moved != MAP_FAILED);
	NEED(mmap(mem, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == mem);
	dereg(mr);
	need_out(mem, "....");
	/* Shrunk, and gone. */
	mem = pages(4);
	mr = reg(mem, 4 * PAGE);
	NEED(mremap(mem, 4 * PAGE, PAGE, 0) == mem);
	dereg(mr);
	NEED(!page_out(mem));
	mr = reg(mem, PAGE);
	munmap(mem, PAGE);
	dereg(mr);
}

static const struct end_case cases[] = {
	{ "d8-init-first", d8_init_first },
	{ "d8-init-too-late", d8_init_too_late },
	{ "d8-not-asked", d8_not_asked },
	{ "d8-asked", d8_asked },
	{ "d8-real-devices", d8_real_devices },
	{ "real-registrations", real_registrations },
	{ "real-registration-first", real_registration_first },
	{ "d1-churn", d1_churn },
	{ "d1-neighbours", d1_neighbours },
	{ "d2-half-a-page", d2_half_a_page },
	{ "d3-the-heap-in-the-child", d3_the_heap_in_the_child },
	{ "d10-workers", d10_workers },
	{ "overlapping-registrations", overlapping_registrations },
	{ "registered-anew", registered_anew },
	{ "freed-while-registered", freed_while_registered },
	{ "remapped-while-registered", remapped_while_registered },
};

int main(int argc, char **argv)
{
	return end_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
