/* SPDX-License-Identifier: Apache-2.0 */
/* Takes in code images, checks them and keeps them while a library of the session uses them. */
#include "server/code/code.h"

#include "base/log.h"
#include "base/mutex.h"
#include "gen/context.h"
#include "gen/core.h"
#include "gen/device.h"
#include "server/code/codecache.h"
#include "server/code/printf_scan.h"
#include "server/session/session.h"
#include "server/session/transfer.h"
#include "wire/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    UPLOADS_MAX = 64, /* images on their way at once: threads that load at the same time */
};

/* An image on its way in. The transfer fills it on the leading thread; the command that follows
 * takes it. */
struct upload {
    uint32_t transfer;
    size_t size, got;
    bool complete;
    bool abandoned; /* nobody will take it: the transfer's end frees it */
    bool finished;  /* the transfer is over */
    uint8_t *bytes; /* owned */
    struct code *code;
    struct upload *next;
};

struct tows_code_keeper {
    uint64_t library;   /* or module */
    const void *handle; /* the driver's, only compared */
    uint64_t serial;    /* never used twice; 0: nothing is learned of it */
    uint8_t hash[TOW_SHA256_SIZE];
    struct tows_code_image *image; /* shared; NULL for a module */
    struct tows_code_keeper *next;
};

struct code {
    struct tows_session *session; /* borrowed. Fixed */
    struct tow_mutex lock;        /* guards the lists and all in them */
    struct tows_code_image *images;
    struct upload *uploads;
    unsigned upload_count;
    struct tows_code_keeper *keepers;
    uint64_t last_serial;
    uint64_t keys[TOW_SNAPSHOT_DEVICES_MAX]; /* of devices, see device_key; 0: not asked yet */
    struct tows_codecache *cache;            /* owned; NULL if none is kept. Fixed */
};

static void code_fini(struct tows_session *session, void *state);

static void code_init(struct tows_session *session, void *state)
{
    struct code *code = state;
    const struct tows_session_options *options = session->options;
    code->session = session;
    tow_mutex_init(&code->lock, SERVER_CODE);
    if (options != NULL && options->code_cache != NULL) {
        int error =
            tows_codecache_open(options->code_cache, options->code_cache_max, 0, &code->cache);
        if (error < 0) {
            tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "no code is cached in %s: %s",
                    options->code_cache, strerror(-error));
        }
    }
}

static struct code *code_of(struct tows_session *session)
{
    static const struct tows_family_ops ops = {TOW_SESSION_CODE, sizeof(struct code), code_init,
                                               code_fini};
    return tows_session_make_state(session, &ops);
}

/* The session's, which some load has made; NULL before the first. */
static struct code *code_peek(struct tows_session *session)
{
    return tows_session_state(session, TOW_SESSION_CODE);
}

/* Bytes of an image are claimed before there is memory for them. */
static void bytes_free(struct code *code, uint8_t *bytes, size_t size)
{
    if (bytes != NULL) {
        free(bytes);
        tows_session_unclaim(code->session, size);
    }
}

static void image_free(struct code *code, struct tows_code_image *image)
{
    if (image != NULL) {
        free(image->parts);
        bytes_free(code, image->bytes, image->size);
        free(image);
    }
}

/* ---- uploads ---- */

static void upload_free(struct upload *upload)
{
    if (upload != NULL) {
        bytes_free(upload->code, upload->bytes, upload->size);
        free(upload);
    }
}

static void upload_chunk(void *user, uint64_t offset, const void *bytes, size_t size)
{
    struct upload *upload = user;
    tow_mutex_lock(&upload->code->lock);
    if (!upload->abandoned && offset <= upload->size && size <= upload->size - offset) {
        memcpy(upload->bytes + offset, bytes, size);
        upload->got += size;
    }
    tow_mutex_unlock(&upload->code->lock);
}

static void upload_done(void *user, bool ok)
{
    struct upload *upload = user;
    tow_mutex_lock(&upload->code->lock);
    upload->finished = true;
    upload->complete = ok && upload->got == upload->size;
    bool drop = upload->abandoned;
    tow_mutex_unlock(&upload->code->lock);
    if (drop) {
        upload_free(upload);
    }
}

