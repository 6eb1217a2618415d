/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: a client may say anything, nothing, or vanish between two bytes. Guarantees: its next request is read only when
 * its last answer is in its socket, and that only when the events that the request caused are in its event socket; a
 * client that reads nothing costs one answer and 64 events; death is seen at the pidfd or the socket, whichever is
 * first, and frees everything.
 */
#include "daemon/session.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/cleanup.h"
#include "daemon/context.h"
#include "daemon/dispatch.h"
#include "daemon/inlet.h"
#include "daemon/later.h"
#include "daemon/log.h"
#include "daemon/native.h"
#include "daemon/native_region.h"
#include "daemon/process.h"
#include "daemon/region.h"
#include "daemon/server.h"
#include "daemon/watch.h"
#include "daemon/worker.h"
#include "proto/limits.h"
#include "proto/sock.h"

/* Requests of one client in one turn of the loop. */
#define READ_BUDGET 16
/* Socket and pidfd. */
#define SESSION_FDS 2

static void update(struct session *session)
{
	bool told = !session->process || process_is_told(session->process);
	unsigned mask = 0;

	if (session->state == SESSION_LOST)
		return;
	if (list_empty(&session->out))
		mask = session->later ? 0 : LOOP_READ;
	else if (told && list_empty(&session->link_stuck))
		mask = LOOP_WRITE;
	if (watch_set(&session->socket, mask) < 0)
		session_lost(session, GONE_DEAD);
}

/* What its fds are of may be gone but for them, and be large. */
static struct outgoing *outgoing_free(struct worker *worker, struct outgoing *out)
{
	list_remove(&out->link);
	worker_close_list(worker, &out->fds);
	charge_release(&out->charge);
	free(out);
	return NULL;
}

static bool is_held(const struct session *session)
{
	return !list_empty(&session->out) ||
	       (session->process && !process_is_told(session->process));
}

static void queue(
	struct session *session, const void *frame, size_t length, struct fdlist *fds, bool event)
{
	struct outgoing *out;

	if (event && session->events_waiting >= VSD_EVENTS_UNREAD_MAX) {
		session_log(session, LOG_LEVEL_WARNING, MSG_CLIENT_MISBEHAVED,
			"leaves %u events unread", session->events_waiting);
		session_lost(session, GONE_DEAD);
		return;
	}
	out = malloc(sizeof(*out) + length);
	if (!out) {
		session_lost(session, GONE_DEAD);
		return;
	}
	list_init(&out->link);
	out->charge = (struct charge)CHARGE_NULL;
	if (event && charge_take(&out->charge, &session->domain->account, SLOT_EVENTS, 1) < 0) {
		free(out);
		session_lost(session, GONE_DEAD);
		return;
	}
	out->fds = fds ? *fds : (struct fdlist)FDLIST_NULL;
	if (fds)
		*fds = (struct fdlist)FDLIST_NULL;
	out->event = event;
	out->length = length;
	memcpy(out->bytes, frame, length);
	session->events_waiting += event;
	list_append(&session->out, &out->link);
}

/* 0: sent; 1: must wait; the session may be lost. */
static int try_send(
	struct session *session, const void *frame, size_t length, const struct fdlist *fds)
{
	int r = sock_send(session->fd, frame, length, fds, false);

	switch (r) {
	case 0:
	case -EAGAIN:
		return r != 0;
	case -ETOOMANYREFS:
	case -ENOBUFS:
	case -ENOMEM:
		list_remove(&session->link_stuck);
		list_append(&session->server->stuck, &session->link_stuck);
		server_unstick(session->server);
		return 1;
	default:
		session_lost(session, GONE_DEAD);
		return 0;
	}
}

void session_send(
	struct session *session, const void *frame, size_t length, struct fdlist *fds, bool event)
{
	if (session->state == SESSION_LOST)
		return;
	if (is_held(session) || try_send(session, frame, length, fds) != 0)
		queue(session, frame, length, fds, event);
	if (fds)
		fdlist_deinit(fds);
	update(session);
}

void session_flush(struct session *session)
{
	if (session->process && !process_is_told(session->process))
		return;
	list_remove(&session->link_stuck);
	while (session->state != SESSION_LOST && !list_empty(&session->out)) {
		struct outgoing *out = container_of(session->out.next, struct outgoing, link);

		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it has left the list */
		if (try_send(session, out->bytes, out->length, &out->fds) != 0)
			break;
		session->events_waiting -= out->event;
		outgoing_free(session->server->worker, out);
	}
	update(session);
}

void session_told(struct session *session)
{
	if (!list_empty(&session->out))
		session_flush(session);
}

/* False when there is no more to read now. */
static bool read_one(struct session *session)
{
	uint8_t request[VSD_REQUEST_MAX];
	size_t length = 0;
	int r = inlet_recv(session->fd, request, sizeof(request), &length);

	if (r == -EAGAIN || r == -EINTR)
		return false;
	if (r == 0 && length > 0)
		r = dispatch(session, request, length);
	else if (r == -EPROTO || r == -EMSGSIZE)
		r = dispatch_refuse(session, r == -EPROTO ? "frame with fds" : "frame too long");
	else
		r = -ECONNRESET;
	if (r < 0)
		session_lost(session, GONE_DEAD);
	else
		loop_served(session->server->loop);
	return r == 0;
}

