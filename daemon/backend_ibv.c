/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: policy, listings and opening need one place that knows which real devices there are. Guarantees: nothing is polled;
 * no context is opened, so that a device can be taken out of the host although it is listed.
 */
#include "daemon/backend_ibv.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/rdma_nl.h"

/* A device comes with a handful of messages. */
#define SETTLE_MS     20
#define UEVENT_GROUP  1 /* the kernel's own messages; udev's are in another one */
#define UEVENT_BUFFER 8192

static bool read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, text, size - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return true;
}

__attribute__((format(printf, 4, 5))) static bool read_at(
	const char *sysfs, char *text, size_t size, const char *format, ...)
{
	char path[512];
	int n = snprintf(path, sizeof(path), "%s/", sysfs);
	va_list args;

	va_start(args, format);
	vsnprintf(path + n, sizeof(path) - (size_t)n, format, args);
	va_end(args);
	return read_text(path, text, size);
}

static bool parse_rdev(const char *text, dev_t *rdev)
{
	unsigned major_number, minor_number;

	if (sscanf(text, "%u:%u", &major_number, &minor_number) != 2)
		return false;
	*rdev = makedev(major_number, minor_number);
	return true;
}

/* Four groups of hexadecimal digits. */
static uint64_t parse_guid(const char *text)
{
	uint64_t guid = 0;

	for (; *text; text++) {
		if (isxdigit((unsigned char)*text))
			guid = guid << 4 | (uint64_t)(isdigit((unsigned char)*text)
							      ? *text - '0'
							      : tolower((unsigned char)*text) - 'a' + 10);
	}
	return guid;
}

static uint32_t count_ports(const struct real_devices *devices, const char *name)
{
	uint32_t n = 0;
	char path[512];
	DIR *dir;

	snprintf(path, sizeof(path), "%s/infiniband/%s/ports", devices->sysfs, name);
	dir = opendir(path);
	if (!dir)
		return 0;
	for (struct dirent *entry; (entry = readdir(dir));)
		n += isdigit((unsigned char)entry->d_name[0]) != 0;
	closedir(dir);
	return n;
}

/* One entry of infiniband_verbs. False: it is no device, or just going. */
static bool read_device(const struct real_devices *devices, const char *node, struct real_device *device)
{
	char text[64];

	*device = (struct real_device){ .node_type = 1 };
	if (strlen(node) >= sizeof(device->node))
		return false;
	memcpy(device->node, node, strlen(node) + 1);
	if (!read_at(devices->sysfs, device->name, sizeof(device->name), "infiniband_verbs/%s/ibdev", node) ||
		strchr(device->name, '/') || !read_at(devices->sysfs, text, sizeof(text), "infiniband_verbs/%s/dev", node) ||
		!parse_rdev(text, &device->rdev))
		return false;
	if (read_at(devices->sysfs, text, sizeof(text), "infiniband/%s/node_guid", device->name))
		device->guid = parse_guid(text);
	if (read_at(devices->sysfs, text, sizeof(text), "infiniband/%s/node_type", device->name))
		device->node_type = (uint32_t)atoi(text);
	/* IBV_NODE_RNIC is iWARP; other types above the channel adapter's have a transport of their own. */
	device->transport = device->node_type == 4 ? 1 : 0;
	device->n_ports = count_ports(devices, device->name);
	return true;
}

static int by_node(const void *a, const void *b)
{
	const struct real_device *one = a, *other = b;
	size_t n = strlen(one->node), m = strlen(other->node);

	return n != m ? (n < m ? -1 : 1) : strcmp(one->node, other->node);
}

/* Which driver each has; netlink tells it by the device's index. */
static void ask_drivers(struct real_devices *devices)
{
	struct rdma_nl_device known[REAL_DEVICES_MAX];
	int n = devices->netlink < 0 ? 0 : rdma_nl_devices(devices->netlink, known, REAL_DEVICES_MAX);

	for (unsigned i = 0; i < devices->n; i++) {
		struct real_device *device = &devices->list[i];

		for (int j = 0; j < n; j++) {
			if (strcmp(known[j].name, device->name) != 0)
				continue;
			device->index = known[j].index;
			(void)rdma_nl_driver(devices->netlink, device->index, &device->driver);
		}
	}
}

void real_devices_scan(struct real_devices *devices)
{
	char path[192], text[64];
	DIR *dir;

	devices->n = 0;
	devices->rdma_cm = 0;
	snprintf(path, sizeof(path), "%s/infiniband_verbs", devices->sysfs);
	dir = opendir(path);
	for (struct dirent *entry; dir && (entry = readdir(dir));) {
		if (strncmp(entry->d_name, "uverbs", 6) != 0)
			continue;
		if (devices->n == REAL_DEVICES_MAX) {
			log_warning("more than %d real devices: the others are left out", REAL_DEVICES_MAX);
			break;
		}
		devices->n += read_device(devices, entry->d_name, &devices->list[devices->n]);
	}
	if (dir)
		closedir(dir);
	qsort(devices->list, devices->n, sizeof(devices->list[0]), by_node);
	ask_drivers(devices);
	if (read_at(devices->sysfs, text, sizeof(text), "misc/rdma_cm/dev"))
		(void)parse_rdev(text, &devices->rdma_cm);
}

void real_devices_init(struct real_devices *devices, const char *sysfs)
{
	*devices = (struct real_devices){ .netlink = -1, .uevents = -1, .watch = WATCH_NULL };
	snprintf(devices->sysfs, sizeof(devices->sysfs), "%s", sysfs);
}

void real_devices_deinit(struct real_devices *devices)
{
	watch_deinit(&devices->watch);
	timer_deinit(&devices->settle);
	if (devices->uevents >= 0)
		close(devices->uevents);
	if (devices->netlink >= 0)
		close(devices->netlink);
	devices->uevents = devices->netlink = -1;
}

