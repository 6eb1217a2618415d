/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One client: its socket, who it is, what it attached to, what it must still be sent. It dies in two steps:
 * session_lost() from anywhere, then freed from the loop when no caller has a pointer to it.
 */
#ifndef DAEMON_SESSION_H
#define DAEMON_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/account.h"
#include "daemon/domain.h"
#include "daemon/handle.h"
#include "daemon/list.h"
#include "daemon/list_walk.h"
#include "daemon/loop.h"
#include "daemon/notice.h"
#include "proto/fdlist.h"

struct job_queue;
struct later;
struct listener;
struct process;
struct server;

enum session_state {
	SESSION_NEW = 1,    /* has said nothing yet */
	SESSION_READY = 2,  /* said HELLO */
	SESSION_JOINED = 4, /* its process joined */
	SESSION_LOST = 8,   /* will be freed */
};

/* A frame that waits for room in the socket. */
struct outgoing {
	struct list link;
	struct fdlist fds;
	struct charge charge; /* of an event */
	bool event;
	size_t length;
	uint8_t bytes[];
};

struct peer_cred {
	pid_t pid;
	uid_t uid;
	gid_t gid;
	uint64_t pidns; /* 0: not known */
};

/* Where the listing stands that this session reads page by page. */
struct listing {
	uint32_t page; /* the next one; 0: none is open */
	unsigned type;
	bool all;
	struct cursor at;
};

struct session {
	struct list link;
	struct server *server;
	struct listener *listener;
	uint64_t id;
	int fd, pidfd;
	pid_t pid;
	uid_t uid;
	gid_t gid;
	struct domain *domain;
	enum session_state state;
	enum gone_reason reason; /* of its loss */
	bool admin;
	struct watch socket, death;
	struct handle_table attachments;
	struct list attached;
	struct process *process;
	struct list out;
	unsigned events_waiting;            /* in @out */
	struct list link_watch, link_stuck; /* in the server's lists, when it is there */
	struct later *later;     /* the request whose answer is being made; NULL: none */
	struct job_queue *queue; /* what is done for it in threads */
	struct listing listing;
	struct list natives; /* struct native */
	uint32_t last_native;
	struct handle_table native_regions; /* struct native_region, of which */
	struct list own_regions;	    /* these are on no native */
	struct list heaps; /* regions that are its process's heap */
	struct charge charge, fds_charge;
	uint64_t since; /* loop_now() at connect */
};

/* @fd and @pidfd are taken over, also on failure. */
int session_new(struct server *server, struct listener *listener, int fd, int pidfd,
	const struct peer_cred *cred, struct session **session);
/* Ends it; the peers of its process are told @reason. */
void session_lost(struct session *session, enum gone_reason reason);
void session_free(struct session *session);

/* Sends a frame, or queues it; @fds (may be NULL) is emptied. */
void session_send(
	struct session *session, const void *frame, size_t length, struct fdlist *fds, bool event);
/* Sends what is queued, and reads on when nothing is left. */
void session_flush(struct session *session);
/* Its process has all its notices: an answer that waited for that can go. */
void session_told(struct session *session);

/* Of what is done for it in threads; NULL: no memory. */
struct job_queue *session_queue(struct session *session);

/* One line about this client, limited per domain. */
void session_log(struct session *session, int level, const char *id, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#endif
