/* SPDX-License-Identifier: Apache-2.0 */
/* A session whose GPU memory is put out for a while: its program waits, and goes on with every
 * handle and address as before.
 *
 * The leading thread stands still in front of a command, so that no new work comes. What runs ends,
 * with the calls that wait for it and the host functions, which end over the side line. Then the
 * backend keeps all callers out, in whatever thread, and puts its memory into a file.
 */
#ifndef TOW_SERVER_SUSPEND_H
#define TOW_SERVER_SUSPEND_H

#include <stddef.h>
#include <stdint.h>

struct tows_session;

/* Begins and ends what is kept for it, with the session. */
void tows_suspend_init(struct tows_session *session);
void tows_suspend_fini(struct tows_session *session);

/* Puts the memory into the empty file, within the time. `by`: who wants it, for the program's user.
 * On failure the session goes on, and `why` is a sentence without an end; -EIO: it is lost. One
 * thread at a time, which calls tows_suspend_in next. */
int tows_suspend_out(struct tows_session *session, int64_t limit_ns, int fd, const char *by,
                     uint64_t *ret_bytes, char *why, size_t why_size);
/* Takes it in again; on failure the session is lost. */
int tows_suspend_in(struct tows_session *session, int fd, char *why, size_t why_size);
/* Ends one that is lost: the worker ends soon, so whoever gave the order is told before. */
void tows_suspend_lose(struct tows_session *session, const char *why);

/* The leading thread, in front of a command, where `suspend.wanted` is set: it stands until it may
 * carry it out. Negative: the session ends. */
int tows_suspend_stand(struct tows_session *session);
/* The session ends: nobody stands. */
void tows_suspend_end(struct tows_session *session);

#endif
