/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opening by way of the daemon. It decides how: it opens the device itself; or, for drivers that write() to it, which the
 * kernel lets only its opener do, this process opens a node that was made for it. Where a device cgroup forbids that, the
 * daemon's file has to do, and doorbell.c.
 */
#include "client/native/native.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "client/control/process.h"
#include "proto/sock.h"

#define FOLDER "/dev/infiniband/"
/* Others of the same user want nodes as well, and the daemon makes so many in a second: one that is asked for is waited for. */
#define TRIES	 40
#define PAUSE_MS 100

/* What the daemon opened for this process, by fd. */
struct opened {
	struct opened *next;
	int fd;
	uint32_t id, driver;
	uint64_t session;
	bool domain;
	bool shown; /* the daemon has it from us, or will have it in a moment */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct opened *opened;

/* Its files are the parent's, whose session they are in. */
static void forget(void)
{
	opened = NULL;
	pthread_mutex_init(&lock, NULL);
}

static const struct process_hooks hooks = { .child = forget, .forget = forget };

static bool is_node(const char *name)
{
	size_t n = strlen(name);

	if (strcmp(name, "rdma_cm") == 0)
		return true;
	if (strncmp(name, "uverbs", 6) != 0 || n < 7 || n > 16)
		return false;
	return strspn(name + 6, "0123456789") == n - 6;
}

/* The node that has this number, "M:m", of those that the daemon would open. */
static bool node_by_number(const char *number, char node[32])
{
	unsigned major_number, minor_number;
	ProtobufCMessage *message = NULL;
	const Vsd__DeviceListReply *list;
	bool found = false;
	dev_t rdev;

	if (sscanf(number, "%u:%u", &major_number, &minor_number) != 2)
		return false;
	rdev = makedev(major_number, minor_number);
	if (native_call(VSD__OP__OP_DEVICE_LIST, NULL, &vsd__device_list_reply__descriptor, &message, NULL) < 0)
		return false;
	list = (const Vsd__DeviceListReply *)message;
	for (size_t i = 0; i < list->n_devices && !found; i++) {
		const Vsd__Device *device = list->devices[i];

		found = !device->soft && device->rdev == rdev && device->node && is_node(device->node);
		if (found)
			snprintf(node, 32, "%s", device->node);
	}
	if (!found && list->has_rdma_cm && list->rdma_cm == rdev) {
		snprintf(node, 32, "rdma_cm");
		found = true;
	}
	protobuf_c_message_free_unpacked(message, NULL);
	return found;
}

const char *native_node(const char *path, int error, char node[32])
{
	static const char numbers[] = "/dev/char/";
	int saved = errno;

	if (error != EACCES && error != EPERM && error != ENOENT && error != ENXIO)
		return NULL;
	if (strncmp(path, FOLDER, sizeof(FOLDER) - 1) == 0 && is_node(path + sizeof(FOLDER) - 1)) {
		snprintf(node, 32, "%s", path + sizeof(FOLDER) - 1);
		return node;
	}
	if (strncmp(path, numbers, sizeof(numbers) - 1) == 0 && isdigit((unsigned char)path[sizeof(numbers) - 1]) &&
		node_by_number(path + sizeof(numbers) - 1, node)) {
		errno = saved;
		return node;
	}
	errno = saved;
	return NULL;
}

bool native_granted(const char *node, dev_t *rdev)
{
	ProtobufCMessage *message = NULL;
	const Vsd__DeviceListReply *list;
	bool found = false;
	int saved = errno;

	if (native_call(VSD__OP__OP_DEVICE_LIST, NULL, &vsd__device_list_reply__descriptor, &message, NULL) == 0) {
		list = (const Vsd__DeviceListReply *)message;
		if (strcmp(node, "rdma_cm") == 0 && list->has_rdma_cm) {
			*rdev = list->rdma_cm;
			found = true;
		}
		for (size_t i = 0; i < list->n_devices && !found; i++) {
			const Vsd__Device *device = list->devices[i];

			found = !device->soft && device->node && strcmp(device->node, node) == 0;
			if (found)
				*rdev = device->rdev;
		}
	}
	protobuf_c_message_free_unpacked(message, NULL);
	errno = saved;
	return found;
}

static void close_at_daemon(uint32_t id)
{
	Vsd__NativeCloseRequest request = VSD__NATIVE_CLOSE_REQUEST__INIT;

	request.native = id;
	(void)native_call(VSD__OP__OP_NATIVE_CLOSE, &request.base, NULL, NULL, NULL);
}

/* --- what is open ---------------------------------------------------------------------------------------------------- */

static struct opened *take(int fd)
{
	pthread_mutex_lock(&lock);

	struct opened **p = &opened;

	while (*p && (*p)->fd != fd)
		p = &(*p)->next;

	struct opened *found = *p;

