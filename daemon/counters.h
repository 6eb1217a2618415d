/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a port of a real device has counted, as sysfs has it: "counters" of the standard and "hw_counters" of its driver.
 */
#ifndef DAEMON_COUNTERS_H
#define DAEMON_COUNTERS_H

#include <stdint.h>

#define COUNTERS_MAX 192 /* of a port; what there is more is left out */

struct counter {
	char name[48];
	uint64_t value;
};

/*
 * For a thread: an adapter may be asked for each. In the order of their names, those of the standard first. How many; files that
 * are gone, empty or no number are left out.
 */
unsigned counters_read(const char *sysfs, const char *device, uint32_t port, struct counter list[COUNTERS_MAX]);

#endif
