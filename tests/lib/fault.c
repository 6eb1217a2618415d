/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The preload. Interposing malloc() would reach everybody, or nobody where a sanitizer comes first; so the table of
 * addresses through which libverbsd alone calls others is changed. What is called instead counts, and fails or passes on.
 */
#include "fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "proto/frame.h"

#define EXPORT __attribute__((visibility("default")))

static __thread struct {
	bool armed, fired;
	enum fault_kind kind;
	unsigned left;
	int error;
	/* A request that was not sent, and whose answer is waited for. */
	bool refused;
	int fd;
	struct frame_header request;
} fault;

fault_arm_fn fault_arm;
fault_disarm_fn fault_disarm;

EXPORT void fault_arm(enum fault_kind kind, unsigned n, int error)
{
	memset(&fault, 0, sizeof(fault));
	fault.kind = kind;
	fault.left = n;
	fault.error = error;
	fault.armed = true;
}

EXPORT int fault_disarm(void)
{
	fault.armed = false;
	return fault.fired;
}

/* True for the one call that fails. */
static bool fails(enum fault_kind kind)
{
	if (!fault.armed || fault.fired || fault.kind != kind || --fault.left)
		return false;
	fault.fired = true;
	return true;
}

static bool no_memory(void)
{
	if (!fails(FAULT_MEMORY))
		return false;
	errno = ENOMEM;
	return true;
}

static bool no_files(void)
{
	if (!fails(FAULT_FILES))
		return false;
	errno = EMFILE;
	return true;
}

/* --- what is called instead ------------------------------------------------------------------------------------------- */

static void *on_malloc(size_t size)
{
	return no_memory() ? NULL : malloc(size);
}

static void *on_calloc(size_t n, size_t size)
{
	return no_memory() ? NULL : calloc(n, size);
}

static void *on_realloc(void *old, size_t size)
{
	return no_memory() ? NULL : realloc(old, size);
}

static void *on_aligned_alloc(size_t alignment, size_t size)
{
	return no_memory() ? NULL : aligned_alloc(alignment, size);
}

static char *on_strdup(const char *text)
{
	return no_memory() ? NULL : strdup(text);
}

static void *on_mmap(void *addr, size_t size, int prot, int flags, int fd, off_t offset)
{
	return no_memory() ? MAP_FAILED : mmap(addr, size, prot, flags, fd, offset);
}

static int on_socket(int domain, int type, int protocol)
{
	return no_files() ? -1 : socket(domain, type, protocol);
}

static int on_eventfd(unsigned value, int flags)
{
	return no_files() ? -1 : eventfd(value, flags);
}

static int on_epoll_create1(int flags)
{
	return no_files() ? -1 : epoll_create1(flags);
}

static int on_timerfd_create(int clock, int flags)
{
	return no_files() ? -1 : timerfd_create(clock, flags);
}

static int on_memfd_create(const char *name, unsigned flags)
{
	return no_files() ? -1 : memfd_create(name, flags);
}

static FILE *on_fopen(const char *path, const char *mode)
{
	return no_files() ? NULL : fopen(path, mode);
}

static DIR *on_opendir(const char *path)
{
	return no_files() ? NULL : opendir(path);
}

static int on_openat(int folder, const char *path, int flags, unsigned mode)
{
	return no_files() ? -1 : openat(folder, path, flags, mode);
}

static int on_fcntl(int fd, int command, long argument)
{
	return command == F_DUPFD_CLOEXEC && no_files() ? -1 : fcntl(fd, command, argument);
}

static int on_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	return fails(FAULT_THREADS) ? EAGAIN : pthread_create(thread, attr, run, arg);
}

/* The header of a request on a control socket; false: it is something else. */
static bool is_request(const struct msghdr *msg, struct frame_header *header)
{
	if (msg->msg_iovlen != 1 || msg->msg_iov->iov_len < sizeof(*header))
		return false;
	memcpy(header, msg->msg_iov->iov_base, sizeof(*header));
	return header->magic == FRAME_MAGIC && header->flags == 0;
}

static ssize_t on_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct frame_header request;

	if (!fault.armed || !is_request(msg, &request))
		return sendmsg(fd, msg, flags);
	if (fails(FAULT_REFUSAL)) {
		fault.refused = true;
		fault.fd = fd;
		fault.request = request;
		return (ssize_t)msg->msg_iov->iov_len;
	}
	if (fails(FAULT_HANGUP)) {
		shutdown(fd, SHUT_RDWR);
		errno = EPIPE;
		return -1;
	}

	ssize_t n = sendmsg(fd, msg, flags);

	if (n > 0 && fails(FAULT_LOST)) {
		uint8_t byte;

		/* Once the answer is there the daemon has done it. */
		(void)!recv(fd, &byte, 1, MSG_PEEK);
		shutdown(fd, SHUT_RDWR);
		fault.refused = true;
		fault.error = 0;
		fault.fd = fd;
	}
	return n;
}

