/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handles, numbers and nonces that are somebody else's, and destroying in every wrong order.
 */
#include "hostile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

/* Every request that names a handle, with one that it must not know. */
static void names_all(struct world *world, const char *what, const uint32_t *handles, size_t n)
{
	static const char *const fields[] = {
		"pd", "td", "parent_domain", "send_cq", "recv_cq", "cq", "srq", "xrcd", "qp", "mr", "handle",
	};

	for (size_t i = 0; i < n_operations; i++) {
		for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
			/*
			 * The CQ of an SRQ and its XRCD, and a QP's, mean something for XRC alone; the PD of a domain is the
			 * kernel's.
			 */
			if (operations[i].op == VSD__OP__OP_NATIVE_DOMAIN ||
				!protobuf_c_message_descriptor_get_field_by_name(operations[i].type, fields[f]) ||
				(operations[i].op == VSD__OP__OP_SRQ_CREATE && strcmp(fields[f], "cq") == 0) ||
				(strcmp(fields[f], "xrcd") == 0 && operations[i].op != VSD__OP__OP_QP_OPEN))
				continue;
			for (size_t h = 0; h < n; h++) {
				ProtobufCMessage *request = request_make(&operations[i], world, true);
				int r;

				request_set(request, fields[f], handles[h]);
				r = link_call(&world->link, operations[i].op, request, NULL);
				/* What is not there yet is refused for that, before any look at a handle. */
				if (r != EINVAL && r != EOPNOTSUPP)
					must_be(r, EINVAL, "%s with %s %u, %s", operations[i].name, fields[f], handles[h],
						what);
				request_free(request);
			}
		}
	}
}

static void handles(void)
{
	struct world mine, other;
	uint32_t absent[] = { 0, 0x10000, 0x7fffffff, 0xffffffffu, 0, 0 };

	world_make(&mine);
	world_make(&other);
	absent[4] = mine.mr + 100;
	absent[5] = mine.mr + 10000;
	names_all(&mine, "absent", absent, 6);
	world_end(&other);
	world_end(&mine);
}

/* Handles of the same context that name another type. */
static void types(void)
{
	static const Vsd__ObjectType all[] = {
		VSD__OBJECT_TYPE__OBJ_QP, VSD__OBJECT_TYPE__OBJ_AH, VSD__OBJECT_TYPE__OBJ_SRQ, VSD__OBJECT_TYPE__OBJ_CQ,
		VSD__OBJECT_TYPE__OBJ_MW, VSD__OBJECT_TYPE__OBJ_MR, VSD__OBJECT_TYPE__OBJ_PARENT_DOMAIN,
		VSD__OBJECT_TYPE__OBJ_TD, VSD__OBJECT_TYPE__OBJ_PD, VSD__OBJECT_TYPE__OBJ_CONTEXT,
		VSD__OBJECT_TYPE__OBJ_WIRE, VSD__OBJECT_TYPE__OBJ_CLIENT,
	};
	struct world w;

	world_make(&w);

	const uint32_t of_type[] = { w.qp, w.ah, w.srq, w.cq, w.mw, w.mr, w.parent, w.td, w.pd };

	for (size_t t = 0; t < sizeof(all) / sizeof(all[0]); t++)
		for (size_t h = 0; h < sizeof(of_type) / sizeof(of_type[0]); h++)
			if (t != h)
				must_be(destroy(&w.link, all[t], of_type[h]), EINVAL, "destroying a %d as a %d", all[h],
					all[t]);
	for (unsigned type = VSD__OBJECT_TYPE__OBJ_REGION; type < 40; type++)
		must_be(destroy(&w.link, (Vsd__ObjectType)type, w.ah), EINVAL, "destroying type %u", type);
	must_be(destroy(&w.link, (Vsd__ObjectType)-1, w.ah), EINVAL, "destroying type -1");
	must_be(destroy(&w.link, (Vsd__ObjectType)0x80000001, w.ah), EINVAL, "destroying type 2^31 + 1");
	must_be(make_qp(&w.link, w.cq, w.pd, IBV_QPT_RC, w.qpn_first + 9, &w.qp), EINVAL, "a QP with PD and CQ swapped");
	world_end(&w);
}

