/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A daemon for tests of client/control/: a thread that answers HELLO and leaves every other request to the test. One
 * session at a time, on a socket in a folder of its own that VERBSD_SOCKET names.
 */
#ifndef TESTS_UNIT_FAKE_DAEMON_H
#define TESTS_UNIT_FAKE_DAEMON_H

#include <pthread.h>
#include <stdbool.h>

#include "proto/fdlist.h"
#include "proto/frame.h"
#include "proto/verbsd.pb-c.h"

struct fake_daemon {
	/* Answers with fake_reply(); false: hang up. */
	bool (*handle)(struct fake_daemon *fake, int fd, const struct frame_header *header,
		const void *body);
	_Atomic unsigned sessions, requests;
	_Atomic uint64_t features; /* that HELLO grants; none unless set before the first call */
	int listener;
	_Atomic int session;
	pthread_t thread;
	char dir[64], path[96];
};

void fake_start(struct fake_daemon *fake, bool (*handle)(struct fake_daemon *fake, int fd,
						  const struct frame_header *header, const void *body));
void fake_stop(struct fake_daemon *fake);
/* Answers the request of @header. True when it was sent. */
bool fake_reply(int fd, const struct frame_header *header, int status,
	const ProtobufCMessage *message, const struct fdlist *fds);
/* Sends an event. */
bool fake_event(int fd, uint16_t op, const ProtobufCMessage *message);

#endif
