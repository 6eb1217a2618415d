/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls about regions on real devices, for tests on the fixture of daemon_fixture.h and the kernel of fake_kernel.h.
 */
#ifndef TESTS_UNIT_NATIVE_CALLS_H
#define TESTS_UNIT_NATIVE_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/unit/daemon_fixture.h"
#include "tests/unit/fake_kernel.h"
#include "tests/unit/region_calls.h"

#define NATIVE_SIZE (1u << 20)

struct session;

/* The last line that the daemon has logged, once native_log() was called. */
extern char native_logged[512];
void native_log(void);

/* A daemon on a kernel of our own, that logs as native_log() has it, and two clients. */
void native_start(struct client *a, struct client *b);
/* The end of both and of the daemon, which leaves nothing registered. */
void native_stop(struct client *a, struct client *b);

struct session *client_session(const struct client *client);
/* As native_open() leaves one, whose file is no device. Its number. */
uint32_t native_give(const struct client *client, uint32_t driver);

struct native_got {
	int status;
	uint32_t handle, region, flags;
	uint64_t iova, size;
	bool created, registers;
	int fd;
};

struct native_got native_ask(struct client *client, const Vsd__NativeRegionRequest *request);
/* @native 0: none. Filled with @byte, unless that is negative. */
struct native_got native_make(struct client *client, uint32_t native, const char *name, uint32_t access, int byte);
struct native_got native_import(struct client *client, uint32_t native, const char *name, uint32_t access);
/* An answer that a thread has a part in. */
int client_answer_later(struct client *client, const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply);
/* 0 or errno; @rkey may be NULL. */
int native_reg(struct client *client, uint32_t handle, uint32_t pd, uint32_t *rkey);
int native_release(struct client *client, uint32_t handle);
int native_end(struct client *client, uint32_t native);

#endif
