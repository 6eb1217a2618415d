/* SPDX-License-Identifier: BSD-2-Clause */
/* Other processes, by what the daemon gives of them. */
#ifndef SOFT_PIDFD_H
#define SOFT_PIDFD_H

#include <sys/types.h>

/*
 * The pid in this process's /proc: from there, never from a message. 0: not visible, or gone. A negative errno: for want of fds or
 * memory nobody knows.
 */
pid_t pidfd_pid(int pidfd);
/*
 * The same for the kernel's calls, of a process in this one's pid namespace. 0 as well when /proc is that of a namespace above, as
 * `unshare -p` leaves it: what it says is another process's number here, or nobody's.
 */
pid_t pidfd_pid_here(int pidfd);

#endif
