/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer: two ranks of an MPI, each on its own processor. Prints "name<tab>value<tab>unit".
 *
 *	mpirun -np 2 mpi lat|rate SIZE
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/bench.h"

enum { WINDOW = 64 };

static int rank, size;
static char *buf;

static void round_lat(void)
{
	for (int i = 0; i < 2; i++) {
		if (rank == i)
			MPI_Send(buf, size, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD);
		else
			MPI_Recv(buf, size, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
}

static void round_rate(void)
{
	MPI_Request requests[WINDOW];
	char ack = 0;

	for (int i = 0; i < WINDOW; i++) {
		if (rank == 0)
			MPI_Isend(buf, size, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[i]);
		else
			MPI_Irecv(buf, size, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[i]);
	}
	MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
	if (rank == 0)
		MPI_Recv(&ack, 1, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	else
		MPI_Send(&ack, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
}

/* Seconds of @n rounds. */
static double rounds(void (*one)(void), long n)
{
	double start = MPI_Wtime();

	for (long i = 0; i < n; i++)
		one();
	return MPI_Wtime() - start;
}

int main(int argc, char **argv)
{
	int rate = argc == 3 && strcmp(argv[1], "rate") == 0;
	void (*one)(void) = rate ? round_rate : round_lat;

	if (argc != 3)
		return 2;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	pin(rank);
	size = atoi(argv[2]);
	buf = aligned_alloc(4096, ((size_t)size + 4095) & ~(size_t)4095);
	if (!buf)
		MPI_Abort(MPI_COMM_WORLD, 1);
	memset(buf, 1, (size_t)size);

	/* Rank 0 says how many rounds there are. */
	long n = (long)(0.2 / (rounds(one, 50) / 50)) + 1;

	MPI_Bcast(&n, 1, MPI_LONG, 0, MPI_COMM_WORLD);
	rounds(one, n / 10 + 1);

	double seconds = rounds(one, n);

	if (rank == 0 && rate)
		printf("rate\t%.9f\tM/s\n", (double)n * WINDOW / seconds * 1e-6);
	else if (rank == 0)
		printf("lat\t%.1f\tns\n", seconds * 1e9 / (double)n / 2);
	MPI_Finalize();
	return 0;
}
