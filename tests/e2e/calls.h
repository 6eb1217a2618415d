/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TESTS_E2E_CALLS_H
#define TESTS_E2E_CALLS_H

#include "kit.h"

/* calls_extras.c */
void extended_completions(int argc, char **argv);
void extended_completions_of_datagrams(int argc, char **argv);
void overrun_that_is_ignored(int argc, char **argv);
void extras_of_adapters(int argc, char **argv);
void no_negotiation(int argc, char **argv);
void rate_limits(int argc, char **argv);
void reliable_connections_that_share(int argc, char **argv);
void no_tags(int argc, char **argv);

#endif
