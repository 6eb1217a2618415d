/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What has a QP number: QPs, XRC receive QPs (which no process has for itself), XRC SRQs. One space for all devices.
 */
#ifndef DAEMON_NUMBERS_H
#define DAEMON_NUMBERS_H

#include <stdint.h>

#define NUMBER_RANGES     (1u << 16)
#define NUMBER_RANGE_SIZE 256u

enum number_kind {
	NUMBER_QP = 1,
	NUMBER_TARGET,
	NUMBER_SRQ,
};

/* In what has the number. */
struct number {
	enum number_kind kind;
	uint32_t value;
};

struct number_range {
	uint32_t count;
	struct number *numbers[NUMBER_RANGE_SIZE];
};

struct numbers {
	struct number_range **ranges;
};

int numbers_init(struct numbers *numbers);
void numbers_deinit(struct numbers *numbers);
/* NULL: nothing of that kind has it. */
struct number *numbers_get(const struct numbers *numbers, uint32_t value, enum number_kind kind);
/* The number is free: its lease says so. 0 or -ENOMEM. */
int numbers_add(struct numbers *numbers, struct number *number);
void numbers_remove(struct numbers *numbers, const struct number *number);

#endif
