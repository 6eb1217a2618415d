/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What verbs does not have. Programs use <infiniband/verbs.h> for everything else and link -lverbsd.
 */
#ifndef VERBSD_H
#define VERBSD_H

/* The interface of this header: grows with each function added. */
#define VERBSD_API_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

/* The library's version, as "0.1.0". A constant string. */
const char *verbsd_version(void);

#ifdef __cplusplus
}
#endif

#endif
