/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that dies and, if it is given a file for that one's number, whose child keeps what it has open: it makes some objects
 * on a real device, forks, says "ready" and waits.
 *
 * usage: keeper DEVICE [CHILD-PID-FILE]
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char memory[16384];

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (unsigned i = 0; list && list[i] && !context; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			context = ibv_open_device(list[i]);
	}
	return context;
}

static int make_objects(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	return pd && cq && ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE) && ibv_create_qp(pd, &attr) &&
			       ibv_create_qp(pd, &attr)
		       ? 0
		       : -1;
}

/* Neither its socket to the daemon nor anything else keeps its parent's things alive. */
static int child_make(const char *path)
{
	pid_t child = fork();
	FILE *file;

	while (child == 0)
		pause();
	file = fopen(path, "we");
	if (!file || child < 0)
		return -1;
	fprintf(file, "%d\n", (int)child);
	return fclose(file);
}

int main(int argc, char **argv)
{
	struct ibv_context *context = argc == 2 || argc == 3 ? open_device(argv[1]) : NULL;

	if (!context || make_objects(context) < 0) {
		perror("keeper");
		return 1;
	}
	if (argc == 3 && child_make(argv[2]) < 0)
		return 1;
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
