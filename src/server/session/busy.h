/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a session's streams may have work: the end of all of a context's work can be told by a
 * note in the only one that has. */
#ifndef TOW_SERVER_BUSY_H
#define TOW_SERVER_BUSY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/driver.h"
#include "base/mutex.h"

struct tows_serve;
struct tows_session;

enum { TOW_BUSY_MAX = 4 };

struct tows_busy {
    struct tow_mutex lock; /* guards what follows; the keys are looked at without it */
    _Atomic uint64_t keys[TOW_BUSY_MAX]; /* 0: none, and none behind it */
    struct {
        uint64_t stream; /* the client's id */
        uint32_t context;
        uint16_t thread;
    } at[TOW_BUSY_MAX];
    bool many;             /* more than these, or nobody can say which */
    atomic_uint in_flight; /* calls that run beside the leader */
};

void tows_busy_init(struct tows_busy *busy);
void tows_busy_fini(struct tows_busy *busy);

/* The call gives work to a stream, or may. */
void tows_busy_use(struct tows_serve *call, uint64_t stream);
/* A call beside the leader has ended: what it gave may have come behind a synchronisation that
 * forgot the streams. */
void tows_busy_again(struct tows_serve *call);

/* By the leader. True: all work of the call's context is done when that of *ret_stream is, or
 * *ret_idle says that there is none. False: no single stream can tell. */
bool tows_busy_last(struct tows_serve *call, CUstream *ret_stream, bool *ret_idle);

/* By the leader, in the call's context: true if none of its work is left, nor any other context's.
 */
bool tows_busy_idle(struct tows_serve *call);

/* Before all of the context is synchronised: whoever gets work from now on is noted anew. */
void tows_busy_forget(struct tows_session *session);
/* It failed, or nobody knows any more which they are. */
void tows_busy_lose(struct tows_session *session);

#endif
