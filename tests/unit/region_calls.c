/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/unit/region_calls.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/domain.h"
#include "tests/lib/harness.h"

struct region_got region_answer(
	struct client *client, unsigned opcode, const ProtobufCMessage *request)
{
	ProtobufCMessage *message = NULL;
	struct region_got got = { .status = client_call(client, opcode, request,
					  &vsd__region_reply__descriptor, &message) };
	const Vsd__RegionReply *reply = (const void *)message;

	ck_assert_uint_eq(client->fds.n, got.status == 0);
	if (got.status != 0)
		return got;
	got.mr = reply->handle;
	got.key = reply->key;
	got.access = reply->access;
	got.flags = reply->flags;
	got.region = reply->region;
	got.iova = reply->iova;
	got.size = reply->size;
	got.created = reply->created;
	got.memory = reply->has_memory ? (unsigned)reply->memory : VSD__MR_MEMORY__MR_ON_REGION;
	got.at = reply->at;
	got.length = reply->length;
	protobuf_c_message_free_unpacked(message, NULL);
	return got;
}

struct region_got region_create(
	struct client *client, uint64_t size, uint32_t access, uint32_t flags, const char *name)
{
	Vsd__RegionCreateRequest request = VSD__REGION_CREATE_REQUEST__INIT;

	request.context = client->context;
	request.pd = client->pd;
	request.size = size;
	request.access = access;
	request.flags = flags;
	request.name = (char *)(uintptr_t)name;
	return region_answer(client, VSD__OP__OP_REGION_CREATE, &request.base);
}

struct region_got region_import_any(struct client *client, const char *name, const uint8_t *nonce,
	uint32_t access, uint32_t flags, uint64_t size)
{
	Vsd__RegionImportRequest request = VSD__REGION_IMPORT_REQUEST__INIT;

	request.context = client->context;
	request.pd = client->pd;
	request.access = access;
	request.spare_key = client->key;
	request.name = (char *)(uintptr_t)name;
	request.has_nonce = nonce != NULL;
	request.nonce.data = (uint8_t *)(uintptr_t)nonce;
	request.nonce.len = nonce ? VSD_NONCE_SIZE : 0;
	request.has_size = size != 0;
	request.size = size;
	request.flags = flags;
	return region_answer(client, VSD__OP__OP_REGION_IMPORT, &request.base);
}

struct region_got region_import(struct client *client, const char *name, uint32_t access)
{
	return region_import_any(client, name, NULL, access, 0, 0);
}

struct region_got region_attach(
	struct client *client, const char *name, uint64_t size, uint32_t flags)
{
	return region_import_any(client, name, NULL, 0, flags | REGION_CREATE, size);
}

struct region_got region_import_nonce(
	struct client *client, const uint8_t nonce[VSD_NONCE_SIZE], uint32_t access)
{
	return region_import_any(client, NULL, nonce, access, 0, 0);
}

int region_export_as(struct client *client, uint32_t mr, uint32_t flags, const char *name)
{
	Vsd__RegionExportRequest request = VSD__REGION_EXPORT_REQUEST__INIT;
	int status;

	request.context = client->context;
	request.mr = mr;
	request.flags = flags;
	request.name = (char *)(uintptr_t)name;
	status = client_call(client, VSD__OP__OP_REGION_EXPORT, &request.base, NULL, NULL);
	ck_assert_uint_eq(client->fds.n, status == 0 && !name);
	return status;
}

int region_capability_of(
	struct client *client, uint32_t mr, uint32_t flags, uint8_t nonce[VSD_NONCE_SIZE])
{
	int status = region_export_as(client, mr, flags, NULL);

	if (status == 0)
		ck_assert_int_eq(
			pread(client->fds.fds[0], nonce, VSD_NONCE_SIZE, 0), VSD_NONCE_SIZE);
	return status;
}

int region_persist_mr(struct client *client, uint32_t mr, bool persist)
{
	Vsd__RegionPersistRequest request = VSD__REGION_PERSIST_REQUEST__INIT;

	request.context = client->context;
	request.mr = mr;
	request.persist = persist;
	return client_call(client, VSD__OP__OP_REGION_PERSIST, &request.base, NULL, NULL);
}

int region_release_as(struct client *client, const char *name)
{
	Vsd__RegionReleaseRequest request = VSD__REGION_RELEASE_REQUEST__INIT;

	request.name = (char *)(uintptr_t)name;
	return client_call(client, VSD__OP__OP_REGION_RELEASE, &request.base, NULL, NULL);
}

int region_release_of(struct client *client, const char *name, uint32_t uid)
{
	Vsd__RegionReleaseRequest request = VSD__REGION_RELEASE_REQUEST__INIT;

	request.name = (char *)(uintptr_t)name;
	request.has_uid = 1;
	request.uid = uid;
	return client_call(client, VSD__OP__OP_REGION_RELEASE, &request.base, NULL, NULL);
}

static Vsd__Item *copy(const Vsd__Item *item)
{
	size_t n = vsd__item__get_packed_size(item);
	uint8_t *bytes = malloc(n + 1);
	Vsd__Item *made;

	ck_assert_ptr_nonnull(bytes);
	vsd__item__pack(item, bytes);
	made = vsd__item__unpack(NULL, n, bytes);
	free(bytes);
	ck_assert_ptr_nonnull(made);
	return made;
}

unsigned region_list(struct client *client, unsigned type, bool all, Vsd__Item **last)
{
	Vsd__ListRequest request = VSD__LIST_REQUEST__INIT;
	unsigned n = 0;
	bool more = true;

	request.has_type = 1;
	request.type = (Vsd__ObjectType)type;
	request.all = all;
	while (more) {
		ProtobufCMessage *message;
		const Vsd__ListReply *reply;

		ck_assert_int_eq(client_call(client, VSD__OP__OP_LIST, &request.base,
					 &vsd__list_reply__descriptor, &message),
			0);
		reply = (const void *)message;
		for (size_t i = 0; i < reply->n_items; i++)
			ck_assert_uint_eq(reply->items[i]->type, type);
		n += (unsigned)reply->n_items;
		more = reply->has_next_page;
		request.page = reply->next_page;
		if (last && !more && reply->n_items)
			*last = copy(reply->items[reply->n_items - 1]);
		protobuf_c_message_free_unpacked(message, NULL);
	}
	return n;
}

bool region_fd_writes(const struct client *client)
{
	return (fcntl(client->fds.fds[0], F_GETFL) & O_ACCMODE) == O_RDWR;
}

void region_limit(enum slot slot, uint64_t limit)
{
	fixture_server->config->limit[slot] = limit;
	domains_set_limits(&fixture_server->domains, fixture_server->config);
}
