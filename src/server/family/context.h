/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, for the families that make or end some (green contexts). */
#ifndef TOW_SERVER_CONTEXT_H
#define TOW_SERVER_CONTEXT_H

#include "server/session/session.h"

/* After a context was made or taken: ties the client's id to it and puts what the client keeps of
 * it into the reply. A number stands for one context, and a context has one number. `owner`: 1 +
 * the device whose primary context's memory it uses; 0: it has its own. False breaks the protocol.
 */
bool tows_context_bind(struct tows_serve *call, uint64_t id, CUcontext context, uint32_t owner);
/* The same of device 0's primary context, if that was made ahead; false: it was not. */
bool tows_context_describe_ahead(const struct tow_driver *driver, struct tow_enc *enc);
/* Forgets a context's id and what was made in it: the context is about to end. Then no command has
 * memory of it in hand any more, and its number may be another context's; if it fails the context
 * must stay. CUDA_ERROR_INVALID_CONTEXT: another thread does, or has done it. */
CUresult tows_context_drop(struct tows_session *session, uint64_t id);
/* Waits until that thread has. False if the session ends before. */
bool tows_context_await_drop(struct tows_session *session, uint64_t id);

#endif
