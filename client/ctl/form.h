/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * In which of its forms a program gets the library: before all others, or in place of libibverbs.so.1, wherever that is
 * asked for.
 */
#ifndef CLIENT_CTL_FORM_H
#define CLIENT_CTL_FORM_H

enum form {
	FORM_AUTO,    /* FORM_BOTH, or FORM_PRELOAD where the system's libibverbs is newer than what we stand in for */
	FORM_PRELOAD, /* libverbsd.so.1 in LD_PRELOAD */
	FORM_SONAME,  /* the folder of our libibverbs.so.1 in LD_LIBRARY_PATH */
	FORM_BOTH,    /* that folder, and our libibverbs.so.1 in LD_PRELOAD */
};

/* 0, or -EINVAL for an unknown name. */
int form_parse(const char *name, enum form *form);

/* Sets the environment. 0, or an exit code: said why. */
int form_set(enum form form);
/* Takes it out of the environment again, for a program that is not to have the library. */
void form_unset(void);

#endif
