/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program with a daemon of its own, for as long as the program and its children run.
 */
#ifndef CLIENT_CTL_PRIVATE_H
#define CLIENT_CTL_PRIVATE_H

#include "client/ctl/paths.h"

/* The program's exit code (128 + N when signal N ended it), or our own when there is no daemon for it. */
int private_run(char **argv, const char *config, enum paths paths);

#endif
