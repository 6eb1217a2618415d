/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: connecting is the one thing that anybody may do as often as he likes. Guarantees: a few accepts per turn of the
 * loop; who it is comes from the kernel; the daemon keeps fds in reserve, and says so when it must refuse.
 */
#include "daemon/accept.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/cleanup.h"
#include "daemon/fd.h"
#include "daemon/inlet.h"
#include "daemon/log.h"
#include "daemon/peer.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "proto/sock.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define ACCEPT_BUDGET 8
#define BACKLOG       1024
#define PAUSE_MS      100

static void set_accepting(struct server *server, bool on)
{
	for (unsigned i = 0; i < server->n_listeners; i++)
		watch_set(&server->listeners[i].watch, on ? LOOP_READ : 0);
}

static void resume(void *data)
{
	set_accepting(data, true);
}

int accept_init(struct server *server)
{
	return timer_init(&server->accept_pause, server->loop, resume, server);
}

static int get_pidfd(int fd, pid_t pid)
{
	socklen_t n = sizeof(int);
	int pidfd = -1;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &n) == 0)
		return fd_admit(pidfd);
	/* Before Linux 6.5. The pid may have been used again: then its socket is closed, and the session ends at once. */
	return fd_admit((int)syscall(SYS_pidfd_open, pid, 0));
}

/* The inode of its pid namespace; 0 when that cannot be seen. */
static uint64_t get_pidns(pid_t pid)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	return stat(path, &st) == 0 ? st.st_ino : 0;
}

static bool may_connect(const struct server *server, int fd, const struct ucred *ucred)
{
	CLEANUP_FREE gid_t *groups = NULL;
	unsigned n;

	if (server->private_daemon && (ucred->uid == geteuid() || ucred->uid == 0))
		return true;
	if (server->private_daemon && !server->config->connect_users.set &&
		!server->config->connect_groups.set)
		return false;
	groups = peer_groups(fd, ucred->gid, &n);
	return config_admits(server->config, ucred->uid, groups ? groups : &ucred->gid, groups ? n : 1);
}

static int refused(struct server *server, int error, const struct ucred *ucred, const char *why)
{
	static struct log_limit limit;
	unsigned dropped = 0;

	server->refused++;
	if (log_limit_take(&limit, loop_now(), &dropped))
		log_line(LOG_LEVEL_WARNING, MSG_CLIENT_REFUSED,
			"refused pid %d, uid %u: %s (and %u before)", ucred ? (int)ucred->pid : 0,
			ucred ? ucred->uid : 0, why, dropped);
	return error;
}

static int check(
	struct server *server, const struct listener *listener, int fd, const struct ucred *ucred)
{
	if (server->n_sessions >= server->config->max_connections)
		return refused(server, -EAGAIN, ucred, "too many connections");
	/* The admin socket has its own permissions. */
	if (listener->admin)
		return 0;
	if (!server->private_daemon && ucred->pid == 0)
		return refused(server, -EACCES, ucred, "its pid is not visible here");
	if (!server->private_daemon &&
		(ucred->uid == (uid_t)-1 || (server->foreign_uids && ucred->uid == 65534)))
		return refused(server, -EACCES, ucred, "its uid is not mapped here");
	if (!may_connect(server, fd, ucred))
		return refused(server, -EACCES, ucred, "[connect] does not admit it");
	return 0;
}

static int adopt(struct server *server, struct listener *listener, int *fd, struct session **session)
{
	struct ucred ucred;
	socklen_t n = sizeof(ucred);
	struct peer_cred cred;
	int pidfd, r;

	if (getsockopt(*fd, SOL_SOCKET, SO_PEERCRED, &ucred, &n) < 0)
		return -errno;
	r = check(server, listener, *fd, &ucred);
	if (r < 0)
		return r;
	pidfd = get_pidfd(*fd, ucred.pid);
	if (pidfd == -ENFILE)
		return refused(server, pidfd, &ucred, "out of fds");
	cred = (struct peer_cred){
		.pid = ucred.pid,
		.uid = ucred.uid,
		.gid = ucred.gid,
		.pidns = get_pidns(ucred.pid),
	};
	refuse_clear();
	r = session_new(server, listener, fd_steal(fd), pidfd, &cred, session);
	if (r < 0)
		return refused(
			server, r, &ucred, refuse_is_quota() ? refuse_reason() : strerror(-r));
	if (server->idle)
		server->idle(server);
	return 0;
}

