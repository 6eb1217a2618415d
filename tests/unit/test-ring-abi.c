/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The layout of the mapped pages, as numbers: two builds of different versions map the same pages, so a
 * number that changes here is a break of the ABI and needs a new VSD_ABI_VERSION.
 */
#include "proto/ring_abi.h"

#include "proto/limits.h"
#include "tests/lib/harness.h"

#define AT(type, member)                                                                          \
	{                                                                                         \
#type "." #member, offsetof(struct type, member)                                  \
	}
#define SIZE(type)                                                                                \
	{                                                                                         \
#type, sizeof(struct type)                                                        \
	}

static const struct {
	struct {
		const char *name;
		size_t is;
	} what;
	size_t want;
} layout[] = {
	{ SIZE(vsd_map), 263232 },
	{ AT(vsd_map, owner), 64 },
	{ AT(vsd_map, mcast), 262208 },
	{ AT(vsd_page, state), 64 },
	{ AT(vsd_page, alive), 128 },
	{ AT(vsd_page, counters), 192 },
	{ AT(vsd_page, guard_addr), 16 },
	{ AT(vsd_page, guard_value), 24 },
	{ AT(vsd_page, gates), 4096 },
	{ AT(vsd_page, keys), 4096 + 16384 * 64 },
	{ AT(vsd_page, mr_changes), 320 },
	{ AT(vsd_page, shards), 384 },
	{ SIZE(vsd_shard), 128 },
	{ AT(vsd_page, mrs), 4096 + (16384 + 65536) * 64 },
	{ SIZE(vsd_page), 4096 + (16384 + 65536 + 16384) * 64 },
	{ AT(vsd_mr, addr), 8 },
	{ AT(vsd_mr, length), 16 },
	{ AT(vsd_mr, iova), 24 },
	{ AT(vsd_mr, key), 32 },
	{ AT(vsd_mr, access), 36 },
	{ AT(vsd_mr, pd), 40 },
	{ AT(vsd_map, watched), 8 },
	{ AT(vsd_key, addr), 8 },
	{ AT(vsd_key, iova), 24 },
	{ AT(vsd_key, key), 32 },
	{ AT(vsd_key, access), 36 },
	{ AT(vsd_key, pd), 40 },
	{ AT(vsd_gate, qpn), 8 },
	{ AT(vsd_gate, peer_qpn), 20 },
	{ AT(vsd_gate, wire), 24 },
	{ AT(vsd_gate, segment), 32 },
	{ AT(vsd_segment, sides), 64 },
	{ AT(vsd_side, want_pool), 1024 },
	{ AT(vsd_side, summary), 1088 },
	{ AT(vsd_side, ready), 1152 },
	{ SIZE(vsd_side), 1664 },
	{ AT(vsd_segment, pools), 8192 },
	{ SIZE(vsd_pool), 2 << 20 },
	{ SIZE(vsd_segment), 8192 + (8 << 20) },
	{ AT(vsd_half, acked), 8 },
	{ AT(vsd_half, resp_taken), 16 },
	{ AT(vsd_half, state), 64 },
	{ AT(vsd_half, want_space), 72 },
	{ AT(vsd_half, recvs), 76 },
	{ AT(vsd_req, op), 4 },
	{ AT(vsd_req, slots), 6 },
	{ AT(vsd_req, msn), 8 },
	{ AT(vsd_req, len), 12 },
	{ AT(vsd_req, total), 16 },
	{ AT(vsd_req, imm), 20 },
	{ AT(vsd_req, rw.raddr), 24 },
	{ AT(vsd_req, rw.rkey), 32 },
	{ AT(vsd_req, rw.chunk), 36 },
	{ AT(vsd_req, rw.data), 40 },
	{ AT(vsd_req, ud.chunk), 36 },
	{ AT(vsd_req, ud.slid), 40 },
	{ AT(vsd_req, ud.sl), 44 },
	{ AT(vsd_req, ud.link_layer), 45 },
	{ AT(vsd_req, ud.dlid), 46 },
	{ AT(vsd_req, ud.data), 48 },
	{ AT(vsd_req, atomic.swap_add), 40 },
	{ AT(vsd_req, atomic.compare), 48 },
	{ AT(vsd_req_more, data), 4 },
	{ AT(vsd_resp, status), 6 },
	{ AT(vsd_resp, msn), 8 },
	{ AT(vsd_resp, value), 16 },
	{ AT(vsd_resp, chunk), 24 },
	{ AT(vsd_resp, data), 28 },
};

