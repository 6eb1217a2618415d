/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limits of the protocol: what one frame may hold, and what one client may have outstanding. They stand beside the
 * messages because both ends need them.
 */
#ifndef PROTO_LIMITS_H
#define PROTO_LIMITS_H

#define VSD_VERSION_MIN 1
#define VSD_VERSION_MAX 1

/* Feature bits of HELLO; unknown bits are ignored by the daemon and not granted. */
#define VSD_FEATURE_MR_PLACES 1ull /* OP_MR_PLACES */
#define VSD_FEATURE_SHARDS 2ull /* the counters in the shards of a process page are read, too */
#define VSD_FEATURES (VSD_FEATURE_MR_PLACES | VSD_FEATURE_SHARDS)

/* A request, header included. Answers and events may be as long as VSD_ANSWER_MAX. */
#define VSD_REQUEST_MAX 4096
#define VSD_ANSWER_MAX 65536

/* fds in one answer or event. */
#define VSD_FDS_MAX 4

/* Events that a session may leave unread before it is ended. */
#define VSD_EVENTS_UNREAD_MAX 64

/* Key indexes and QP numbers are leased in ranges of this many at first. */
#define VSD_LEASE_KEYS 4096
#define VSD_LEASE_QPNS 256

/* Places for MRs in one answer. */
#define VSD_MR_PLACES 1024

#define VSD_NONCE_SIZE 32

/* Tagged receives of a tag matching SRQ. */
#define VSD_TAGS_MAX 1024

/* Where the system daemon listens; VSD_SOCKET_ENV names another. */
#define VSD_SOCKET_PATH "/run/verbsd/verbsd.sock"
#define VSD_ADMIN_PATH "/run/verbsd/admin.sock"
#define VSD_SOCKET_ENV "VERBSD_SOCKET"
#define VSD_ADMIN_ENV "VERBSD_ADMIN_SOCKET"

#endif
