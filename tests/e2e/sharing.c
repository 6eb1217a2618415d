/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared regions between processes: by name and by capability, read-only and sealed, created by one of many, kept when
 * everybody died, and gone when nobody has them. One case a run (see ends.h).
 */
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "client/verbsd.h"
#include "tests/e2e/ends.h"

#define SIZE ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static const struct verbsd_mr_attr usual = { .size = SIZE, .access = ALL_ACCESS };

/* Every case has names of its own, and so has every run. */
static const char *name_of(const char *what)
{
	static char names[4][65];
	static unsigned next;
	char *name = names[next++ % 4];

	snprintf(name, sizeof(names[0]), "e2e/%s.%d", what, (int)getpgrp());
	return name;
}

static struct verbsd_mr_info query(struct ibv_mr *mr)
{
	struct verbsd_mr_info info;

	NEED(verbsd_query_mr(mr, &info) == 0);
	return info;
}

/* Waits until the daemon knows that a process is gone, or fewer have the region. */
static void users_wait(struct ibv_mr *mr, unsigned users)
{
	while (query(mr).users != users)
		sched_yield();
}

static void gone_wait(struct ibv_pd *pd, const char *name)
{
	struct ibv_mr *mr;

	while ((mr = verbsd_import_mr(pd, name, 0))) {
		NEED(ibv_dereg_mr(mr) == 0);
		sched_yield();
	}
	NEED(errno == ENOENT);
}

static struct ibv_mr *named(struct ibv_pd *pd, const char *name, unsigned flags)
{
	struct ibv_mr *mr = verbsd_alloc_mr(pd, &usual);

	NEED(mr);
	NEED(verbsd_export_mr(mr, name, flags) == 0);
	return mr;
}

/* --- by name, by capability ----------------------------------------------------------------------------------------- */

