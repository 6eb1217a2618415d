/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client process that joined: its event socket, its page, its kick pipe, and the pairs of processes that it is one
 * of. It belongs to one session and ends with it.
 */
#ifndef DAEMON_PROCESS_H
#define DAEMON_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/account.h"
#include "daemon/domain.h"
#include "daemon/handle.h"
#include "daemon/list.h"
#include "daemon/loop.h"
#include "daemon/notice.h"
#include "proto/fdlist.h"

struct mr;
struct server;
struct session;

/* An answer to what may be asked on the event socket. */
#define PROCESS_ANSWER_MAX 256

#define HANDLE_PROCESS 1 /* type in the server's table of processes */

struct process {
	uint32_t id;
	struct server *server;
	struct session *session;
	struct domain *domain;
	pid_t pid;
	int events;                         /* our end of the event socket */
	int page;                           /* read-only */
	int kick;                           /* write end */
	struct watch watch;                 /* of @events */
	bool blocked;                       /* it was full */
	bool deaf;                          /* nothing more comes from there */
	uint8_t answer[PROCESS_ANSWER_MAX]; /* on @events, behind the notices; */
	size_t answer_length;               /* 0: there is none */
	struct fdlist answer_fds;
	struct timer retry; /* when a notice could not be sent for another reason */
	unsigned retry_ms;
	struct list notices;
	unsigned fds_unread;       /* notices with fds since the socket was last seen empty */
	struct list pairs;         /* struct pair_side */
	unsigned strangers;        /* pairs that processes of other domains made alone */
	struct mr **places;        /* of its page: who has each; NULL: nobody */
	uint32_t n_places;         /* that anybody ever had */
	uint64_t places_seen;      /* changes of them that were looked at */
	struct handle_table loops; /* wires inside this process */
	uint32_t loop_generation;
	struct charge charge, fds_charge;
	bool broken; /* its event socket is */
};

/* Makes the process of @session; @fds gets the four fds of JOIN's answer. */
int process_new(struct session *session, struct fdlist *fds, struct process **process);
/* Ends it: its peers are told with @reason. */
struct process *process_free(struct process *process, enum gone_reason reason);

void process_notify(struct process *process, struct notice *notice, enum notice_kind kind,
	enum gone_reason reason);
/* Sends what can be sent. */
void process_flush(struct process *process);
/* Answers a request that came on its event socket; @fds is emptied. */
void process_answer(
	struct process *process, const void *frame, size_t length, struct fdlist *fds);
/* Whether everything it must know is in its event socket. */
static inline bool process_is_told(const struct process *process)
{
	return list_empty(&process->notices) || process->broken;
}

/* From now on no process is told anything: the daemon ends, and its clients go on without it. */
void process_silence(struct server *server);

/* The process with this id; NULL: none. */
struct process *process_get(const struct server *server, uint32_t id);

#endif
