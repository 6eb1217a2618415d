/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/unit/held_spawn.h"

#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "daemon/gate.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned waiting, made;
static bool held;
static pid_t thread, last;

static int hold(pid_t *restrict pid, const char *restrict path, const posix_spawn_file_actions_t *actions,
	const posix_spawnattr_t *restrict attr, char *const argv[restrict], char *const envp[restrict])
{
	int r;

	pthread_mutex_lock(&lock);
	waiting++;
	pthread_cond_broadcast(&changed);
	while (held)
		pthread_cond_wait(&changed, &lock);
	waiting--;
	pthread_mutex_unlock(&lock);
	r = posix_spawn(pid, path, actions, attr, argv, envp);
	pthread_mutex_lock(&lock);
	made += r == 0;
	thread = gettid();
	last = r == 0 ? *pid : -1;
	pthread_mutex_unlock(&lock);
	return r;
}

void held_spawn_use(void)
{
	held = true;
	gate_spawn = hold;
}

void held_spawn_go(void)
{
	pthread_mutex_lock(&lock);
	held = false;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

void held_spawn_wait(unsigned n)
{
	pthread_mutex_lock(&lock);
	while (waiting < n)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

unsigned held_spawn_made(void)
{
	unsigned n;

	pthread_mutex_lock(&lock);
	n = made;
	pthread_mutex_unlock(&lock);
	return n;
}

pid_t held_spawn_thread(void)
{
	pid_t tid;

	pthread_mutex_lock(&lock);
	tid = thread;
	pthread_mutex_unlock(&lock);
	return tid;
}

pid_t held_spawn_pid(void)
{
	pid_t pid;

	pthread_mutex_lock(&lock);
	pid = last;
	pthread_mutex_unlock(&lock);
	return pid;
}
