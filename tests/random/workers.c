/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The worker processes, and the commands on their way to them: one message at a time, so that neither side can block the
 * other. Workers work on their messages at the same time.
 */
#include "tests/random/model.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Without a copy of the coordinator, which is large: what it writes to next would have to be copied as well. */
static int worker_spawn(pid_t *pid, int sock, const char *engine, unsigned jitter)
{
	char number[16], image[16], pauses[16];
	const char *argv[] = { "random", "--jitter", pauses, "--image", image, "--worker", number, NULL };
	posix_spawn_file_actions_t actions;
	int err;

	snprintf(number, sizeof(number), "%d", sock);
	snprintf(image, sizeof(image), "%d", memory_image());
	snprintf(pauses, sizeof(pauses), "%u", jitter);
	if (engine)
		setenv("VERBSD_ENGINE", engine, 1);
	err = posix_spawn_file_actions_init(&actions);
	if (err)
		return err;
	/* Onto itself: it stays open. */
	err = posix_spawn_file_actions_adddup2(&actions, sock, sock);
	if (!err)
		err = posix_spawn_file_actions_adddup2(&actions, memory_image(), memory_image());
	if (!err)
		err = posix_spawn(pid, "/proc/self/exe", &actions, NULL, (char *const *)(uintptr_t)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	return err;
}

static bool worker_start(struct model *m, unsigned i, const char *engine)
{
	struct m_worker *w = &m->worker[i];
	int pair[2], err;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return wrong(m, "setup", "socketpair: %s", strerror(errno));
	err = worker_spawn(&w->pid, pair[1], engine, m->jitter ? m->jitter + i : 0);
	close(pair[1]);
	w->sock = pair[0];
	if (err)
		w->pid = 0;
	return !err || wrong(m, "setup", "posix_spawn: %s", strerror(err));
}

static bool died(struct model *m, unsigned i)
{
	struct m_worker *w = &m->worker[i];
	int status = 0;

	if (w->pid > 0 && waitpid(w->pid, &status, 0) == w->pid)
		w->pid = -1;
	return wrong(m, "died", "worker %u ended with wait status 0x%x", i, (unsigned)status);
}

static bool readable(struct model *m, unsigned i)
{
	struct pollfd fd = { .fd = m->worker[i].sock, .events = POLLIN };
	int n;

	do {
		n = poll(&fd, 1, (int)m->limit_ms);
	} while (n < 0 && errno == EINTR);
	if (n == 0)
		return wrong(m, "hang", "worker %u does not return from a verb", i);
	return true;
}

bool workers_start(struct model *m, const char *engine)
{
	for (unsigned i = 0; i < m->workers; i++) {
		if (!worker_start(m, i, engine))
			return false;
	}
	for (unsigned i = 0; i < m->workers; i++) {
		struct m_worker *w = &m->worker[i];

		if (!readable(m, i))
			return false;
		if (recv(w->sock, &w->hello, sizeof(w->hello), 0) != (ssize_t)sizeof(w->hello))
			return died(m, i);
		w->memory.base = w->hello.arena;
	}
	return true;
}

void workers_stop(struct model *m)
{
	for (unsigned i = 0; i < m->workers; i++) {
		if (m->worker[i].sock >= 0)
			close(m->worker[i].sock);
		/* One that does not return from a verb would never see the end of its socket. */
		if (m->failed && m->worker[i].pid > 0)
			kill(m->worker[i].pid, SIGKILL);
	}
	for (unsigned i = 0; i < m->workers; i++) {
		int status = 0;

		if (m->worker[i].pid > 0 && waitpid(m->worker[i].pid, &status, 0) == m->worker[i].pid && status &&
			!m->failed)
			wrong(m, "died", "worker %u ended with wait status 0x%x", i, (unsigned)status);
		m->worker[i].pid = -1;
	}
}

/* --- answers --- */

static bool reply_receive(struct model *m, unsigned i)
{
	struct m_worker *w = &m->worker[i];
	struct reply *reply = &w->reply;
	static uint8_t buffer[sizeof(struct reply)];
	const uint8_t *at = buffer + offsetof(struct reply, results);

	if (!readable(m, i))
		return false;
	if (recv(w->sock, buffer, sizeof(buffer), 0) <= 0)
		return died(m, i);
	memcpy(reply, buffer, offsetof(struct reply, results));
	memcpy(reply->results, at, reply->n_results * sizeof(reply->results[0]));
	at += reply->n_results * sizeof(reply->results[0]);
	memcpy(reply->wcs, at, reply->n_wcs * sizeof(reply->wcs[0]));
	at += reply->n_wcs * sizeof(reply->wcs[0]);
	memcpy(reply->events, at, reply->n_events * sizeof(reply->events[0]));
	at += reply->n_events * sizeof(reply->events[0]);
	memcpy(reply->states, at, reply->n_states * sizeof(reply->states[0]));
	return true;
}

/* What is done at once has no order between posts and polls. */
static void threads_begin(struct model *m, unsigned worker)
{
	for (struct m_flow *flow = m->flows; flow; flow = flow->next)
		flow->freed_before = flow->freed;
	for (unsigned i = 0; i < m->tops[OP_QP]; i++) {
		if (m->qps[i].worker == worker)
			m->qps[i].rq.reads = 0;
	}
	for (unsigned i = 0; i < m->tops[OP_SRQ]; i++) {
		if (m->srqs[i].worker == worker)
			m->srqs[i].queue.reads = 0;
	}
}

/* In the order in which the worker did them: what was read before a post made room for it. */
static void reply_process(struct model *m, unsigned worker, unsigned n)
{
	struct m_worker *w = &m->worker[worker];
	uint32_t wc = 0;

	threads_begin(m, worker);

	for (unsigned i = 0; i < n;) {
		switch (w->cmds[i].kind) {
		case CMD_SEND:
			i += posted_sends(m, w, i, n);
			break;
		case CMD_RECV:
			i += posted_recvs(m, w, i, n);
			break;
		default:
			for (; wc < w->reply.n_wcs && w->reply.wcs[wc].cmd == i; wc++)
				ingest_wc(m, &w->reply.wcs[wc]);
			i++;
		}
	}
	ingest_reply(m, worker, &w->reply);
}

static bool worker_wait(struct model *m, unsigned i)
{
	struct m_worker *w = &m->worker[i];
	unsigned n = w->n_sent;

	if (!n)
		return true;
	w->n_sent = 0;
	if (!reply_receive(m, i))
		return false;
	reply_process(m, i, n);
	/* Commands that were added meanwhile move to the front. */
	memmove(w->cmds, w->cmds + n, (w->n_cmds - n) * sizeof(w->cmds[0]));
	memmove(w->wrs, w->wrs + n, (w->n_cmds - n) * sizeof(w->wrs[0]));
	memmove(w->recvs, w->recvs + n, (w->n_cmds - n) * sizeof(w->recvs[0]));
	w->n_cmds -= n;
	return !m->failed;
}

static bool worker_flush(struct model *m, unsigned i)
{
	struct m_worker *w = &m->worker[i];

	if (!worker_wait(m, i))
		return false;
	if (!w->n_cmds)
		return true;
	if (send(w->sock, w->cmds, w->n_cmds * sizeof(w->cmds[0]), MSG_NOSIGNAL) < 0)
		return died(m, i);
	w->n_sent = w->n_cmds;
	return true;
}

struct cmd *cmd_add(struct model *m, unsigned worker, enum cmd_kind kind, uint32_t id)
{
	struct m_worker *w = &m->worker[worker];

	if (w->n_cmds == LINK_CMDS) {
		worker_flush(m, worker);
		if (w->n_cmds == LINK_CMDS)
			worker_wait(m, worker);
		if (w->n_cmds == LINK_CMDS) /* it died */
			w->n_cmds = w->n_sent = 0;
	}
	struct cmd *cmd = &w->cmds[w->n_cmds];

	w->wrs[w->n_cmds] = NULL;
	w->recvs[w->n_cmds++] = NULL;
	memset(cmd, 0, sizeof(*cmd));
	cmd->kind = (uint16_t)kind;
	cmd->id = id;
	return cmd;
}

void cmd_is_send(struct model *m, unsigned worker, struct m_wr *wr)
{
	m->worker[worker].wrs[m->worker[worker].n_cmds - 1] = wr;
}

void cmd_is_recv(struct model *m, unsigned worker, struct m_recv *recv)
{
	m->worker[worker].recvs[m->worker[worker].n_cmds - 1] = recv;
}

const struct result *worker_do(struct model *m, unsigned worker)
{
	struct m_worker *w = &m->worker[worker];

	if (!worker_flush(m, worker) || !worker_wait(m, worker))
		return NULL;
	return &w->reply.results[w->reply.n_results - 1];
}

bool workers_sync(struct model *m)
{
	for (unsigned i = 0; i < m->workers; i++) {
		if (!worker_flush(m, i))
			return false;
	}
	for (unsigned i = 0; i < m->workers; i++) {
		if (!worker_wait(m, i))
			return false;
	}
	return ingest_completions(m);
}
