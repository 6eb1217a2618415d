/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Real devices that this process may not open itself: the daemon opens them for it. The real library and its drivers call
 * open() and stat() as ever; what the kernel refuses them comes here (interpose.c).
 */
#ifndef CLIENT_NATIVE_NATIVE_H
#define CLIENT_NATIVE_NATIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/control/control.h"

/* --- session.c: a session of its own, so that a program without a soft device needs no more of the library ------------ */

/* As control_call(); -ENOTCONN: there is no daemon. */
int native_call(uint16_t op, const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
	ProtobufCMessage **reply, struct fdlist *fds);
/* Which session that is; another one after the daemon was restarted. */
uint64_t native_session(void);

/* --- node.c ----------------------------------------------------------------------------------------------------------- */

/* What an open() that failed with @error of a path below /dev is in the daemon's terms; NULL: nothing of ours. */
const char *native_node(const char *path, int error, char node[32]);
/* The number of that node, when the daemon would open it. Keeps errno. */
bool native_granted(const char *node, dev_t *rdev);
/* Opens it. The fd, or -1 with errno @error or a better one. */
int native_open(const char *node, int flags, int error);
/* What the daemon knows of a file that it opened for this process. */
struct native_file {
	uint32_t id, driver;
	bool domain; /* that members of its domain have in common */
};
/* @fd is of such a one. */
void native_note_domain(int fd, uint32_t id, uint32_t driver);
/* False: it did not open @fd, or is another daemon now. */
bool native_file(int fd, struct native_file *file);
/* The program closed a real context with this fd: the daemon's dup goes. */
void native_closed(int fd);

/* Whether a real device by that node is nobody's that this process could be: it can neither open it nor ask for it. */
bool native_denied(const char *node);

/* --- doorbell.c ------------------------------------------------------------------------------------------------------- */

/* From now on doorbell_write() is worth a try for devices of that number. */
void doorbell_note(dev_t rdev, uint32_t driver);
extern _Atomic bool doorbell_wanted;
/* Undoes what the daemon registered on @fd, in its place. 0 or a negative errno. */
int native_dereg_mr(int fd, uint32_t driver, uint32_t handle);
/* What a write() that was refused with EACCES asked for, when it was the doorbell of such a device. As write(). */
ssize_t doorbell_write(int fd, const void *bytes, size_t n);

#endif
