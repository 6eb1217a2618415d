/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A private daemon: in a folder that only its user may enter, ready before the program starts, stopped after the last
 * of the program's children, leaving nothing behind. It has no terminal, so that an interrupt from the keyboard ends
 * the program and not the daemon under it; and it goes when verbsctl is killed.
 */
#include "client/ctl/private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "client/ctl/form.h"
#include "client/ctl/installed.h"
#include "client/ctl/reaper.h"
#include "client/ctl/tree.h"

#define DAEMON_ENV    "VERBSD_DAEMON"
#define START_SECONDS 30
#define STOP_SECONDS  10

struct private
{
	char dir[sizeof(((struct sockaddr_un *)0)->sun_path) - sizeof("/verbsd.sock")];
	char socket[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char admin[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char config[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* an empty one */
	char paths[sizeof(((struct sockaddr_un *)0)->sun_path)];  /* what programs find in /dev and /sys */
	pid_t daemon, reaper;
};

/* The system's configuration is none of a private daemon's business. */
static int config_create(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int private_dir_in(struct private *private, const char *parent)
{
	if (!parent || *parent != '/')
		return -ENOENT;

	int r, n = snprintf(private->dir, sizeof(private->dir), "%s/verbsd-XXXXXX", parent);

	if (n >= (int)sizeof(private->dir))
		return -ENAMETOOLONG;
	if (!mkdtemp(private->dir))
		return -errno;
	snprintf(private->socket, sizeof(private->socket), "%s/verbsd.sock", private->dir);
	snprintf(private->admin, sizeof(private->admin), "%s/admin.sock", private->dir);
	snprintf(private->config, sizeof(private->config), "%s/config", private->dir);
	snprintf(private->paths, sizeof(private->paths), "%s/paths", private->dir);
	r = config_create(private->config);
	if (r < 0)
		rmdir(private->dir);
	return r;
}

static int private_dir(struct private *private)
{
	int r = private_dir_in(private, getenv("XDG_RUNTIME_DIR"));

	if (r < 0)
		r = private_dir_in(private, getenv("TMPDIR"));
	return r < 0 ? private_dir_in(private, "/tmp") : r;
}

static void private_dir_remove(const struct private *private)
{
	unlink(private->socket);
	unlink(private->admin);
	unlink(private->config);
	tree_remove(private->paths);
	rmdir(private->dir);
}

static void daemon_child(const struct private *private, const char *path, const char *config,
	int ready, const sigset_t *old)
{
	pid_t parent = getppid();
	char number[16];
	int null = open("/dev/null", O_RDONLY);

	setsid();
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(EXIT_FAILURE);
	sigprocmask(SIG_SETMASK, old, NULL);
	dup2(null, STDIN_FILENO);
	dup2(STDERR_FILENO, STDOUT_FILENO);
	form_unset();
	unsetenv("NOTIFY_SOCKET");
	unsetenv("LISTEN_FDS");
	fcntl(ready, F_SETFD, 0);
	snprintf(number, sizeof(number), "%d", ready);

	const char *argv[] = { path, "--socket", private->socket, "--admin-socket", private->admin,
		"--ready-fd", number, "--log-level", "warning", "--config",
		config ? config : private->config, NULL };

	execv(path, (char *const *)(uintptr_t)argv);
	fprintf(stderr, "verbsctl: run: %s: %s\n", path, strerror(errno));
	_exit(EXIT_FAILURE);
}

/* Waits for the byte that says that the daemon listens. */
static int daemon_ready(int fd)
{
	struct pollfd poller = { .fd = fd, .events = POLLIN };
	char byte;
	int r;

	do
		r = poll(&poller, 1, START_SECONDS * 1000);
	while (r < 0 && errno == EINTR);
	if (r == 0)
		return -ETIMEDOUT;
	return r > 0 && read(fd, &byte, 1) == 1 ? 0 : -ENOTCONN;
}

static int daemon_start(struct private *private, const char *config, const sigset_t *old)
{
	char *path = installed_find(DAEMON_ENV, VERBSD_SBINDIR, "verbsd");
	int ready[2] = { -1, -1 };

	if (!path) {
		ctl_say("run: verbsd was not found (%s names another)", DAEMON_ENV);
		return -ENOENT;
	}
	if (pipe2(ready, O_CLOEXEC) < 0) {
		free(path);
		return -errno;
	}
	private->daemon = fork();
	if (private->daemon == 0)
		daemon_child(private, path, config, ready[1], old);
	close(ready[1]);

	int r = private->daemon < 0 ? -errno : daemon_ready(ready[0]);

	close(ready[0]);
	free(path);
	if (r < 0)
		ctl_say("run: the private daemon did not start%s",
			r == -ETIMEDOUT ? " in time" : "");
	return r;
}

static void daemon_reaped(struct private *private)
{
	if (private->daemon > 0 && waitpid(private->daemon, NULL, WNOHANG) == private->daemon)
	private->daemon = 0;
}

static void daemon_stop(struct private *private)
{
	struct timespec limit = { .tv_sec = STOP_SECONDS };
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	if (private->daemon > 0)
		kill(private->daemon, SIGTERM);
	daemon_reaped(private);
	while (private->daemon > 0 && sigtimedwait(&child, NULL, &limit) > 0)
		daemon_reaped(private);
	if (private->daemon > 0) {
		ctl_say("run: the private daemon does not end and is killed");
		kill(private->daemon, SIGKILL);
		waitpid(private->daemon, NULL, 0);
	}
}

/* Until the program and its children are gone. */
static int program_wait(struct private *private, const sigset_t *set)
{
	int status;

	while (waitpid(private->reaper, &status, WNOHANG) != private->reaper) {
		pid_t daemon = private->daemon;

		daemon_reaped(private);
		if (daemon != private->daemon)
			ctl_say("run: the private daemon ended before the program");
		reaper_signal(set, private->reaper);
	}
	return reaper_code(status);
}

/* The daemon is up: the program's exit code, or our own. */
static int program_run(struct private *private, char **argv, enum paths paths, const sigset_t *set, const sigset_t *old)
{
	int r;

	setenv(VSD_SOCKET_ENV, private->socket, 1);
	setenv(VSD_ADMIN_ENV, private->admin, 1);
	r = paths_set(paths, private->socket, private->paths);
	if (r != 0)
		return r;
	private->reaper = reaper_start(argv, old);
	if (private->reaper > 0)
		return program_wait(private, set);
	ctl_say("run: %s", strerror(-private->reaper));
	return CTL_FAILED;
}

int private_run(char **argv, const char *config, enum paths paths)
{
	struct private private = { 0 };
	sigset_t set, old;
	int code = CTL_FAILED;
	int r = private_dir(&private);

	if (r < 0) {
		ctl_say("run: no folder for a private daemon: %s", strerror(-r));
		return CTL_FAILED;
	}
	reaper_signals(&set);
	sigprocmask(SIG_BLOCK, &set, &old);
	if (daemon_start(&private, config, &old) == 0)
		code = program_run(&private, argv, paths, &set, &old);
	daemon_stop(&private);
	private_dir_remove(&private);
	return code;
}