/* Announces the transfer, so that the client may send. */
static CUresult upload_begin(struct tows_session *session, struct code *code,
                             const struct tow_code_ref *ref)
{
    if (!tows_session_claim(session, ref->size)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct upload *upload = calloc(1, sizeof *upload);
    if (upload == NULL || (upload->bytes = malloc(ref->size)) == NULL) {
        tows_session_unclaim(session, ref->size);
        free(upload);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    upload->transfer = ref->transfer;
    upload->size = ref->size;
    upload->code = code;
    tow_mutex_lock(&code->lock);
    bool full = code->upload_count == UPLOADS_MAX;
    if (!full) {
        code->upload_count++;
        upload->next = code->uploads;
        code->uploads = upload;
    }
    tow_mutex_unlock(&code->lock);
    if (full) {
        upload_free(upload);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct tows_transfer_sink sink = {.chunk = upload_chunk, .done = upload_done, .user = upload};
    int error = tows_transfer_expect(session, ref->transfer, ref->size, &sink);
    if (error == 0) {
        return CUDA_SUCCESS;
    }
    tow_mutex_lock(&code->lock);
    for (struct upload **at = &code->uploads; *at != NULL; at = &(*at)->next) {
        if (*at == upload) {
            *at = upload->next;
            code->upload_count--;
            break;
        }
    }
    tow_mutex_unlock(&code->lock);
    upload_free(upload);
    return error == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
}

/* The bytes that were sent, if they are all there and are what the command says. */
static uint8_t *upload_take(struct code *code, const struct tow_code_ref *ref)
{
    tow_mutex_lock(&code->lock);
    struct upload **at = &code->uploads;
    while (*at != NULL && (*at)->transfer != ref->transfer) {
        at = &(*at)->next;
    }
    struct upload *upload = *at;
    uint8_t *bytes = NULL;
    if (upload != NULL) {
        *at = upload->next;
        code->upload_count--;
        if (upload->complete && upload->size == ref->size) {
            bytes = upload->bytes;
            upload->bytes = NULL;
        }
        if (!upload->finished) {
            upload->abandoned = true;
            upload = NULL;
        }
    }
    tow_mutex_unlock(&code->lock);
    upload_free(upload);
    if (bytes == NULL) {
        return NULL;
    }
    uint8_t digest[TOW_SHA256_SIZE];
    tow_sha256_of(bytes, ref->size, digest);
    if (memcmp(digest, ref->hash, sizeof digest) != 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR, "an image of %llu bytes arrived damaged",
                (unsigned long long)ref->size);
        bytes_free(code, bytes, ref->size);
        return NULL;
    }
    return bytes;
}

/* ---- images ---- */

/* Checks that a driver which knows no length stays within what was sent, and builds a wrapper for a
 * bundle. */
static CUresult image_prepare(struct tows_code_image *image)
{
    image->handed = image->bytes;
    if (image->form == TOW_IMAGE_RAW) {
        return CUDA_SUCCESS;
    }
    if (image->form == TOW_IMAGE_BUNDLE) {
        int count = tow_image_bundle_read(image->bytes, image->size, NULL, 0);
        if (count < 0) {
            return CUDA_ERROR_INVALID_IMAGE;
        }
        image->parts = calloc((size_t)count + 1, sizeof *image->parts);
        if (image->parts == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        tow_image_bundle_read(image->bytes, image->size, image->parts, (uint32_t)count);
        image->wrapper = (struct tow_image_wrapper){
            .magic = TOW_IMAGE_WRAPPER_MAGIC,
            .version = 2,
            .data = image->parts[0],
            .extra = image->parts + 1,
        };
        image->handed = &image->wrapper;
        return CUDA_SUCCESS;
    }
    struct tow_image_memory memory = {
        .base = image->bytes,
        .size = image->size,
        .readable = tow_image_within,
    };
    enum tow_image_form form;
    size_t size;
    if (tow_image_measure(&memory, &form, &size) < 0 || form != image->form) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    return CUDA_SUCCESS;
}

static struct tows_code_image *find_locked(struct code *code, const struct tow_code_ref *ref)
{
    struct tows_code_image *image = code->images;
    while (image != NULL && (image->size != ref->size || image->form != ref->form ||
                             memcmp(image->hash, ref->hash, sizeof image->hash) != 0)) {
        image = image->next;
    }
    if (image != NULL) {
        image->refs++;
    }
    return image;
}

/* Takes the bytes over. */
static struct tows_code_image *image_add(struct tows_serve *call, struct code *code,
                                         const struct tow_code_ref *ref, uint8_t *bytes)
{
    struct tows_code_image *image = calloc(1, sizeof *image);
    if (image == NULL) {
        bytes_free(code, bytes, ref->size);
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    memcpy(image->hash, ref->hash, sizeof image->hash);
    image->form = (enum tow_image_form)ref->form;
    image->size = ref->size;
    image->bytes = bytes;
    image->refs = 1;
    call->status = image_prepare(image);
    if (call->status != CUDA_SUCCESS) {
        image_free(code, image);
        return NULL;
    }
    tow_mutex_lock(&code->lock);
    struct tows_code_image *other = find_locked(code, ref);
    if (other == NULL) {
        image->next = code->images;
        code->images = image;
    }
    tow_mutex_unlock(&code->lock);
    if (other != NULL) {
        image_free(code, image);
        return other;
    }
    tows_printf_scan_look(call->session, image);
    return image;
}

/* What was found and could not be marked as used: the listener does that, too. */
static void code_use(const struct code *code, int found, const uint8_t hash[TOW_SHA256_SIZE],
                     uint64_t key)
{
    const struct tows_cache_ops *ops = code->session->options->cache_ops;
    if (found > 0 && ops != NULL) {
        ops->use(hash, key);
    }
}

/* Into the cache. A worker cannot write there: the listener does. */
static void code_store(struct code *code, const struct tow_code_ref *ref, const uint8_t *bytes)
{
    const struct tows_cache_ops *ops = code->session->options->cache_ops;
    int error = ops != NULL ? ops->put(ref->hash, bytes, ref->size)
                            : tows_codecache_put(code->cache, ref->hash,
                                                 code->session->options->tenant, bytes, ref->size);
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "an image of %llu bytes is not cached: %s",
                (unsigned long long)ref->size, strerror(-error));
    }
}

/* From the cache, if this tenant has sent it before: its bytes, or NULL. */
static uint8_t *code_recall(struct code *code, const struct tow_code_ref *ref)
{
    uint8_t *bytes = NULL;
    int sent = code->cache != NULL
                   ? tows_codecache_was_sent(code->cache, ref->hash, code->session->options->tenant)
                   : -ENOENT;
    int found = sent >= 0 ? tows_codecache_get(code->cache, ref->hash, ref->size, &bytes) : sent;
    if (found < 0) {
        return NULL;
    }
    code_use(code, sent, ref->hash, TOW_CODECACHE_SENT);
    code_use(code, found, ref->hash, 0);
    return bytes;
}

struct tows_code_image *tows_code_take(struct tows_serve *call, bool *ret_send)
{
    struct tow_code_ref ref;
    tow_dec_copy(&call->in, &ref, sizeof ref);
    *ret_send = false;
    if (!tows_serve_ready(call)) {
        return NULL;
    }
    if (ref.size == 0 || ref.size > TOW_IMAGE_MAX || ref.form == TOW_IMAGE_WRAPPER) {
        call->status = CUDA_ERROR_INVALID_IMAGE;
        return NULL;
    }
    struct code *code = code_of(call->session);
    if (code == NULL) {
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    if (ref.stage == TOW_CODE_SENT) {
        uint8_t *bytes = upload_take(code, &ref);
        if (bytes == NULL) {
            call->status = CUDA_ERROR_INVALID_IMAGE;
            return NULL;
        }
        if (code->cache != NULL) {
            code_store(code, &ref, bytes);
        }
        return image_add(call, code, &ref, bytes);
    }
    tow_mutex_lock(&code->lock);
    struct tows_code_image *image = find_locked(code, &ref);
    tow_mutex_unlock(&code->lock);
    if (image != NULL) {
        return image;
    }
    if (ref.stage == TOW_CODE_KNOWN) {
        call->status = CUDA_ERROR_INVALID_IMAGE;
        return NULL;
    }
    if (!tows_session_claim(call->session, ref.size)) {
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    uint8_t *bytes = code_recall(code, &ref);
    if (bytes != NULL) {
        return image_add(call, code, &ref, bytes);
    }
    tows_session_unclaim(call->session, ref.size);
    call->status = upload_begin(call->session, code, &ref);
    *ret_send = call->status == CUDA_SUCCESS;
    return NULL;
}

void tows_code_ref(struct tows_session *session, struct tows_code_image *image)
{
    struct code *code = code_peek(session);
    tow_mutex_lock(&code->lock);
    image->refs++;
    tow_mutex_unlock(&code->lock);
}

void tows_code_unref(struct tows_session *session, struct tows_code_image *image)
{
    if (image == NULL) {
        return;
    }
    struct code *code = code_peek(session);
    tow_mutex_lock(&code->lock);
    bool last = --image->refs == 0;
    if (last) {
        for (struct tows_code_image **at = &code->images; *at != NULL; at = &(*at)->next) {
            if (*at == image) {
                *at = image->next;
                break;
            }
        }
    }
    tow_mutex_unlock(&code->lock);
    if (last) {
        image_free(code, image);
    }
}

void tows_code_keep(struct tows_session *session, uint64_t library, const void *handle,
                    struct tows_code_image *image, bool whole, bool plain)
{
    struct code *code = code_peek(session);
    struct tows_code_keeper *keeper = calloc(1, sizeof *keeper);
    if (keeper == NULL) {
        return; /* the image stays until the session ends */
    }
    keeper->library = library;
    keeper->handle = handle;
    memcpy(keeper->hash, image->hash, sizeof keeper->hash);
    keeper->image = whole ? image : NULL;
    tow_mutex_lock(&code->lock);
    keeper->serial = plain ? ++code->last_serial : 0;
    keeper->next = code->keepers;
    code->keepers = keeper;
    tow_mutex_unlock(&code->lock);
}

struct tows_code_keeper *tows_code_detach(struct tows_session *session, uint64_t library)
{
    struct code *code = code_peek(session);
    if (code == NULL) {
        return NULL;
    }
    tow_mutex_lock(&code->lock);
    struct tows_code_keeper **at = &code->keepers;
    while (*at != NULL && (*at)->library != library) {
        at = &(*at)->next;
    }
    struct tows_code_keeper *keeper = *at;
    if (keeper != NULL) {
        *at = keeper->next;
    }
    tow_mutex_unlock(&code->lock);
    return keeper;
}

void tows_code_release(struct tows_session *session, struct tows_code_keeper *keeper)
{
    if (keeper != NULL) {
        tows_code_unref(session, keeper->image);
        free(keeper);
    }
}

uint64_t tows_code_name(struct tows_session *session, uint64_t library, const void *handle)
{
    struct code *code = code_peek(session);
    uint64_t serial = 0;
    if (code != NULL) {
        tow_mutex_lock(&code->lock);
        const struct tows_code_keeper *keeper = code->keepers;
        while (keeper != NULL && (keeper->library != library || keeper->handle != handle)) {
            keeper = keeper->next;
        }
        serial = keeper != NULL ? keeper->serial : 0;
        tow_mutex_unlock(&code->lock);
    }
    return serial;
}

/* ---- what is known of kernels ---- */

/* Facts hold for one kind of GPU and one driver. */
static uint64_t device_key(struct tows_serve *call, struct code *code, int device)
{
    if (device < 0 || device >= TOW_SNAPSHOT_DEVICES_MAX) {
        return 0;
    }
    tow_mutex_lock(&code->lock);
    uint64_t key = code->keys[device];
    tow_mutex_unlock(&code->lock);
    if (key != 0) {
        return key;
    }
    struct {
        int format, version;
        CUuuid uuid;
        char name[256];
    } kind;
    memset(&kind, 0, sizeof kind);
    kind.format = 3; /* to be raised with what the software GPU says of its kernels, too */
    if (tow_drive(call->driver, cuDriverGetVersion)(&kind.version) != CUDA_SUCCESS ||
        tow_drive(call->driver, cuDeviceGetUuid_v2)(&kind.uuid, device) != CUDA_SUCCESS ||
        tow_drive(call->driver, cuDeviceGetName)(kind.name, sizeof kind.name, device) !=
            CUDA_SUCCESS) {
        return 0;
    }
    uint8_t digest[TOW_SHA256_SIZE];
    tow_sha256_of(&kind, sizeof kind, digest);
    memcpy(&key, digest, sizeof key);
    tow_mutex_lock(&code->lock);
    code->keys[device] = key;
    tow_mutex_unlock(&code->lock);
    return key;
}

int tows_code_device(struct tows_serve *call)
{
    CUdevice device = 0;
    return call->frame.context != 0 &&
                   tow_drive(call->driver, cuCtxGetDevice)(&device) == CUDA_SUCCESS
               ? device
               : 0;
}

void tows_code_recall(struct tows_serve *call, const struct tows_code_image *image,
                      struct tow_buf *facts)
{
    struct code *code = code_peek(call->session);
    uint64_t gpu = code->cache != NULL ? device_key(call, code, tows_code_device(call)) : 0;
    const char *tenant = call->session->options->tenant;
    int found =
        gpu != 0 ? tows_codecache_get_facts(code->cache, image->hash, tenant, gpu, facts) : 0;
    if (found < 0) {
        tow_buf_clear(facts);
    }
    code_use(code, found, image->hash, gpu);
}

void tows_code_reply_facts(struct tows_serve *call, const struct tow_buf *facts)
{
    /* As many as are whole and fit. */
    struct tow_dec dec = tow_dec_init(facts->data, facts->size);
    struct tow_kernel_info info;
    const uint8_t *params;
    const char *name;
    size_t size = 0;
    while (tow_kernel_fact_read(&dec, &info, &params, &name) &&
           dec.at - facts->data <= TOW_KERNEL_FACTS_MAX) {
        size = (size_t)(dec.at - facts->data);
    }
    tows_serve_reserve(call, 16 + size);
    tow_enc_i32(&call->out, tows_code_device(call));
    tow_enc_u32(&call->out, (uint32_t)size);
    tow_enc_bytes(&call->out, facts->data, size);
    tow_enc_u32(&call->out, 0); /* reserved: bytes that follow */
    tow_enc_u32(&call->out, 0);
}

/* What a program has set is no fact: others would take it for the kernel's own. */
static bool is_untouched(const struct tow_kernel_info *info)
{
    static const struct {
        CUfunction_attribute attribute;
        int value;
    } defaults[] = {
        {CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, CU_SHAREDMEM_CARVEOUT_DEFAULT},
        {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 0},
        {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 0},
        {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 0},
        {CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 0},
        {CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 0},
    };
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        unsigned which = defaults[i].attribute;
        if ((info->known >> which & 1) != 0 && info->attributes[which] != defaults[i].value) {
            return false;
        }
    }
    /* Without a wish for more, static and dynamic shared memory have 48 KiB together. */
    const uint32_t needed = 1u << CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES |
                            1u << CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
    int most = 48 * 1024, fixed = info->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
    int dynamic = info->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
    return (info->known & needed) == needed && dynamic <= most && fixed >= 0 &&
           dynamic >= most - (fixed < most ? fixed : most);
}

void tows_code_learn(struct tows_serve *call, uint64_t name_of, int device,
                     const struct tow_kernel_info *info, const void *params, const char *name,
                     struct tow_buf *facts)
{
    struct code *code = code_peek(call->session);
    if (name_of == 0 || code == NULL || (code->cache == NULL && facts == NULL) ||
        !is_untouched(info)) {
        return;
    }
    if (device == TOW_DEVICE_NONE) {
        device = tows_code_device(call);
    }
    uint64_t key = code->cache != NULL ? device_key(call, code, device) : 0;
    uint8_t hash[TOW_SHA256_SIZE];
    tow_mutex_lock(&code->lock);
    const struct tows_code_keeper *keeper = code->keepers;
    while (keeper != NULL && keeper->serial != name_of) {
        keeper = keeper->next;
    }
    if (keeper != NULL) {
        memcpy(hash, keeper->hash, sizeof hash);
    }
    tow_mutex_unlock(&code->lock);
    size_t room = sizeof(struct tow_kernel_fact) + sizeof *info + (size_t)info->params * 8 +
                  strlen(name) + 32;
    uint8_t *fact = keeper != NULL ? tows_serve_room(call, room, 1) : NULL;
    if (fact == NULL) {
        return;
    }
    struct tow_enc enc = tow_enc_init(fact, room);
    if (!tow_kernel_fact_write(&enc, info, params, name)) {
        return;
    }
    size_t size = (size_t)(enc.at - fact);
    if (facts != NULL) {
        tow_buf_append(facts, fact, size); /* what does not fit is asked for */
    }
    const struct tows_session_options *options = call->session->options;
    if (key != 0 && options->cache_ops != NULL) {
        options->cache_ops->add_facts(hash, key, fact, size);
    } else if (key != 0) {
        tows_codecache_add_facts(code->cache, hash, options->tenant, key, fact, size);
    }
}

static void code_fini(struct tows_session *session, void *state)
{
    struct code *code = state;
    while (code->keepers != NULL) {
        struct tows_code_keeper *next = code->keepers->next;
        free(code->keepers);
        code->keepers = next;
    }
    while (code->images != NULL) {
        struct tows_code_image *next = code->images->next;
        image_free(code, code->images);
        code->images = next;
    }
    while (code->uploads != NULL) {
        struct upload *next = code->uploads->next;
        upload_free(code->uploads);
        code->uploads = next;
    }
    tows_codecache_close(code->cache);
    tow_mutex_fini(&code->lock);
}
