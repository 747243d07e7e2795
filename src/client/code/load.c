/* SPDX-License-Identifier: Apache-2.0 */
/* Loading: images are offered by their hash, sent if the server wants them, and taken to further
 * servers when they are needed there. */
#include "base/mutex.h"
#include "client/code/code.h"

#include "base/log.h"
#include "client/link/device.h"
#include "client/code/jit_cache.h"
#include "client/code/image_reuse.h"
#include "client/link/link.h"
#include "gen/module.h"
#include "wire/result.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

CUresult towc_image_result(int error)
{
    switch (error) {
    case -ENOMEM:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case -ENOENT:
    case -ENOTDIR:
    case -EACCES:
    case -EISDIR:
        return CUDA_ERROR_FILE_NOT_FOUND;
    default:
        return CUDA_ERROR_INVALID_IMAGE;
    }
}

/* One offer, and if the server wants it the image and a second one. `context`: the current one if
 * it is alive, or NULL. */
static CUresult load_on(struct towc_library *library, struct towc_link *link,
                        struct towc_context *context, const struct towc_image *image,
                        const struct towc_jit *jit)
{
    uint32_t number = context != NULL ? context->number : 0;
    bool plain = library->kind == TOW_H_LIBRARY && jit->count == 0 && context != NULL &&
                 atomic_load(&context->sticky) == 0;
    CUresult known;
    if (plain && towc_image_reuse_load(library, context, image, &known)) {
        return known;
    }
    unsigned fn =
        library->kind == TOW_H_MODULE ? TOW_FN_cuModuleLoadDataEx : TOW_FN_cuLibraryLoadData;
    size_t rooms[2];
    towc_jit_log_rooms(jit, rooms);
    uint32_t transfer = 0;
    enum tow_code_stage stage = TOW_CODE_OFFER;
    for (;;) {
        struct towc_call call;
        CUresult status = towc_call_begin_on(&call, link, number, fn,
                                             8 + sizeof(struct tow_code_ref) + towc_jit_size(jit),
                                             TOW_CALL_REPLY);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        tow_enc_u64(&call.enc, library->id);
        towc_code_put(&call, image, stage, &transfer);
        towc_jit_encode(&call.enc, jit);
        status = towc_call_wait(&call);
        CUresult result = CUDA_ERROR_UNKNOWN;
        uint32_t answer = TOW_CODE_DONE;
        if (status == CUDA_SUCCESS) {
            result = (CUresult)tow_dec_u32(&call.dec);
            answer = tow_dec_u32(&call.dec);
            if (answer == TOW_CODE_DONE) {
                towc_jit_decode(&call.dec, jit, rooms);
                if (result == CUDA_SUCCESS && plain && !call.dec.bad) {
                    towc_image_reuse_add(library, context, image, call.dec);
                }
                if (result == CUDA_SUCCESS && atomic_load(&library->links) == 0) {
                    towc_library_take_known(library, link, &call.dec);
                }
            }
        }
        status = towc_call_end(&call, status);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        if (answer == TOW_CODE_DONE) {
            if (tow_result_is_sticky(result)) {
                towc_context_take_error_of(number, result);
            }
            return result;
        }
        if (stage == TOW_CODE_SENT) {
            tow_log(TOW_AREA_CLIENT, TOW_LOG_ERROR,
                    "%s refuses a %s of %zu bytes after it was sent", link->address,
                    tow_image_form_name(image->form), image->size);
            return CUDA_ERROR_UNKNOWN;
        }
        status = towc_link_upload(link, transfer, image->data, image->size);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        stage = TOW_CODE_SENT;
    }
}

/* A software GPU cannot run a cubin; where the PTX is known that it was compiled from, that goes
 * instead. The result is owned by the caller; false if there is none. */
static bool ptx_instead(const struct towc_image *image, struct towc_link *link,
                        struct towc_image *ret_image)
{
    bool soft = false;
    for (int i = 0; i < towc_device_count(); i++) {
        const struct towc_device *device = towc_device_at(i);
        soft = soft || (device->link == link && (device->snapshot->flags & TOW_SNAPSHOT_SOFT) != 0);
    }
    if (image->form != TOW_IMAGE_CUBIN || !soft) {
        return false;
    }
    struct tow_buf ptx;
    tow_buf_init(&ptx, TOW_IMAGE_MAX);
    bool found = towc_jit_cache_ptx_of(image->data, image->size, &ptx) == 0 &&
                 tow_buf_append(&ptx, "", 1) == 0;
    if (found) {
        *ret_image = (struct towc_image){.form = TOW_IMAGE_PTX, .size = ptx.size};
        ret_image->owned = tow_buf_steal(&ptx);
        ret_image->data = ret_image->owned;
        tow_sha256_of(ret_image->data, ret_image->size, ret_image->hash);
    }
    tow_buf_fini(&ptx);
    return found;
}

static CUresult load_best(struct towc_library *library, struct towc_link *link,
                          struct towc_context *context, const struct towc_image *image,
                          const struct towc_jit *jit)
{
    struct towc_image ptx;
    bool other = ptx_instead(image, link, &ptx);
    CUresult status = load_on(library, link, context, other ? &ptx : image, jit);
    if (other) {
        towc_image_close(&ptx);
    }
    if (status == CUDA_SUCCESS) {
        atomic_fetch_or(&library->links, 1u << link->index);
    }
    return status;
}

