/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between the client's memory and the device: their commands. */
#ifndef TOW_SERVER_COPY_H
#define TOW_SERVER_COPY_H

#include <stdbool.h>
#include <stdint.h>

struct tows_session;

/* A context whose number is not in use any more is about to end, and is current: what it still has
 * to bring comes first, its page-locked memory is forgotten. `heir`: the context whose memory it
 * used, and that lives on; 0: none. False: the session ends before, and memory of the context is
 * still in use. */
bool tows_copy_drop_context(struct tows_session *session, uint32_t context, uint32_t heir);

#endif
