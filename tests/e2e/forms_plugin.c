/* SPDX-License-Identifier: BSD-2-Clause */
/* A plugin that is linked with libibverbs (or with libverbsd), and a program that loads it so that it sees its own first. */
#ifdef HOST
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *plugin = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
	int (*run)(void) = plugin ? (int (*)(void))dlsym(plugin, "plugin_run") : NULL;

	if (!run) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	return run();
}
#else
#include "forms_talk.h"

int plugin_run(void);

int plugin_run(void)
{
#define CALL(name, version) .name = name,
	static const struct calls calls = { CALLS(CALL) };

	return talk(&calls, &calls);
}
#endif
