/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is a capability, and what an fd may be instead.
 */
#include "client/abi/capability.h"

#include <errno.h>
#include <stdio.h>

#include "tests/unit/files.h"

static int not_open(void)
{
	return -1;
}

static int a_pipe(void)
{
	int fds[2];

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	close(fds[1]);
	return fds[0];
}

static int unsealed(void)
{
	return file_new(VSD_NONCE_SIZE, 0);
}

static int changeable(void)
{
	return file_new(VSD_NONCE_SIZE, SEALS);
}

static int longer(void)
{
	return file_new(VSD_NONCE_SIZE + 1, SEALS | F_SEAL_WRITE);
}

static int by_path(void)
{
	uint8_t nonce[VSD_NONCE_SIZE] = { 1 };
	int fd = capability_new(nonce), path;
	char text[64];

	snprintf(text, sizeof(text), "/proc/self/fd/%d", fd);
	path = open(text, O_PATH | O_CLOEXEC);
	close(fd);
	return path;
}

static const struct {
	int (*make)(void);
	int want;
} fds[] = { { not_open, -EBADF }, { a_pipe, -EINVAL }, { unsealed, -EINVAL }, { changeable, -EINVAL },
	    { longer, -EINVAL },  { by_path, -EBADF } };

START_TEST(what_is_no_capability)
{
	uint8_t nonce[VSD_NONCE_SIZE];
	int fd = fds[_i].make();

	ck_assert_int_eq(capability_read(fd, nonce), fds[_i].want);
	ck_assert(!capability_same(fd, fd));
	if (fd >= 0)
		close(fd);
}
END_TEST

START_TEST(capabilities_are_one_by_what_is_in_them)
{
	uint8_t one[VSD_NONCE_SIZE] = { 1 }, two[VSD_NONCE_SIZE] = { 1 }, got[VSD_NONCE_SIZE];
	int a = capability_new(one), b = capability_new(one), c;

	two[VSD_NONCE_SIZE - 1] = 1;
	c = capability_new(two);
	ck_assert_int_eq(capability_read(a, got), 0);
	ck_assert_mem_eq(got, one, sizeof(one));
	ck_assert(capability_same(a, b));
	ck_assert(!capability_same(a, c));
	close(a);
	close(b);
	close(c);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("capability");
	TCase *t = harness_tcase(suite, "capabilities");

	tcase_add_loop_test(t, what_is_no_capability, 0, sizeof(fds) / sizeof(fds[0]));
	tcase_add_test(t, capabilities_are_one_by_what_is_in_them);
	return harness_run(suite);
}
