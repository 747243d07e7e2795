/* SPDX-License-Identifier: Apache-2.0 */
/* What is outstanding on a session's streams, and who is told when it ends. The client's side is
 * client/completion/completion.h.
 *
 * active_streams.c keeps which streams may have work: so one of them can stand for a whole context,
 * and a call that waits for the device can be told from one that would not.
 *
 * There are two ways to tell the client, and neither is a reply. word.c has the GPU write a word in
 * shared memory, behind the work. watch.c asks the driver now and then and sends a DONE frame. What
 * is told is never early, and what a reply lets the program know is told before it. What cannot be
 * told is refused: the client asks.
 */
#ifndef TOW_SERVER_COMPLETION_H
#define TOW_SERVER_COMPLETION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/driver.h"
#include "base/mutex.h"

struct tow_fence_word;
struct tows_serve;
struct tows_session;

enum { TOW_ACTIVE_STREAMS_MAX = 4 };

struct tows_completion {
    struct {
        struct tow_mutex lock; /* guards all here; the keys are looked at without it */
        _Atomic uint64_t keys[TOW_ACTIVE_STREAMS_MAX]; /* 0: none, and none behind it */
        struct tows_active_stream {
            uint64_t stream; /* the client's id */
            uint32_t context;
            uint16_t thread;
        } at[TOW_ACTIVE_STREAMS_MAX];
        bool many; /* more than these, or nobody can say which */
    } active;
};

void tows_completion_init(struct tows_completion *completion);
void tows_completion_fini(struct tows_completion *completion);

/* Whether a stream is through: CUDA_SUCCESS, CUDA_ERROR_NOT_READY, or why that cannot be asked. Of
 * a stream that captures it is not: the question would end the capture. */
CUresult tows_completion_ask(const struct tow_driver *driver, CUstream stream);

/* ---- which streams may have work: active_streams.c ---- */

/* The call gives work to a stream, or may. */
void tows_completion_use(struct tows_serve *call, uint64_t stream);
/* A call beside the leader has ended: what it gave may have come behind a synchronisation that
 * forgot the streams. */
void tows_completion_use_again(struct tows_serve *call);

/* By the leader. True: all work of the call's context is done when that of *ret_stream is, or
 * *ret_idle says that there is none. False: no single stream can tell. */
bool tows_completion_last(struct tows_serve *call, CUstream *ret_stream, bool *ret_idle);
/* By the leader, in the call's context: true if none of its work is left, nor any other context's.
 */
bool tows_completion_idle(struct tows_serve *call);

/* Before all of the context is synchronised: whoever gets work from now on is noted anew. */
void tows_completion_forget(struct tows_session *session);
/* It failed, or nobody knows any more which they are. */
void tows_completion_lose(struct tows_session *session);

/* ---- told by a word that the GPU writes: word.c ---- */

/* Behind a command that was carried out, or not (call->status): the stream writes `value` when it
 * gets there, or the word is refused at once. */
void tows_completion_put(struct tows_serve *call, struct tow_fence_word *word, uint32_t value,
                         CUstream stream);
/* The same for who waits for nothing else: refused, too, if a reply has more to tell the client's
 * thread. The call's own result stays as it is. */
void tows_completion_put_stream(struct tows_serve *call, struct tow_fence_word *word,
                                uint32_t value, CUstream stream);
/* By the leader: the end of all work of the call's context. `may_be_idle`: it is worth a question,
 * which takes a fraction of what the GPU takes to write. */
void tows_completion_put_context(struct tows_serve *call, struct tow_fence_word *word,
                                 uint32_t value, bool may_be_idle);

/* ---- told by a frame that the server sends: watch.c ---- */

/* Behind a command on the event or stream of that id: decodes a watch number and a value, and has
 * the client told when it is done, or at once that it must ask. */
void tows_completion_await_event(struct tows_serve *call, uint64_t id, CUevent event);
void tows_completion_await_stream(struct tows_serve *call, uint64_t id, CUstream stream);

/* Before a reply: tells what is done by now. Not for the leading thread: it sends. */
void tows_completion_sweep(struct tows_session *session);

/* Before an event or stream is destroyed: the driver is not asked for it any more. */
void tows_completion_drop(struct tows_session *session, const void *handle);
/* The same for everything in a context, whose handles were unbound. */
void tows_completion_drop_context(struct tows_session *session, uint32_t context);
/* A stream is about to capture, where asking would do harm: the client is to ask for everything. */
void tows_completion_refuse(struct tows_session *session);

/* The session ends. */
void tows_completion_end(struct tows_session *session);

#endif
