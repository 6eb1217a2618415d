/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The layout of every page that two processes map: the map page, process pages, pair segments and their wires.
 *
 * Rules. Nothing here is trusted by its reader: sizes, masks and own indexes are private copies of what the daemon
 * said over its socket; a descriptor is copied out, then validated. Every 64-byte line has one writer, named beside
 * it. Offsets, never pointers. "gen" is the wire's generation, from EV_WIRE.
 */
#ifndef PROTO_RING_ABI_H
#define PROTO_RING_ABI_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define VSD_LINE 64
#define VSD_ABI_VERSION 3

/* ---- the map page: written by the daemon, mapped read-only by everyone ------------------------------------------ */

/* owner[qpn >> VSD_MAP_SHIFT] is the peer id of the process that this range of QP numbers is leased to; 0: nobody. */
#define VSD_MAP_MAGIC 0x4d445356u
#define VSD_MAP_SHIFT 8 /* VSD_LEASE_QPNS */
#define VSD_MAP_RANGES (1u << (24 - VSD_MAP_SHIFT))
/* mcast[i] counts changes of the multicast groups that share entry i: which one a group has, MCAST_RESOLVE says. */
#define VSD_MAP_MCAST 256u

struct vsd_map {
	uint32_t magic, version;
	_Atomic uint32_t watched; /* somebody watches: whoever registers memory tells the daemon at once. A hint */
	uint8_t pad[VSD_LINE - 12];
	_Atomic uint32_t owner[VSD_MAP_RANGES];
	_Atomic uint32_t mcast[VSD_MAP_MCAST];
};

#define VSD_MAP_SIZE ((sizeof(struct vsd_map) + 4095) & ~(size_t)4095)

/* ---- process page: written by its process only, mapped read-only by its peers, read with pread by the daemon ---- */

#define VSD_PAGE_MAGIC 0x50445356u

/* An entry per key that initiators may use (cma, map). gen 0: closed. Slot: (key >> 8) % VSD_PAGE_KEYS. */
struct vsd_key {
	_Atomic uint64_t gen; /* stored last when an entry opens, first (0) when it closes */
	_Atomic uint64_t addr, length, iova;
	_Atomic uint32_t key, access, pd;
	_Atomic uint32_t region; /* number of the shared region that it gives access to, 0: of none. A hint: ask the daemon */
	uint8_t rest[16];
};

/* A gate per QP: what the peer may do through it. Slot: qpn % VSD_PAGE_GATES. */
struct vsd_gate {
	_Atomic uint64_t gen; /* 0: closed */
	_Atomic uint32_t qpn, access, pd, peer_qpn;
	_Atomic uint64_t wire; /* gen << 32 | index of the wire that the QP has: which connection it is; 0: none yet */
	_Atomic uint32_t segment;
	uint8_t rest[28];
};

/*
 * A place per MR that needs no request (OP_MR_PLACES): the daemon looks here for what is registered, when somebody asks. Peers
 * have no use for it.
 */
struct vsd_mr {
	_Atomic uint64_t gen; /* another one for each registration; 0: none. Stored last, and 0 before anything changes */
	_Atomic uint64_t addr, length, iova;
	_Atomic uint32_t key, access;
	_Atomic uint32_t pd; /* handle of the PD or parent domain */
	uint8_t rest[20];
};

#define VSD_PAGE_KEYS 65536u
#define VSD_PAGE_GATES 16384u
#define VSD_PAGE_MRS 16384u

enum vsd_counter {
	VSD_COUNT_POSTS,
	VSD_COUNT_RECVS,
	VSD_COUNT_COMPLETIONS,
	VSD_COUNT_ERRORS,
	VSD_COUNT_BYTES_SENT,
	VSD_COUNT_BYTES_RECEIVED,
	VSD_COUNT_RNR,
	VSD_COUNT_KICKS,
	VSD_COUNT_WAKEUPS,
	VSD_COUNT_DROPPED,
	VSD_COUNT_INITIATOR_RUN,
	VSD_COUNT_PULLED, /* messages that this process fetched from their sender's memory */
	VSD_COUNT_N = 16,
};

#define VSD_PAGE_SHARDS 16u

/* A thread's share of the counters; two lines, since processors fetch lines in pairs. */
struct vsd_shard {
	_Atomic uint64_t counters[VSD_COUNT_N];
};

