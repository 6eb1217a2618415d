/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server: all that the daemon has, and its listeners.
 */
#ifndef DAEMON_SERVER_H
#define DAEMON_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/backend.h"
#include "daemon/backend_ibv.h"
#include "daemon/config.h"
#include "daemon/domain.h"
#include "daemon/handle.h"
#include "daemon/lease.h"
#include "daemon/list.h"
#include "daemon/loop.h"
#include "daemon/map_page.h"
#include "daemon/multicast.h"
#include "daemon/qp.h"
#include "daemon/numbers.h"
#include "daemon/region.h"
#include "daemon/scratch.h"

struct jobs;
struct session;
struct worker;

#define LISTENERS_MAX 16

struct listener {
	struct server *server;
	int fd; /* owned */
	bool admin;
	char *path; /* of the file that we made, to be removed; NULL: somebody else's */
	struct watch watch;
};

struct server {
	struct loop *loop;
	struct config *config;
	const struct backend *backend;
	struct worker *worker; /* NULL: everything is done at once */
	struct jobs *jobs;     /* the same */
	struct listener listeners[LISTENERS_MAX];
	unsigned n_listeners;
	struct timer accept_pause;
	bool private_daemon;
	bool foreign_uids; /* the kernel may show us uids that it cannot map */
	char socket_path[108], config_path[256];
	uint64_t started; /* loop_now() */

	struct domains domains;
	struct list devices;
	uint32_t next_device;
	struct list sessions; /* in the order of their ids */
	struct list lost;     /* sessions to be freed */
	struct list dying;    /* attachments to be reaped */
	struct timer reaper;
	struct timer hello_timer; /* ends sessions that never said HELLO */
	uint64_t last_session;
	struct list contexts;

	struct handle_table processes, segments;
	void *pairs;      /* tree of struct pair */
	struct list kept; /* segments whose memfd is open */
	struct timer keeper;
	struct list stuck; /* sessions whose answer could not be sent for want of fds */
	struct timer unstick;
	struct numbers numbers;
	struct lease_pool qpns, keys;
	struct handle_table pd_numbers, xrcd_numbers;
	void *xrc_domains; /* tree of struct xrc_domain */
	uint64_t last_life; /* of an XRC receive QP */
	struct regions regions;
	struct map_page map;
	struct mcast mcast;
	struct list watchers; /* sessions */
	struct real_devices real;
	struct list looks;   /* struct look, what their drivers said, */
	struct list lookers; /* struct waiting, and who waits for it */
	struct list natives; /* struct native */
	bool ending;	     /* the daemon is: its clients go on */
	bool observing;	     /* real devices, by contexts of our own */
	struct list observers;
	struct job_queue *own_queue; /* for what we do ourselves */
	struct real_seen seen[REAL_DEVICES_MAX]; /* that watchers know */
	unsigned n_seen;
	struct list native_domains; /* struct native_domain */
	char nodes[96];	     /* the folder for private nodes */

	unsigned n_sessions, n_contexts, n_objects, n_wires, n_kept;
	uint32_t refused; /* frames and connects */
	uint64_t requests;

	/* One of each for all sessions: what a request needs while it is handled. */
	struct scratch scratch;
	uint8_t answer[65536];

	/* Reads the configuration again; NULL: there is none. */
	int (*reload)(struct server *server, char *error, unsigned size);
	void *reload_data;
	void (*idle)(struct server *server); /* the number of clients changed */
};

/* @config is taken over, also on failure. */
int server_new(struct loop *loop, struct config *config, const struct backend *backend,
	struct server **server);
/* Ends all sessions, and whatever uses threads: worker and jobs may be freed, and set to NULL here. */
void server_end(struct server *server);
/* The same, if that was not done yet. */
struct server *server_free(struct server *server);

/* Finds the host's real devices and follows them from now on. */
int server_real(struct server *server);
/* From now on the kernel tells what becomes of them. */
void server_observe(struct server *server);
/* Replaces the configuration; on failure the old one holds and @config is freed. */
int server_configure(struct server *server, struct config *config, char *error, unsigned size);

struct device *server_device(const struct server *server, const char *name);
struct session *server_session(const struct server *server, uint64_t id);

/* Something is to be freed soon. */
void server_reap(struct server *server);
/* A segment's memfd is kept. */
void server_keep(struct server *server);
void server_unstick(struct server *server);
/* Ends sessions that have said nothing since they connected, for too long. */
void server_end_silent(struct server *server);

#endif
