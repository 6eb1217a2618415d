/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a dead client left on a real device. The kernel frees it when the last file is closed; but a child of the client's may
 * have that file open still, and live for ever. So it is destroyed, object by object.
 */
#ifndef DAEMON_REMAINS_H
#define DAEMON_REMAINS_H

#include <stdint.h>

struct native;
struct session;

/*
 * @session is lost, and had @device open: if its process is dead, or the administrator has disconnected it, what it had there is
 * destroyed. Takes over what @native is charged for,
 * and leaves its file to the caller.
 */
void remains_leave(struct session *session, struct native *native);
/* For a thread. How many objects could not be destroyed: those that a living process is just using, or that it makes. */
unsigned remains_destroy(int fd, uint32_t driver);

#endif
