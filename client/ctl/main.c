/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbsctl: options and the table of subcommands. What --help prints, which options a subcommand takes and how many
 * arguments, all come from that table.
 */
#include <errno.h>
#include <getopt.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

enum option_bit {
	OPT_SOCKET = 1,
	OPT_ADMIN = 2,
	OPT_JSON = 4,
	OPT_HEADINGS = 8,
	OPT_PRIVATE = 16,
	OPT_CONFIG = 32,
	OPT_HELP = 64,
	OPT_VERSION = 128,
	OPT_UID = 256,
	OPT_FORM = 512, /* and on: without a letter */
	OPT_PATHS = 1024,
	OPT_NO_PATHS = 2048,
	OPT_HEAP = 4096,
};

#define OPT_COMMON (OPT_SOCKET | OPT_ADMIN | OPT_HELP | OPT_VERSION)
#define OPT_TABLE  (OPT_COMMON | OPT_JSON | OPT_HEADINGS)
#define OPT_RUN	   (OPT_COMMON | OPT_PRIVATE | OPT_CONFIG | OPT_FORM | OPT_PATHS | OPT_NO_PATHS | \
		    OPT_HEAP)

static const struct option options[] = {
	{ "socket", required_argument, NULL, OPT_SOCKET },
	{ "admin-socket", required_argument, NULL, OPT_ADMIN },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "no-headings", no_argument, NULL, OPT_HEADINGS },
	{ "private", no_argument, NULL, OPT_PRIVATE },
	{ "config", required_argument, NULL, OPT_CONFIG },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ "uid", required_argument, NULL, OPT_UID },
	{ "form", required_argument, NULL, OPT_FORM },
	{ "paths", required_argument, NULL, OPT_PATHS },
	{ "no-paths", no_argument, NULL, OPT_NO_PATHS },
	{ "shared-heap", no_argument, NULL, OPT_HEAP },
	{ NULL },
};

static const char *const option_help[][2] = {
	{ "-s, --socket PATH", "the daemon's socket" },
	{ "-a, --admin-socket PATH", "the daemon's socket for administration" },
	{ "-j, --json", "print JSON" },
	{ "-n, --no-headings", "print tables without headings" },
	{ "-p, --private", "with a daemon of its own, for as long as the program runs" },
	{ "-c, --config FILE", "the private daemon's configuration" },
	{ "-h, --help", "print this" },
	{ "-V, --version", "print the version" },
	{ "-u, --uid USER", "of this user's, by name or number (administration)" },
	{ "    --form FORM", "preload, soname, both or auto: how the library gets in" },
	{ "    --paths MODE", "interpose, namespace, none or auto: /dev/infiniband and /sys" },
	{ "    --no-paths", "as --paths none" },
	{ "    --shared-heap", "large allocations in memory that peers may map" },
};

struct command {
	const char *name;
	ctl_main *main;
	unsigned options;
	int min_args, max_args; /* max_args -1: any number, and options end at the first */
	const char *synopsis;
	const char *help;
};

