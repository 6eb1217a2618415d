/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files in memory as a daemon hands them out.
 */
#ifndef TESTS_UNIT_FILES_H
#define TESTS_UNIT_FILES_H

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/limits.h"
#include "tests/lib/harness.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static inline int file_new(size_t size, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static inline int capability_new(const uint8_t nonce[VSD_NONCE_SIZE])
{
	int fd = file_new(VSD_NONCE_SIZE, 0);

	ck_assert_int_eq(pwrite(fd, nonce, VSD_NONCE_SIZE, 0), VSD_NONCE_SIZE);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_WRITE), 0);
	return fd;
}

#endif
