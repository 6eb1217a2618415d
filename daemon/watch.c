/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/watch.h"

void watch_start(struct session *session)
{
	(void)session;
}

void watch_object(const struct object *object, bool added)
{
	(void)object;
	(void)added;
}

void watch_session(const struct session *session, bool added)
{
	(void)session;
	(void)added;
}
