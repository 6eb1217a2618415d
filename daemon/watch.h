/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sessions that watch: they are told of what comes and goes as it happens.
 */
#ifndef DAEMON_WATCH_H
#define DAEMON_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct object;
struct region;
struct server;
struct session;

/* From now on @session gets EV_CHANGE: of its own domain, on the admin socket of all. */
void watch_start(struct session *session);
void watch_stop(struct session *session);
void watch_object(const struct object *object, bool added);
void watch_region(const struct region *region, bool added);
/* A real device's or port's event. */
void watch_device(struct server *server, const char *device, uint32_t port, const char *event, bool good);
/* Of real devices that came and went since the last time. */
void watch_devices(struct server *server);
void watch_session(const struct session *session, bool added);

#endif
