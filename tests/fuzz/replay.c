/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The main of a fuzz target in an ordinary build: runs the target over its committed corpus, one TAP line a file, so
 * that `make check` replays what fuzzing found. fuzz-NAME reads tests/fuzz/corpus/NAME; files on the command line
 * replace it.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data;
	size_t size;
	long end;

	if (!file)
		return -errno;
	if (fseek(file, 0, SEEK_END) || (end = ftell(file)) < 0) {
		fclose(file);
		return -EIO;
	}
	rewind(file);
	/* Exactly as long as the input, so that ASan sees a read behind its end. */
	data = malloc(end ? (size_t)end : 1);
	size = data ? fread(data, 1, (size_t)end, file) : 0;
	fclose(file);
	if (!data || size != (size_t)end) {
		free(data);
		return -EIO;
	}
	LLVMFuzzerTestOneInput(data, size);
	free(data);
	return 0;
}

static int replay_report(const char *path)
{
	int rc = replay_file(path);

	printf("%s - %s%s%s\n", rc ? "not ok" : "ok", path, rc ? ": " : "", rc ? strerror(-rc) : "");
	fflush(stdout);
	return rc ? 1 : 0;
}

static int replay_corpus(const char *program, int *n)
{
	const char *srcdir = getenv("VERBSD_SRCDIR"), *name = strstr(program, "fuzz-");
	char dir[4096], path[4096 + 256 + 2];
	struct dirent **entries;
	int count, failed = 0;

	for (const char *next = name; next; next = strstr(next + 1, "fuzz-"))
		name = next;
	snprintf(dir, sizeof(dir), "%s/tests/fuzz/corpus/%s", srcdir ? srcdir : ".", name ? name + 5 : "");
	count = scandir(dir, &entries, NULL, alphasort);
	if (count < 0) {
		printf("Bail out! %s: %s\n", dir, strerror(errno));
		return 1;
	}
	*n = 0;
	for (int i = 0; i < count; i++) {
		if (entries[i]->d_name[0] != '.') {
			snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
			failed |= replay_report(path);
			++*n;
		}
		free(entries[i]);
	}
	free(entries);
	return failed;
}

int main(int argc, char **argv)
{
	int failed = 0, n = argc - 1;

	if (argc == 1)
		failed = replay_corpus(argv[0], &n);
	for (int i = 1; i < argc; i++)
		failed |= replay_report(argv[i]);
	printf("1..%d\n", n);
	return failed || !n;
}