static const struct command commands[] = {
	{ "status", ctl_status, OPT_TABLE, 0, 0, "", "show what the daemon is and has" },
	{ "devices", ctl_devices, OPT_TABLE, 0, 0, "", "show the devices and their ports" },
	{ "counters", ctl_counters, OPT_TABLE, 0, 1, "[DEVICE]", "show what ports of real devices have counted" },
	{ "clients", ctl_clients, OPT_TABLE, 0, 0, "", "show who is connected" },
	{ "list", ctl_list, OPT_TABLE, 0, 1, "[pd|td|mr|cq|qp|srq|ah|wire|...]",
		"show objects, of one kind or all" },
	{ "watch", ctl_watch, OPT_COMMON | OPT_JSON, 0, 0, "",
		"show objects as they come and go" },
	{ "run", ctl_run, OPT_RUN, 1, -1,
		"[--private] -- PROGRAM [ARGUMENT...]", "run a program with verbsd's library" },
	{ "mr", ctl_mr, OPT_COMMON | OPT_UID, 2, 2, "rm [--uid USER] NAME",
		"take the name of a shared region away" },
	{ "disconnect", ctl_disconnect, OPT_COMMON, 1, 1, "CLIENT",
		"end a client's session (administration)" },
	{ "reload", ctl_reload, OPT_COMMON, 0, 0, "",
		"read the configuration again (administration)" },
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void help_options(unsigned which)
{
	puts("\nOptions:");
	for (size_t i = 0; options[i].name; i++)
		if (which & (unsigned)options[i].val)
			printf("  %-26s %s\n", option_help[i][0], option_help[i][1]);
}

static void help_main(void)
{
	puts("Usage: verbsctl [OPTION...] COMMAND [ARGUMENT...]\n"
	     "Look into verbsd, and run programs with it.\n\n"
	     "Commands:");
	for (size_t i = 0; i < N_COMMANDS; i++)
		printf("  %-26s %s\n", commands[i].name, commands[i].help);
	help_options(OPT_TABLE);
	puts("\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 no daemon;\n"
	     "of run: the program's, 126 it cannot be run, 127 it was not found.\n"
	     "verbsctl COMMAND --help says more. See verbsctl(1).");
}

static void help_command(const struct command *command)
{
	printf("Usage: verbsctl %s [OPTION...]%s%s\n%c%s.\n", command->name,
		*command->synopsis ? " " : "", command->synopsis, command->help[0] - 'a' + 'A',
		command->help + 1);
	help_options(command->options);
}

static int usage(const struct command *command)
{
	fprintf(stderr, "Try 'verbsctl %s%s--help'.\n", command ? command->name : "",
		command ? " " : "");
	return CTL_USAGE;
}

static void option_apply(struct ctl *ctl, int option)
{
	switch (option) {
	case OPT_SOCKET:
		ctl->socket = optarg;
		break;
	case OPT_ADMIN:
		ctl->admin = optarg;
		break;
	case OPT_CONFIG:
		ctl->config = optarg;
		break;
	case OPT_UID:
		ctl->uid = optarg;
		break;
	case OPT_FORM:
		ctl->form = optarg;
		break;
	case OPT_PATHS:
		ctl->paths = optarg;
		break;
	case OPT_NO_PATHS:
		ctl->paths = "none";
		break;
	case OPT_HEAP:
		ctl->heap = true;
		break;
	case OPT_JSON:
		ctl->json = true;
		break;
	case OPT_HEADINGS:
		ctl->no_headings = true;
		break;
	case OPT_PRIVATE:
		ctl->private = true;
		break;
	}
}

static unsigned option_short(int c)
{
	static const char letters[] = "sajnpchVu";
	const char *at = c > ' ' && c < 127 ? strchr(letters, c) : NULL;

	return at ? 1u << (at - letters) : 0;
}

/*
 * Reads options up to the first argument, or (for @command that takes few) wherever they are. -1: go on; otherwise
 * the exit code.
 */
static int options_read(struct ctl *ctl, const struct command *command, int argc, char **argv)
{
	bool stop = !command || command->max_args < 0;
	int c;

	optind = 0;
	while ((c = getopt_long(
			argc, argv, stop ? "+s:a:jnpc:hVu:" : "s:a:jnpc:hVu:", options, NULL)) != -1) {
		unsigned option = option_short(c);

		if (c == '?')
			return usage(command);
		if (!option)
			option = (unsigned)c;
		if (command && !(option & command->options)) {
			ctl_say("%s takes no option --%s", command->name,
				options[__builtin_ctz(option)].name);
			return usage(command);
		}
		if (option == OPT_VERSION) {
			puts("verbsctl " PACKAGE_VERSION);
			return CTL_OK;
		}
		if (option == OPT_HELP) {
			command ? help_command(command) : help_main();
			return CTL_OK;
		}
		option_apply(ctl, (int)option);
	}
	return -1;
}

/* Beside the socket that was named: never another daemon's. */
static const char *admin_beside(const char *socket)
{
	static char path[4096]; /* as long as the program lives */
	const char *slash = strrchr(socket, '/');
	int n = snprintf(path, sizeof(path), "%.*sadmin.sock", slash ? (int)(slash - socket + 1) : 0, socket);

	return n < 0 || (size_t)n >= sizeof(path) ? NULL : path;
}

static int sockets_choose(struct ctl *ctl)
{
	const char *socket = getenv(VSD_SOCKET_ENV), *admin = getenv(VSD_ADMIN_ENV);
	bool named = ctl->socket;

	if (!ctl->socket)
		ctl->socket = socket && *socket ? socket : VERBSD_RUNDIR "/verbsd.sock";
	if (!ctl->admin && !named && admin && *admin)
		ctl->admin = admin;
	if (!ctl->admin)
		ctl->admin = admin_beside(ctl->socket);
	return ctl->admin ? 0 : -ENAMETOOLONG;
}

static const struct command *command_find(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static int command_run(struct ctl *ctl, int argc, char **argv)
{
	const struct command *command = command_find(argv[0]);

	if (!command) {
		ctl_say("no such command: %s", argv[0]);
		return usage(NULL);
	}

	int r = options_read(ctl, command, argc, argv);

	if (r >= 0)
		return r;
	ctl->args = argv + optind;
	ctl->n_args = argc - optind;
	if (ctl->n_args < command->min_args ||
		(command->max_args >= 0 && ctl->n_args > command->max_args)) {
		ctl_say("%s: too %s arguments", command->name,
			ctl->n_args < command->min_args ? "few" : "many");
		return usage(command);
	}
	if (sockets_choose(ctl) < 0)
		return ctl_failed(command->name, -ENAMETOOLONG);
	return command->main(ctl);
}

int main(int argc, char **argv)
{
	struct ctl ctl = { 0 };

	setlocale(LC_ALL, "");

	int r = options_read(&ctl, NULL, argc, argv);

	if (r < 0 && optind == argc) {
		ctl_say("a command is missing");
		r = usage(NULL);
	}
	if (r < 0)
		r = command_run(&ctl, argc - optind, argv + optind);
	/* A full disk or a closed pipe must not look like an answer. */
	if ((fflush(stdout) != 0 || ferror(stdout)) && r == CTL_OK) {
		ctl_say("standard output: %s", strerror(errno));
		r = CTL_FAILED;
	}
	return r;
}
