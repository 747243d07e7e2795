#include "client/late.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "client/call.h"
#include "client/context.h"
#include "client/copy.h"
#include "client/hostfn.h"
#include "client/stream.h"
#include "client/thread.h"
#include "gen/client_api.h"
#include "wire/copy.h"

struct late {
    struct late *next;
    struct tow_context *context; /* shared */
    CUdeviceptr to;
    const uint8_t *from; /* borrowed: page-locked memory, which stays while we are listed */
    size_t size;
    uint8_t held[]; /* what went ahead */
};

/* Bytes ahead of streams that may stand still: the worker keeps them in page-locked pieces, of
 * which it has only so many. */
enum { AHEAD_MAX = 1 << 20, AHEAD_TOTAL = 32 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the two below */
static struct late *lates;
static size_t ahead; /* bytes of all of them */

bool tow_late_reads(const void *address, size_t size)
{
    uintptr_t low = (uintptr_t)address;
    bool found = false;
    pthread_mutex_lock(&lock);
    for (const struct late *l = lates; l != NULL && !found; l = l->next) {
        uintptr_t from = (uintptr_t)l->from;
        found = low < from + l->size && (from < low || from - low < size);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static bool enlist(struct late *late)
{
    pthread_mutex_lock(&lock);
    bool room = ahead + late->size <= AHEAD_TOTAL;
    if (room) {
        ahead += late->size;
        late->next = lates;
        lates = late;
    }
    pthread_mutex_unlock(&lock);
    return room;
}

static void drop(struct late *late)
{
    pthread_mutex_lock(&lock);
    struct late **at = &lates;
    while (*at != late) {
        at = &(*at)->next;
    }
    *at = late->next;
    ahead -= late->size;
    pthread_mutex_unlock(&lock);
    free(late);
}

/* The stream for late copies; NULL if there is none, or it went with its context. */
static CUstream beside_of(struct tow_context *context)
{
    return atomic_load(&context->beside_epoch) == atomic_load(&context->epoch)
               ? atomic_load(&context->beside)
               : NULL;
}

void tow_late_prepare(struct tow_context *context)
{
    static pthread_mutex_t make_lock = PTHREAD_MUTEX_INITIALIZER;
    if (beside_of(context) != NULL) {
        return;
    }
    pthread_mutex_lock(&make_lock);
    unsigned epoch = atomic_load(&context->epoch);
    CUstream beside = NULL;
    if (beside_of(context) == NULL && tow_cuCtxPushCurrent_v2(context->handle) == CUDA_SUCCESS) {
        /* Of the greatest priority, so that it does not come behind the stream that stands still in
         * a queue of the device's. */
        if (tow_cuStreamCreateWithPriority(&beside, CU_STREAM_NON_BLOCKING,
                                           context->greatest_priority) == CUDA_SUCCESS) {
            atomic_store(&context->beside, beside);
            atomic_store(&context->beside_epoch, epoch);
        }
        tow_cuCtxPopCurrent_v2(NULL);
    }
    pthread_mutex_unlock(&make_lock);
}

/* Uploads beside the stream, which stands still, and waits for the device. In pieces that ride in
 * commands, for which the worker needs no page-locked memory: a driver may wait for all streams
 * before it gives some. */
static CUresult upload_beside(const struct late *late)
{
    CUresult status = tow_cuCtxPushCurrent_v2(late->context->handle);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_late_prepare(late->context); /* if the function went in while something captured */
    CUstream beside = beside_of(late->context);
    status = beside != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    for (size_t at = 0; status == CUDA_SUCCESS && at < late->size;) {
        size_t left = late->size - at;
        size_t n = left < TOW_COPY_INLINE_MAX ? left : TOW_COPY_INLINE_MAX;
        status = tow_copy_upload(late->to + at, late->from + at, n, beside, false);
        at += n;
    }
    if (status == CUDA_SUCCESS) {
        status = tow_send_cuStreamSynchronize(beside);
    }
    tow_cuCtxPopCurrent_v2(NULL);
    return status;
}

/* In the stream, at the copy's place. */
static void take_turn(void *user)
{
    struct late *late = user;
    if (memcmp(late->held, late->from, late->size) != 0) {
        tow_thread_here->in_hostfn = false;
        CUresult status = upload_beside(late);
        tow_thread_here->in_hostfn = true;
        if (status != CUDA_SUCCESS) {
            tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                    "an asynchronous copy of %zu bytes to the device failed (error %d)", late->size,
                    (int)status);
        }
    }
    drop(late);
}

/* A host function may be writing it just now: whatever is read, the turn compares. */
#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize_thread)) static void read_ahead(uint8_t *to, const uint8_t *from,
                                                           size_t size)
{
    const volatile uint8_t *at = from; /* or it becomes memcpy, which is watched */
    for (size_t i = 0; i < size; i++) {
        to[i] = at[i];
    }
}
#else
static void read_ahead(uint8_t *to, const uint8_t *from, size_t size)
{
    memcpy(to, from, size);
}
#endif

CUresult tow_late_upload(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    struct tow_context *context;
    CUresult status = tow_stream_context(stream, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct late *late = size <= AHEAD_MAX ? malloc(sizeof *late + size) : NULL;
    if (late == NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *late = (struct late){.context = context, .to = to, .from = from, .size = size};
    if (!enlist(late)) {
        free(late);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    read_ahead(late->held, from, size);
    status = tow_copy_upload(to, late->held, size, stream, false);
    if (status == CUDA_SUCCESS) {
        struct tow_hostfn function = {.run = take_turn, .user = late, .own = true};
        status = tow_hostfn_put(stream, &function);
    }
    if (status != CUDA_SUCCESS) {
        drop(late);
    }
    return status;
}
