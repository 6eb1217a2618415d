/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Message ids of the lines that an operator may want to find or match; daemon/verbsd.catalog explains each.
 */
#ifndef DAEMON_MSGIDS_H
#define DAEMON_MSGIDS_H

#define MSG_READY               "2fca40cea7ee4297a2389ea592b33b31"
#define MSG_CONFIG_REFUSED      "1664497d8a7e4efe953f295a388ef745"
#define MSG_CONFIG_APPLIED      "79d6e435084c4c3f8e348c807add1239"
#define MSG_CLIENT_REFUSED      "449769ec7c864b809f757eacb699717b"
#define MSG_CLIENT_MISBEHAVED   "11a82d3266c949cf989dfd5fa1b388a0"
#define MSG_CLIENT_QUOTA        "69e7e953bcad4dfda1065e3128420b03"
#define MSG_CLIENT_DISCONNECTED "2978c512d5ec44a3afbe100db6984259"
#define MSG_DEVICE_EVENT        "c0d6f5b1a7a34f0e9a52f4c1d03a8e6b"
#define MSG_FDS_SHORT           "5b202feade7d41a094c0e76b003c1dfd"
#define MSG_LINES_DROPPED       "92dafc2940e94561bc7311d02335d5b6"

#endif
