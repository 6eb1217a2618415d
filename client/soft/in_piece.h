/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is compiled into each of its callers, on the way of every message: a call would cost as much as it does.
 */
#ifndef SOFT_IN_PIECE_H
#define SOFT_IN_PIECE_H

#define IN_PIECE static inline __attribute__((always_inline))

#endif
