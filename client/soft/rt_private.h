/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of the runtime have among themselves: the one struct rt, segments and their pools.
 *
 * Locks: rt.progress is held by the one thread that serves wires, fires timers and handles the daemon's events; the
 * tables of pairs and wires change only under it. It is outermost, taken with trylock on the data path, and never while
 * a lock of an object is held, but by trylock. All others here are leaves, and guard what stands beside them.
 */
#ifndef SOFT_RT_PRIVATE_H
#define SOFT_RT_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/control/control.h"
#include "client/soft/hot.h"
#include "client/soft/mutex.h"
#include "client/soft/rt.h"
#include "client/soft/spin.h"
#include "client/soft/shard.h"
#include "client/soft/way.h"
#include "client/soft/wire.h"
#include "proto/ring_abi.h"

#define SPIN_NS 50000u		 /* about one wake-up */
#define LOOK_ROUNDS 16u		 /* of who blocks, at most, between two looks whether its event came */
#define TICK_NS 1000000u
#define CLOCK_ROUNDS 64u	 /* rounds between two looks at the clock */
#define FULL_ROUNDS 8u		 /* of a poller's, one of so many looks at more than hot wires; divides CLOCK_ROUNDS */
#define YIELD_ROUNDS 1024u	 /* idle rounds, some 50 to 100 µs */
#define IDLE_TICKS 10u		 /* ticks without an empty poll after which the process is asleep */
#define FLIP_POLLS 256u		 /* so many polls ... */
#define FLIP_SLOW 32u		 /* or so many that took a tick, as those that copy do, ... */
#define FLIP_NS 5000000u	 /* ... within this time make the process active */
#define UNTAKEN_NS 50000u	 /* a descriptor untaken for so long: kick */
#define ALIVE_NS 1000000000u	 /* between two looks at the peers' liveness words */
#define WORK_NS 2000000u	 /* of serving without a look at the daemon's events */

struct pool_state {
	_Atomic uint64_t free, populated; /* a bit a chunk */
	_Atomic int next;		  /* the one to take, if it is free: pair_chunk_ahead() */
	_Atomic uint64_t short_at;	  /* when there was no memory for one, 0: not lately */
};

/* A chunk that a released wire left behind: the peer may still read it. */
struct pool_stray {
	struct pool_stray *next;
	const struct vsd_half *theirs;
	uint64_t state; /* the peer's half state while it may read */
	uint64_t pos;
	int16_t chunk;
	uint8_t kind;
};

struct pair_private {
	struct pair *next;
	uint64_t size;		  /* of the segment */
	uint32_t granted;	  /* engines as the daemon said */
	uint32_t n_wires;
	struct wire **wires;	  /* by index */
	_Atomic unsigned attached; /* wires in it; changed under the progress lock, and read without it */
	_Atomic uint64_t kicked;  /* the peer's state word at the last kick */
	_Atomic uint32_t hazards; /* own hazard slots in use */
	_Atomic uint32_t turns[VSD_HAZARDS]; /* of each: odd while in use. What the slots say the peer can change */
	_Atomic(const void *) locals[VSD_HAZARDS]; /* what each names of this process's own: the slot of a key; NULL: nothing */
	_Atomic(struct map_table *) map; /* map.c's */
	_Atomic uint32_t wires_made;
	_Atomic uint64_t awaited[VSD_WIRES / 64]; /* order.c's: a bit a wire, and how many */
	_Atomic unsigned n_awaited;
	struct ways ways;	 /* way.h: long SENDs to its process */
	struct pool_state pools[2];
	pthread_mutex_t pool_lock; /* guards the waiters and strays */
	struct soft_qp *waiters, **waiters_tail;
	_Atomic bool waiting; /* there are some */
	struct pool_stray *strays;
	uint64_t summary_then; /* at the last tick */
	bool gone;	/* its death was handled */
};

struct rt {
	_Atomic bool running;
	struct vsd_page *page;
	const struct vsd_map *map;
	uint64_t *guard;
	uint32_t peer;
	int events, kick, epoll, wake, timer;
	pthread_t thread;
	_Atomic bool stop;
	bool many_cpus;
	struct spin spin; /* where it has one of several */

