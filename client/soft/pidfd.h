/* SPDX-License-Identifier: BSD-2-Clause */
/* Other processes, by what the daemon gives of them. */
#ifndef SOFT_PIDFD_H
#define SOFT_PIDFD_H

#include <sys/types.h>

/* The pid as this process sees it: from its own /proc, never from a message. 0: not visible, or gone.
 * A negative errno: for want of fds or memory nobody knows. */
pid_t pidfd_pid(int pidfd);

#endif
