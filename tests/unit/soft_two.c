/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/unit/soft_two.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/harness.h"

struct two two;
struct vsd_page *peer_page[2];

static const uint32_t mem_now[] = { VSD_SEGMENT_MAGIC, VSD_ABI_VERSION }, page_now[] = { VSD_PAGE_MAGIC, VSD_ABI_VERSION };

static int memory_new(const uint32_t header[2])
{
	int mem = memfd_create("segment", MFD_CLOEXEC);

	ck_assert_int_eq(ftruncate(mem, VSD_SEGMENT_WIRES + (1u << 20)), 0);
	ck_assert_int_eq(pwrite(mem, header, 8, 0), 8);
	return mem;
}

/* The fds of EV_SEGMENT for one side of @mem; the other side reads the kick. */
static int try_side(int mem, unsigned side, const uint32_t page_header[2])
{
	Vsd__EvSegment event = VSD__EV_SEGMENT__INIT;
	int page = memfd_create("page", MFD_CLOEXEC), pipe_fds[2], quiet[2], r;

	event.segment = 1 + side;
	event.side = side;
	event.size = VSD_SEGMENT_WIRES + (1u << 20);
	event.peer = 7;
	event.engines = VSD__ENGINE_RIGHT__ENGINE_STAGE | VSD__ENGINE_RIGHT__ENGINE_CMA;
	event.wires = 16;
	ck_assert_int_eq(ftruncate(page, VSD_PAGE_SIZE), 0);
	ck_assert_int_eq(pwrite(page, page_header, 8, 0), 8);
	peer_page[!side] = mmap(NULL, VSD_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
	ck_assert_ptr_ne(peer_page[!side], MAP_FAILED);
	ck_assert_int_eq(pipe2(pipe_fds, O_NONBLOCK | O_CLOEXEC), 0);
	two.kick[!side] = pipe_fds[0];
	/* A pipe's end is as good as a pidfd here: epoll takes it, and it is never readable. */
	ck_assert_int_eq(pipe2(quiet, O_CLOEXEC), 0);
	r = pair_add(&event, dup(mem), quiet[0], pipe_fds[1], page);
	close(quiet[1]);
	return r;
}

static void add_side(int mem, unsigned side)
{
	ck_assert_int_eq(try_side(mem, side, page_now), 0);
	two.pair[side] = pair_find(1 + side, 0);
	ck_assert_ptr_nonnull(two.pair[side]);
}

int two_try(const uint32_t mem_header[2], const uint32_t page_header[2])
{
	int mem = memory_new(mem_header), r = try_side(mem, 0, page_header);

	close(mem);
	return r;
}

void two_setup(void)
{
	/* Of a test before this one, where tests do not fork. */
	two = (struct two){ .kick = { 0 } };
	peer_page[0] = peer_page[1] = NULL;
	atomic_store(&rt.polling, false);
	atomic_store(&rt.running, false);
	atomic_store(&rt.poll_rounds, 0);
	rt.rounds = rt.tick_rounds = 0;
	rt.tick_polled = rt.leftover = false;
	rt.page = mmap(NULL, VSD_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(rt.page, MAP_FAILED);
	rt.peer = 7;
	rt.epoll = epoll_create1(EPOLL_CLOEXEC);
	ck_assert_int_eq(pair_loop_init(), 0);
}

void two_teardown(void)
{
	for (unsigned side = 0; side < 2; side++) {
		if (two.end[side])
			wire_release(two.end[side]);
		if (two.kick[side])
			close(two.kick[side]);
		if (peer_page[side])
			munmap(peer_page[side], VSD_PAGE_SIZE);
	}
	wire_collect();
	pair_remove_all();
	pair_loop_deinit();
	events_deinit();
	close(rt.epoll);
	munmap(rt.page, VSD_PAGE_SIZE);
}

Vsd__EvWire two_wire_event(unsigned side, uint32_t req, uint32_t resp)
{
	Vsd__EvWire event = VSD__EV_WIRE__INIT;

	event.wire = 3;
	event.generation = 5;
	event.kind = VSD__WIRE_KIND__WIRE_RC;
	event.local_qpn = 0x100 + side;
	event.peer_qpn = 0x101 - side;
	event.req_slots = req;
	event.resp_slots = resp;
	event.peer = 7;
	event.side = side;
	return event;
}

void two_segment_pair(void)
{
	int mem = memory_new(mem_now);

	add_side(mem, 0);
	add_side(mem, 1);
	close(mem);
}

void two_make(bool loop, uint32_t req, uint32_t resp)
{
	if (loop) {
		two.pair[0] = &rt.loop[0];
		two.pair[1] = &rt.loop[1];
	} else {
		two_segment_pair();
	}
	for (unsigned side = 0; side < 2; side++) {
		Vsd__EvWire event = two_wire_event(side, req, resp);

		if (!loop) {
			event.segment = 1 + side;
			event.offset = VSD_SEGMENT_WIRES + 4096;
		}
		ck_assert_int_eq(wire_make(two.pair[side], &event, &two.end[side]), 0);
	}
}
