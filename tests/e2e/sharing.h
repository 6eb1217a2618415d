/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared regions between processes: what the parts of the program share.
 */
#ifndef TESTS_E2E_SHARING_H
#define TESTS_E2E_SHARING_H

#include "client/verbsd.h"
#include "tests/e2e/ends.h"

#define SIZE ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

/* sharing_kit.c */
extern const struct verbsd_mr_attr usual;
/* Every case has names of its own, and so has every run. */
const char *name_of(const char *what);
struct verbsd_mr_info query(struct ibv_mr *mr);
/* Waits until the daemon knows that a process is gone, or fewer have the region. */
void users_wait(struct ibv_mr *mr, unsigned users);
void gone_wait(struct ibv_pd *pd, const char *name);
/* A new one with that name. */
struct ibv_mr *named(struct ibv_pd *pd, const char *name, unsigned flags);

/* sharing_life.c */
void kept_when_all_are_dead(void);
void gone_when_all_are_dead(void);
void persistence_comes_and_goes(void);
void nothing_is_left_of_a_failure(void);
void eight_gibibytes(void);
void the_end_under_traffic(void);
void quotas(void);

#endif