	struct soft_mutex progress;
	_Atomic unsigned waiters; /* threads that wait for it: polls keep out */
	_Atomic(void *) holder;	  /* its owner's thread pointer */
	struct soft_td *tds, *td_turn; /* all thread domains; whose turn it is in polls of something else */
	unsigned parked;	       /* how many are */
	unsigned rounds, idle_rounds;
	unsigned tick_rounds; /* poll_rounds at the last tick */
	bool tick_polled;     /* there were some between that and the one before */
	_Atomic unsigned poll_rounds; /* of those, what polls made or would have; one that is lost in a race is no matter */
	bool leftover; /* the last round stopped at its bound, or a tick left something: the next one looks everywhere */
	/* what else each poll looks at */
	_Atomic bool loop_any, run_any, watch_any, garbage_any; /* of the lists below */
	_Atomic bool owes; /* a receive was completed by who is inside, and is not acknowledged yet (order.h) */
	_Atomic bool polling;					 /* polls made the process active */
	_Atomic uint64_t state;					 /* asleep or not, as in the page */
	_Atomic uint64_t polls;
	struct hot_set hot;
	struct pair *pairs;
	pthread_mutex_t pairs_lock; /* for those who look at the pairs without the progress lock */
	struct pair loop[2];

	pthread_mutex_t loop_lock;
	struct wire *loop_ready;

	pthread_mutex_t run_lock;
	struct soft_qp *run_head, **run_tail;

	pthread_mutex_t watch_lock;
	struct wire *watched;

	pthread_mutex_t garbage_lock;
	struct wire *garbage;

	/* sleep.c */
	pthread_mutex_t state_lock;
	_Atomic uint64_t self_kicked;
	bool leader, kick_given;
	_Atomic bool kick_over; /* nobody is left who could kick */
	_Atomic uint64_t flip_start;
	_Atomic unsigned flip_count;
	_Atomic uint64_t left_at; /* when the last blocked thread went back to the program */
	pthread_mutex_t arm_lock;
	uint64_t armed; /* deadline of the timerfd, 0: none */
};

extern struct rt rt;

static inline bool rt_inside(void)
{
	return atomic_load_explicit(&rt.holder, memory_order_relaxed) == __builtin_thread_pointer();
}

/* Another thread completed a receive and has not acknowledged it: what is posted now waits for that. */
static inline bool rt_owes(void)
{
	return __builtin_expect(atomic_load_explicit(&rt.owes, memory_order_acquire), 0) && !rt_inside();
}

/* Counts in the process's page. */
static inline void rt_count(enum vsd_counter counter, uint64_t n)
{
	if (n && rt.page)
		shard_count(rt.page, counter, n);
}

/* A receive is completed where others see it, by who may be inside; the turn is over. */
void rt_owe(void);
void rt_pay(void);
static inline void rt_owes_nothing(void)
{
	if (__builtin_expect(atomic_load_explicit(&rt.owes, memory_order_relaxed), 0))
		rt_pay();
}

/* --- rt.c ---------------------------------------------------------------------------------------------------------- */
/* The progress lock, waited for; nests in a thread that holds it (leave returns what enter gave). */
bool rt_enter(void);

static inline void rt_leave(bool entered)
{
	if (!entered)
		return;
	atomic_store_explicit(&rt.holder, NULL, memory_order_relaxed);
	soft_mutex_unlock(&rt.progress);
}

/* The lock, if it is free. */
static inline bool rt_try_enter(void)
{
	if (!soft_mutex_trylock(&rt.progress))
		return false;
	atomic_store_explicit(&rt.holder, __builtin_thread_pointer(), memory_order_relaxed);
	return true;
}

/* Maps @fd shared, by dontfork_mmap(). NULL, errno. */
void *rt_map(int fd, size_t size, bool write);
/* Makes the pages of [addr, addr+size) present, with an error instead of a signal. 0 or a negative errno. */
int rt_populate(void *addr, size_t size);

/* --- progress.c ---------------------------------------------------------------------------------------------------- */
/* How far a round goes with thread domains: those that are parked; those whose owner is away; all, before sleep; old work. */
enum td_look { TD_POLL, TD_WORK, TD_SWEEP, TD_TICK };
/* One round; progress lock held. @clock: looks at the clock, too. */
bool progress_round(enum td_look look, bool clock);
/* rt_progress() in its parts: false, and nothing to end, when another thread is at it. */
static inline bool progress_begin(void)
{
	return atomic_load_explicit(&rt.running, memory_order_relaxed) &&
	       !atomic_load_explicit(&rt.waiters, memory_order_relaxed) && rt_try_enter();
}

