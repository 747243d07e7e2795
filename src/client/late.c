#include "client/late.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "client/call.h"
#include "client/context.h"
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
    bool sent;      /* what the source held at the call went ahead */
    uint8_t held[]; /* if so: what that was */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static struct late *lates;

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

static void enlist(struct late *late)
{
    pthread_mutex_lock(&lock);
    late->next = lates;
    lates = late;
    pthread_mutex_unlock(&lock);
}

static void drop(struct late *late)
{
    pthread_mutex_lock(&lock);
    struct late **at = &lates;
    while (*at != late) {
        at = &(*at)->next;
    }
    *at = late->next;
    pthread_mutex_unlock(&lock);
    free(late);
}

/* Uploads beside the stream, which stands still, and waits for the device. */
static CUresult upload_beside(const struct late *late)
{
    CUstream beside = NULL;
    CUresult status = tow_cuCtxPushCurrent_v2(late->context->handle);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    status = tow_cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING);
    if (status == CUDA_SUCCESS) {
        status = tow_copy_upload(late->to, late->from, late->size, beside, false);
        if (status == CUDA_SUCCESS) {
            status = tow_send_cuStreamSynchronize(beside);
        }
        tow_cuStreamDestroy_v2(beside);
    }
    tow_cuCtxPopCurrent_v2(NULL);
    return status;
}

/* In the stream, at the copy's place. */
static void take_turn(void *user)
{
    struct late *late = user;
    if (!late->sent || memcmp(late->held, late->from, late->size) != 0) {
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

CUresult tow_late_upload(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    struct tow_context *context;
    CUresult status = tow_stream_context(stream, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    /* Few bytes go ahead: most functions write something else, and then nothing is left to do. */
    bool ahead = size <= TOW_COPY_INLINE_MAX;
    struct late *late = malloc(sizeof *late + (ahead ? size : 0));
    if (late == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *late = (struct late){.context = context, .to = to, .from = from, .size = size, .sent = ahead};
    if (ahead) {
        memcpy(late->held, from, size);
        status = tow_copy_upload(to, late->held, size, stream, false);
        if (status != CUDA_SUCCESS) {
            free(late);
            return status;
        }
    }
    enlist(late);
    struct tow_hostfn function = {.run = take_turn, .user = late, .own = true};
    status = tow_hostfn_put(stream, &function);
    if (status != CUDA_SUCCESS) {
        drop(late);
    }
    return status;
}