/* Contexts: of no session, of another one, one that was closed; handles of one in another. */
static void contexts(void)
{
	static const uint32_t bad[] = { 0, 2, 3, 1000, 0x7fffffff, 0x80000000u, 0xffffffffu };
	Vsd__ContextCloseRequest close_request = VSD__CONTEXT_CLOSE_REQUEST__INIT;
	struct world mine, other;
	struct link *link = &mine.link;
	uint32_t first, handle;

	world_make(&mine);
	world_make(&other);
	for (size_t i = 0; i < n_operations; i++) {
		if (!protobuf_c_message_descriptor_get_field_by_name(operations[i].type, "context"))
			continue;
		for (size_t c = 0; c < sizeof(bad) / sizeof(bad[0]); c++) {
			ProtobufCMessage *request = request_make(&operations[i], &mine, true);
			int r;

			request_set(request, "context", bad[c]);
			r = link_call(link, operations[i].op, request, NULL);
			if (r != EOPNOTSUPP)
				must_be(r, EINVAL, "%s in context %u", operations[i].name, bad[c]);
			request_free(request);
		}
	}
	/* A second context of this session: the handles of the first mean nothing in it. */
	first = link->context;
	link_context(link);
	must_be(make_mr(link, mine.pd, mine.key + 256, &handle), EINVAL, "a PD of another context");
	must_be(destroy(link, VSD__OBJECT_TYPE__OBJ_PD, mine.pd), EINVAL, "a PD of another context");
	must_be(destroy(link, VSD__OBJECT_TYPE__OBJ_QP, mine.qp), EINVAL, "a QP of another context");
	close_request.context = link->context;
	must_be(link_call(link, VSD__OP__OP_CONTEXT_CLOSE, &close_request.base, NULL), 0, "CONTEXT_CLOSE");
	must_be(link_call(link, VSD__OP__OP_CONTEXT_CLOSE, &close_request.base, NULL), EINVAL, "CONTEXT_CLOSE twice");
	must_be(make_pd(link, &handle), EINVAL, "a PD in a context that was closed");
	link->context = first;
	must_be(make_pd(link, &handle), 0, "a PD in a context that is open");
	world_end(&other);
	world_end(&mine);
}

/* Another session in the same context sees what is shared, and nothing else. */
static void attached(void)
{
	Vsd__ContextAttachRequest request = VSD__CONTEXT_ATTACH_REQUEST__INIT;
	Vsd__RegionExportRequest export = VSD__REGION_EXPORT_REQUEST__INIT;
	Vsd__MrImportRequest import = VSD__MR_IMPORT_REQUEST__INIT;
	uint8_t nonce[VSD_NONCE_SIZE + 1] = { 0 };
	struct world owner;
	struct link link;
	uint32_t handle, key, keys;

	world_make(&owner);
	link_ready(&link);
	request.nonce.data = nonce;
	for (request.nonce.len = 0; request.nonce.len <= VSD_NONCE_SIZE + 1; request.nonce.len++) {
		memcpy(nonce, owner.link.nonce, VSD_NONCE_SIZE);
		nonce[0] ^= request.nonce.len == VSD_NONCE_SIZE;
		must_be(link_call(&link, VSD__OP__OP_CONTEXT_ATTACH, &request.base, NULL),
			request.nonce.len == VSD_NONCE_SIZE ? EACCES : EINVAL, "a nonce of %zu bytes",
			request.nonce.len);
	}
	request.nonce.len = VSD_NONCE_SIZE;
	for (unsigned bit = 0; bit < 8 * VSD_NONCE_SIZE; bit++) {
		memcpy(nonce, owner.link.nonce, VSD_NONCE_SIZE);
		nonce[bit / 8] ^= (uint8_t)(1u << bit % 8);
		must_be(link_call(&link, VSD__OP__OP_CONTEXT_ATTACH, &request.base, NULL), EACCES,
			"a nonce with bit %u wrong", bit);
	}
	memcpy(nonce, owner.link.nonce, VSD_NONCE_SIZE);
	must_be(link_call(&link, VSD__OP__OP_CONTEXT_ATTACH, &request.base, &vsd__context_reply__descriptor), 0,
		"the right nonce");
	link.context = link.reply ? ((Vsd__ContextReply *)link.reply)->context : 0;
	must_be(destroy(&link, VSD__OBJECT_TYPE__OBJ_QP, owner.qp), EINVAL, "a QP of another process");
	must_be(destroy(&link, VSD__OBJECT_TYPE__OBJ_MR, owner.mr), EINVAL, "an MR of another process");
	must_be(destroy(&link, VSD__OBJECT_TYPE__OBJ_CQ, owner.cq), EINVAL, "a CQ of another process");
	must_be(make_region(&owner.link, owner.pd, 4096, 0, NULL, &handle), 0, "REGION_CREATE");
	export.context = import.context = link.context;
	export.mr = import.handle = handle;
	must_be(link_call(&link, VSD__OP__OP_REGION_EXPORT, &export.base, NULL), EINVAL, "a region's MR of another process");
	import.pd = owner.pd;
	must_be(link_call(&link, VSD__OP__OP_MR_IMPORT, &import.base, NULL), 0, "importing it");
	import.handle = owner.mr;
	/* The answer names the process that has the memory, to a process that could as well ask for its own. */
	must_be(link_call(&link, VSD__OP__OP_MR_IMPORT, &import.base, NULL), 0, "importing an MR on no region");
	import.spare_key = owner.key;
	must_be(link_call(&link, VSD__OP__OP_MR_IMPORT, &import.base, NULL), EINVAL, "a key of another process");
	must_be(modify(&link, owner.qp, IBV_QPS_ERR, 0), EINVAL, "a QP of another process");
	must_be(make_qp(&link, owner.pd, owner.cq, IBV_QPT_RC, owner.qpn + 7, &handle), EINVAL,
		"a CQ of another process");
	must_be(make_mr(&link, owner.pd, owner.key + 0x1000, &handle), EINVAL, "a key of another process");
	must_be(make_lease(&link, VSD__LEASE_KIND__LEASE_KEY, 1, &key, &keys), 0, "LEASE");
	must_be(make_mr(&link, owner.pd, key << 8, &handle), 0, "a shared PD");
	must_be(destroy(&owner.link, VSD__OBJECT_TYPE__OBJ_PD, owner.pd), EBUSY, "a PD that another process uses");
	/* The one who made it goes; who is left still has it, and then nobody. */
	world_end(&owner);
	must_be(destroy(&link, VSD__OBJECT_TYPE__OBJ_MR, handle), 0, "the MR of who is left");
	link_close(&link);
}