int server_adopt(
	struct server *server, struct listener *listener, int fd, struct session **session)
{
	int r = adopt(server, listener, &fd, session);

	inlet_close(server->worker, fd);
	return r;
}

static void pause_accepting(struct server *server, const char *why)
{
	static struct log_limit limit;
	unsigned dropped = 0;

	if (log_limit_take(&limit, loop_now(), &dropped))
		log_line(LOG_LEVEL_ERROR, MSG_FDS_SHORT, "accept: %s; waiting", why);
	set_accepting(server, false);
	timer_set(&server->accept_pause, PAUSE_MS);
}

static void incoming(void *data, unsigned ready)
{
	struct listener *listener = data;
	struct server *server = listener->server;
	struct session *session;

	(void)ready;
	for (unsigned i = 0; i < ACCEPT_BUDGET; i++) {
		/* cppcheck-suppress nullPointer ; nobody asks for the address */
		int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
				      errno == ENOBUFS)) {
			pause_accepting(server, strerror(errno));
			return;
		}
		if (fd < 0 && (errno == ECONNABORTED || errno == EINTR))
			continue;
		if (fd < 0)
			return;
		if (fd_fits(fd)) {
			(void)server_adopt(server, listener, fd, &session);
			continue;
		}
		inlet_close(server->worker, fd);
		refused(server, -ENFILE, NULL, "out of fds");
	}
}

/* For STATUS: where clients find us. */
static void note_path(struct server *server, int fd)
{
	struct sockaddr_un address;
	socklen_t n = sizeof(address);

	if (!server->socket_path[0] && getsockname(fd, (struct sockaddr *)&address, &n) == 0 &&
		n > offsetof(struct sockaddr_un, sun_path))
		snprintf(server->socket_path, sizeof(server->socket_path), "%.*s",
			(int)(n - offsetof(struct sockaddr_un, sun_path)), address.sun_path);
}

int server_listen(struct server *server, int fd, bool admin)
{
	struct listener *listener = &server->listeners[server->n_listeners];
	int r;

	if (server->n_listeners == LISTENERS_MAX) {
		close(fd);
		return -ENOSPC;
	}
	*listener = (struct listener){
		.server = server, .fd = fd, .admin = admin, .watch = WATCH_NULL
	};
	/* Sessions inherit it: what a client sends before it is accepted must not bring fds either. */
	inlet_protect(fd);
	/* It may have been made by somebody else. */
	r = fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0 ? -errno : 0;
	if (r == 0)
		r = watch_init(&listener->watch, server->loop, fd, incoming, listener);
	if (r == 0)
		r = watch_set(&listener->watch, LOOP_READ);
	if (r < 0) {
		watch_deinit(&listener->watch);
		close(fd);
		return r;
	}
	server->n_listeners++;
	if (!admin)
		note_path(server, fd);
	return 0;
}

int server_listen_at(struct server *server, const char *path, unsigned mode, bool admin)
{
	int fd = sock_listen(path, mode, BACKLOG), r = fd;

	if (fd >= 0)
		r = server_listen(server, fd, admin);
	if (r < 0)
		log_error("%s: %s", path, strerror(-r));
	else
		server->listeners[server->n_listeners - 1].path = strdup(path);
	return r;
}

void server_unlisten(struct server *server)
{
	for (unsigned i = 0; i < server->n_listeners; i++) {
		watch_deinit(&server->listeners[i].watch);
		cleanup_close(&server->listeners[i].fd);
		if (server->listeners[i].path)
			unlink(server->listeners[i].path);
		free(server->listeners[i].path);
	}
	server->n_listeners = 0;
}
