/* SPDX-License-Identifier: Apache-2.0 */
/* Opens CUPTI, takes its records, and knows each by the command during which it was given. */
#include "backend/cuda/cupti.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cupti_layout.h"
#include "backend/spans.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"

enum {
    GIVERS = 1 << 15,        /* calls whose work may not have come yet; a power of 2 */
    BUFFER_SIZE = 512 << 10, /* some 2,500 records: what has come is handed over when it is full */
    ALIGNMENT = 8,
    SUCCESS = 0,
};

/* CUPTI's functions, with the types that matter here. */
static struct {
    int (*cuptiActivityRegisterTimestampCallback)(uint64_t (*now)(void));
    int (*cuptiActivityRegisterCallbacks)(void (*request)(uint8_t **, size_t *, size_t *),
                                          void (*complete)(void *, uint32_t, uint8_t *, size_t,
                                                           size_t));
    int (*cuptiSubscribe)(void **subscriber,
                          void (*called)(void *, uint32_t, uint32_t, const void *), void *user);
    int (*cuptiUnsubscribe)(void *subscriber);
    int (*cuptiEnableCallback)(uint32_t enable, void *subscriber, uint32_t domain, uint32_t cbid);
    int (*cuptiActivityEnable)(uint32_t kind);
    int (*cuptiActivityDisable)(uint32_t kind);
    int (*cuptiActivityFlushAll)(uint32_t flag);
    int (*cuptiActivityGetNextRecord)(uint8_t *buffer, size_t valid, void **record);
    int (*cuptiActivityGetNumDroppedRecords)(void *context, uint32_t stream, size_t *dropped);
} cupti;

/* Process-wide, as the driver is. */
static struct {
    char path[512];
    pthread_once_t once;
    int error;             /* of the beginning */
    struct tow_mutex lock; /* guards the givers */
    struct giver {
        uint32_t correlation;
        uint64_t command, given_ns;
    } * givers; /* owned: by correlation */
} activity = {.once = PTHREAD_ONCE_INIT, .lock = TOW_MUTEX(BACKEND_GIVERS)};

void tow_backend_cuda_cupti(const char *path)
{
    snprintf(activity.path, sizeof activity.path, "%s", path);
}

/* ---- records ---- */

/* 0: unknown. */
static uint32_t copy_kind(uint8_t copy)
{
    static const uint8_t kinds[] = {
        [1] = TOW_BACKEND_COPY_IN,     /* host to device */
        [2] = TOW_BACKEND_COPY_OUT,    /* device to host */
        [3] = TOW_BACKEND_COPY_IN,     /* host to array */
        [4] = TOW_BACKEND_COPY_OUT,    /* array to host */
        [5] = TOW_BACKEND_COPY_DEVICE, /* arrays and devices */
        [6] = TOW_BACKEND_COPY_DEVICE,  [7] = TOW_BACKEND_COPY_DEVICE,
        [8] = TOW_BACKEND_COPY_DEVICE,  [9] = TOW_BACKEND_COPY_HOST,
        [10] = TOW_BACKEND_COPY_DEVICE, /* another's */
    };
    return copy < sizeof kinds ? kinds[copy] : 0;
}

static uint64_t cupti_now(void)
{
    return (uint64_t)tow_time_now_ns();
}

/* On the thread that calls the driver. */
static void cupti_called(void *user, uint32_t domain, uint32_t number, const void *data)
{
    (void)user;
    (void)number;
    const struct tow_cupti_call *call = data;
    if (domain != TOW_CUPTI_DRIVER_API || call->site != TOW_CUPTI_API_ENTER) {
        return;
    }
    struct giver giver = {call->correlation, tow_spans_command, cupti_now()};
    tow_mutex_lock(&activity.lock);
    activity.givers[call->correlation % GIVERS] = giver;
    tow_mutex_unlock(&activity.lock);
}

/* Says of a span who gave it and when, if that is still known. */
static void giver_of(uint32_t correlation, struct tow_backend_span *span)
{
    tow_mutex_lock(&activity.lock);
    const struct giver *giver = &activity.givers[correlation % GIVERS];
    bool known = giver->correlation == correlation && correlation != 0;
    span->command = known ? giver->command : 0;
    span->given_ns = known && giver->given_ns < span->began_ns ? giver->given_ns : span->began_ns;
    tow_mutex_unlock(&activity.lock);
}

