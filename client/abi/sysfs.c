/* SPDX-License-Identifier: BSD-2-Clause */
/* What programs read below a device's sysfs path: a soft device has no sysfs folder, so its files are answered here. */
#include "client/abi/abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/attributes.h"

/* The interface of the installed infiniband/driver.h of old, which Debian 12 has no more. */
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

VERBS_API const char *ibv_get_sysfs_path(void)
{
	const char *path = secure_getenv("SYSFS_PATH");

	return REAL_INT(path ? path : "/sys", ibv_get_sysfs_path, "IBVERBS_1.0");
}

struct wanted {
	const char *file;
	char *buf;
	size_t size;
	int n; /* bytes of text that the caller got */
};

/* As the kernel's file with its newline taken off: what does not fit is cut. */
static int wanted_take(const char *file, const char *text, void *arg)
{
	struct wanted *wanted = arg;
	int n;

	if (strcmp(file, wanted->file) != 0)
		return 0;
	n = snprintf(wanted->buf, wanted->size, "%s", text);
	wanted->n = (size_t)n < wanted->size ? n : (int)wanted->size - 1;
	return 1;
}

static int soft_read(const Vsd__Device *info, const char *file, char *buf, size_t size)
{
	struct wanted wanted = { .file = file, .buf = buf, .size = size };

	if (size == 0)
		return abi_minus(EINVAL);
	return device_attributes(info, wanted_take, &wanted) ? wanted.n : abi_minus(ENOENT);
}

VERBS_API int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	struct abi_device *device = real_inside() ? NULL : abi_device_by_path(dir);

	if (!device)
		return REAL_INT(abi_minus(ENOENT), ibv_read_sysfs_file, "IBVERBS_1.0", dir, file,
			buf, size);

	int n = soft_read(device->info, file, buf, size);

	abi_device_unref(device);
	return n;
}
