/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TESTS_E2E_STATUSES_H
#define TESTS_E2E_STATUSES_H

#include "duo.h"

/* Tests in two files. */
extern const struct kit_test statuses_remote[];

#endif