static void socket_ready(void *data, unsigned ready)
{
	struct session *session = data;
	uint64_t start = loop_now();

	if (ready & LOOP_WRITE)
		session_flush(session);
	for (unsigned i = 0; i < READ_BUDGET; i++) {
		if (!(ready & LOOP_READ) || session->state == SESSION_LOST ||
			session->later || !list_empty(&session->out))
			break;
		/* Requests that take long, such as listings, are one a turn. */
		if (!read_one(session) || loop_now() - start > 1)
			break;
	}
	update(session);
}

static void died(void *data, unsigned ready)
{
	(void)ready;
	session_lost(data, GONE_DEAD);
}

static int set_up(struct session *session, const struct peer_cred *cred)
{
	struct server *server = session->server;
	struct domain_key key = {
		.listener = session->listener,
		.uid = cred->uid,
		.pidns = cred->pidns,
		.alone = cred->pidns ? 0 : session->id,
	};
	int r;

	r = domain_get(&server->domains, server->config, &key, &session->domain);
	if (r == 0)
		r = charge_take(&session->charge, &session->domain->account, SLOT_SESSIONS, 1);
	if (r == 0)
		r = charge_take(
			&session->fds_charge, &session->domain->account, SLOT_FDS, SESSION_FDS);
	if (r == 0)
		r = watch_init(&session->socket, server->loop, session->fd, socket_ready, session);
	if (r == 0)
		r = watch_set(&session->socket, LOOP_READ);
	if (r == 0 && session->pidfd >= 0) {
		r = watch_init(&session->death, server->loop, session->pidfd, died, session);
		if (r == 0)
			r = watch_set(&session->death, LOOP_READ);
	}
	return r;
}

static void tear_down(struct session *session)
{
	watch_deinit(&session->socket);
	watch_deinit(&session->death);
	inlet_close(session->server->worker, session->fd);
	cleanup_close(&session->pidfd);
	charge_release(&session->charge);
	charge_release(&session->fds_charge);
	domain_unref(session->domain);
	handle_table_deinit(&session->attachments);
	handle_table_deinit(&session->native_regions);
	free(session);
}

int session_new(struct server *server, struct listener *listener, int fd, int pidfd,
	const struct peer_cred *cred, struct session **session)
{
	struct session *made = calloc(1, sizeof(*made));
	int r;

	if (!made) {
		inlet_close(server->worker, fd);
		cleanup_close(&pidfd);
		return -ENOMEM;
	}
	*made = (struct session){
		.server = server,
		.listener = listener,
		.id = ++server->last_session,
		.fd = fd,
		.pidfd = pidfd,
		.pid = cred->pid,
		.uid = cred->uid,
		.gid = cred->gid,
		.state = SESSION_NEW,
		.admin = listener->admin,
		.socket = WATCH_NULL,
		.death = WATCH_NULL,
		.since = loop_now(),
	};
	handle_table_init(&made->attachments, 1u << 16);
	list_init(&made->link);
	list_init(&made->attached);
	list_init(&made->out);
	list_init(&made->link_watch);
	list_init(&made->link_stuck);
	list_init(&made->natives);
	handle_table_init(&made->native_regions, UINT32_MAX);
	list_init(&made->own_regions);
	list_init(&made->heaps);
	r = set_up(made, cred);
	if (r < 0) {
		tear_down(made);
		return r;
	}
	list_append(&server->sessions, &made->link);
	server->n_sessions++;
	*session = made;
	return 0;
}

void session_lost(struct session *session, enum gone_reason reason)
{
	struct server *server = session->server;

	if (session->state == SESSION_LOST)
		return;
	watch_session(session, false);
	session->state = SESSION_LOST;
	session->reason = reason;
	watch_deinit(&session->socket);
	watch_deinit(&session->death);
	watch_stop(session);
	list_remove(&session->link_stuck);
	if (session->later)
		later_orphan(session->later);
	shutdown(session->fd, SHUT_RDWR);
	list_remove(&session->link);
	list_append(&server->lost, &session->link);
	server->n_sessions--;
	server_reap(server);
}

void session_free(struct session *session)
{
	assert(session->state == SESSION_LOST);
	session->process = process_free(session->process, session->reason);
	while (!list_empty(&session->attached))
		attachment_close(
			container_of(session->attached.next, struct attachment, link_session));
	while (!list_empty(&session->natives))
		native_close(container_of(session->natives.next, struct native, link));
	native_regions_drop(session);
	heaps_give(session);
	session->queue = job_queue_end(session->server->jobs, session->queue, false);
	while (!list_empty(&session->out))
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it has left the list */
		outgoing_free(session->server->worker,
			container_of(session->out.next, struct outgoing, link));
	list_remove(&session->link);
	tear_down(session);
}

struct job_queue *session_queue(struct session *session)
{
	if (!session->queue)
		session->queue = job_queue_new(session->uid);
	return session->queue;
}

void session_log(struct session *session, int level, const char *id, const char *format, ...)
{
	char text[512];
	unsigned dropped = 0;
	va_list args;

	if (!log_limit_take(session->domain->log_limit, loop_now(), &dropped))
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (dropped)
		log_line(LOG_LEVEL_WARNING, MSG_LINES_DROPPED, "uid %u: %u lines were not written",
			session->uid, dropped);
	log_line((enum log_level)level, id, "client %llu (pid %d, uid %u): %s",
		(unsigned long long)session->id, (int)session->pid, session->uid, text);
}
