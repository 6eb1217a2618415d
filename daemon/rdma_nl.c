/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Why: sysfs has no word for the driver of a virtual device, and none for who has which resource. Guarantees: the kernel
 * answers in the system call that asks, about objects after it asked the driver; a message is believed as far as it is whole.
 */
#include "daemon/rdma_nl.h"

#include <errno.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER 32768

struct request {
	struct nlmsghdr head;
	uint8_t attributes[64];
};

/* Where the attributes of a message are. */
struct message {
	const uint8_t *at;
	size_t n;
	unsigned command;
};

typedef void message_fn(const struct message *message, void *data);

int rdma_nl_open(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_RDMA);

	if (fd < 0)
		return -errno;
	return fd;
}

static void add(struct request *request, unsigned type, const void *value, size_t n)
{
	uint8_t *at = (uint8_t *)request + NLMSG_ALIGN(request->head.nlmsg_len);
	struct nlattr attribute = { .nla_len = (uint16_t)(NLA_HDRLEN + n), .nla_type = (uint16_t)type };

	memcpy(at, &attribute, sizeof(attribute));
	memcpy(at + NLA_HDRLEN, value, n);
	request->head.nlmsg_len += NLA_HDRLEN + NLA_ALIGN((uint32_t)n);
}

static struct request request_make(unsigned command, bool dump)
{
	static _Atomic uint32_t sequence; /* of threads as well */

	return (struct request){
		.head = {
			.nlmsg_len = NLMSG_HDRLEN,
			.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command),
			/* The acknowledgement of a dump would come before its end. */
			.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | (dump ? NLM_F_DUMP : NLM_F_ACK)),
			.nlmsg_seq = ++sequence,
		},
	};
}

/* The next attribute of *@n bytes at *@at; NULL: there is no whole one. */
static const struct nlattr *next(const uint8_t **at, size_t *n)
{
	const struct nlattr *attribute = (const void *)*at;
	size_t step;

	if (*n < NLA_HDRLEN || attribute->nla_len < NLA_HDRLEN || attribute->nla_len > *n)
		return NULL;
	step = NLA_ALIGN((size_t)attribute->nla_len);
	if (step > *n)
		step = *n;
	*at += step;
	*n -= step;
	return attribute;
}

static const void *payload(const struct nlattr *attribute)
{
	return (const uint8_t *)attribute + NLA_HDRLEN;
}

static const struct nlattr *find(const struct message *message, unsigned type)
{
	const uint8_t *at = message->at;
	size_t n = message->n;
	const struct nlattr *attribute;

	while ((attribute = next(&at, &n))) {
		if ((attribute->nla_type & NLA_TYPE_MASK) == type)
			return attribute;
	}
	return NULL;
}

static bool get_u32(const struct message *message, unsigned type, uint32_t *value)
{
	const struct nlattr *attribute = find(message, type);

	if (!attribute || attribute->nla_len < NLA_HDRLEN + sizeof(*value))
		return false;
	memcpy(value, payload(attribute), sizeof(*value));
	return true;
}

static bool get_text(const struct message *message, unsigned type, char *text, size_t size)
{
	const struct nlattr *attribute = find(message, type);
	size_t n = attribute ? attribute->nla_len - NLA_HDRLEN : 0;

	if (n == 0 || n > size || !memchr(payload(attribute), 0, n))
		return false;
	memcpy(text, payload(attribute), n);
	return true;
}

/* Goes through a datagram. 1: go on; 0: that was the end; or a negative errno. */
static int datagram(const uint8_t *bytes, size_t n, uint32_t sequence, message_fn *fn, void *data)
{
	while (n >= NLMSG_HDRLEN) {
		const struct nlmsghdr *head = (const void *)bytes;
		size_t step = NLMSG_ALIGN((size_t)head->nlmsg_len);

		if (head->nlmsg_len < NLMSG_HDRLEN || head->nlmsg_len > n)
			return -EBADMSG;
		if (head->nlmsg_seq != sequence) {
			/* of a question that was given up */
		} else if (head->nlmsg_type == NLMSG_DONE) {
			return 0;
		} else if (head->nlmsg_type == NLMSG_ERROR) {
			int error;

			if (head->nlmsg_len < NLMSG_HDRLEN + sizeof(error))
				return -EBADMSG;
			memcpy(&error, bytes + NLMSG_HDRLEN, sizeof(error));
			return error <= 0 ? error : -EBADMSG;
		} else {
			struct message message = {
				.at = bytes + NLMSG_HDRLEN,
				.n = head->nlmsg_len - NLMSG_HDRLEN,
				.command = RDMA_NL_GET_OP(head->nlmsg_type),
			};

			fn(&message, data);
		}
		if (step >= n)
			break;
		bytes += step;
		n -= step;
	}
	return 1;
}