START_TEST(layout_is_the_published_one)
{
	ck_assert_msg(layout[_i].what.is == layout[_i].want, "%s: %zu, not %zu",
		layout[_i].what.name, layout[_i].what.is, layout[_i].want);
}
END_TEST

/* The chunk of a request is looked for in one place, whatever the request is. */
START_TEST(chunk_is_at_one_offset)
{
	ck_assert_uint_eq(offsetof(struct vsd_req, rw.chunk), offsetof(struct vsd_req, ud.chunk));
}
END_TEST

START_TEST(no_two_writers_share_a_line)
{
	static const size_t written[] = { offsetof(struct vsd_segment, sides),
		offsetof(struct vsd_side, want_pool), offsetof(struct vsd_side, summary),
		offsetof(struct vsd_side, ready), sizeof(struct vsd_side),
		offsetof(struct vsd_page, state), offsetof(struct vsd_page, alive),
		offsetof(struct vsd_page, counters), offsetof(struct vsd_page, shards),
		sizeof(struct vsd_shard), offsetof(struct vsd_half, state),
		sizeof(struct vsd_half), offsetof(struct vsd_map, owner),
		offsetof(struct vsd_map, mcast) };

	for (size_t i = 0; i < sizeof(written) / sizeof(written[0]); i++)
		ck_assert_msg(written[i] % VSD_LINE == 0, "entry %zu", i);
}
END_TEST

START_TEST(pages_are_whole_pages)
{
	ck_assert_uint_eq(VSD_MAP_SIZE % 4096, 0);
	ck_assert_uint_ge(VSD_MAP_SIZE, sizeof(struct vsd_map));
	ck_assert_uint_eq(VSD_PAGE_SIZE % 4096, 0);
	ck_assert_uint_eq(VSD_SEGMENT_WIRES % 4096, 0);
	ck_assert_uint_eq(VSD_SEGMENT_SIZE % 4096, 0);
}
END_TEST

START_TEST(lease_and_map_range_are_the_same)
{
	ck_assert_uint_eq(VSD_LEASE_QPNS, 1u << VSD_MAP_SHIFT);
	ck_assert_uint_eq(VSD_MAP_RANGES << VSD_MAP_SHIFT, 1u << 24);
}
END_TEST

/* datapath.md asks for at least 236 bytes inline; the smallest lane of a connected wire has 16 slots. */
START_TEST(inline_payload_is_what_its_slots_hold)
{
	ck_assert_uint_eq(VSD_INLINE_RW, 264);
	ck_assert_uint_eq(VSD_INLINE_UD, 256);
	ck_assert_uint_le(VSD_SPAN_MAX, 16);
}
END_TEST

START_TEST(biggest_wires_fit_the_segment)
{
	size_t biggest = VSD_WIRE_SIZE(128, 64);

	ck_assert_uint_eq(biggest, 2 * (128 + (128 + 64) * 64));
	ck_assert_uint_ge(VSD_SEGMENT_WIRE_BYTES / biggest, 1024);
	ck_assert_uint_ge(VSD_SEGMENT_WIRE_BYTES, VSD_WIRE_SIZE(256, 2));
}
END_TEST

START_TEST(flags_are_distinct_bits)
{
	static const unsigned flags[] = { VSD_F_FIRST, VSD_F_LAST, VSD_F_CHUNK, VSD_F_IMM,
		VSD_F_SOLICITED, VSD_F_RESTART, VSD_F_INV, VSD_F_GRH };
	unsigned seen = 0;

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		ck_assert_uint_eq(seen & flags[i], 0);
		seen |= flags[i];
	}
	ck_assert_uint_eq(seen, 255);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ring-abi");
	TCase *tcase = harness_tcase(suite, "layout");

	tcase_add_loop_test(
		tcase, layout_is_the_published_one, 0, (int)(sizeof(layout) / sizeof(layout[0])));
	tcase_add_test(tcase, chunk_is_at_one_offset);
	tcase_add_test(tcase, no_two_writers_share_a_line);
	tcase_add_test(tcase, pages_are_whole_pages);
	tcase_add_test(tcase, lease_and_map_range_are_the_same);
	tcase_add_test(tcase, inline_payload_is_what_its_slots_hold);
	tcase_add_test(tcase, biggest_wires_fit_the_segment);
	tcase_add_test(tcase, flags_are_distinct_bits);
	return harness_run(suite);
}
