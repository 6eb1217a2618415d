/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared regions between processes: by name and by capability, read-only and sealed, created by one of many. One case a run
 * (see ends.h).
 */
#include "tests/e2e/sharing.h"

#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

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

/* E2: one call and a name. */
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
	REFUSED(verbsd_import_mr(end.pd, name, 0), ENOENT);
	NEED(verbsd_list_mr(end.ctx, NULL, 0) == 0);
	end_close(&end);
}

static void capability_importer(int fd, void *arg)
{
	int writing = fd_hear(fd), reading = fd_hear(fd);
	struct end end;

	(void)arg;
	end_open(&end);
	REFUSED(verbsd_import_mr_fd(end.pd, reading, IBV_ACCESS_LOCAL_WRITE), EACCES);

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
	REFUSED(verbsd_import_mr_fd(end.pd, writing, 0), EACCES);
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
	REFUSED(verbsd_import_mr(end.pd, "e2e/secret", 0), ENOENT);
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
		REFUSED(verbsd_import_mr(end.pd, name, refused[i]), EACCES);
	REFUSED(verbsd_attach_mr(end.pd, name, &usual, 0, NULL), EACCES);

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
	REFUSED(verbsd_import_mr_fd(end.pd, fd, IBV_ACCESS_LOCAL_WRITE), EACCES);

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

	REFUSED(verbsd_attach_mr(end.pd, one, &larger, 0, NULL), EINVAL);
	created = true;
	c = verbsd_attach_mr(end.pd, one, &smaller, 0, &created);
	NEED(c && !created && c->length == SIZE && c->addr == a->addr && query(c).users == 2);
	/* The name goes, what it named does not. */
	NEED(verbsd_release_mr(end.ctx, one) == 0);
	REFUSED(verbsd_import_mr(end.pd, one, 0), ENOENT);
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

/* E7: whoever comes first makes it, the others attach. */
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