/* What a process knows beside what VSD_ABI_VERSION says. */
enum vsd_can {
	VSD_CAN_PULL = 1, /* VSD_REQ_PULL, and answers it */
};

struct vsd_page {
	/* line 0: fixed at set-up */
	uint32_t magic, version;
	uint32_t peer, can; /* enum vsd_can: what may be sent to it; 0 in an older library's */
	uint64_t guard_addr, guard_value; /* a word that process_vm_readv finds at a random address */
	uint8_t rest0[32];
	/* line 1: epoch << 1 | asleep (datapath.md 5) */
	_Atomic uint64_t state;
	uint8_t rest1[56];
	/* line 2: a robust, process-shared pthread mutex held by the progress thread. Peers read its first word only:
	 * FUTEX_OWNER_DIED set means dead or exec'd. */
	_Atomic uint32_t alive;
	uint8_t rest2[60];
	/* line 3 and 4: a counter is this one and that of each shard together */
	_Atomic uint64_t counters[VSD_COUNT_N];
	/* line 5: counts changes of mrs, each after it was made */
	_Atomic uint64_t mr_changes;
	uint8_t rest5[56];
	/* line 6: where HELLO granted them; each is changed by one thread at a time */
	struct vsd_shard shards[VSD_PAGE_SHARDS];
	uint8_t pad[4096 - 6 * VSD_LINE - VSD_PAGE_SHARDS * sizeof(struct vsd_shard)];
	struct vsd_gate gates[VSD_PAGE_GATES];
	struct vsd_key keys[VSD_PAGE_KEYS];
	struct vsd_mr mrs[VSD_PAGE_MRS];
};

#define VSD_PAGE_SIZE sizeof(struct vsd_page)
/* As much of it as peers map: what comes behind is between its process and the daemon, and may be missing in an older one's. */
#define VSD_PAGE_PEER_SIZE offsetof(struct vsd_page, mrs)

/* ---- pair segment: mapped read-write by two processes ----------------------------------------------------------- */

#define VSD_SEGMENT_MAGIC 0x53445356u
#define VSD_HAZARDS 16	     /* executing threads of a process that run engines on the peer at the same time */
#define VSD_WIRES 4096u	     /* wires in one segment; wire 0 is the segment itself (pool space) */
#define VSD_CHUNK 32768u     /* bytes of a pool chunk */
#define VSD_POOL_CHUNKS 64u  /* chunks of one pool */
#define VSD_SPAN_MAX 5	     /* slots that one request may span */

/* Written by the initiating thread of this side: what it is touching in the peer. 0: nothing. */
struct vsd_hazard {
	_Atomic uint64_t key; /* 1 << 32 | key */
	_Atomic uint64_t qpn; /* the peer's QP */
	uint8_t rest[48];
};

struct vsd_side {
	struct vsd_hazard hazards[VSD_HAZARDS];
	_Atomic uint32_t want_pool; /* this side waits for chunks of its request or response pool */
	uint8_t rest0[60];
	/* Ready bits FOR this side: set by the peer, cleared by this side. Hints only. */
	_Atomic uint64_t summary; /* bit i: ready[i] has a bit */
	uint8_t rest1[56];
	_Atomic uint64_t ready[VSD_WIRES / 64];
};

/* Pools that this side writes: payload of its requests, and of its READ responses (two, so that neither waits for the
 * other: a full request pool must not stop a response). */
struct vsd_pool {
	uint8_t chunks[VSD_POOL_CHUNKS][VSD_CHUNK];
};

struct vsd_segment {
	uint32_t magic, version; /* by the daemon, at birth */
	uint8_t rest[VSD_LINE - 8];
	struct vsd_side sides[2];
	uint8_t pad[8192 - VSD_LINE - 2 * sizeof(struct vsd_side)];
	struct {
		struct vsd_pool req, resp;
	} pools[2];
	/* wires follow */
};

#define VSD_SEGMENT_WIRES sizeof(struct vsd_segment) /* offset of the first wire */
/* Room for wires in a segment; a wire takes VSD_WIRE_SIZE(req, resp), rounded up to 1 KiB. */
#define VSD_SEGMENT_WIRE_BYTES (56u << 20)
#define VSD_SEGMENT_SIZE (VSD_SEGMENT_WIRES + VSD_SEGMENT_WIRE_BYTES)