static void name_importer(int fd, void *arg)
{
	struct verbsd_mr_info theirs, info;
	struct end end;

	hear(fd, &theirs, sizeof(theirs));
	end_open(&end);

	struct ibv_mr *mr = verbsd_import_mr(end.pd, arg, ALL_ACCESS);

	NEED(mr);
	info = query(mr);
	NEED(info.rkey == theirs.rkey && mr->rkey == theirs.rkey && mr->lkey == theirs.rkey);
	NEED(info.base == theirs.base && info.size == theirs.size && strcmp(info.name, arg) == 0 && info.users == 2);
	NEED((uintptr_t)mr->addr == info.base && mr->length == SIZE);

	uint8_t *memory = mr->addr;

	NEED(memory[0] == 1 && memory[SIZE - 1] == 1);
	memset(memory, 2, SIZE);
	nod(fd);
	nod_wait(fd);
	NEED(memory[5] == 3);
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

static void by_name(void)
{
	const char *name = name_of("by-name");
	struct child child = child_start(name_importer, (void *)(uintptr_t)name);
	struct verbsd_mr_info info;
	struct end end;

	end_open(&end);

	struct ibv_mr *mr = named(end.pd, name, 0);
	uint8_t *memory = mr->addr;

	memset(memory, 1, SIZE);
	info = query(mr);
	NEED(strcmp(info.name, name) == 0 && info.flags == 0);
	say(child.fd, &info, sizeof(info));
	nod_wait(child.fd);
	NEED(memory[0] == 2 && memory[SIZE - 1] == 2);
	memory[5] = 3;
	nod(child.fd);
	child_end(&child);
	users_wait(mr, 1);
	/* It goes with its last user. */
	NEED(ibv_dereg_mr(mr) == 0);
	NEED_ERRNO(verbsd_import_mr(end.pd, name, 0), ENOENT);
	NEED(verbsd_list_mr(end.ctx, NULL, 0) == 0);
	end_close(&end);
}

static void capability_importer(int fd, void *arg)
{
	int writing = fd_hear(fd), reading = fd_hear(fd);
	struct end end;

	(void)arg;
	end_open(&end);
	NEED_ERRNO(verbsd_import_mr_fd(end.pd, reading, IBV_ACCESS_LOCAL_WRITE), EACCES);

	struct ibv_mr *reader = verbsd_import_mr_fd(end.pd, reading, IBV_ACCESS_REMOTE_READ);

	NEED(reader && query(reader).flags == VERBSD_MR_READ_ONLY && query(reader).name[0] == '\0');
	NEED(((uint8_t *)reader->addr)[0] == 4);
	NEED(mprotect(reader->addr, SIZE, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
	/* Who may only read cannot give more to others. */
	NEED(verbsd_export_mr_fd(reader, 0) == -1 && errno == EACCES);
	NEED(verbsd_export_mr(reader, name_of("more"), 0) == EACCES);

	int again = verbsd_export_mr_fd(reader, VERBSD_EXPORT_READ_ONLY);

	NEED(again >= 0);
	close(again);

	struct ibv_mr *writer = verbsd_import_mr_fd(end.pd, writing, ALL_ACCESS);

	NEED(writer && query(writer).flags == 0 && writer->rkey != reader->rkey);
	memset(writer->addr, 5, SIZE);
	NEED(((uint8_t *)reader->addr)[SIZE - 1] == 5);
	NEED(ibv_dereg_mr(reader) == 0 && ibv_dereg_mr(writer) == 0);
	nod(fd);
	nod_wait(fd);
	/* The region is gone, and a capability is no way to keep it. */
	NEED_ERRNO(verbsd_import_mr_fd(end.pd, writing, 0), EACCES);
	end_close(&end);
}

static void by_capability(void)
{
	struct child child = child_start(capability_importer, NULL);
	struct end end;

	end_open(&end);

	struct ibv_mr *mr = verbsd_alloc_mr(end.pd, &usual);
	int writing = verbsd_export_mr_fd(mr, 0), reading = verbsd_export_mr_fd(mr, VERBSD_EXPORT_READ_ONLY);

	NEED(mr && writing >= 0 && reading >= 0 && fcntl(writing, F_GETFD) == FD_CLOEXEC);
	memset(mr->addr, 4, SIZE);
	fd_say(child.fd, writing);
	fd_say(child.fd, reading);
	nod_wait(child.fd);
	NEED(((uint8_t *)mr->addr)[0] == 5);
	/* The memory cannot be had from the fd itself. */
	NEED(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, writing, 0) == MAP_FAILED);
	NEED(ibv_dereg_mr(mr) == 0);
	nod(child.fd);
	child_end(&child);
	end_close(&end);
}

/* Run by root, whose children are two users. */
static void become(int *user)
{
	NEED(setgroups(0, NULL) == 0 && setresgid(65534, 65534, 65534) == 0);
	NEED(setresuid((uid_t)*user, (uid_t)*user, (uid_t)*user) == 0);
}

static void other_user_imports(int fd, void *arg)
{
	struct verbsd_mr_info info[4];
	struct end end;
	int writing;

	become(arg);
	writing = fd_hear(fd);
	end_open(&end);
	/* Its name is not known here, and it is in no listing; handed the capability, it is there. */
	NEED_ERRNO(verbsd_import_mr(end.pd, "e2e/secret", 0), ENOENT);
	NEED(verbsd_release_mr(end.ctx, "e2e/secret") == ENOENT);
	NEED(verbsd_list_mr(end.ctx, info, 4) == 0);

	struct ibv_mr *mr = verbsd_import_mr_fd(end.pd, writing, ALL_ACCESS);

	NEED(mr && ((uint8_t *)mr->addr)[7] == 6);
	memset(mr->addr, 7, SIZE);
	/* What it is called and how long it stays is its own domain's. */
	NEED(verbsd_export_mr(mr, "e2e/mine", 0) == EACCES);
	NEED(verbsd_persist_mr(mr, true) == EACCES);
	/* One's own region may have the same name. */
	NEED(ibv_dereg_mr(named(end.pd, "e2e/secret", 0)) == 0);
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

static void user_exports(int fd, void *arg)
{
	struct end end;

	become(arg);
	end_open(&end);

	struct ibv_mr *mr = named(end.pd, "e2e/secret", 0);
	int writing = verbsd_export_mr_fd(mr, 0);

	NEED(writing >= 0);
	memset(mr->addr, 6, SIZE);
	fd_say(fd, writing);
	nod_wait(fd);
	NEED(((uint8_t *)mr->addr)[0] == 7);
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

static void for_another_user(void)
{
	int users[] = { 65534, 65533 };

	if (geteuid() != 0)
		end_skip("only root can be two users");

	struct child exporter = child_start(user_exports, &users[0]), importer = child_start(other_user_imports, &users[1]);
	int writing = fd_hear(exporter.fd);

	fd_say(importer.fd, writing);
	child_end(&importer);
	nod(exporter.fd);
	child_end(&exporter);
}

/* --- read-only ------------------------------------------------------------------------------------------------------ */

static sigjmp_buf after_fault;

static void on_fault(int signal)
{
	(void)signal;
	siglongjmp(after_fault, 1);
}

static bool store_faults(volatile uint8_t *at)
{
	struct sigaction action = { .sa_handler = on_fault }, old;
	volatile bool faults = true;

	NEED(sigaction(SIGSEGV, &action, &old) == 0);
	if (sigsetjmp(after_fault, 1) == 0) {
		*at = 99;
		faults = false;
	}
	NEED(sigaction(SIGSEGV, &old, NULL) == 0);
	return faults;
}

static void reader(int fd, void *arg)
{
	static const unsigned refused[] = { IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_MW_BIND };
	const char *name = arg;
	struct end end;

	nod_wait(fd);
	end_open(&end);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		NEED_ERRNO(verbsd_import_mr(end.pd, name, refused[i]), EACCES);
	NEED_ERRNO(verbsd_attach_mr(end.pd, name, &usual, 0, NULL), EACCES);

	struct ibv_mr *mr = verbsd_import_mr(end.pd, name, IBV_ACCESS_REMOTE_READ);
	uint64_t base;

	NEED(mr && query(mr).flags == VERBSD_MR_READ_ONLY);
	base = query(mr).base;
	NEED(((uint8_t *)mr->addr)[9] == 8);
	NEED(store_faults((uint8_t *)mr->addr + 9));
	NEED(mprotect(mr->addr, SIZE, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
	NEED(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) == IBV_REREG_MR_ERR_INPUT &&
		errno == EACCES);
	/* Its bytes may be sent, nothing may be received into it, and no peer writes it by this process's key. */
	end_meet(&end, fd);
	end_recv(&end, base, 64, mr->lkey);
	say(fd, &base, sizeof(base));
	say(fd, &mr->rkey, sizeof(mr->rkey));
	NEED(end_wait(&end) == IBV_WC_LOC_PROT_ERR);
	nod_wait(fd);
	NEED(((uint8_t *)mr->addr)[0] == 8 && ((uint8_t *)mr->addr)[4096] == 8);
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

static void read_only(unsigned flags)
{
	const char *name = name_of("read-only");
	struct child child = child_start(reader, (void *)(uintptr_t)name);
	uint8_t local[64] = { 1 };
	struct end end;

	end_open(&end);

	struct ibv_mr *mr = named(end.pd, name, 0), *plain = ibv_reg_mr(end.pd, local, sizeof(local), IBV_ACCESS_LOCAL_WRITE);
	uint64_t base;
	uint32_t rkey;

	NEED(plain);
	memset(mr->addr, 8, SIZE);
	/* By the same name, with other flags. */
	NEED(verbsd_export_mr(mr, name, flags) == 0);
	nod(child.fd);
	end_meet(&end, child.fd);
	hear(child.fd, &base, sizeof(base));
	hear(child.fd, &rkey, sizeof(rkey));
	NEED(end_work(&end, &(struct work){ IBV_WR_SEND, (uintptr_t)local, 64, plain->lkey, 0, 0 }) == IBV_WC_REM_OP_ERR);
	nod(child.fd);
	child_end(&child);
	NEED(((uint8_t *)mr->addr)[0] == 8);
	/* Whoever exported it goes on writing. */
	memset(mr->addr, 9, SIZE);
	NEED(ibv_dereg_mr(plain) == 0 && ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

static void exported_read_only(void)
{
	read_only(VERBSD_EXPORT_READ_ONLY);
}

static void sealed(void)
{
	read_only(VERBSD_EXPORT_SEAL);
}

static void sealing_comes_first(void)
{
	struct end end;

	end_open(&end);

	struct ibv_mr *mr = named(end.pd, name_of("seal"), 0);
	int fd = verbsd_export_mr_fd(mr, VERBSD_EXPORT_SEAL);

	NEED(fd >= 0);
	/* The mapping of this process stays as it is, so it serves what is imported here. */
	NEED_ERRNO(verbsd_import_mr_fd(end.pd, fd, IBV_ACCESS_LOCAL_WRITE), EACCES);

	struct ibv_mr *again = verbsd_import_mr(end.pd, query(mr).name, 0);

	NEED(again && again->addr == mr->addr && query(again).flags == VERBSD_MR_READ_ONLY);
	memset(mr->addr, 1, SIZE);
	NEED(ibv_dereg_mr(again) == 0 && ibv_dereg_mr(mr) == 0);
	close(fd);
	end_close(&end);
}

/* --- names ---------------------------------------------------------------------------------------------------------- */

static void names(void)
{
	const char *one = name_of("one"), *two = name_of("two"), *three = name_of("three");
	struct verbsd_mr_info list[8];
	struct end end;
	bool created = false;

	end_open(&end);

	struct ibv_mr *a = named(end.pd, one, 0), *b = named(end.pd, two, VERBSD_EXPORT_READ_ONLY), *c;

	NEED(verbsd_export_mr(b, one, 0) == EEXIST);
	NEED(verbsd_export_mr(a, three, 0) == EBUSY);
	NEED(verbsd_export_mr(a, one, 0) == 0);
	NEED(verbsd_list_mr(end.ctx, list, 8) == 2);
	NEED(strcmp(list[0].name, one) == 0 && list[0].rkey == a->rkey && list[0].size == SIZE && list[0].users == 1);
	NEED(list[0].base == query(a).base && list[0].access == 0 && list[0].flags == 0);
	NEED(strcmp(list[1].name, two) == 0 && list[1].flags == VERBSD_MR_READ_ONLY);
	memset(list, 0, sizeof(list));
	NEED(verbsd_list_mr(end.ctx, list, 1) == 2 && list[0].size && !list[1].size);

	struct verbsd_mr_attr larger = { .size = 2 * SIZE }, smaller = { .size = 1 };

	NEED_ERRNO(verbsd_attach_mr(end.pd, one, &larger, 0, NULL), EINVAL);
	created = true;
	c = verbsd_attach_mr(end.pd, one, &smaller, 0, &created);
	NEED(c && !created && c->length == SIZE && c->addr == a->addr && query(c).users == 2);
	/* The name goes, what it named does not. */
	NEED(verbsd_release_mr(end.ctx, one) == 0);
	NEED_ERRNO(verbsd_import_mr(end.pd, one, 0), ENOENT);
	NEED(verbsd_release_mr(end.ctx, one) == ENOENT);
	NEED(query(a).name[0] == '\0' && query(a).users == 2);
	NEED(verbsd_export_mr(a, three, 0) == 0);
	NEED(verbsd_export_mr(b, one, 0) == EBUSY);
	NEED(ibv_dereg_mr(a) == 0);
	a = verbsd_import_mr(end.pd, three, 0);
	NEED(a && a->addr == c->addr);
	NEED(ibv_dereg_mr(a) == 0 && ibv_dereg_mr(b) == 0 && ibv_dereg_mr(c) == 0);
	NEED(verbsd_list_mr(end.ctx, list, 8) == 0);
	end_close(&end);
}

/* More than fit into one page of the daemon's answer. */
static void a_long_list(void)
{
	enum { N = 300 };
	static struct verbsd_mr_info list[N + 1];
	static struct ibv_mr *mrs[N];
	struct end end;

	end_open(&end);
	for (int i = 0; i < N; i++) {
		mrs[i] = verbsd_alloc_mr(end.pd, &usual);
		NEED(mrs[i]);
	}
	NEED(verbsd_list_mr(end.ctx, list, N + 1) == N);
	for (int i = 0; i < N; i++)
		NEED(list[i].rkey == mrs[i]->rkey && list[i].base == query(mrs[i]).base);
	NEED(verbsd_list_mr(end.ctx, list, 7) == N);
	for (int i = 0; i < N; i++)
		NEED(ibv_dereg_mr(mrs[i]) == 0);
	end_close(&end);
}

/* --- create or attach ----------------------------------------------------------------------------------------------- */

#define RACERS 8
#define RACES 20

struct race {
	const char *name;
	unsigned n;
};

/* In each round all attach at once, and add themselves to a counter in the region. */
static void racer(int fd, void *arg)
{
	const struct verbsd_mr_attr attr = { .size = SIZE, .flags = VERBSD_MR_POPULATE, .access = ALL_ACCESS };
	const struct race *race = arg;
	struct end end;

	end_open(&end);
	for (int i = 0; i < RACES; i++) {
		uint8_t created;
		bool mine = false;

		nod(fd);
		nod_wait(fd);

		struct ibv_mr *mr = verbsd_attach_mr(end.pd, race->name, &attr, 0, &mine);

		NEED(mr);

		_Atomic unsigned *counter = mr->addr;

		atomic_fetch_add(counter, 1);
		created = mine;
		say(fd, &created, 1);
		say(fd, &mr->rkey, sizeof(mr->rkey));
		nod_wait(fd);
		NEED(atomic_load(counter) == RACERS && query(mr).users == RACERS);
		nod(fd);
		nod_wait(fd);
		NEED(ibv_dereg_mr(mr) == 0);
	}
	end_close(&end);
}

static void all_nod(const struct child *children)
{
	for (int i = 0; i < RACERS; i++)
		nod(children[i].fd);
}

static void all_wait(const struct child *children)
{
	for (int i = 0; i < RACERS; i++)
		nod_wait(children[i].fd);
}

static void one_of_many_creates(void)
{
	struct race race = { .name = name_of("race") };
	struct child children[RACERS];

	for (int i = 0; i < RACERS; i++)
		children[i] = child_start(racer, &race);
	for (int round = 0; round < RACES; round++) {
		unsigned creators = 0;
		uint32_t first = 0;

		all_wait(children);
		all_nod(children);
		for (int i = 0; i < RACERS; i++) {
			uint8_t created;
			uint32_t rkey;

			hear(children[i].fd, &created, 1);
			hear(children[i].fd, &rkey, sizeof(rkey));
			creators += created;
			NEED(i == 0 || rkey == first);
			first = rkey;
		}
		NEED(creators == 1);
		all_nod(children);
		all_wait(children);
		all_nod(children);
	}
	for (int i = 0; i < RACERS; i++)
		child_end(&children[i]);
}

/* --- life and death ------------------------------------------------------------------------------------------------- */

static void creator(int fd, void *arg)
{
	const char *name = arg;
	struct verbsd_mr_info info;
	struct end end;

	nod_wait(fd);
	end_open(&end);

	struct ibv_mr *mr = named(end.pd, name, strstr(name, "keep") ? VERBSD_EXPORT_PERSIST : 0);

	memset(mr->addr, 10, SIZE);
	info = query(mr);
	say(fd, &info, sizeof(info));
	(void)pause();
}

static void kept_when_all_are_dead(void)
{
	const char *name = name_of("keep");
	struct child child = child_start(creator, (void *)(uintptr_t)name);
	struct verbsd_mr_info before, now, list[2];
	uint8_t local[64];
	struct end end, other;

	nod(child.fd);
	hear(child.fd, &before, sizeof(before));
	NEED(before.flags == VERBSD_MR_PERSIST);
	child_kill(&child);
	end_open(&end);
	do
		NEED(verbsd_list_mr(end.ctx, list, 2) == 1);
	while (list[0].users != 0);
	NEED(list[0].flags == VERBSD_MR_PERSIST && list[0].rkey == before.rkey && list[0].base == before.base);

	bool created = true;
	struct ibv_mr *mr = verbsd_attach_mr(end.pd, name, &usual, VERBSD_EXPORT_PERSIST, &created);

	NEED(mr && !created);
	now = query(mr);
	NEED(now.rkey == before.rkey && now.base == before.base && now.size == before.size && now.users == 1);
	for (size_t i = 0; i < SIZE; i++)
		NEED(((uint8_t *)mr->addr)[i] == 10);

	/* Who knows the key from before reads the region by it. */
	struct ibv_mr *plain = ibv_reg_mr(end.pd, local, sizeof(local), IBV_ACCESS_LOCAL_WRITE);

	NEED(plain);
	other = end;
	end_qp_destroy(&end);
	end_pair(&end, &other);
	NEED(end_work(&end, &(struct work){ IBV_WR_RDMA_READ, (uintptr_t)local, 64, plain->lkey, before.base + 77, before.rkey }) ==
		IBV_WC_SUCCESS);
	NEED(local[0] == 10 && local[63] == 10);
	end_qp_destroy(&other);
	NEED(ibv_dereg_mr(plain) == 0 && ibv_dereg_mr(mr) == 0);
	/* Without users it stays, until it is released. */
	NEED(verbsd_list_mr(end.ctx, NULL, 0) == 1);
	mr = verbsd_import_mr(end.pd, name, 0);
	NEED(mr && mr->rkey == before.rkey);
	NEED(verbsd_release_mr(end.ctx, name) == 0);
	NEED(query(mr).flags == 0);
	NEED(verbsd_persist_mr(mr, true) == EINVAL);
	NEED(ibv_dereg_mr(mr) == 0);
	NEED(verbsd_list_mr(end.ctx, NULL, 0) == 0);
	end_close(&end);
}

static void gone_when_all_are_dead(void)
{
	const char *name = name_of("lose");
	struct child child = child_start(creator, (void *)(uintptr_t)name), next = child_start(creator, (void *)(uintptr_t)name);
	struct verbsd_mr_info info;
	struct end end;

	nod(child.fd);
	hear(child.fd, &info, sizeof(info));
	end_open(&end);

	struct ibv_mr *mr = verbsd_import_mr(end.pd, name, ALL_ACCESS);

	NEED(mr && query(mr).users == 2);
	child_kill(&child);
	/* One who has it keeps it, name and contents. */
	users_wait(mr, 1);
	NEED(strcmp(query(mr).name, name) == 0 && ((uint8_t *)mr->addr)[0] == 10);
	NEED(ibv_dereg_mr(mr) == 0);
	NEED_ERRNO(verbsd_import_mr(end.pd, name, 0), ENOENT);
	nod(next.fd);
	hear(next.fd, &info, sizeof(info));
	child_kill(&next);
	gone_wait(end.pd, name);
	end_close(&end);
}

static void persistence_comes_and_goes(void)
{
	const char *name = name_of("persist");
	struct end end;

	end_open(&end);

	struct ibv_mr *mr = named(end.pd, name, 0);

	NEED(verbsd_persist_mr(mr, true) == 0 && query(mr).flags == VERBSD_MR_PERSIST);
	NEED(verbsd_persist_mr(mr, true) == 0);
	NEED(ibv_dereg_mr(mr) == 0);
	mr = verbsd_import_mr(end.pd, name, 0);
	NEED(mr && verbsd_persist_mr(mr, false) == 0 && query(mr).flags == 0);
	NEED(verbsd_persist_mr(mr, false) == 0);
	NEED(ibv_dereg_mr(mr) == 0);
	NEED_ERRNO(verbsd_import_mr(end.pd, name, 0), ENOENT);
	end_close(&end);
}

/* A region that cannot be made as it was asked for is not there afterwards, persistent or not. */
static void nothing_is_left_of_a_failure(void)
{
	const char *name = name_of("failure");
	const struct verbsd_mr_attr attr = { .size = SIZE, .flags = VERBSD_MR_NUMA, .numa_node = 1023 };
	struct end end;

	end_open(&end);
	NEED_ERRNO(verbsd_attach_mr(end.pd, name, &attr, VERBSD_EXPORT_PERSIST, NULL), EINVAL);
	NEED(verbsd_list_mr(end.ctx, NULL, 0) == 0);

	/* No fd for the answer: the daemon has made it already. */
	struct rlimit limit, none = { .rlim_cur = 3 };
	struct ibv_mr *mr = named(end.pd, name, 0);
	int writing = verbsd_export_mr_fd(mr, 0);

	NEED(writing >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
	none.rlim_max = limit.rlim_max;
	NEED(setrlimit(RLIMIT_NOFILE, &none) == 0);
	NEED_ERRNO(verbsd_import_mr(end.pd, name, 0), EMFILE);
	NEED_ERRNO(verbsd_import_mr_fd(end.pd, writing, 0), EMFILE);
	NEED_ERRNO(verbsd_alloc_mr(end.pd, &usual), EMFILE);
	NEED(verbsd_export_mr_fd(mr, 0) == -1 && errno == EMFILE);
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	NEED(query(mr).users == 1 && verbsd_list_mr(end.ctx, NULL, 0) == 1);
	NEED(ibv_dereg_mr(mr) == 0);
	close(writing);
	end_close(&end);
}

/* --- size ----------------------------------------------------------------------------------------------------------- */

static size_t pages_present(const void *memory, size_t n)
{
	size_t page = (size_t)getpagesize(), present = 0;
	unsigned char *vec = malloc(n / page);

	NEED(vec && mincore((void *)(uintptr_t)memory, n, vec) == 0);
	for (size_t i = 0; i < n / page; i++)
		present += vec[i] & 1;
	free(vec);
	return present;
}

static void sparse_importer(int fd, void *arg)
{
	struct end end;

	nod_wait(fd);
	end_open(&end);

	struct ibv_mr *mr = verbsd_import_mr(end.pd, arg, ALL_ACCESS);

	NEED(mr && mr->length == 8 * GIB);

	uint8_t *memory = mr->addr;

	/* Nothing is there but what its creator touched. */
	NEED(pages_present(memory, 8 * GIB) == 2);
	NEED(memory[0] == 1 && memory[8 * GIB - 1] == 2 && memory[5 * GIB] == 0);
	end_meet(&end, fd);
	nod_wait(fd);
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

static void eight_gibibytes(void)
{
	const char *name = name_of("sparse");
	struct child child = child_start(sparse_importer, (void *)(uintptr_t)name);
	const struct verbsd_mr_attr attr = { .size = 8 * GIB, .access = ALL_ACCESS };
	struct end end;

	end_open(&end);

	struct ibv_mr *mr = verbsd_alloc_mr(end.pd, &attr);

	NEED(mr && verbsd_export_mr(mr, name, 0) == 0);

	uint8_t *memory = mr->addr;
	uint64_t base = query(mr).base;

	memory[0] = 1;
	memory[8 * GIB - 1] = 2;
	nod(child.fd);
	end_meet(&end, child.fd);
	/* From one end of it to the other. */
	NEED(end_work(&end, &(struct work){ IBV_WR_RDMA_WRITE, base, 4096, mr->lkey, base + 8 * GIB - 4096, mr->rkey }) ==
		IBV_WC_SUCCESS);
	NEED(memory[8 * GIB - 4096] == 1 && memory[8 * GIB - 1] == 0);
	nod(child.fd);
	child_end(&child);
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

/* --- the end of a registration -------------------------------------------------------------------------------------- */

#define BLOCK (256u << 10)

struct target {
	uint64_t base;
	uint32_t rkey;
};

/* Writes until it is told no, each time another byte. */
static void writer(int fd, void *arg)
{
	struct end end;
	struct target target;
	uint8_t byte = 0;

	(void)arg;
	end_open(&end);

	struct ibv_mr *mr = verbsd_alloc_mr(end.pd, &usual);

	NEED(mr);
	for (;;) {
		enum ibv_wc_status status;

		hear(fd, &target, sizeof(target));
		if (!target.rkey)
			break;
		end_meet(&end, fd);
		do {
			memset(mr->addr, ++byte, BLOCK);
			status = end_work(&end, &(struct work){ IBV_WR_RDMA_WRITE, query(mr).base, BLOCK, mr->lkey,
							target.base, target.rkey });
		} while (status == IBV_WC_SUCCESS);
		NEED(status == IBV_WC_REM_ACCESS_ERR);
		nod(fd);
		end_qp_destroy(&end);
		end_qp(&end);
	}
	NEED(ibv_dereg_mr(mr) == 0);
	end_close(&end);
}

/* After ibv_dereg_mr() returned nothing lands in the memory, which others still have. */
static void the_end_under_traffic(void)
{
	static uint8_t seen[BLOCK];
	struct child child = child_start(writer, NULL);
	struct end end;

	end_open(&end);

	struct ibv_mr *keeper = verbsd_alloc_mr(end.pd, &usual);
	int fd = verbsd_export_mr_fd(keeper, 0);
	uint8_t *memory = keeper->addr;

	NEED(keeper && fd >= 0);
	for (unsigned round = 0; round < 30; round++) {
		struct ibv_mr *mr = verbsd_import_mr_fd(end.pd, fd, ALL_ACCESS);
		struct target target = { query(keeper).base, 0 };

		NEED(mr);
		target.rkey = mr->rkey;
		say(child.fd, &target, sizeof(target));
		end_meet(&end, child.fd);
		/* Until some have come; then at whatever moment it is. */
		for (uint8_t first = *(volatile uint8_t *)memory; first == *(volatile uint8_t *)memory;)
			sched_yield();
		for (unsigned i = 0; i < round * 997 % 5000; i++)
			(void)*(volatile uint8_t *)(memory + i);
		NEED(ibv_dereg_mr(mr) == 0);
		memcpy(seen, memory, BLOCK);
		nod_wait(child.fd);
		NEED(memcmp(seen, memory, BLOCK) == 0);
		end_qp_destroy(&end);
		end_qp(&end);
	}

	struct target none = { 0, 0 };

	say(child.fd, &none, sizeof(none));
	child_end(&child);
	NEED(ibv_dereg_mr(keeper) == 0);
	close(fd);
	end_close(&end);
}

/* --- quotas: of a daemon with 3 regions, 4 MiB of them, 1 MiB persistent --------------------------------------------- */

static void quotas(void)
{
	const struct verbsd_mr_attr large = { .size = 3 * SIZE }, huge = { .size = 4 * SIZE + 1 };
	const char *name = name_of("quota"), *other = name_of("over");
	struct end end;

	end_open(&end);
	NEED_ERRNO(verbsd_alloc_mr(end.pd, &huge), EDQUOT);
	NEED_ERRNO(verbsd_attach_mr(end.pd, name, &huge, 0, NULL), EDQUOT);
	NEED_ERRNO(verbsd_attach_mr(end.pd, name, &large, VERBSD_EXPORT_PERSIST, NULL), EDQUOT);
	NEED(verbsd_list_mr(end.ctx, NULL, 0) == 0);

	struct ibv_mr *a = named(end.pd, name, VERBSD_EXPORT_PERSIST), *b = verbsd_alloc_mr(end.pd, &large), *c;

	NEED(b);
	NEED_ERRNO(verbsd_alloc_mr(end.pd, &usual), EDQUOT); /* bytes */
	NEED(verbsd_export_mr(b, other, VERBSD_EXPORT_PERSIST) == EDQUOT);
	NEED(verbsd_persist_mr(b, true) == EINVAL); /* a name that comes with what was refused is not kept */
	NEED(verbsd_export_mr(b, other, 0) == 0 && verbsd_persist_mr(b, true) == EDQUOT);
	NEED(ibv_dereg_mr(b) == 0);
	/* What persists is charged although nobody has it. */
	NEED(ibv_dereg_mr(a) == 0);
	b = verbsd_alloc_mr(end.pd, &usual);
	c = verbsd_alloc_mr(end.pd, &usual);
	NEED(b && c);
	NEED_ERRNO(verbsd_alloc_mr(end.pd, &usual), EDQUOT); /* regions */
	NEED(ibv_dereg_mr(b) == 0);
	b = named(end.pd, other, 0);
	NEED(verbsd_persist_mr(b, true) == EDQUOT);
	NEED(verbsd_release_mr(end.ctx, name) == 0);
	NEED(verbsd_persist_mr(b, true) == 0 && verbsd_release_mr(end.ctx, other) == 0);
	/* An import costs nobody a region. */
	a = verbsd_alloc_mr(end.pd, &usual);
	NEED(a && verbsd_export_mr(a, name, 0) == 0);

	struct ibv_mr *again = verbsd_import_mr(end.pd, name, 0);

	NEED(again);
	NEED(ibv_dereg_mr(again) == 0 && ibv_dereg_mr(a) == 0 && ibv_dereg_mr(b) == 0 && ibv_dereg_mr(c) == 0);
	NEED(verbsd_list_mr(end.ctx, NULL, 0) == 0);
	end_close(&end);
}

static const struct end_case cases[] = {
	{ "by-name", by_name },
	{ "by-capability", by_capability },
	{ "for-another-user", for_another_user },
	{ "exported-read-only", exported_read_only },
	{ "sealed", sealed },
	{ "sealing-comes-first", sealing_comes_first },
	{ "names", names },
	{ "a-long-list", a_long_list },
	{ "one-of-many-creates", one_of_many_creates },
	{ "kept-when-all-are-dead", kept_when_all_are_dead },
	{ "gone-when-all-are-dead", gone_when_all_are_dead },
	{ "persistence-comes-and-goes", persistence_comes_and_goes },
	{ "nothing-is-left-of-a-failure", nothing_is_left_of_a_failure },
	{ "eight-gibibytes", eight_gibibytes },
	{ "the-end-under-traffic", the_end_under_traffic },
	{ "quotas", quotas },
};

int main(int argc, char **argv)
{
	return end_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
