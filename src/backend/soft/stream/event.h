/* SPDX-License-Identifier: Apache-2.0 */
/* Events, also those that other processes know. */
#ifndef TOW_SOFT_STREAM_EVENT_H
#define TOW_SOFT_STREAM_EVENT_H

#include "backend/soft/engine/capture.h"

struct tow_soft_ctx;
struct tow_soft_stream;

void tow_soft_event_end(struct tow_soft_object *object);
/* Records it behind what the stream has; a capture may take it. */
CUresult tow_soft_event_record(struct tow_soft_event *event, struct tow_soft_stream *stream);
/* Behind all work of the context; and: all later work of the context waits for the event. */
CUresult tow_soft_event_record_all(CUevent handle, struct tow_soft_ctx *ctx);
CUresult tow_soft_event_wait_all(CUevent handle, struct tow_soft_ctx *ctx);
/* A record that is about to be queued becomes the event's last. */
CUresult tow_soft_event_renew(struct tow_soft_event *event, struct tow_soft_mark *mark);
/* Events between processes (ipc_event.c): a board is memory that they share. */
struct tow_soft_board *tow_soft_board_ref(struct tow_soft_board *board);
void tow_soft_board_unref(struct tow_soft_board *board);
/* Puts a mark that was just made on the board, where it becomes the event's last record. */
CUresult tow_soft_board_post(struct tow_soft_board *board, struct tow_soft_mark *mark);
/* Sees to it that event->mark is the last record, whichever process made it. */
CUresult tow_soft_event_refresh(struct tow_soft_event *event);

#endif
