/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What this process publishes in its page for initiators: an entry per key.
 */
#ifndef SOFT_PAGE_H
#define SOFT_PAGE_H

#include "client/soft/mr.h"

/* Opens the entry of a region, unless another live key is in its slot, or nothing may be done to it from afar. */
void page_key_open(const struct soft_mr *mr);
/*
 * Opens it for who is to fetch what is sent from there by QP @qpn, whatever else may be done to it. False: it has no entry, or
 * the QP no gate.
 */
bool page_key_lend(uint32_t key, uint32_t qpn);
/* Closes it with a full barrier. */
void page_key_close(uint32_t key);
/* The page is unmapped: nothing of it is populated any more. */
void page_forget(void);

#endif
