/* SPDX-License-Identifier: BSD-2-Clause */
/* Is linked with no libibverbs and opens it. The same again after dlclose: the library must still be the same one. */
#include "forms_open.h"

int main(void)
{
	struct calls calls;
	int r = calls_open(&calls);

	if (r == 0)
		r = talk(&calls, &calls);
	if (r == 0) {
		dlclose(dlopen("libibverbs.so.1", RTLD_NOW));
		r = calls_open(&calls);
	}
	return r ? r : talk(&calls, &calls);
}