static int ask(int fd, struct request *request, message_fn *fn, void *data)
{
	uint8_t *buffer = malloc(BUFFER); /* a thread's stack has no room for it */
	int r = buffer ? 1 : -ENOMEM;

	if (buffer && send(fd, request, request->head.nlmsg_len, MSG_NOSIGNAL) < 0)
		r = -errno;
	while (r > 0) {
		ssize_t n = recv(fd, buffer, BUFFER, MSG_TRUNC);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			r = -errno;
		else if (n == 0 || n > BUFFER)
			r = -EMSGSIZE;
		else
			r = datagram(buffer, (size_t)n, request->head.nlmsg_seq, fn, data);
	}
	free(buffer);
	return r;
}

struct devices {
	struct rdma_nl_device *list;
	unsigned n, max;
};

static void note_device(const struct message *message, void *data)
{
	struct devices *devices = data;
	struct rdma_nl_device *device = &devices->list[devices->n];

	if (devices->n < devices->max && get_u32(message, RDMA_NLDEV_ATTR_DEV_INDEX, &device->index) &&
		get_text(message, RDMA_NLDEV_ATTR_DEV_NAME, device->name, sizeof(device->name)))
		devices->n++;
}

int rdma_nl_devices(int fd, struct rdma_nl_device *list, unsigned max)
{
	struct request request = request_make(RDMA_NLDEV_CMD_GET, true);
	struct devices devices = { .list = list, .max = max };
	int r = ask(fd, &request, note_device, &devices);

	return r < 0 ? r : (int)devices.n;
}

struct number {
	uint32_t value;
	bool found;
};

static void note_driver(const struct message *message, void *data)
{
	struct number *driver = data;

	driver->found = get_u32(message, RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, &driver->value);
}

int rdma_nl_driver(int fd, uint32_t index, uint32_t *driver)
{
	static const char type[] = "uverbs";
	struct request request = request_make(RDMA_NLDEV_CMD_GET_CHARDEV, false);
	struct number found = { .found = false };
	int r;

	add(&request, RDMA_NLDEV_ATTR_DEV_INDEX, &index, sizeof(index));
	add(&request, RDMA_NLDEV_ATTR_CHARDEV_TYPE, type, sizeof(type));
	r = ask(fd, &request, note_driver, &found);
	if (r < 0)
		return r;
	if (!found.found)
		return -ENODATA;
	*driver = found.value;
	return 0;
}

/* Each kind has a command, and a table of entries with the pid in each. */
static const struct {
	unsigned command, table, entry;
} resources[RDMA_NL_RESOURCES] = {
	[RDMA_NL_CONTEXTS] = { RDMA_NLDEV_CMD_RES_CTX_GET, RDMA_NLDEV_ATTR_RES_CTX, RDMA_NLDEV_ATTR_RES_CTX_ENTRY },
	[RDMA_NL_PDS] = { RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_ATTR_RES_PD, RDMA_NLDEV_ATTR_RES_PD_ENTRY },
	[RDMA_NL_MRS] = { RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY },
	[RDMA_NL_QPS] = { RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY },
	[RDMA_NL_CQS] = { RDMA_NLDEV_CMD_RES_CQ_GET, RDMA_NLDEV_ATTR_RES_CQ, RDMA_NLDEV_ATTR_RES_CQ_ENTRY },
	[RDMA_NL_SRQS] = { RDMA_NLDEV_CMD_RES_SRQ_GET, RDMA_NLDEV_ATTR_RES_SRQ, RDMA_NLDEV_ATTR_RES_SRQ_ENTRY },
};

struct owners {
	enum rdma_nl_resource kind;
	void (*fn)(void *data, uint32_t pid);
	void *data;
};

static void tell(const struct message *message, void *data)
{
	const struct owners *owners = data;
	const struct nlattr *table = find(message, resources[owners->kind].table), *entry;
	const uint8_t *at;
	size_t n;

	if (!table)
		return;
	at = payload(table);
	n = table->nla_len - NLA_HDRLEN;
	while ((entry = next(&at, &n))) {
		const struct message inner = { .at = payload(entry), .n = entry->nla_len - NLA_HDRLEN };
		uint32_t pid;

		/* The kernel's own have a name in its place. */
		if (get_u32(&inner, RDMA_NLDEV_ATTR_RES_PID, &pid))
			owners->fn(owners->data, pid);
	}
}

int rdma_nl_owners(int fd, uint32_t index, enum rdma_nl_resource kind, void (*fn)(void *data, uint32_t pid), void *data)
{
	struct request request = request_make(resources[kind].command, true);
	struct owners owners = { .kind = kind, .fn = fn, .data = data };
	int r;

	add(&request, RDMA_NLDEV_ATTR_DEV_INDEX, &index, sizeof(index));
	r = ask(fd, &request, tell, &owners);
	return r == -EINVAL ? -EOPNOTSUPP : r;
}