/* ---- wires ------------------------------------------------------------------------------------------------------ */

/*
 * A wire is two halves; half s is written by side s. A half is zeroed by its writer before it stores state, and is
 * looked at by the peer only after state said (gen << 2 | VSD_HALF_OPEN). Lanes: single producer, single consumer,
 * slots of 64 bytes, valid when tag == (position / slots) + 1, stored last (release). Positions count slots and are
 * private. The consumer publishes how far it is in its own half's ack line.
 */
enum vsd_half_state {
	VSD_HALF_NONE = 0,
	VSD_HALF_OPEN = 1,
	VSD_HALF_CLOSED = 2, /* the QP left RTR/RTS/SQD */
};

struct vsd_half {
	/* line 0: what this side has done with the peer's lanes */
	_Atomic uint64_t req_taken;  /* slots of the peer's request lane consumed: space, and chunks free again */
	_Atomic uint64_t acked;	     /* the peer's messages completed, counted from the start of the wire */
	_Atomic uint64_t resp_taken; /* slots of the peer's response lane consumed */
	uint8_t rest0[40];
	/* line 1 */
	_Atomic uint64_t state;	     /* gen << 2 | enum vsd_half_state */
	_Atomic uint32_t want_space; /* this side waits for lane space: tell me (ready bit, kick) when you took some */
	_Atomic uint32_t recvs;	     /* counts receives posted after an RNR: a hint that a retry may succeed now */
	uint8_t rest1[48];
	/* request lane, then response lane */
};

#define VSD_HALF_SIZE(req, resp) (sizeof(struct vsd_half) + ((size_t)(req) + (resp)) * VSD_LINE)
#define VSD_WIRE_SIZE(req, resp) (2 * VSD_HALF_SIZE(req, resp))

enum vsd_req_op {
	VSD_REQ_SEND = 1,
	VSD_REQ_WRITE = 2,
	VSD_REQ_READ = 3,
	VSD_REQ_CMP_SWAP = 4,
	VSD_REQ_FETCH_ADD = 5,
	VSD_REQ_DATAGRAM = 6,
	VSD_REQ_ATOMIC_WRITE = 7,
	VSD_REQ_FLUSH = 8,
	VSD_REQ_AIM = 9, /* no message: those that follow are for the XRC SRQ with the number raddr */
	/*
	 * A SEND whose payload the receiver fetches: `total` bytes at raddr of the sender's key rkey. One descriptor with
	 * FIRST and LAST, len 0. Only to a process whose page says VSD_CAN_PULL, by a pair that may use cma.
	 */
	VSD_REQ_PULL = 10,
};

enum vsd_req_flag {
	VSD_F_FIRST = 1,	/* first descriptor of a message */
	VSD_F_LAST = 2,		/* last one */
	VSD_F_CHUNK = 4,	/* payload is in pool chunk `chunk`, else inline in this and the next slots */
	VSD_F_IMM = 8,
	VSD_F_SOLICITED = 16,
	VSD_F_RESTART = 32,	/* first descriptor after an RNR answer to this msn: stop dropping */
	VSD_F_INV = 64,		/* imm is an rkey to invalidate */
	VSD_F_GRH = 128,	/* datagram: the payload starts with a 40-byte GRH, as the sender built it */
};

/* A datagram to the group that its GRH names, for all QPs of the process that are attached to it. */
#define VSD_QPN_MCAST 0xffffffu

/*
 * Head slot of a request. Inline payload starts in `data` and goes on in the following slots' bytes 4..63 (each slot
 * has its own tag, all stored before or with the head's).
 */
struct vsd_req {
	_Atomic uint32_t tag;
	uint8_t op, flags, slots, pad;
	uint32_t msn;	/* message number, from 0 on this wire */
	uint32_t len;	/* payload bytes of this descriptor */
	uint32_t total; /* bytes of the whole message */
	uint32_t imm;	/* as in the WR: network order, or an rkey */
	union {
		struct {
			uint64_t raddr; /* WRITE, READ, atomics: start of the whole message */
			uint32_t rkey;
			uint32_t chunk;
			uint8_t data[VSD_LINE - 40];
		} rw;
		struct {
			uint32_t dst_qpn, src_qpn, qkey;
			uint32_t chunk;
			uint16_t slid, pkey_index;
			uint8_t sl, link_layer; /* of the sender's port */
			uint16_t dlid;		/* on InfiniBand: where it was sent to, or to which group; else 0 */
			uint8_t data[VSD_LINE - 48];
		} ud;
		struct {
			uint64_t raddr;
			uint32_t rkey, pad;
			uint64_t swap_add, compare;
		} atomic;
	};
};

