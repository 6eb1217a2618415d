/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which process this is. A child has copies of its parent's objects in its memory and may do nothing with them. Each process
 * that uses the library has an epoch, which its contexts keep: an object whose epoch is another one is the parent's. The
 * epoch is on a page that the kernel wipes in a child, so that fork, _Fork and clone are noticed alike, by one load. A child
 * that shares its parent's memory (vfork) shares that page too: there the pid tells them apart, which is a system call.
 */
#ifndef CLIENT_CONTROL_PROCESS_H
#define CLIENT_CONTROL_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

extern _Atomic uint64_t *_Atomic process_word;

/* This process's epoch; 0 before its first use of the library, and in a child that did not use it yet. */
static inline uint64_t process_epoch(void)
{
	return atomic_load_explicit(atomic_load_explicit(&process_word, memory_order_relaxed), memory_order_relaxed);
}

/* True in a child of vfork, where nothing may be changed: all of it is the parent's. */
bool process_borrowed(void);

/*
 * The head of every entry point that names no object: at the first of them in a process (a child of one that used the
 * library is another process) what the parent had is forgotten, and the process gets its epoch. 0; -ENOTCONN in a child of
 * vfork; another negative errno when the kernel cannot tell children apart.
 */
int process_enter(void);

/*
 * What the parts of the library do about children; any may be NULL. prepare and parent run around a fork(), child in its
 * child, all three only where handlers run (not after _Fork, vfork, clone). forget runs before the first use in a child, with
 * no other thread in the library: it drops what was the parent's, without freeing it, and makes locks anew.
 */
struct process_hooks {
	void (*prepare)(void);
	void (*parent)(void);
	void (*child)(void);
	void (*forget)(void);
};

/* Once per @hooks, however often it is called. They are called in this order, prepare in the opposite one. */
void process_hooks_add(const struct process_hooks *hooks);

#endif
