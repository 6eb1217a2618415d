/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Thread domains.
 */
#ifndef DAEMON_TD_H
#define DAEMON_TD_H

#include "daemon/object.h"

int td_new(struct attachment *attachment, struct object **td);

#endif
