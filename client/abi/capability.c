/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading a capability. The fd may be anything: a file of a silent FUSE server would hold up fstat() and read(), but
 * asking for seals does not leave the kernel, and only files in memory have any.
 */
#include "client/abi/capability.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

int capability_read(int fd, uint8_t nonce[VSD_NONCE_SIZE])
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0)
		return errno == EBADF ? -EBADF : -EINVAL;
	/* What could still change is nobody's capability. */
	if ((seals & SEALS) != SEALS || fstat(fd, &st) < 0 || st.st_size != VSD_NONCE_SIZE)
		return -EINVAL;
	/* An O_PATH or write-only fd cannot be read. */
	return pread(fd, nonce, VSD_NONCE_SIZE, 0) == VSD_NONCE_SIZE ? 0 : -EINVAL;
}

bool capability_same(int a, int b)
{
	uint8_t first[VSD_NONCE_SIZE], second[VSD_NONCE_SIZE];
	bool same = capability_read(a, first) == 0 && capability_read(b, second) == 0 &&
		    memcmp(first, second, sizeof(first)) == 0;

	explicit_bzero(first, sizeof(first));
	explicit_bzero(second, sizeof(second));
	return same;
}
