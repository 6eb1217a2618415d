/* SPDX-License-Identifier: BSD-2-Clause */
/* <verbsd.h>: which library this is. */
#include "client/verbsd.h"

__attribute__((visibility("default"))) const char *verbsd_version(void)
{
	return PACKAGE_VERSION;
}
