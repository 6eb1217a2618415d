/* SPDX-License-Identifier: BSD-2-Clause */
/* A library before all others. Functions that fail have said why, and return an exit code. */
#ifndef CLIENT_CTL_PRELOAD_H
#define CLIENT_CTL_PRELOAD_H

/* Whether a program that does nothing starts with it. */
int preload_try(const char *library);
/* The same, and then it is in our LD_PRELOAD, after what is there. */
int preload_add(const char *library);

#endif
