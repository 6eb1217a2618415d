/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ways to the daemon, and what is said when there is none: so that each subcommand answers the same question in the
 * same words and with the same exit code.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/ctl.h"

void ctl_say(const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fputs("verbsctl: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

static const char *connect_reason(int error)
{
	switch (error) {
	case -ENOENT:
		return "no such socket (is verbsd running?)";
	case -ECONNREFUSED:
		return "nobody listens (is verbsd running?)";
	case -EPROTONOSUPPORT:
		return "the daemon speaks no version of the protocol that this verbsctl does";
	case -EBADMSG:
		return "what answers is no verbsd";
	case -ENOTCONN:
	case -ECONNRESET:
		return "the daemon closed the connection";
	case -ETIMEDOUT:
		return "the daemon does not answer";
	default:
		return strerror(-error);
	}
}

struct conn *ctl_connect(const struct ctl *ctl, bool admin)
{
	const char *path = admin ? ctl->admin : ctl->socket;
	struct conn *conn;
	int r = conn_open(path, &conn);

	if (r == 0)
		return conn;
	ctl_say("%s: %s", path, connect_reason(r));
	return NULL;
}

struct conn *ctl_connect_widest(const struct ctl *ctl, bool *all)
{
	struct conn *conn;
	int r = conn_open(ctl->admin, &conn);

	*all = r == 0;
	if (r == 0)
		return conn;

	conn = ctl_connect(ctl, false);
	if (conn)
		ctl_say("%s: %s; showing your own domain only", ctl->admin, connect_reason(r));
	return conn;
}

int ctl_failed(const char *what, int error)
{
	ctl_say("%s: %s", what, connect_reason(error));
	return error == -ENOTCONN ? CTL_NO_DAEMON : CTL_FAILED;
}
