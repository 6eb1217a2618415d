/* SPDX-License-Identifier: BSD-2-Clause */
/* What verbs does not have: a placeholder until the first such call is there. */
#ifndef VERBSD_H
#define VERBSD_H

#endif
