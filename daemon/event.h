/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Encoding and sending of the events about segments and wires.
 */
#ifndef DAEMON_EVENT_H
#define DAEMON_EVENT_H

struct notice;
struct process;

/* Sends one notice. 0, or a negative errno of sock_send() or of making the fds. */
int event_send(struct process *process, struct notice *notice);

#endif
