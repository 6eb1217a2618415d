/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Private device nodes: in a folder that only the daemon sees, without a name once they are made.
 */
#ifndef DAEMON_NODE_H
#define DAEMON_NODE_H

#include <sys/types.h>

/* Where verbsd.service mounts a tmpfs that takes devices. */
#define NODES_PATH "/run/verbsd-nodes"

struct node {
	int path; /* O_PATH; -1: none */
	dev_t dev, rdev;
	ino_t ino;
};

#define NODE_NULL { .path = -1 }

/* A node for @rdev that only @uid may open. 0 or a negative errno. */
int node_new(const char *folder, dev_t rdev, uid_t uid, struct node *node);
/* From now on nobody opens it, whoever has an fd of it. */
void node_take_back(struct node *node);
/* Opens the device @rdev for reading and writing by a node of our own. The fd or a negative errno. */
int node_open(const char *folder, dev_t rdev);

#endif
