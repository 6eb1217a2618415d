/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions of libc are the normal way, although a namespace would show more: processes in user namespaces of their own
 * may not copy from and to each other's memory (nor may UCX or Open MPI), set-user-ID programs lose their meaning there,
 * and what a privileged program mounts in a namespace of its own nobody else sees.
 */
#include "client/ctl/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/conn.h"
#include "client/ctl/ctl.h"
#include "client/ctl/installed.h"
#include "client/ctl/namespace.h"
#include "client/ctl/preload.h"
#include "client/ctl/tree.h"

#define PATHS_ENV "VERBSD_PATHS"
#define SHIM	  "libverbsd-paths.so"

static const char *const names[] = {
	[PATHS_AUTO] = "auto",
	[PATHS_INTERPOSE] = "interpose",
	[PATHS_NAMESPACE] = "namespace",
	[PATHS_NONE] = "none",
};

int paths_parse(const char *name, enum paths *paths)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(names[i], name) == 0) {
			*paths = (enum paths)i;
			return 0;
		}
	return -EINVAL;
}

/* NULL: no daemon, or one that does not answer. The program will hear of it when it asks for devices. */
static Vsd__DeviceListReply *devices_get(const char *socket)
{
	ProtobufCMessage *reply = NULL;
	struct conn *conn;

	if (conn_open(socket, &conn) < 0)
		return NULL;
	if (conn_call(conn, VSD__OP__OP_DEVICE_LIST, NULL, &vsd__device_list_reply__descriptor, &reply) < 0)
		reply = NULL;
	conn_close(conn);
	return (Vsd__DeviceListReply *)reply;
}

static int folder_make(const Vsd__DeviceListReply *devices, const char *path)
{
	int fd, r;

	if (mkdir(path, 0755) < 0)
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	r = tree_make(devices, fd);
	close(fd);
	return r;
}

static int interpose(const Vsd__DeviceListReply *devices, const char *folder)
{
	char *shim = installed_find(NULL, VERBSD_LIBDIR "/verbsd", SHIM);
	char path[PATH_MAX] = "";
	int r;

	if (!shim) {
		ctl_say("run: verbsd/%s was not found", SHIM);
		return CTL_CANNOT_RUN;
	}
	if (folder) {
		snprintf(path, sizeof(path), "%s", folder);
		r = folder_make(devices, path);
	} else {
		r = tree_cached(devices, path, sizeof(path));
	}
	if (r < 0) {
		ctl_say("run: no files for %s and %s%s%s: %s", TREE_DEV, TREE_SYS, *path ? " in " : "", path, strerror(-r));
		r = CTL_CANNOT_RUN;
	} else {
		r = preload_add(shim);
	}
	if (r == 0)
		setenv(PATHS_ENV, path, 1);
	free(shim);
	return r;
}

static int enter(const Vsd__DeviceListReply *devices)
{
	const char *what = "";
	int r = namespace_enter(devices, &what);

	if (r == 0)
		return 0;
	ctl_say("run: no namespace of its own: %s: %s", what, strerror(-r));
	return CTL_CANNOT_RUN;
}

int paths_set(enum paths paths, const char *socket, const char *folder)
{
	/* Whatever our own caller was given is for other devices. */
	unsetenv(PATHS_ENV);
	if (paths == PATHS_NONE)
		return 0;

	Vsd__DeviceListReply *devices = devices_get(socket);
	mode_t mask = umask(022);
	int r = 0;

	if (devices && tree_devices(devices))
		r = paths == PATHS_NAMESPACE ? enter(devices) : interpose(devices, folder);
	umask(mask);
	if (devices)
		conn_reply_free(devices);
	return paths == PATHS_AUTO ? 0 : r;
}
