/* SPDX-License-Identifier: BSD-2-Clause */
/* The number behind a pidfd. */
#include "client/soft/pidfd.h"

#include <errno.h>
#include <stdio.h>

pid_t pidfd_pid(int pidfd)
{
	char path[64], line[128];
	int pid = 0;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);

	FILE *file = fopen(path, "re");

	if (!file)
		return errno == ENOENT || errno == EACCES ? 0 : -errno;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Pid: %d", &pid) == 1)
			break;
	fclose(file);
	return pid > 0 ? pid : 0;
}
