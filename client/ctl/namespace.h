/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A mount namespace of this process's own, in which /dev/infiniband and /sys/class/infiniband show the soft devices.
 */
#ifndef CLIENT_CTL_NAMESPACE_H
#define CLIENT_CTL_NAMESPACE_H

#include "proto/verbsd.pb-c.h"

/*
 * Enters one, with a user namespace in which this user and group are what they were when there is no privilege to do
 * without. It is tried in a child first, so that nothing has changed when it fails: a negative errno, and in *@what what
 * it was that could not be done.
 */
int namespace_enter(const Vsd__DeviceListReply *devices, const char **what);

#endif
