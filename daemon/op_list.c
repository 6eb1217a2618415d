/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/op.h"

#include <errno.h>

int op_status(struct call *call)
{
	(void)call;
	return -EOPNOTSUPP;
}

int op_list(struct call *call)
{
	(void)call;
	return -EOPNOTSUPP;
}

int op_watch(struct call *call)
{
	(void)call;
	return -EOPNOTSUPP;
}