/* The answer that nobody sent; or none, at the end of a session. */
static ssize_t answer_make(struct msghdr *msg)
{
	struct frame_header answer = fault.request;

	msg->msg_controllen = 0;
	msg->msg_flags = 0;
	if (fault.error == 0)
		return 0;
	answer.length = 0;
	answer.fds = 0;
	answer.flags = FRAME_REPLY;
	answer.status = fault.error;
	memcpy(msg->msg_iov->iov_base, &answer, sizeof(answer));
	return sizeof(answer);
}

static ssize_t on_recvmsg(int fd, struct msghdr *msg, int flags)
{
	if (!fault.refused || fault.fd != fd)
		return recvmsg(fd, msg, flags);
	fault.refused = false;
	return answer_make(msg);
}

/* --- putting it in their place ---------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	void *instead;
} calls[] = {
	{ "malloc", (void *)on_malloc },
	{ "calloc", (void *)on_calloc },
	{ "realloc", (void *)on_realloc },
	{ "aligned_alloc", (void *)on_aligned_alloc },
	{ "strdup", (void *)on_strdup },
	{ "mmap", (void *)on_mmap },
	{ "socket", (void *)on_socket },
	{ "eventfd", (void *)on_eventfd },
	{ "epoll_create1", (void *)on_epoll_create1 },
	{ "timerfd_create", (void *)on_timerfd_create },
	{ "memfd_create", (void *)on_memfd_create },
	{ "fopen", (void *)on_fopen },
	{ "opendir", (void *)on_opendir },
	{ "openat", (void *)on_openat },
	{ "fcntl", (void *)on_fcntl },
	{ "pthread_create", (void *)on_pthread_create },
	{ "sendmsg", (void *)on_sendmsg },
	{ "recvmsg", (void *)on_recvmsg },
};

#if defined(__x86_64__)
#define IS_FUNCTION(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#elif defined(__aarch64__)
#define IS_FUNCTION(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#endif

struct tables {
	ElfW(Addr) base;
	const ElfW(Sym) *symbols;
	const char *names;
	const ElfW(Rela) *rela[2];
	size_t bytes[2];
};

static void slot_change(void **slot, void *instead)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	/* Read-only by now, with full RELRO. */
	if (mprotect((void *)((uintptr_t)slot & ~(page - 1)), page, PROT_READ | PROT_WRITE) == 0)
		*slot = instead;
}

static void relocation_change(const struct tables *tables, const ElfW(Rela) *rela)
{
	const char *name = tables->names + tables->symbols[ELF64_R_SYM(rela->r_info)].st_name;

	if (!IS_FUNCTION(ELF64_R_TYPE(rela->r_info)))
		return;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (strcmp(calls[i].name, name) == 0)
			slot_change((void **)(tables->base + rela->r_offset), calls[i].instead);
}

static struct tables tables_find(const struct dl_phdr_info *info)
{
	struct tables tables = { .base = info->dlpi_addr };
	const ElfW(Dyn) *dyn = NULL;

	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dyn = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	for (; dyn && dyn->d_tag != DT_NULL; dyn++) {
		if (dyn->d_tag == DT_SYMTAB)
			tables.symbols = (const void *)dyn->d_un.d_ptr;
		else if (dyn->d_tag == DT_STRTAB)
			tables.names = (const void *)dyn->d_un.d_ptr;
		else if (dyn->d_tag == DT_JMPREL)
			tables.rela[0] = (const void *)dyn->d_un.d_ptr;
		else if (dyn->d_tag == DT_PLTRELSZ)
			tables.bytes[0] = dyn->d_un.d_val;
		else if (dyn->d_tag == DT_RELA)
			tables.rela[1] = (const void *)dyn->d_un.d_ptr;
		else if (dyn->d_tag == DT_RELASZ)
			tables.bytes[1] = dyn->d_un.d_val;
	}
	return tables;
}

static int library_change(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct tables tables;

	(void)size, (void)arg;
	if (!strstr(info->dlpi_name, "/libverbsd.so"))
		return 0;
	tables = tables_find(info);
	for (unsigned t = 0; t < 2; t++)
		for (size_t i = 0; tables.rela[t] && i < tables.bytes[t] / sizeof(ElfW(Rela)); i++)
			relocation_change(&tables, &tables.rela[t][i]);
	return 1;
}

__attribute__((constructor)) static void begin(void)
{
	if (!dl_iterate_phdr(library_change, NULL))
		fputs("fault.so: there is no libverbsd.so\n", stderr);
}
