/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: whom a QP names is a number that may be anything. Guarantees: a number is in the table once; a number of another
 * kind is as good as none.
 */
#include "daemon/numbers.h"

#include <errno.h>
#include <stdlib.h>

int numbers_init(struct numbers *numbers)
{
	numbers->ranges = calloc(NUMBER_RANGES, sizeof(struct number_range *));
	return numbers->ranges ? 0 : -ENOMEM;
}

void numbers_deinit(struct numbers *numbers)
{
	free(numbers->ranges);
	numbers->ranges = NULL;
}

struct number *numbers_get(const struct numbers *numbers, uint32_t value, enum number_kind kind)
{
	struct number_range *range = value < NUMBER_RANGES * NUMBER_RANGE_SIZE
					     ? numbers->ranges[value / NUMBER_RANGE_SIZE]
					     : NULL;
	struct number *number = range ? range->numbers[value % NUMBER_RANGE_SIZE] : NULL;

	return number && number->kind == kind ? number : NULL;
}

int numbers_add(struct numbers *numbers, struct number *number)
{
	struct number_range **range = &numbers->ranges[number->value / NUMBER_RANGE_SIZE];

	if (!*range)
		*range = calloc(1, sizeof(**range));
	if (!*range)
		return -ENOMEM;
	(*range)->numbers[number->value % NUMBER_RANGE_SIZE] = number;
	(*range)->count++;
	return 0;
}

void numbers_remove(struct numbers *numbers, const struct number *number)
{
	struct number_range **range = &numbers->ranges[number->value / NUMBER_RANGE_SIZE];

	(*range)->numbers[number->value % NUMBER_RANGE_SIZE] = NULL;
	if (--(*range)->count == 0) {
		free(*range);
		*range = NULL;
	}
}
