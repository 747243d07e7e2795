/* SPDX-License-Identifier: Apache-2.0 */
/* The order of all locks (base/locks.def), and its check. A thread takes a lock only while every
 * lock that it holds stands before that in the list; it holds no two of one row. In builds with
 * TOW_LOCKS_CHECKED (debug builds and the sanitizers') a thread remembers what it holds as
 * a mask, and what breaks a rule ends the process with a sentence. Other builds have nothing of
 * this.
 */
#ifndef TOW_BASE_LOCKS_H
#define TOW_BASE_LOCKS_H

#include <stdbool.h>

enum tow_lock_name {
    TOW_LOCK_NAMELESS, /* all zeros: a lock that nobody has initialised */
#define TOW_LOCK(name, marks, guards) TOW_LOCK_##name,
#include "base/locks.def"
#undef TOW_LOCK
    TOW_LOCK_NAMES
};

/* Marks of a row: what may be called while it is held. */
enum tow_lock_mark {
    TOW_LOCK_OVER_DRIVER = 1, /* the driver, which may take as long as it likes */
    TOW_LOCK_OVER_LINE = 2,   /* what waits for the peer: room in a line, bytes from it */
};

#ifdef TOW_LOCKS_CHECKED

/* Before a lock is taken that is waited for. */
void tow_locks_check(enum tow_lock_name name);
void tow_locks_taken(enum tow_lock_name name);
void tow_locks_given(enum tow_lock_name name);
/* Whoever calls what a mark names: holds no lock without that mark. `call` is for the sentence. */
void tow_locks_over(enum tow_lock_mark mark, const char *call);
/* In a forked child whose locks are made anew: this thread holds none. */
void tow_locks_forget(void);

#else

static inline void tow_locks_over(enum tow_lock_mark mark, const char *call)
{
    (void)mark;
    (void)call;
}

static inline void tow_locks_forget(void)
{
}

#endif

#endif