/* A poll, whether it makes a round or finds another thread at it. */
static inline void progress_asked(void)
{
	unsigned rounds = atomic_load_explicit(&rt.poll_rounds, memory_order_relaxed);

	atomic_store_explicit(&rt.poll_rounds, rounds + 1, memory_order_relaxed);
}

bool progress_poll(void);
void progress_end(bool did);
/* As rt_progress(), for the thread that has nothing else to do: also for domains whose owners are away. */
bool rt_work(void);
/* A round with the lock waited for, that looks at every ready bit, not at the summaries alone. True: there may be more. */
bool progress_sweep(void);
/* The progress thread's, both. One tick of the active process: serves what outlived a tick, or leaves it to who polls. */
void progress_tick(void);
/* Threads poll, and have done so since the last tick. */
bool progress_is_polled(void);
/* Puts a wire that was attached into the hot set. Progress lock held. */
void progress_adopt(struct wire *wire);
void progress_forget_wire(struct wire *wire);
/* Serves it, bounded; who has its hot set has it. True when something was done. */
bool wire_serve(struct wire *wire);
/* Marks a wire of this process itself as ready. */
void loop_mark(struct wire *wire);
void loop_retire(struct wire *wire);
/* Puts it on its way to the hot set. */
void loop_heat(struct wire *wire);
/* The wire has work, and had it at the last tick, and nobody did any of it. Progress lock held. */
bool wire_outlived(struct wire *wire);

/* --- untaken.c ------------------------------------------------------------------------------------------------------- */
/* Watches it until its descriptors are taken. */
void watch_add(struct wire *wire);
void watch_forget(const struct wire *wire);
/* Looks at a list of watched wires: those that stay on it. */
struct wire *watch_prune(struct wire *list, uint64_t now);
/* The same of those of no domain. */
void watch_all(uint64_t now);

/* --- td.c, td_round.c, td_serve.c --------------------------------------------------------------------------------------- */
struct soft_td;
/* There are some. */
bool td_any(void);
/* Empty polls of all domains; the earliest deadline that one has, or 0. */
uint64_t td_polls(void);
uint64_t td_next_due(void);
/* One round of a domain that the caller has. @clock: looks at the clock, too. */
bool td_round(struct soft_td *td, bool clock);
/* Progress lock held. */
bool td_serve(enum td_look look, bool clock);
/* QPs that are to run: from who has the domain, and from others. */
void td_again(struct soft_td *td, struct soft_qp *qp);
void td_mail(struct soft_td *td, struct soft_qp *qp);
/* A QP of it has a deadline (0: none). */
void td_deadline(struct soft_td *td, uint64_t at);
/* The domain is parked, by the caller: a wire is made one of it, in two steps of which the first may fail; or leaves it. */
bool td_wire_room(struct soft_td *td, struct wire *wire);
void td_wire_add(struct soft_td *td, struct wire *wire);
void td_wire_remove(struct wire *wire);
void td_forget_qp(struct soft_td *td, struct soft_qp *qp);
/* Into its hot set; out of it just now. */
void td_wire_heat(struct soft_td *td, struct wire *wire);
void td_wire_cool(struct soft_td *td, struct wire *wire);

/* --- timer.c --------------------------------------------------------------------------------------------------------- */
bool timer_fire_due(uint64_t now);
/* The earliest deadline, or 0. */
uint64_t timer_next(void);
bool timer_any(void);

/* --- sleep.c --------------------------------------------------------------------------------------------------------- */
int sleep_init(void);
void sleep_deinit(void);
void *sleep_thread(void *arg);
/* The timerfd fires at @deadline or before. */
void sleep_arm(uint64_t deadline);
/* Wakes the progress thread, if the process is asleep and was not woken since. */
void sleep_wake_if_asleep(void);
void sleep_wake(void);
/* Reads what the daemon sent until now. No lock held. */
void sleep_read_events(void);
/* A CQ was armed: the program is about to wait for an event. @td: its domain, which nobody has entered. */
void rt_armed(struct soft_td *td);
/* The process is not known to poll, or sleeps: one empty poll more. */
void sleep_polled(void);
/* From here on nobody kicks. The tick that is armed then lets the process sleep again. */
void sleep_stay_awake(void);
/* The caller then looks at everything, and blocks. */
void sleep_fall(void);
/* True: this thread reads the kick pipe from now on, until sleep_lead_end(). */
bool sleep_lead(void);
void sleep_lead_end(void);
/* Reads the kick pipe. Its reader's. */
void sleep_drain_kick(void);