/* Further servers may need the image later. */
static CUresult keep_image(struct towc_library *library, struct towc_image *image, bool stays)
{
    if (library->kind != TOW_H_LIBRARY || towc_client_link_count() < 2) {
        return CUDA_SUCCESS;
    }
    library->image = *image;
    if (!stays && image->owned == NULL) {
        library->image.owned = malloc(image->size);
        if (library->image.owned == NULL) {
            library->image.size = 0;
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        memcpy(library->image.owned, image->data, image->size);
        library->image.data = library->image.owned;
    }
    image->owned = NULL; /* it is the library's now */
    return CUDA_SUCCESS;
}

CUresult towc_library_load(enum tow_handle_kind kind, struct towc_image *image,
                           const struct towc_jit *jit, bool stays, uint64_t *ret_id)
{
    struct towc_library *library = towc_library_create(kind);
    struct towc_context *context = towc_context_current();
    CUresult status = CUDA_ERROR_OUT_OF_MEMORY;
    if (library == NULL) {
        goto close_image;
    }
    status = towc_client_state();
    if (status == CUDA_SUCCESS) {
        status = towc_handle_mint_object(kind, library, &library->id);
    }
    library->link = context != NULL ? context->link : towc_client_link(-1);
    if (status == CUDA_SUCCESS && library->link == NULL) {
        status = CUDA_ERROR_NO_DEVICE;
    }
    if (status != CUDA_SUCCESS) {
        goto free_library;
    }
    bool alive = context != NULL && atomic_load(&context->alive);
    if (kind == TOW_H_MODULE) {
        library->context = context->number;
    }
    status = load_best(library, library->link, alive ? context : NULL, image, jit);
    if (status != CUDA_SUCCESS) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_DEBUG, "a %s of %zu bytes was not loaded: result %d",
                tow_image_form_name(image->form), image->size, (int)status);
        goto free_library;
    }
    status = keep_image(library, image, stays);
    if (status != CUDA_SUCCESS) {
        goto free_library;
    }
    towc_library_publish(library);
    *ret_id = library->id;
    towc_image_close(image);
    return CUDA_SUCCESS;
free_library:
    towc_image_reuse_drop(library);
    towc_library_destroy(library);
close_image:
    towc_image_close(image);
    return status;
}

/* ---- several servers ---- */

/* One thread at a time takes a library or its kernels elsewhere; no lock is held meanwhile. */
static void spread_begin(struct towc_library *library)
{
    tow_mutex_lock(&library->lock);
    while (library->spreading) {
        tow_mutex_wait(&library->lock, &library->calm);
    }
    library->spreading = true;
    tow_mutex_unlock(&library->lock);
}

static void spread_end(struct towc_library *library)
{
    tow_mutex_lock(&library->lock);
    library->spreading = false;
    pthread_cond_broadcast(&library->calm);
    tow_mutex_unlock(&library->lock);
}

static CUresult spread_library(struct towc_library *library, struct towc_link *link)
{
    if ((atomic_load(&library->links) >> link->index & 1) != 0) {
        return CUDA_SUCCESS;
    }
    if (library->image.size == 0) {
        return CUDA_ERROR_INVALID_HANDLE; /* a module of another server */
    }
    struct towc_jit none = {0};
    return load_best(library, link, NULL, &library->image, &none);
}

CUresult towc_library_spread(struct towc_library *library, struct towc_link *link)
{
    spread_begin(library);
    CUresult status = spread_library(library, link);
    spread_end(library);
    return status;
}

static CUresult bind_on(struct towc_kernel *kernel, struct towc_link *link)
{
    struct towc_call call;
    size_t name_size = strlen(kernel->name) + 1;
    CUresult status =
        towc_call_begin_on(&call, link, 0, TOW_FN_cuLibraryGetKernel, 40 + name_size, 0);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, kernel->library->id);
    tow_enc_u64(&call.enc, kernel->id);
    tow_enc_i32(&call.enc, TOW_DEVICE_NONE);
    tow_enc_u32(&call.enc, 0);
    tow_enc_u32(&call.enc, (uint32_t)name_size);
    tow_enc_bytes(&call.enc, kernel->name, name_size);
    return towc_call_send(&call);
}

CUresult towc_kernel_spread(struct towc_kernel *kernel, struct towc_link *link)
{
    struct towc_library *library = kernel->library;
    if (TOW_ID_KIND(kernel->id) != TOW_H_KERNEL) {
        return CUDA_ERROR_INVALID_HANDLE; /* a function is of one context */
    }
    spread_begin(library);
    CUresult status = spread_library(library, link);
    if (status == CUDA_SUCCESS && (atomic_load(&kernel->links) >> link->index & 1) == 0) {
        status = bind_on(kernel, link);
        if (status == CUDA_SUCCESS) {
            atomic_fetch_or(&kernel->links, 1u << link->index);
        }
    }
    spread_end(library);
    return status;
}
