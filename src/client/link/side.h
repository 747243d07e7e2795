/* SPDX-License-Identifier: Apache-2.0 */
/* A session's side line: a second connection, opened before its first host function goes out.
 *
 * On it travels what a stream of the device may wait for: the ends of host functions, what they
 * wrote, and the bytes of copies behind them. Whoever reads it at the server never calls the
 * driver. On the session's own line such a frame would come behind commands, and a command may
 * stand in the driver until the very function has ended. Where there is no side line (self:, hook:,
 * or the server refuses) the own line serves.
 */
#ifndef TOW_CLIENT_SIDE_H
#define TOW_CLIENT_SIDE_H

#include <stdbool.h>

#include "client/link/link.h"

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
#endif
