/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of settings: where each stands, what it may be, what it is by default.
 */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H

struct config;

void options_default(struct config *config);

#endif