static inline bool rt_asleep(void)
{
	return atomic_load_explicit(&rt.state, memory_order_relaxed) & 1;
}

/* A poll, counted in the process's or the domain's count; one that is lost in a race is no matter. */
static inline void rt_polled(_Atomic uint64_t *count)
{
	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1, memory_order_relaxed);
	if (__builtin_expect(!atomic_load_explicit(&rt.polling, memory_order_relaxed) || rt_asleep(), 0))
		sleep_polled();
}

/* --- events.c ---------------------------------------------------------------------------------------------------------- */
/* Reads what the daemon sent. False: it is gone. */
bool events_read(void);
/* The daemon sent something that was not read, or not all done, when this was called. Any thread, any lock. */
bool events_unread(void);
/* The daemon is gone: who waits for an answer of its is told. Progress lock held. */
void events_lost(void);
/* Sends what other threads asked for. */
void events_send(void);
void events_deinit(void);
void events_release(uint32_t segment, uint32_t wire, uint32_t gen);
/*
 * Asks for the region behind a key of the peer's, whom our QP @qpn is connected to: map_answer() is called with whatever
 * comes of it. False: no memory.
 */
bool events_grant(const struct pair *pair, uint32_t key, uint32_t qpn, uint64_t gen);

/* --- pair.c ---------------------------------------------------------------------------------------------------------- */
int pair_loop_init(void);
void pair_loop_deinit(void);
/* Takes the fds over, whatever it returns. */
int pair_add(const Vsd__EvSegment *event, int mem, int pidfd, int kick, int page);
struct pair *pair_find(uint32_t segment, unsigned side);
/* Looks at the peers' liveness words. */
void pair_look_alive(void);
void pair_died(struct pair *pair);
/* Frees pairs of dead peers that have no wires any more. Progress lock held. */
void pair_collect(void);
void pair_remove_all(void);
/* Chunks that a wire holds when it is released. */
void pool_strand(struct wire *wire);
/* This half's memory goes: what strayed until its QP had read it is free. */
void pool_forget_half(struct pair *pair, const struct vsd_half *half);
void pool_release(struct pair *pair, enum pool_kind kind, struct lane_out *lane, uint64_t taken);
/* Chunks that are free although QPs wait: those go on. True when there were some. */
bool pool_wake(struct pair *pair);
/* No chunk is free just now. */
static inline bool pool_is_out(const struct pair *pair, enum pool_kind kind)
{
	return !atomic_load_explicit(&pair->priv->pools[kind].free, memory_order_relaxed);
}
/* The pair goes: nobody waits in it any more. */
void pool_abandon(struct pair *pair);

/* --- attach.c ---------------------------------------------------------------------------------------------------------- */
/* The wire of an event, checked against the sizes of the pair; not handed to its QP. */
int wire_make(struct pair *pair, const Vsd__EvWire *event, struct wire **wire);
/* -ENXIO: the segment is not there (yet). */
int wire_attach(const Vsd__EvWire *event);
struct wire *wire_find(uint32_t segment, uint32_t index, uint32_t gen, uint32_t local_qpn);
/* The other end is gone; dead: with its process. Progress lock held. */
void wire_gone(struct wire *wire, bool dead);
/* Frees released wires. Progress lock held. */
void wire_collect(void);
/* The other end of a loopback wire, as long as it was not freed. Progress lock held. */
struct wire *loop_far_end(const struct wire *wire);

/* --- qp_table.c ------------------------------------------------------------------------------------------------------ */
/* Some QP is left. */
bool qp_table_any(void);

/* --- fork.c -------------------------------------------------------------------------------------------------------------- */
/* Before the first use of the runtime in a process. */
void fork_init(void);

#endif
