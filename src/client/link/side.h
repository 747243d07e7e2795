/* SPDX-License-Identifier: Apache-2.0 */
/* A session's side line: a second connection, opened before its first host function goes out.
 *
 * On it travels what a stream of the device may wait for: the ends of host functions, what they
 * wrote, and the bytes of copies behind them. Whoever reads it at the server calls the driver only
 * while that cannot stand still. On the session's own line such a frame would come behind commands,
 * and a command may stand in the driver until the very function has ended. Where there is no side
 * line (self:, hook:, or the server refuses) the own line serves.
 */
#ifndef TOW_CLIENT_SIDE_H
#define TOW_CLIENT_SIDE_H

#include <stdbool.h>

#include "client/link/link.h"

struct tow_fetch;

/* Opens it, unless that was tried. Not with the send lock held; the link is listened on. */
void towc_side_open(struct towc_link *link);
static inline bool towc_side_is_open(struct towc_link *link)
{
    return atomic_load_explicit(&link->side, memory_order_acquire) != NULL;
}
/* Sends a control frame, on the side line if there is one: `head`, which is encoded, then `bytes`.
 */
CUresult towc_side_send(struct towc_link *link, unsigned kind, const void *head, size_t head_size,
                        const void *bytes, size_t size);
/* Sends what the program changed. `idle`: as long as that is so, the driver may write it. */
CUresult towc_side_send_changes(struct towc_link *link, const struct towc_idle *idle,
                                const uint8_t *bytes, size_t size);
/* Asks for managed memory. If the device is idle, the worker may copy it by the driver; the copy
 * counts as a change then, so that work which comes later waits for it and not the other way
 * round. */
CUresult towc_side_ask(struct towc_link *link, const struct tow_fetch *fetch);
/* Commands from here on wait for what went out on the side line. */
CUresult towc_side_fence(struct towc_link *link);
#endif
