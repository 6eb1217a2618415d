/* SPDX-License-Identifier: BSD-2-Clause */
/* What engines did, by the library's own counters. */
#ifndef RANDOM_BY_ITSELF_H
#define RANDOM_BY_ITSELF_H

#include "tests/random/model.h"

/* For a worker, once it has opened its device. */
void by_itself_look(struct by_itself *now);
/* For the coordinator: adds what the workers of a run with that engine said last. */
void by_itself_count(const char *engine, const struct model *m);
/* Prints the sums. False: an engine ran nothing that had to, or something that it may not. @base: the programs are of the base. */
bool by_itself_print(bool base);

#endif