static void take_record(const void *record)
{
    struct tow_backend_span span = {0};
    const char *name = NULL;
    uint32_t kind, correlation = 0;
    memcpy(&kind, record, sizeof kind);
    if (kind == TOW_CUPTI_CONCURRENT_KERNEL) {
        const struct tow_cupti_kernel *kernel = record;
        span.kind = TOW_BACKEND_KERNEL;
        span.began_ns = kernel->start;
        span.ended_ns = kernel->end;
        span.stream = kernel->stream;
        name = kernel->name;
        correlation = kernel->correlation;
    } else if (kind == TOW_CUPTI_MEMSET) {
        const struct tow_cupti_memset *fill = record;
        span.kind = TOW_BACKEND_FILL;
        span.began_ns = fill->start;
        span.ended_ns = fill->end;
        span.bytes = fill->bytes;
        span.stream = fill->stream;
        correlation = fill->correlation;
    } else if (kind == TOW_CUPTI_MEMCPY || kind == TOW_CUPTI_MEMCPY2) {
        const struct tow_cupti_memcpy2 *copy = record; /* they begin alike */
        span.kind = copy_kind(copy->copy);
        span.began_ns = copy->start;
        span.ended_ns = copy->end;
        span.bytes = copy->bytes;
        span.stream = copy->stream;
        correlation = kind == TOW_CUPTI_MEMCPY2
                          ? copy->correlation
                          : ((const struct tow_cupti_memcpy *)record)->correlation;
    }
    if (span.kind == 0) {
        return;
    }
    if (span.began_ns == 0 || span.ended_ns < span.began_ns) {
        tow_spans_lose(1); /* CUPTI could not measure it */
        return;
    }
    giver_of(correlation, &span);
    tow_spans_keep(&span, name);
}

static void buffer_wanted(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = aligned_alloc(ALIGNMENT, BUFFER_SIZE);
    *size = *buffer != NULL ? BUFFER_SIZE : 0;
    *most = 0; /* as many as fit */
}

static void buffer_full(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)size;
    void *record = NULL;
    size_t dropped = 0;
    while (valid > 0 && cupti.cuptiActivityGetNextRecord(buffer, valid, &record) == SUCCESS) {
        take_record(record);
    }
    if (cupti.cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == SUCCESS) {
        tow_spans_lose(dropped);
    }
    free(buffer);
}

/* ---- beginning ---- */

static const char *const places[] = {
    "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
    "/usr/local/cuda/lib64/libcupti.so",
    "/usr/local/cuda-1[1-9].*/extras/CUPTI/lib64/libcupti.so",
    "/usr/lib/x86_64-linux-gnu/libcupti.so*",
    "/usr/lib/aarch64-linux-gnu/libcupti.so*",
    "/usr/lib64/libcupti.so*",
    "/usr/local/lib/python3*/dist-packages/nvidia/cu*/lib/libcupti.so.1[1-9]",
    "/usr/lib/python3*/*-packages/nvidia/cu*/lib/libcupti.so.1[1-9]",
};

static void *open_first(const char *pattern)
{
    glob_t found;
    void *library = NULL;
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = found.gl_pathc; i > 0 && library == NULL; i--) { /* the newest first */
            library = dlopen(found.gl_pathv[i - 1], RTLD_NOW | RTLD_LOCAL);
        }
        globfree(&found);
    }
    return library;
}

