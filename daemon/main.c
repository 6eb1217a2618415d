/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbsd: options, inherited sockets, configuration, server, run.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/accept.h"
#include "daemon/arguments.h"
#include "daemon/config.h"
#include "daemon/fd.h"
#include "daemon/gate.h"
#include "daemon/job.h"
#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/notify.h"
#include "daemon/server.h"
#include "daemon/worker.h"
#include "proto/limits.h"

/* What lives as long as the daemon. */
struct daemon {
	struct arguments arguments;
	struct loop *loop;
	struct server *server;
	struct worker *worker;
	struct jobs *jobs;
	struct timer watchdog, status;
	struct loop_signal term, intr, hup, chld;
};

static int read_config(
	const struct arguments *arguments, struct config **config, char *error, unsigned size)
{
	int r = config_read(arguments_config(arguments), !arguments->config, config, error, size);

	if (r == 0 && arguments->log_level >= 0)
		(*config)->log_level = (enum log_level)arguments->log_level;
	return r;
}

static int reload(struct server *server, char *error, unsigned size)
{
	struct daemon *daemon = server->reload_data;
	struct config *config;
	int r;

	notify_reloading();
	r = read_config(&daemon->arguments, &config, error, size);
	if (r == 0)
		r = server_configure(server, config, error, size);
	if (r < 0)
		log_line(LOG_LEVEL_ERROR, MSG_CONFIG_REFUSED,
			"reload refused, the old configuration holds: %s", error);
	else
		log_line(LOG_LEVEL_INFO, MSG_CONFIG_APPLIED, "configuration applied");
	notify_ready(r < 0 ? "the last reload was refused" : "running");
	return r;
}

/* Once a second is often enough, whatever the clients do. */
static void on_status(void *data)
{
	struct daemon *daemon = data;
	char text[64];

	snprintf(text, sizeof(text), "%u clients", daemon->server->n_sessions);
	notify_status(text);
}

static void idle(struct server *server)
{
	struct daemon *daemon = server->reload_data;

	if (!timer_pending(&daemon->status))
		timer_set(&daemon->status, 1000);
}

static void on_hup(void *data)
{
	struct daemon *daemon = data;
	char error[512];

	(void)reload(daemon->server, error, sizeof(error));
}

/* A gate is over. */
static void on_chld(void *data)
{
	(void)data;
	(void)gate_hung();
}

static void on_term(void *data)
{
	struct daemon *daemon = data;

	notify_stopping();
	loop_quit(daemon->loop);
}

static void on_watchdog(void *data)
{
	struct daemon *daemon = data;

	notify_watchdog();
	timer_set(&daemon->watchdog, notify_watchdog_period());
}

static int passed(void *data, int fd, bool admin)
{
	return server_listen(data, fd, admin);
}

static int listen_all(struct daemon *daemon)
{
	const struct arguments *arguments = &daemon->arguments;
	struct server *server = daemon->server;
	bool open_to_others =
		server->config->connect_users.set || server->config->connect_groups.set;
	int r = 0;

	server->private_daemon = arguments->socket != NULL;
	if (arguments->socket) {
		r = server_listen_at(
			server, arguments->socket, open_to_others ? 0666 : 0600, false);
	} else {
		r = notify_listen_fds(passed, server);
		if (r == 0)
			r = server_listen_at(server, VSD_SOCKET_PATH, 0666, false);
	}
	if (r >= 0 && arguments->admin_socket)
		r = server_listen_at(server, arguments->admin_socket, 0600, true);
	return r < 0 ? r : 0;
}

