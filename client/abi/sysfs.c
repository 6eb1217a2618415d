/* SPDX-License-Identifier: BSD-2-Clause */
/* What programs read below a device's sysfs path: a soft device has no sysfs folder, so its files are answered here. */
#include "client/abi/abi.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The interface of the installed infiniband/driver.h of old, which Debian 12 has no more. */
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

VERBS_API const char *ibv_get_sysfs_path(void)
{
	const char *path = secure_getenv("SYSFS_PATH");

	return REAL_INT(path ? path : "/sys", ibv_get_sysfs_path, "IBVERBS_1.0");
}

static int text_constant(const Vsd__Device *info, char *buf, size_t size, const char *text)
{
	return snprintf(buf, size, "%s", text);
}

static int text_guid(const Vsd__Device *info, char *buf, size_t size, const char *text)
{
	uint64_t guid = info->guid;

	return snprintf(buf, size, "%04x:%04x:%04x:%04x", (unsigned)(guid >> 48) & 0xffff,
		(unsigned)(guid >> 32) & 0xffff, (unsigned)(guid >> 16) & 0xffff,
		(unsigned)guid & 0xffff);
}

static int text_name(const Vsd__Device *info, char *buf, size_t size, const char *text)
{
	return snprintf(buf, size, "%s", info->name);
}

static const struct {
	const char *file;
	int (*write)(const Vsd__Device *info, char *buf, size_t size, const char *text);
	const char *text;
} files[] = {
	{ "board_id", text_constant, "verbsd-soft" },
	{ "fw_ver", text_constant, PACKAGE_VERSION },
	{ "hca_type", text_constant, "verbsd-soft" },
	{ "hw_rev", text_constant, "0x0" },
	{ "node_desc", text_name, NULL },
	{ "node_guid", text_guid, NULL },
	{ "node_type", text_constant, "1: CA" },
	{ "sys_image_guid", text_guid, NULL },
};

static int soft_read(const Vsd__Device *info, const char *file, char *buf, size_t size)
{
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (strcmp(files[i].file, file) != 0)
			continue;

		int n = files[i].write(info, buf, size, files[i].text);

		return n < 0 || size == 0 ? abi_minus(EINVAL) : (size_t)n < size ? n : (int)size - 1;
	}
	return abi_minus(ENOENT);
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
