/* Contexts as the program sees them. */
#ifndef TOW_CLIENT_CONTEXT_H
#define TOW_CLIENT_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/session/state.h"
#include "client/link/link.h"
#include "client/session/thread.h"
#include "client/completion/watch.h"
#include "gen/cuda_types.h"

struct tow_local_value;

/* What is known of a stream that the program has asked for. */
struct tow_stream_watch {
    pthread_mutex_t lock; /* guards the rest */
    struct tow_watch watch;
    uint64_t number; /* of the command that asked */
    unsigned epoch;  /* the context's */
};

/* Never freed: a thread may have a destroyed context on its stack. */
struct tow_context {
    CUcontext handle;
    uint32_t number;       /* on the wire: index of the handle, never 0 */
    uint64_t unique;       /* cuCtxGetId: never used again */
    CUdevice device;       /* visible ordinal */
    struct tow_link *link; /* borrowed: the server that has the device */
    bool primary;
    CUgreenCtx green;  /* it ends with this one; NULL for an ordinary context */
    atomic_bool alive; /* false after destroy or reset, until retained again */
    atomic_uint epoch; /* raised by destroy and reset: what was made before is gone */
    atomic_int sticky; /* CUresult that every call on it returns, or 0 */
    atomic_uint flags;
    /* Of commands up to these numbers all work is done: of all its streams, of its default stream
     */
    _Atomic uint64_t done, default_done;
    struct tow_stream_watch default_watch;
    unsigned api_version;
    int least_priority, greatest_priority;

    atomic_uint limits_known; /* bit i: limits[i] is what the server would answer */
    _Atomic uint64_t limits[CU_LIMIT_MAX];
    atomic_int cache_config, shared_config; /* -1: not known */

    pthread_mutex_t lock;   /* guards what follows; of the values only the writing */
    pthread_cond_t changed; /* nobody is changing it any more */
    bool changing;          /* primary: a thread begins or ends it, without holding the lock */
    pthread_t changer;      /* that thread */
    unsigned retained;      /* primary: retains not yet released */
    unsigned attached;      /* others: cuCtxAttach beyond the first */
    _Atomic(struct tow_local_value *) values; /* context-local storage; readers need no lock */
    struct tow_context *next_dead;            /* after its destruction */
};

/* The calling thread's current context, NULL if it has none. */
static inline struct tow_context *tow_context_current(void)
{
    struct tow_thread *self = tow_thread_self();
    return self != NULL && self->depth > 0 ? self->stack[self->depth - 1] : NULL;
}

/* Its number on its server, 0 if there is none. */
static inline uint32_t tow_context_number(void)
{
    const struct tow_context *context = tow_context_current();
    return context != NULL ? context->number : 0;
}

/* The context of a handle; NULL if it is not one, or was destroyed. A primary context counts as
 * there even while nobody retains it. */
struct tow_context *tow_context_find(CUcontext handle);
/* The same, NULL meaning the calling thread's current one. */
struct tow_context *tow_context_or_current(CUcontext handle);

/* Streams and events may be used while a context of another server is current. Makes theirs current
 * for one call, if that is so; tow_context_back with the result follows. */
bool tow_context_visit(struct tow_context *context);
void tow_context_back(bool visited);

/* The primary context of a visible device, made (without the server) on first use; NULL for a wrong
 * device. */
struct tow_context *tow_context_primary(CUdevice device);

/* For contexts that other families make (green contexts): a new object that is not alive yet; what
 * the server said of it; its end for the program. An object that never came alive may be freed. */
struct tow_context *tow_context_make(CUdevice device, bool primary);
void tow_context_take_facts(struct tow_context *context, struct tow_dec *dec);
void tow_context_end(struct tow_context *context);
void tow_context_discard(struct tow_context *context);

/* A call on `context` came back with `status`: remembers errors that a context does not recover
 * from. */
void tow_context_note(struct tow_context *context, CUresult status);
/* The same for a context that is known by its number on the wire. */
void tow_context_note_number(uint32_t number, CUresult status);

/* Values that libraries tie to a context (export table c693). `destroy` runs when the context ends.
 */
typedef void tow_local_destroy(CUcontext context, void *key, void *value);
CUresult tow_context_put_local(CUcontext handle, void *key, void *value,
                               tow_local_destroy *destroy);
CUresult tow_context_delete_local(CUcontext handle, void *key);
/* The context ends: runs the destructors of its values and forgets them. */
void tow_context_end_locals(struct tow_context *context);
/* No lock: nearly every call of the CUDA runtime asks. */
CUresult tow_context_get_local(void **ret_value, CUcontext handle, void *key);

#endif
