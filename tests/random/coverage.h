/* SPDX-License-Identifier: BSD-2-Clause */
/* What the programs of a run have reached. */
#ifndef RANDOM_COVERAGE_H
#define RANDOM_COVERAGE_H

#include "tests/random/program.h"

void coverage_operation(enum op_kind kind);
/* A completion of a send; enum ibv_qp_type, ibv_wr_opcode, ibv_wc_status. */
void coverage_send(int type, int opcode, int status);
void coverage_receive(int status);
/* enum ibv_event_type, or -1: a completion event. */
void coverage_event(int event);
/* What a WR that succeeded worked on. */
enum touched { TOUCHED_DM, TOUCHED_PAGED, TOUCHED_ALL_MEMORY, TOUCHED_GROUP, TOUCHED_TAG, TOUCHED_NO_TAG };
void coverage_touched(enum touched what, bool remote);
/* Prints all of it. False: something of these kinds was never reached. */
bool coverage_print(unsigned kinds);

#endif
