/* SPDX-License-Identifier: BSD-2-Clause */
/* Asynchronous events at the ABI face: an event is acknowledged on the context of the object that it names. */
#include "client/abi/abi.h"

VERBS_API int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *event)
{
	ABI_ENTER_MINUS(c, ibv_get_async_event, "IBVERBS_1.1", c, event);
	return soft_async_get(&soft_context_of(c)->async, event);
}

/* NULL: an event of a device or port, which no object waits for. */
static struct ibv_context *event_context(const struct ibv_async_event *event)
{
	switch ((int)event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return event->element.cq->context;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return event->element.qp->context;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return event->element.srq->context;
	}
	return NULL;
}

VERBS_API void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_context *c = event_context(event);

	/* A work queue's event can only be a real device's. */
	if (!c && event->event_type == IBV_EVENT_WQ_FATAL)
		REAL_VOID(ibv_ack_async_event, "IBVERBS_1.1", event);
	if (!c)
		return;
	if (!abi_ours(c))
		REAL_VOID(ibv_ack_async_event, "IBVERBS_1.1", event);
	else if (!abi_foreign(c))
		soft_async_ack(&soft_context_of(c)->async, event);
}
