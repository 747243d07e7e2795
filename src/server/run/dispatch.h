/* SPDX-License-Identifier: Apache-2.0 */
/* The dispatcher of a session.
 *
 * One thread at a time leads: it takes frames off the line in order. No-reply commands it carries
 * out at once, and quick ones (api/README.md). Another one whose caller waits it copies, passes the
 * lead to another thread, and carries it out beside the stream of commands: nobody can know its
 * result yet, so nothing can depend on it, and a thread that blocks in a synchronisation never
 * delays another client thread's call.
 */
#ifndef TOW_SERVER_DISPATCH_H
#define TOW_SERVER_DISPATCH_H

struct tows_session;

/* Serves, on this thread and others that it starts, until the session ends. Returns the reason;
 * some of the others may still be in a driver call. */
int tows_session_serve(struct tows_session *session);
/* After it: waits for them. */
void tows_session_await_threads(struct tows_session *session);

/* The session's `on_end`. */
void tows_session_release(struct tows_session *session);

#endif