/* --- hot plug ---------------------------------------------------------------------------------------------------- */

bool uevent_is_rdma(const char *bytes, size_t n)
{
	static const char key[] = "SUBSYSTEM=";

	for (const char *at = bytes, *end = bytes + n; at < end;) {
		size_t length = strnlen(at, (size_t)(end - at));

		if (length > sizeof(key) - 1 && memcmp(at, key, sizeof(key) - 1) == 0) {
			const char *value = at + sizeof(key) - 1;
			size_t left = length - (sizeof(key) - 1);

			return (left >= 10 && memcmp(value, "infiniband", 10) == 0) ||
			       (left == 4 && memcmp(value, "misc", 4) == 0);
		}
		at += length + 1;
	}
	return false;
}

static void settle(void *data)
{
	struct real_devices *devices = data;

	real_devices_scan(devices);
	devices->changed(devices->data);
}

static void uevent_ready(void *data, unsigned ready)
{
	struct real_devices *devices = data;
	char bytes[UEVENT_BUFFER];

	(void)ready;
	for (unsigned i = 0; i < 64; i++) {
		struct sockaddr_nl from = { .nl_pid = 0 };
		socklen_t size = sizeof(from);
		ssize_t n = recvfrom(devices->uevents, bytes, sizeof(bytes), MSG_DONTWAIT, (void *)&from, &size);

		/* What was lost may have been ours. */
		if (n < 0 && errno != ENOBUFS)
			return;
		if (n < 0 || (from.nl_pid == 0 && uevent_is_rdma(bytes, (size_t)n)))
			timer_set(&devices->settle, SETTLE_MS);
	}
}

static int uevent_open(void)
{
	struct sockaddr_nl address = { .nl_family = AF_NETLINK, .nl_groups = UEVENT_GROUP };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
	int r;

	if (fd < 0)
		return -errno;
	if (bind(fd, (const void *)&address, sizeof(address)) == 0)
		return fd;
	r = -errno;
	close(fd);
	return r;
}

int real_devices_follow(
	struct real_devices *devices, struct loop *loop, void (*changed)(void *data), void *data)
{
	int r;

	devices->changed = changed;
	devices->data = data;
	if (devices->uevents < 0)
		devices->uevents = uevent_open();
	if (devices->uevents < 0)
		return devices->uevents;
	r = timer_init(&devices->settle, loop, settle, devices);
	if (r == 0)
		r = watch_init(&devices->watch, loop, devices->uevents, uevent_ready, devices);
	return r == 0 ? watch_set(&devices->watch, LOOP_READ) : r;
}

/* --- devices and ports ------------------------------------------------------------------------------------------- */

const struct real_device *real_device_find(const struct real_devices *devices, const char *name)
{
	for (unsigned i = 0; i < devices->n; i++) {
		if (strcmp(devices->list[i].name, name) == 0)
			return &devices->list[i];
	}
	return NULL;
}

const struct real_device *real_device_by_node(const struct real_devices *devices, const char *node)
{
	for (unsigned i = 0; i < devices->n; i++) {
		if (strcmp(devices->list[i].node, node) == 0)
			return &devices->list[i];
	}
	return NULL;
}

bool real_device_needs_opener(const struct real_device *device)
{
	return device->driver == RDMA_DRIVER_RXE || device->driver == RDMA_DRIVER_SIW;
}

static bool read_gid(const char *sysfs, const char *name, uint32_t number, uint32_t index, struct gid *gid)
{
	static const uint8_t empty[GID_SIZE];
	char text[64];

	if (!read_at(sysfs, text, sizeof(text), "infiniband/%s/ports/%u/gids/%u", name, number, index) ||
		inet_pton(AF_INET6, text, gid->raw) != 1 || memcmp(gid->raw, empty, GID_SIZE) == 0)
		return false;
	gid->type = GID_IB;
	if (read_at(sysfs, text, sizeof(text), "infiniband/%s/ports/%u/gid_attrs/types/%u", name, number, index))
		gid->type = strcmp(text, "RoCE v2") == 0 ? GID_ROCE_V2 : GID_ROCE_V1;
	return true;
}

int real_port_read(const char *sysfs, const char *name, uint32_t number, struct real_port *port)
{
	char text[64];

	*port = (struct real_port){ .link_layer = LINK_INFINIBAND };
	if (!read_at(sysfs, text, sizeof(text), "infiniband/%s/ports/%u/state", name, number))
		return -ENODEV;
	port->state = (uint32_t)atoi(text);
	if (read_at(sysfs, text, sizeof(text), "infiniband/%s/ports/%u/lid", name, number))
		port->lid = (uint32_t)strtoul(text, NULL, 16);
	if (read_at(sysfs, text, sizeof(text), "infiniband/%s/ports/%u/sm_lid", name, number))
		port->sm_lid = (uint32_t)strtoul(text, NULL, 16);
	if (read_at(sysfs, text, sizeof(text), "infiniband/%s/ports/%u/pkeys/0", name, number))
		port->pkey = (uint32_t)strtoul(text, NULL, 16);
	if (read_at(sysfs, text, sizeof(text), "infiniband/%s/ports/%u/link_layer", name, number) &&
		strcmp(text, "Ethernet") == 0)
		port->link_layer = LINK_ETHERNET;
	/* Empty entries are between others, and a table is long: the first few will do for a listing. */
	for (uint32_t i = 0; i < 2 * REAL_GIDS_MAX && port->n_gids < REAL_GIDS_MAX; i++) {
		if (read_gid(sysfs, name, number, i, &port->gids[port->n_gids]))
			port->gid_index[port->n_gids++] = i;
	}
	return 0;
}
