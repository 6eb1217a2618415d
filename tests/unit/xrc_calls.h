/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls about XRC, and what comes of them: handles, or a negative errno. */
#ifndef TESTS_UNIT_XRC_CALLS_H
#define TESTS_UNIT_XRC_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/unit/daemon_fixture.h"

/* Inode 0: without one. */
int64_t call_xrcd_open(struct client *client, uint64_t inode, bool create, bool exclusive);
int64_t call_srq_create(struct client *client, uint32_t xrcd, uint32_t number);
int64_t call_send_create(struct client *client, uint32_t qpn);

/* A receive QP: made, with its number; opened; modified, with one attribute. */
uint32_t call_target_create(struct client *client, uint32_t xrcd, uint32_t *qpn);
int64_t call_target_open(struct client *client, uint32_t xrcd, uint32_t qpn);
int call_target_set(struct client *client, uint32_t handle, unsigned state, uint32_t mask, uint32_t value);
/* Its state, or -1; the attributes that were set. */
int call_target_state(struct client *client, uint32_t handle, uint32_t *mask);
void target_is(struct client *client, uint32_t handle, int state);

int call_xrc_connect(struct client *client, uint32_t qp, uint32_t srqn);
int call_wire_release(struct client *client, const Vsd__EvWire *wire);
/* @event 0: it failed, and nobody is told why. */
int call_xrc_report(struct client *client, const Vsd__EvWire *wire, uint32_t event);

#endif
