/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: the user database may be asked only while the configuration is read, and in one place. Guarantees: what is
 * neither a known name nor a number below the reserved one is refused.
 */
#include "daemon/names.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>

#define ENTRY_BYTES 65536

static int number(const char *name, uint32_t *id)
{
	unsigned long n;
	char *end;

	if (!isdigit((unsigned char)name[0]))
		return -ENOENT;
	errno = 0;
	n = strtoul(name, &end, 10);
	if (*end || errno != 0 || n >= UINT32_MAX)
		return -ENOENT;
	*id = (uint32_t)n;
	return 0;
}

int name_to_uid(const char *name, uint32_t *uid)
{
	struct passwd entry, *found = NULL;
	char *buf = malloc(ENTRY_BYTES);

	if (buf && getpwnam_r(name, &entry, buf, ENTRY_BYTES, &found) == 0 && found)
		*uid = found->pw_uid;
	free(buf);
	return found ? 0 : number(name, uid);
}

int name_to_gid(const char *name, uint32_t *gid)
{
	struct group entry, *found = NULL;
	char *buf = malloc(ENTRY_BYTES);

	if (buf && getgrnam_r(name, &entry, buf, ENTRY_BYTES, &found) == 0 && found)
		*gid = found->gr_gid;
	free(buf);
	return found ? 0 : number(name, gid);
}
