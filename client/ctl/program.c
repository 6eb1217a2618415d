/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A preload that has no effect is silent, and its user is left to wonder why there is no device. What can be seen
 * from outside is said before the program starts; the program runs all the same.
 */
#include "client/ctl/program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/ctl.h"

/* What execvp() will find, opened; -1 if nothing. */
static int program_open(const char *name)
{
	const char *path = getenv("PATH");
	char file[PATH_MAX];

	if (strchr(name, '/'))
		return open(name, O_RDONLY | O_CLOEXEC);
	while (path && *path) {
		size_t n = strcspn(path, ":");

		snprintf(file, sizeof(file), "%.*s/%s", (int)n, path, name);
		if (access(file, X_OK) == 0)
			return open(file, O_RDONLY | O_CLOEXEC);
		path += n + (path[n] == ':');
	}
	return -1;
}

/* Whether it is an ELF program of this machine's kind without a dynamic linker. */
static bool program_is_static(int fd)
{
	Elf64_Ehdr header;
	Elf64_Phdr segment;

	if (pread(fd, &header, sizeof(header), 0) != sizeof(header))
		return false;
	if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
		header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(segment))
		return false;
	for (unsigned i = 0; i < header.e_phnum; i++) {
		off_t at = (off_t)(header.e_phoff + i * sizeof(segment));

		if (pread(fd, &segment, sizeof(segment), at) != sizeof(segment))
			return false;
		if (segment.p_type == PT_INTERP)
			return false;
	}
	return true;
}

void program_check(const char *name)
{
	int fd = program_open(name);
	struct stat st;

	if (fd < 0)
		return;
	if (program_is_static(fd))
		ctl_say("run: %s is statically linked: the library has no effect on it", name);
	else if (fstat(fd, &st) == 0 && st.st_mode & (S_ISUID | S_ISGID) && geteuid() != 0)
		ctl_say("run: %s is set-id: the library has no effect on it", name);
	close(fd);
}

int program_exec(char **argv)
{
	execvp(argv[0], argv);

	int error = errno;

	ctl_say("run: %s: %s", argv[0], strerror(error));
	return error == ENOENT ? CTL_NOT_FOUND : CTL_CANNOT_RUN;
}