	if (found)
		*p = found->next;
	pthread_mutex_unlock(&lock);
	return found;
}

static void let_go(struct opened *file)
{
	if (file && file->session == native_session())
		close_at_daemon(file->id);
	free(file);
}

/* Without memory for this the daemon's dup stays until the process ends. */
static void note(const struct opened *what)
{
	struct opened *file = malloc(sizeof(*file));

	/* A program that closed that number itself is given it again. */
	let_go(take(what->fd));
	if (!file)
		return;
	*file = *what;
	file->session = native_session();
	process_hooks_add(&hooks);
	pthread_mutex_lock(&lock);
	file->next = opened;
	opened = file;
	pthread_mutex_unlock(&lock);
}

void native_note_domain(int fd, uint32_t id, uint32_t driver)
{
	const struct opened file = { .fd = fd, .id = id, .driver = driver, .domain = true };

	note(&file);
}

bool native_file(int fd, struct native_file *file)
{
	Vsd__NativeWaitRequest request = VSD__NATIVE_WAIT_REQUEST__INIT;
	bool found = false, shown = false;

	pthread_mutex_lock(&lock);
	for (const struct opened *at = opened; at && !found; at = at->next) {
		found = at->fd == fd && at->session == native_session();
		if (found)
			*file = (struct native_file){ .id = at->id, .driver = at->driver, .domain = at->domain };
		shown = found && at->shown;
	}
	pthread_mutex_unlock(&lock);
	request.native = found ? file->id : 0;
	return found && (!shown || native_call(VSD__OP__OP_NATIVE_WAIT, &request.base, NULL, NULL, NULL) == 0);
}

void native_closed(int fd)
{
	int saved = errno;

	let_go(take(fd));
	errno = saved;
}

/* --- opening --------------------------------------------------------------------------------------------------------- */

/* Asks the daemon. 0, @reply and @fds, or a negative errno. */
static int ask(const char *node, bool rdwr, Vsd__NativeReply **reply, struct fdlist *fds)
{
	Vsd__NativeOpenRequest request = VSD__NATIVE_OPEN_REQUEST__INIT;
	ProtobufCMessage *message = NULL;
	int r;

	request.node = (char *)(uintptr_t)node;
	request.rdwr = rdwr;
	for (unsigned i = 0;; i++) {
		r = native_call(VSD__OP__OP_NATIVE_OPEN, &request.base, &vsd__native_reply__descriptor, &message, fds);
		if (r != -EAGAIN || i == TRIES)
			break;
		(void)poll(NULL, 0, PAUSE_MS);
	}
	*reply = (Vsd__NativeReply *)message;
	if (r == 0 && fds->n != (size_t)((*reply)->mode == VSD__NATIVE_MODE__NATIVE_PATH ? 2 : 1))
		r = -EPROTO;
	if (r < 0 && message) {
		close_at_daemon((*reply)->native);
		protobuf_c_message_free_unpacked(message, NULL);
		*reply = NULL;
	}
	return r;
}

/* Opens the node that was made for us, and shows the daemon what came of it. The fd or a negative errno. */
static int open_own(const struct fdlist *fds, int flags)
{
	struct fdlist shown = FDLIST_NULL;
	char path[32];
	int fd, r;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds->fds[0]);
	fd = open(path, flags & (O_ACCMODE | O_CLOEXEC | O_NONBLOCK));
	if (fd < 0)
		return -errno;
	r = fdlist_dup(&shown, fd);
	if (r == 0)
		r = sock_send(fds->fds[1], "", 1, &shown, true);
	fdlist_deinit(&shown);
	if (r == 0)
		return fd;
	close(fd);
	return r;
}

static int by_path(const char *node, int flags, const Vsd__NativeReply *reply, const struct fdlist *fds)
{
	int fd = open_own(fds, flags);

	if (fd >= 0) {
		/* Of rdma_cm the daemon keeps nothing. */
		if (reply->driver)
			note(&(struct opened){ .fd = fd, .id = reply->native, .driver = reply->driver, .shown = true });
		return fd;
	}
	control_debug("%s: its private node: %s", node, strerror(-fd));
	close_at_daemon(reply->native);
	return fd;
}

static int by_file(int flags, const Vsd__NativeReply *reply, struct fdlist *fds)
{
	int fd = fdlist_steal(fds, 0);
	struct stat st;

	if (fstat(fd, &st) == 0)
		doorbell_note(st.st_rdev, reply->driver);
	if (!(flags & O_CLOEXEC))
		(void)fcntl(fd, F_SETFD, 0);
	if (flags & O_NONBLOCK)
		(void)fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
	note(&(struct opened){ .fd = fd, .id = reply->native, .driver = reply->driver });
	return fd;
}

static int open_in(const char *node, int flags, bool rdwr)
{
	struct fdlist fds = FDLIST_NULL;
	Vsd__NativeReply *reply = NULL;
	int r = ask(node, rdwr, &reply, &fds);
	bool path = reply && reply->mode == VSD__NATIVE_MODE__NATIVE_PATH;

	if (r == 0 && reply)
		r = path ? by_path(node, flags, reply, &fds) : by_file(flags, reply, &fds);
	fdlist_deinit(&fds);
	if (reply)
		protobuf_c_message_free_unpacked(&reply->base, NULL);
	/* A device cgroup, or no /proc. */
	if (r < 0 && path && !rdwr && strcmp(node, "rdma_cm") != 0)
		return open_in(node, flags, true);
	return r;
}

int native_open(const char *node, int flags, int error)
{
	int fd;

	if ((flags & O_ACCMODE) != O_RDWR || flags & O_PATH) {
		errno = error;
		return -1;
	}
	fd = open_in(node, flags, false);
	if (fd >= 0)
		return fd;
	control_debug("%s: not by the daemon: %s", node, strerror(-fd));
	if (fd == -ENOTCONN)
		control_tell("%s: %s, and no daemon at %s", node, strerror(error), control_path());
	/* The kernel's own answer says more than ours, unless it was the daemon that had the last word. */
	errno = fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM ? -fd : error;
	return -1;
}

bool native_denied(const char *node)
{
	char path[64];
	dev_t rdev;
	int saved = errno;

	/* Who is not of this kind (a driver that works without the kernel) is none of our business. */
	if (!is_node(node))
		return false;
	snprintf(path, sizeof(path), FOLDER "%s", node);

	/* Not by the real uid: it is the effective one that opens. The interposed call asks the daemon, too. */
	bool may = faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) == 0 || native_granted(node, &rdev);

	errno = saved;
	return !may;
}
