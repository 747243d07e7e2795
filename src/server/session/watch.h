/* SPDX-License-Identifier: Apache-2.0 */
/* Events and streams that the client awaits: it is told when they are done, unasked (DONE frames),
 * so that a program that looks at one again and again waits for no reply.
 *
 * A thread of the session's own asks the driver now and then, ever less often; it sleeps while
 * nothing is awaited. What is told is never early, and what a reply lets the program know is told
 * before it: whoever replies calls tows_watch_sweep first.
 */
#ifndef TOW_SERVER_WATCH_H
#define TOW_SERVER_WATCH_H

#include <stdint.h>

#include "server/session/serve.h"

struct tows_session;

/* Behind a command on the event or stream of that id (the other one is NULL): decodes a slip and a
 * value, and has the client told when it is done, or at once that it must ask. */
void tows_watch_event(struct tows_serve *call, uint64_t id, CUevent event);
void tows_watch_stream(struct tows_serve *call, uint64_t id, CUstream stream);

/* Tells what is done by now. Not for the leading thread: it sends. */
void tows_watch_sweep(struct tows_session *session);

/* Before an event or stream is destroyed: the driver is not asked for it any more. */
void tows_watch_drop(struct tows_session *session, const void *handle);
/* The same for everything in a context, whose handles were unbound. */
void tows_watch_drop_context(struct tows_session *session, uint32_t context);
/* A stream is about to capture, where asking would do harm: the client is to ask for everything. */
void tows_watch_refuse(struct tows_session *session);

/* The session ends. */
void tows_watch_end(struct tows_session *session);

#endif