/* ---- numbers ---- */

static void numbers(void)
{
	struct world mine, other;
	struct link *link = &mine.link;
	uint32_t handle;

	world_make(&mine);
	world_make(&other);

	const uint32_t qpns[] = {
		0, 1, 255, mine.qpn_first - 1, mine.qpn_first + mine.qpns, other.qpn_first, other.qpn_first + 100, other.qpn,
		0xffffff, 0x1000000, 0x1000000 + mine.qpn_first, 0x80000000u + mine.qpn_first, 0xffffffffu,
	};
	const uint32_t keys[] = {
		0, 1, 255, mine.key_first - 1, mine.key_first + mine.keys, other.key_first, other.key_first + 100,
		0xffffff,
	};

	for (size_t i = 0; i < sizeof(qpns) / sizeof(qpns[0]); i++)
		must_be(make_qp(link, mine.pd, mine.cq, IBV_QPT_RC, qpns[i], &handle), EINVAL, "QP number %#x", qpns[i]);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		must_be(make_mr(link, mine.pd, keys[i] << 8, &handle), EINVAL, "key %#x", keys[i] << 8);
	must_be(make_qp(link, mine.pd, mine.cq, IBV_QPT_RC, mine.qpn, &handle), EEXIST, "a QP number used twice");
	must_be(make_qp(link, mine.pd, mine.cq, IBV_QPT_UD, mine.qpn, &handle), EEXIST, "a QP number used twice");
	must_be(make_mr(link, mine.pd, mine.key, &handle), EEXIST, "a key used twice");
	must_be(make_mr(link, mine.pd, mine.key | 0xff, &handle), EEXIST, "a key used twice under another tag");
	must_be(destroy(link, VSD__OBJECT_TYPE__OBJ_QP, mine.qp), 0, "DESTROY");
	must_be(make_qp(link, mine.pd, mine.cq, IBV_QPT_RC, mine.qpn, &handle), 0, "a QP number used again");
	must_be(make_qp(link, mine.pd, mine.cq, 8, mine.qpn_first + 50, &handle), EOPNOTSUPP, "a QP of type 8");
	world_end(&other);
	world_end(&mine);
}

static void leases(void)
{
	static const uint32_t counts_wanted[] = { 0, 1, 255, 256, 257, 1 << 20, 0x7fffffff, 0x80000000u, 0xffffffffu };
	uint32_t first, n;
	struct link link;

	for (unsigned kind = 0; kind < 6; kind++) {
		link_ready(&link);
		for (size_t i = 0; i < 20 * sizeof(counts_wanted) / sizeof(counts_wanted[0]); i++) {
			int r = make_lease(&link, (Vsd__LeaseKind)kind, counts_wanted[i / 20], &first, &n);

			if (kind < 1 || kind > 2)
				must_be(r, EINVAL, "a lease of kind %u", kind);
			else if (r != 0 && r != ENOSPC)
				must_be(r, ENOSPC, "a lease of %u", counts_wanted[i / 20]);
			if (r == 0 && (first == 0 || n == 0 || first + n > 1 << 24))
				complain("a lease of %u from %u", n, first);
		}
		link_close(&link);
	}
}

