/* SPDX-License-Identifier: Apache-2.0 */
/* TIMELINE: a client asks what the GPU did since it asked last, and what time it is here. */
#ifndef TOW_SERVER_TIMELINE_H
#define TOW_SERVER_TIMELINE_H

#include "wire/frame.h"

struct tows_session;

/* The leading thread. Negative: the session ends. */
int tows_timeline_answer(struct tows_session *session, const uint8_t *at,
                         const struct tow_frame *frame);

#endif
