/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: everything that a process must be told about its wires goes through one queue that costs no memory. Guarantees:
 * notices arrive in order; a process that reads nothing holds up nobody else and pins only a few fds of ours.
 */
#include "daemon/process.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/cleanup.h"
#include "daemon/dispatch.h"
#include "daemon/event.h"
#include "daemon/fd.h"
#include "daemon/inlet.h"
#include "daemon/pair.h"
#include "daemon/refuse.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/worker.h"
#include "proto/fdlist.h"
#include "proto/ring_abi.h"
#include "proto/sock.h"

/* Unread notices with fds in one event socket: what is in flight counts against the limit of our uid. */
#define FDS_UNREAD_MAX 8
/* Doubled each time, so that many who read nothing cost little. */
#define RETRY_MS 5
/* Event socket, page, kick pipe. */
#define PROCESS_FDS  3
#define RETRY_MAX_MS 640
/* Requests of one client on its event socket in one turn of the loop. */
#define READ_BUDGET 16

#define LOOPS_MAX (1u << 20)

static int make_page(struct fdlist *fds, int *page)
{
	CLEANUP_CLOSE int memfd = memfd_new("verbsd-process", VSD_PAGE_SIZE);
	CLEANUP_CLOSE int ro = -1;
	int r;

	if (memfd < 0)
		return memfd;
	ro = fd_reopen(memfd, O_RDONLY);
	if (ro < 0)
		return ro;
	r = fdlist_consume(fds, fd_steal(&memfd));
	if (r == 0)
		*page = fd_steal(&ro);
	return r;
}

static int make_kick(struct fdlist *fds, int *kick)
{
	CLEANUP_CLOSE int write_end = -1;
	int read_end, r;

	r = pipe_new(&read_end, &write_end);
	if (r < 0)
		return r;
	/* One page is plenty, and pipes have a budget per user. */
	(void)fcntl(write_end, F_SETPIPE_SZ, 4096);
	r = fdlist_consume(fds, read_end);
	if (r == 0)
		*kick = fd_steal(&write_end);
	return r;
}

static int make_events(struct fdlist *fds, int *events)
{
	CLEANUP_CLOSE int ours = -1;
	CLEANUP_CLOSE int theirs = -1;
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	ours = fd_admit(pair[0]);
	theirs = fd_admit(pair[1]);
	if (ours < 0 || theirs < 0)
		return -ENFILE;
	inlet_protect(ours);
	r = fdlist_consume(fds, fd_steal(&theirs));
	if (r == 0)
		*events = fd_steal(&ours);
	return r;
}

/* The next request is read when all that the last one led to is in the socket. */
static void update(struct process *process)
{
	bool idle = list_empty(&process->notices) && process->answer_length == 0;
	unsigned mask = process->blocked ? LOOP_WRITE : idle && !process->deaf ? LOOP_READ : 0;

	if (watch_set(&process->watch, process->broken ? 0 : mask) < 0 && !process->broken) {
		process->broken = true;
		session_lost(process->session, GONE_DEAD);
	}
}

/* False when there is no more to read now. */
static bool read_one(struct process *process)
{
	uint8_t request[VSD_REQUEST_MAX];
	size_t length = 0;
	int r = inlet_recv(process->events, request, sizeof(request), &length);

	if (r == -EAGAIN)
		return false;
	if (r == 0 && length > 0) {
		r = dispatch_on_events(process->session, request, length);
	} else if (r == -EPROTO || r == -EMSGSIZE) {
		r = dispatch_refuse(
			process->session, r == -EPROTO ? "frame with fds on the event socket"
						       : "frame too long on the event socket");
	} else {
		/* The end, or a reset for events left unread. Whether it is dead is for its pidfd to say. */
		process->deaf = true;
		return false;
	}
	if (r < 0)
		session_lost(process->session, GONE_DEAD);
	return r == 0;
}

static void ready(void *data, unsigned what)
{
	struct process *process = data;

	if (what & LOOP_WRITE) {
		process->blocked = false;
		process_flush(process);
	}
	for (unsigned i = 0; i < READ_BUDGET && what & LOOP_READ; i++) {
		if (process->session->state == SESSION_LOST || process->broken ||
			process->blocked || process->answer_length ||
			!list_empty(&process->notices) || !read_one(process))
			break;
	}
	update(process);
}

static void retry(void *data)
{
	process_flush(data);
}

static int set_up(struct process *process, struct fdlist *fds)
{
	struct server *server = process->server;
	int r;

	r = charge_take(
		&process->charge, &process->domain->account, SLOT_SHARED_BYTES, VSD_PAGE_SIZE);
	if (r == 0)
		r = charge_take(
			&process->fds_charge, &process->domain->account, SLOT_FDS, PROCESS_FDS);
	if (r == 0)
		r = make_events(fds, &process->events);
	if (r == 0)
		r = make_page(fds, &process->page);
	if (r == 0)
		r = make_kick(fds, &process->kick);
	if (r == 0)
		r = fdlist_dup(fds, server->map.fd);
	if (r == 0)
		r = watch_init(&process->watch, server->loop, process->events, ready, process);
	if (r == 0)
		r = watch_set(&process->watch, LOOP_READ);
	if (r == 0)
		r = timer_init(&process->retry, server->loop, retry, process);
	if (r == 0)
		r = handle_insert(&server->processes, HANDLE_PROCESS, process, &process->id);
	return r;
}