/* ---- order ---- */

static void order(void)
{
	static const Vsd__ObjectType type[] = {
		VSD__OBJECT_TYPE__OBJ_QP, VSD__OBJECT_TYPE__OBJ_QP, VSD__OBJECT_TYPE__OBJ_AH, VSD__OBJECT_TYPE__OBJ_SRQ,
		VSD__OBJECT_TYPE__OBJ_CQ, VSD__OBJECT_TYPE__OBJ_MW, VSD__OBJECT_TYPE__OBJ_MR,
		VSD__OBJECT_TYPE__OBJ_PARENT_DOMAIN, VSD__OBJECT_TYPE__OBJ_TD, VSD__OBJECT_TYPE__OBJ_PD,
		VSD__OBJECT_TYPE__OBJ_XRCD, VSD__OBJECT_TYPE__OBJ_SRQ, VSD__OBJECT_TYPE__OBJ_QP, VSD__OBJECT_TYPE__OBJ_QP,
	};
	enum { N = sizeof(type) / sizeof(type[0]) };

	for (unsigned round = 0; round < 50 * setting.scale; round++) {
		struct world w;
		bool gone[N] = { false };
		unsigned left = N;

		world_make(&w);

		const uint32_t handle[N] = { w.qp, w.ud, w.ah, w.srq, w.cq, w.mw, w.mr, w.parent, w.td, w.pd,
			w.xrcd, w.xsrq, w.xsend, w.xrecv };

		/* In random order, wrong ones tried until all are gone; a PD, CQ or XRCD before its users is EBUSY. */
		for (unsigned i = 0; left > 0 && i < 10000; i++) {
			unsigned pick = (unsigned)(chance() % N);
			bool busy = (type[pick] == VSD__OBJECT_TYPE__OBJ_CQ && !(gone[0] && gone[1] && gone[11] && gone[12])) ||
				    (type[pick] == VSD__OBJECT_TYPE__OBJ_XRCD && !(gone[11] && gone[13])) ||
				    (type[pick] == VSD__OBJECT_TYPE__OBJ_TD && !gone[7]) ||
				    (type[pick] == VSD__OBJECT_TYPE__OBJ_PD && left > 1 &&
					    !(gone[0] && gone[1] && gone[2] && gone[3] && gone[5] && gone[6] && gone[7] &&
						    gone[11] && gone[12]));
			int expected = gone[pick] ? EINVAL : busy ? EBUSY : 0;

			must_be(destroy(&w.link, type[pick], handle[pick]), expected, "DESTROY of a %d", type[pick]);
			if (expected == 0) {
				gone[pick] = true;
				left--;
			}
		}
		world_end(&w);
	}
}

static void states_of_qp(void)
{
	struct world w;
	uint32_t qpn;

	world_make(&w);
	for (unsigned i = 0; i < 3000 * setting.scale; i++) {
		unsigned state = (unsigned)(chance() % 8);
		int r;

		qpn = chance() % 2 ? w.qpn : chance() % 2 ? w.ud_qpn : (uint32_t)chance();
		r = modify(&w.link, chance() % 4 ? w.qp : w.ud, state == 7 ? (unsigned)chance() : state,
			chance() % 4 ? qpn : 0);
		if (r != 0 && r != EINVAL)
			must_be(r, EINVAL, "QP_MODIFY to %u", state);
		/* What comes from connecting to itself is given back. */
		for (Vsd__EvWire *event; (event = (Vsd__EvWire *)link_event(&w.link, VSD__OP__EV_WIRE,
						  &vsd__ev_wire__descriptor, 0));) {
			Vsd__WireReleaseRequest release = VSD__WIRE_RELEASE_REQUEST__INIT;

			release.segment = event->segment;
			release.wire = event->wire;
			release.generation = event->generation;
			must_be(link_call(&w.link, VSD__OP__OP_WIRE_RELEASE, &release.base, NULL), 0, "WIRE_RELEASE");
			protobuf_c_message_free_unpacked(&event->base, NULL);
		}
	}
	world_end(&w);
}

const struct attack attacks_objects[] = {
	{ "handles", handles }, { "types", types },	  { "contexts", contexts }, { "attached", attached },
	{ "numbers", numbers }, { "leases", leases },	  { "order", order },	    { "states_of_qp", states_of_qp },
	{ NULL, NULL },
};
