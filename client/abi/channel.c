/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion channels: made here, fed by the data path. */
#include "client/abi/abi.h"

#include <stdlib.h>

VERBS_API struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	ABI_ENTER_PTR(c, ibv_create_comp_channel, "IBVERBS_1.0", c);

	struct soft_channel *channel = calloc(1, sizeof(*channel));

	if (!channel)
		return abi_null(ENOMEM);
	channel->ctx = soft_context_of(c);
	channel->channel.context = c;

	int r = soft_channel_init(channel);

	if (r < 0) {
		free(channel);
		return abi_null(-r);
	}
	abi_context_ref(channel->ctx);
	return &channel->channel;
}

VERBS_API int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
	ABI_ENTER_INT(ch->context, ibv_destroy_comp_channel, "IBVERBS_1.0", ch);

	struct soft_channel *channel = soft_container(ch, struct soft_channel, channel);

	if (channel->users) {
		control_debug("destroy: channel %d: in use by %u cqs", ch->fd, (unsigned)channel->users);
		return abi_errno(-EBUSY);
	}

	struct soft_context *ctx = channel->ctx;

	soft_channel_deinit(channel);
	free(channel);
	abi_context_unref(ctx);
	return 0;
}

VERBS_API int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **context)
{
	ABI_ENTER_MINUS(ch->context, ibv_get_cq_event, "IBVERBS_1.1", ch, cq, context);
	return soft_channel_get(soft_container(ch, struct soft_channel, channel), cq, context);
}

VERBS_API void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	if (!abi_ours(cq->context))
		REAL_VOID(ibv_ack_cq_events, "IBVERBS_1.1", cq, n);
	else if (!abi_foreign(cq->context))
		soft_cq_ack(soft_cq_of(cq), n);
}