static int start(struct daemon *daemon, struct config *config)
{
	struct server *server;
	int r;

	r = loop_new(&daemon->loop);
	if (r < 0) {
		config_free(config);
		return r;
	}
	r = server_new(daemon->loop, config, &backend_soft, &daemon->server);
	if (r < 0)
		return r;
	server = daemon->server;
	server->reload = reload;
	server->reload_data = daemon;
	server->idle = idle;
	snprintf(server->config_path, sizeof(server->config_path), "%s",
		arguments_config(&daemon->arguments));
	r = server_real(server);
	if (r == 0)
		r = listen_all(daemon);
	if (r == 0)
		r = worker_new(&daemon->worker);
	if (r == 0)
		r = jobs_new(daemon->loop, daemon->worker, &daemon->jobs);
	if (r == 0)
		r = loop_signal_init(&daemon->term, daemon->loop, SIGTERM, on_term, daemon);
	if (r == 0)
		r = loop_signal_init(&daemon->intr, daemon->loop, SIGINT, on_term, daemon);
	if (r == 0)
		r = loop_signal_init(&daemon->hup, daemon->loop, SIGHUP, on_hup, daemon);
	if (r == 0)
		r = loop_signal_init(&daemon->chld, daemon->loop, SIGCHLD, on_chld, daemon);
	if (r == 0)
		r = timer_init(&daemon->watchdog, daemon->loop, on_watchdog, daemon);
	if (r == 0)
		r = timer_init(&daemon->status, daemon->loop, on_status, daemon);
	server->worker = daemon->worker;
	server->jobs = daemon->jobs;
	/* A private daemon has no business with the host's devices but to pass them on. */
	if (r == 0 && !server->private_daemon)
		server_observe(server);
	return r;
}

static void stop(struct daemon *daemon)
{
	if (daemon->server)
		server_end(daemon->server);
	worker_free(daemon->worker);
	jobs_free(daemon->jobs);
	if (daemon->server) {
		daemon->server->worker = NULL;
		daemon->server->jobs = NULL;
		server_free(daemon->server);
	}
	timer_deinit(&daemon->watchdog);
	timer_deinit(&daemon->status);
	loop_signal_deinit(&daemon->term);
	loop_signal_deinit(&daemon->intr);
	loop_signal_deinit(&daemon->hup);
	loop_signal_deinit(&daemon->chld);
	loop_free(daemon->loop);
}

static void ready(struct daemon *daemon)
{
	int fd = daemon->arguments.ready_fd;

	if (fd >= 0 && (write(fd, "ready\n", 6) != 6 || close(fd) < 0))
		log_warning("--ready-fd %d: %m", fd);
	if (notify_watchdog_period())
		timer_set(&daemon->watchdog, 0);
	if (!daemon->arguments.socket && geteuid() == 0)
		log_warning("running as root: memory that is handed out read-only is not safe "
			    "from clients that are root");
	log_line(LOG_LEVEL_INFO, MSG_READY, "version " PACKAGE_VERSION " at %s, %u devices",
		daemon->server->socket_path, daemon->server->config->n_devices);
	notify_ready("running");
}

int main(int argc, char **argv)
{
	struct daemon daemon = {
		.arguments = { .ready_fd = -1, .log_level = -1 },
		.watchdog = TIMER_NULL,
		.status = TIMER_NULL,
	};
	struct config *config;
	char error[512];
	int r;

	if (argc > 1 && strcmp(argv[1], "--gate") == 0)
		return gate_main(argc - 2, argv + 2);
	r = arguments_parse(argc, argv, &daemon.arguments);

	if (r >= 0)
		return r;
	umask(0077);
	signal(SIGPIPE, SIG_IGN);
	if (notify_has_journal())
		log_set_sink(notify_journal);
	if (read_config(&daemon.arguments, &config, error, sizeof(error)) < 0) {
		log_line(LOG_LEVEL_ERROR, MSG_CONFIG_REFUSED, "%s", error);
		return 1;
	}
	if (daemon.arguments.check_config) {
		config_free(config);
		return 0;
	}
	log_set_level(config->log_level);
	fd_limit_init();
	r = start(&daemon, config);
	if (r == 0) {
		ready(&daemon);
		r = loop_run(daemon.loop);
	} else {
		log_error("cannot start: %s", strerror(-r));
	}
	stop(&daemon);
	return r == 0 ? 0 : 1;
}
