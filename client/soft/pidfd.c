/* SPDX-License-Identifier: BSD-2-Clause */
/* The number behind a pidfd. */
#include "client/soft/pidfd.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

/* *@below: the process has numbers in namespaces below the one of this /proc. */
static pid_t pid_of(int pidfd, bool *below)
{
	char path[64], line[128];
	int pid = 0, more;

	*below = false;
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);

	FILE *file = fopen(path, "re");

	if (!file)
		return errno == ENOENT || errno == EACCES ? 0 : -errno;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Pid: %d", &pid) != 1 && sscanf(line, "NSpid: %*d %d", &more) == 1)
			*below = true;
	}
	fclose(file);
	return pid > 0 ? pid : 0;
}

pid_t pidfd_pid(int pidfd)
{
	bool below;

	return pid_of(pidfd, &below);
}

pid_t pidfd_pid_here(int pidfd)
{
	bool below;
	pid_t pid = pid_of(pidfd, &below);

	return below && pid > 0 ? 0 : pid;
}
