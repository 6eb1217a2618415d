/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Real devices as messages.
 */
#ifndef DAEMON_ENCODE_REAL_H
#define DAEMON_ENCODE_REAL_H

#include "daemon/dispatch.h"

/* Adds those that the caller may have; @reply has room for REAL_DEVICES_MAX more. 0 or -ENOMEM. */
int encode_real(struct call *call, Vsd__DeviceListReply *reply);

#endif
