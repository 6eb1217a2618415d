/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * In a child. Every file of the data path with state of its own has a function here that gives the state its first
 * value again and makes its locks anew. What was the parent's is not freed: a thread that does not exist here may have been
 * changing it, and the mappings among it are not here at all.
 */
#ifndef SOFT_IN_CHILD_H
#define SOFT_IN_CHILD_H

void async_in_child(void);
void attach_in_child(void);
void buf_in_child(void);
void channel_in_child(void);
void datagram_in_child(void);
void events_queue_in_child(void);
void key_in_child(void);
void map_in_child(void);
void mcast_in_child(void);
void mw_in_child(void);
void page_keys_in_child(void);
void qp_table_in_child(void);
void region_in_child(void);
void rt_in_child(void);
void shard_in_child(void);
void td_in_child(void);
void timer_in_child(void);
void xrc_in_child(void);

#endif
