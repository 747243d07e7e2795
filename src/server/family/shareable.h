/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and pools that go from one session to another by descriptors. */
#ifndef TOW_SERVER_SHAREABLE_H
#define TOW_SERVER_SHAREABLE_H

#include <stdint.h>

struct tows_session;
struct tow_frame;

/* Takes a FORGET frame: 0, or -EPROTO. */
int tows_shareable_forget(struct tows_session *session, const uint8_t *at,
                          const struct tow_frame *frame);

#endif