static void tear_down(struct process *process)
{
	struct server *server = process->server;

	watch_deinit(&process->watch);
	timer_deinit(&process->retry);
	inlet_close(server->worker, process->events);
	worker_close_list(server->worker, &process->answer_fds);
	cleanup_close(&process->kick);
	worker_close(server->worker, process->page);
	handle_table_deinit(&process->loops);
	free(process->places);
	charge_release(&process->charge);
	charge_release(&process->fds_charge);
	domain_unref(process->domain);
	free(process);
}

int process_new(struct session *session, struct fdlist *fds, struct process **process)
{
	struct process *made = calloc(1, sizeof(*made));
	int r;

	if (!made)
		return -ENOMEM;
	*made = (struct process){
		.server = session->server,
		.session = session,
		.domain = domain_ref(session->domain),
		.pid = session->pid,
		.events = -1,
		.page = -1,
		.kick = -1,
		.watch = WATCH_NULL,
		.retry = TIMER_NULL,
		.answer_fds = FDLIST_NULL,
	};
	list_init(&made->notices);
	list_init(&made->pairs);
	handle_table_init(&made->loops, LOOPS_MAX);
	r = set_up(made, fds);
	if (r < 0) {
		tear_down(made);
		return r;
	}
	*process = made;
	return 0;
}

struct process *process_free(struct process *process, enum gone_reason reason)
{
	if (!process)
		return NULL;
	process->broken = true;
	pairs_break(process, reason);
	/* Of its QPs, which go with its attachments. */
	while (!list_empty(&process->notices))
		notice_drop(container_of(process->notices.next, struct notice, link));
	handle_remove(&process->server->processes, process->id, HANDLE_PROCESS);
	tear_down(process);
	return NULL;
}

void process_silence(struct server *server)
{
	struct process *process;
	uint32_t id = 0, type;

	for (; (process = handle_next(&server->processes, &id, &type)); id++)
		process->broken = true;
}

struct process *process_get(const struct server *server, uint32_t id)
{
	return handle_get(&server->processes, id, HANDLE_PROCESS);
}

void process_notify(struct process *process, struct notice *notice, enum notice_kind kind,
	enum gone_reason reason)
{
	notice_drop(notice);
	notice->kind = kind;
	notice->reason = reason;
	list_append(&process->notices, &notice->link);
}

/* Whether one more notice with fds may be put into the socket. */
static bool may_send_fds(struct process *process)
{
	int unread = 0;

	if (process->fds_unread < FDS_UNREAD_MAX)
		return true;
	if (ioctl(process->events, SIOCOUTQ, &unread) < 0 || unread > 0)
		return false;
	process->fds_unread = 0;
	return true;
}

static void fail(struct process *process, int error)
{
	switch (error) {
	case -EAGAIN:
		process->blocked = true;
		return;
	case -EPIPE:
	case -ECONNRESET:
	case -ENOTCONN:
	case -EBADMSG:
		process->broken = true;
		session_lost(process->session, GONE_DEAD);
		return;
	default:
		/* Out of fds or memory, ours or in flight: this passes. */
		process->retry_ms = process->retry_ms ? process->retry_ms * 2 : RETRY_MS;
		if (process->retry_ms > RETRY_MAX_MS)
			process->retry_ms = RETRY_MAX_MS;
		timer_set(&process->retry, process->retry_ms);
	}
}

static void answer_drop(struct process *process)
{
	process->answer_length = 0;
	/* The region that it is of may be gone meanwhile, but for this. */
	worker_close_list(process->server->worker, &process->answer_fds);
}

/* Whether notices and answer are all in the socket. */
static bool flush(struct process *process)
{
	while (!list_empty(&process->notices)) {
		struct notice *notice = container_of(process->notices.next, struct notice, link);
		bool has_fds = notice->kind == NOTICE_SEGMENT;
		int r;

		r = has_fds && !may_send_fds(process) ? -ENFILE : event_send(process, notice);
		if (r < 0) {
			fail(process, r);
			return false;
		}
		process->fds_unread += has_fds;
		process->retry_ms = 0;
		pair_noticed(process, notice);
	}
	if (process->answer_length) {
		bool has_fds = process->answer_fds.n > 0;
		int r = has_fds && !may_send_fds(process)
				? -ENFILE
				: sock_send(process->events, process->answer,
					  process->answer_length, &process->answer_fds, false);

		if (r < 0) {
			fail(process, r);
			return false;
		}
		process->fds_unread += has_fds;
		process->retry_ms = 0;
		answer_drop(process);
	}
	return true;
}

void process_flush(struct process *process)
{
	if (process->blocked || process->broken)
		return;

	bool told = flush(process);

	update(process);
	if (told)
		session_told(process->session);
}

void process_answer(
	struct process *process, const void *frame, size_t length, struct fdlist *fds)
{
	assert(length <= sizeof(process->answer) && process->answer_length == 0);
	memcpy(process->answer, frame, length);
	process->answer_length = length;
	process->answer_fds = *fds;
	*fds = (struct fdlist)FDLIST_NULL;
	process_flush(process);
}