/* Where it is named, nowhere else. */
static void *open_library(void)
{
    if (activity.path[0] != '\0') {
        return dlopen(activity.path, RTLD_NOW | RTLD_LOCAL);
    }
    void *library = NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places && library == NULL; i++) {
        library = open_first(places[i]);
    }
    for (int version = 13; version >= 11 && library == NULL; version--) {
        char name[32]; /* LD_LIBRARY_PATH */
        snprintf(name, sizeof name, "libcupti.so.%d", version);
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

/* The first function that it lacks, or NULL. */
static const char *find_functions(void *library)
{
#define FIND(name)                                                                                 \
    do {                                                                                           \
        void *found = dlsym(library, #name);                                                       \
        if (found == NULL) {                                                                       \
            return #name;                                                                          \
        }                                                                                          \
        memcpy(&cupti.name, &found, sizeof found);                                                 \
    } while (0)
    FIND(cuptiActivityRegisterTimestampCallback);
    FIND(cuptiActivityRegisterCallbacks);
    FIND(cuptiSubscribe);
    FIND(cuptiUnsubscribe);
    FIND(cuptiEnableCallback);
    FIND(cuptiActivityEnable);
    FIND(cuptiActivityDisable);
    FIND(cuptiActivityFlushAll);
    FIND(cuptiActivityGetNextRecord);
    FIND(cuptiActivityGetNumDroppedRecords);
#undef FIND
    return NULL;
}

/* CUPTI's error, and in which function. A launch that this CUPTI does not know has no arrow. */
static int begin_records(const char **ret_where)
{
    static const uint32_t kinds[] = {TOW_CUPTI_CONCURRENT_KERNEL, TOW_CUPTI_MEMCPY,
                                     TOW_CUPTI_MEMCPY2, TOW_CUPTI_MEMSET};
    static const uint32_t functions[] = {
#define NUMBER(name, number) number,
        TOW_CUPTI_FUNCTIONS(NUMBER)
#undef NUMBER
    };
    void *subscriber = NULL;
    *ret_where = "cuptiActivityRegisterTimestampCallback";
    int error = cupti.cuptiActivityRegisterTimestampCallback(cupti_now);
    if (error == SUCCESS) {
        *ret_where = "cuptiActivityRegisterCallbacks";
        error = cupti.cuptiActivityRegisterCallbacks(buffer_wanted, buffer_full);
    }
    if (error == SUCCESS) {
        *ret_where = "cuptiSubscribe";
        error = cupti.cuptiSubscribe(&subscriber, cupti_called, NULL);
    }
    for (size_t i = 0; error == SUCCESS && i < sizeof functions / sizeof *functions; i++) {
        cupti.cuptiEnableCallback(1, subscriber, TOW_CUPTI_DRIVER_API, functions[i]);
    }
    for (size_t i = 0; error == SUCCESS && i < sizeof kinds / sizeof *kinds; i++) {
        *ret_where = "cuptiActivityEnable";
        error = cupti.cuptiActivityEnable(kinds[i]);
    }
    for (size_t i = 0; error != SUCCESS && i < sizeof kinds / sizeof *kinds; i++) {
        cupti.cuptiActivityDisable(kinds[i]);
    }
    if (error != SUCCESS && subscriber != NULL) {
        cupti.cuptiUnsubscribe(subscriber);
    }
    return error;
}

/* It stays mapped whatever happens: the driver knows it. */
static void cupti_open(void)
{
    activity.error = -ENOTSUP;
    if (strcmp(activity.path, "none") == 0) {
        return;
    }
    void *library = open_library();
    if (library == NULL) {
        const char *why = activity.path[0] != '\0' ? dlerror() : NULL;
        tow_log(TOW_AREA_BACKEND, TOW_LOG_INFO,
                "a timeline has no kernels: CUPTI cannot be opened (%s); name it with cupti=PATH",
                why != NULL ? why : "libcupti.so was not found");
        return;
    }
    const char *where = find_functions(library);
    if (where != NULL) {
        tow_log(TOW_AREA_BACKEND, TOW_LOG_INFO,
                "a timeline has no kernels: this CUPTI has no %s; take that of CUDA 11.6 or newer",
                where);
        return;
    }
    activity.givers = calloc(GIVERS, sizeof *activity.givers);
    if (activity.givers == NULL || tow_spans_begin() < 0) {
        activity.error = -ENOMEM;
        return;
    }
    int error = begin_records(&where);
    if (error != SUCCESS) {
        tow_log(TOW_AREA_BACKEND, TOW_LOG_WARN,
                "a timeline has no kernels: %s of CUPTI says error %d", where, error);
        return;
    }
    activity.error = 0;
}

static int cupti_begin(struct tow_backend_timeline_how *ret_how)
{
    pthread_once(&activity.once, cupti_open);
    if (activity.error == 0) {
        *ret_how = (struct tow_backend_timeline_how){.stays = true};
    }
    return activity.error;
}

/* What has ended comes here now; CUPTI waits for nothing that has not. */
static unsigned cupti_take(struct tow_backend_span *ret_spans, unsigned count, uint64_t *ret_lost)
{
    if (count > 0 && tow_spans_count() < count) {
        cupti.cuptiActivityFlushAll(0);
    }
    return tow_spans_take(ret_spans, count, ret_lost);
}

const struct tow_backend_timeline_ops tow_cupti_ops = {
    .begin = cupti_begin, .take = cupti_take, .name = tow_spans_name};
