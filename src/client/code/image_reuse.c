/* SPDX-License-Identifier: Apache-2.0 */
/* The table of images that this process has loaded, by server and hash. */
#include "client/code/image_reuse.h"

#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "client/link/link.h"
#include "gen/module.h"

struct towc_reusable_image {
    struct towc_reusable_image *next;
    const struct towc_link *link; /* borrowed */
    CUdevice device;
    enum tow_image_form form;
    size_t size;
    uint8_t hash[TOW_SHA256_SIZE];
    unsigned libraries; /* that hold the image on the server */
    bool answered;      /* `facts` is there: from the second load on, when it is worth its room */
    uint8_t *facts;     /* owned: what a reply says of kernels */
    size_t facts_size;
};

/* Process-wide: each names its link and device. Also held while a load is sent that nobody waits
 * for: the library that holds the image cannot be unloaded before. */
static struct {
    struct tow_mutex lock; /* guards the list, and all in it */
    struct towc_reusable_image *list;
} reusables = {.lock = TOW_MUTEX(CLIENT_IMAGE_REUSE)};

static struct towc_reusable_image *reuse_find(const struct towc_context *context,
                                              const struct towc_image *image)
{
    struct towc_reusable_image *reusable = reusables.list;
    while (reusable != NULL &&
           (reusable->link != context->link || reusable->device != context->device ||
            reusable->form != image->form || reusable->size != image->size ||
            memcmp(reusable->hash, image->hash, sizeof reusable->hash) != 0)) {
        reusable = reusable->next;
    }
    return reusable;
}

static CUresult send_load(struct towc_library *library, struct towc_context *context,
                          const struct towc_image *image)
{
    static const struct towc_jit none;
    struct towc_call call;
    CUresult status = towc_call_begin_on(
        &call, context->link, context->number, TOW_FN_cuLibraryLoadData,
        sizeof library->id + sizeof(struct tow_code_ref) + towc_jit_size(&none), 0);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, library->id);
    towc_code_put(&call, image, TOW_CODE_KNOWN, &(uint32_t){0});
    towc_jit_encode(&call.enc, &none);
    return towc_call_send(&call);
}

bool towc_image_reuse_load(struct towc_library *library, struct towc_context *context,
                           const struct towc_image *image, CUresult *ret_status)
{
    if ((context->link->welcome.capabilities & TOW_CAN_FULL) != 0) {
        return false; /* whether there is room for its variables only the server knows */
    }
    tow_mutex_lock(&reusables.lock);
    struct towc_reusable_image *reusable = reuse_find(context, image);
    bool answered = reusable != NULL && reusable->answered;
    if (answered) {
        *ret_status = send_load(library, context, image);
        if (*ret_status == CUDA_SUCCESS) {
            struct tow_dec facts = tow_dec_init(reusable->facts, reusable->facts_size);
            towc_library_take_known(library, context->link, &facts);
            reusable->libraries++;
            library->reusable = reusable;
        }
    }
    tow_mutex_unlock(&reusables.lock);
    return answered;
}

void towc_image_reuse_add(struct towc_library *library, const struct towc_context *context,
                          const struct towc_image *image, struct tow_dec facts)
{
    tow_mutex_lock(&reusables.lock);
    struct towc_reusable_image *reusable = reuse_find(context, image);
    if (reusable == NULL) {
        reusable = calloc(1, sizeof *reusable);
        if (reusable == NULL) {
            goto unlock;
        }
        reusable->link = context->link;
        reusable->device = context->device;
        reusable->form = image->form;
        reusable->size = image->size;
        memcpy(reusable->hash, image->hash, sizeof reusable->hash);
        reusable->next = reusables.list;
        reusables.list = reusable;
    } else if (!reusable->answered) {
        size_t size = tow_dec_left(&facts);
        reusable->facts = malloc(size);
        if (reusable->facts != NULL) {
            memcpy(reusable->facts, tow_dec_bytes(&facts, size), size);
            reusable->facts_size = size;
            reusable->answered = true;
        }
    }
    reusable->libraries++;
    library->reusable = reusable;
unlock:
    tow_mutex_unlock(&reusables.lock);
}

void towc_image_reuse_drop(struct towc_library *library)
{
    tow_mutex_lock(&reusables.lock);
    struct towc_reusable_image *reusable = library->reusable;
    library->reusable = NULL;
    if (reusable != NULL && --reusable->libraries == 0) {
        struct towc_reusable_image **at = &reusables.list;
        while (*at != reusable) {
            at = &(*at)->next;
        }
        *at = reusable->next;
        free(reusable->facts);
        free(reusable);
    }
    tow_mutex_unlock(&reusables.lock);
}