/* A following slot of an inline payload. */
struct vsd_req_more {
	_Atomic uint32_t tag;
	uint8_t data[VSD_LINE - 4];
};

#define VSD_INLINE_RW (VSD_LINE - 40 + (VSD_SPAN_MAX - 1) * (VSD_LINE - 4)) /* 264 */
#define VSD_INLINE_UD (VSD_LINE - 48 + (VSD_SPAN_MAX - 1) * (VSD_LINE - 4)) /* 256 */

enum vsd_resp_op {
	VSD_RESP_READ = 1,   /* payload of a READ, in order; several per message */
	VSD_RESP_ATOMIC = 2, /* `value` */
	VSD_RESP_RNR = 3,    /* msn found no receive; `value` is the RNR timer code */
	VSD_RESP_NAK = 4,    /* msn failed with `status` (enum ibv_wc_status); the responder is in error */
	VSD_RESP_DONE = 5,   /* FLUSH and other operations that only need an answer */
	/*
	 * The message msn, a VSD_REQ_PULL, cannot be fetched: all is dropped until it comes again, as a SEND with
	 * VSD_F_RESTART. `value`: enum vsd_stage.
	 */
	VSD_RESP_STAGE = 6,
};

/* What is not to be sent as VSD_REQ_PULL any more. */
enum vsd_stage {
	VSD_STAGE_MESSAGE = 0, /* this message */
	VSD_STAGE_WIRE = 1,    /* nothing by this wire */
	VSD_STAGE_PAIR = 2,    /* nothing to this process */
};

struct vsd_resp {
	_Atomic uint32_t tag;
	uint8_t op, flags, status, pad; /* flags: VSD_F_CHUNK, VSD_F_LAST */
	uint32_t msn;
	uint32_t len;
	uint64_t value;
	uint32_t chunk;
	uint8_t data[VSD_LINE - 28]; /* inline payload of a READ, up to 36 bytes */
};

_Static_assert(sizeof(struct vsd_key) == VSD_LINE, "key");
_Static_assert(sizeof(struct vsd_gate) == VSD_LINE, "gate");
_Static_assert(sizeof(struct vsd_mr) == VSD_LINE, "MR");
_Static_assert(sizeof(struct vsd_hazard) == VSD_LINE, "hazard");
_Static_assert(sizeof(struct vsd_half) == 2 * VSD_LINE, "half");
_Static_assert(sizeof(struct vsd_req) == VSD_LINE, "request");
_Static_assert(sizeof(struct vsd_req_more) == VSD_LINE, "continuation");
_Static_assert(sizeof(struct vsd_resp) == VSD_LINE, "response");
_Static_assert(offsetof(struct vsd_page, state) == VSD_LINE, "state line");
_Static_assert(offsetof(struct vsd_page, alive) == 2 * VSD_LINE, "alive line");
_Static_assert(offsetof(struct vsd_page, counters) == 3 * VSD_LINE, "counter lines");
_Static_assert(sizeof(struct vsd_shard) == 2 * VSD_LINE, "shard");
_Static_assert(offsetof(struct vsd_page, shards) % sizeof(struct vsd_shard) == 0, "shard lines");
_Static_assert(offsetof(struct vsd_page, gates) == 4096, "gates");
_Static_assert(offsetof(struct vsd_page, mrs) % 4096 == 0, "MRs");
_Static_assert(offsetof(struct vsd_map, owner) == VSD_LINE, "owners");
_Static_assert(sizeof(struct vsd_segment) % 4096 == 0, "wires start on a page");

/* A counter as it is now. */
static inline uint64_t vsd_page_counter(const struct vsd_page *page, enum vsd_counter counter)
{
	uint64_t sum = atomic_load_explicit(&page->counters[counter], memory_order_relaxed);

	for (unsigned i = 0; i < VSD_PAGE_SHARDS; i++)
		sum += atomic_load_explicit(&page->shards[i].counters[counter], memory_order_relaxed);
	return sum;
}

#endif
