/* SPDX-License-Identifier: BSD-2-Clause */
/* XRC: domains that processes share by files that all have, and SRQs in them. */
#include "tests/random/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Nothing is done with the files: only that they are the same for all counts. */
static int file_open(int64_t number)
{
	static const char *const names[] = { "/", "/usr", "/etc" };

	return number < 1 || number > 3 ? -1 : open(names[number - 1], O_RDONLY | O_CLOEXEC);
}

int worker_xrcd(struct worker *w, const struct cmd *cmd, struct result *result)
{
	int fd = file_open(cmd->a[XRCD_FILE]), err;
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd,
		.oflags = O_CREAT,
	};

	(void)result;
	w->xrcds[cmd->id] = ibv_open_xrcd(w->ctx, &attr);
	err = w->xrcds[cmd->id] ? 0 : errno;
	if (fd >= 0)
		close(fd);
	return err;
}

int worker_xrc_srq(struct worker *w, const struct cmd *cmd, struct result *result)
{
	struct ibv_srq_init_attr_ex attr = {
		.srq_context = (void *)(uintptr_t)cmd->id,
		.attr = { .max_wr = (uint32_t)cmd->a[SRQ_WR], .max_sge = (uint32_t)cmd->a[SRQ_SGE] },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = w->pds[cmd->a[SRQ_PD]].pd,
		.xrcd = w->xrcds[cmd->a[SRQ_XRCD] - 1],
		.cq = w->cqs[cmd->a[SRQ_CQ]],
	};

	w->srq_td[cmd->id] = w->pd_td[cmd->a[SRQ_PD]];
	w->srqs[cmd->id] = ibv_create_srq_ex(w->ctx, &attr);
	if (!w->srqs[cmd->id])
		return errno;
	result->value[0] = attr.attr.max_wr;
	result->value[1] = attr.attr.max_sge;
	return ibv_get_srq_num(w->srqs[cmd->id], &result->value[2]);
}
