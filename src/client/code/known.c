/* SPDX-License-Identifier: Apache-2.0 */
/* The table of images that this process has loaded, by server and hash. */
#include "client/code/known.h"

#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "client/link/link.h"
#include "gen/module.h"

struct towc_known {
    struct towc_known *next;
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
    struct towc_known *list;
} knowns = {.lock = TOW_MUTEX(CLIENT_KNOWN)};

static struct towc_known *known_find(const struct towc_context *context,
                                     const struct towc_image *image)
{
    struct towc_known *known = knowns.list;
    while (known != NULL && (known->link != context->link || known->device != context->device ||
                             known->form != image->form || known->size != image->size ||
                             memcmp(known->hash, image->hash, sizeof known->hash) != 0)) {
        known = known->next;
    }
    return known;
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

bool towc_known_load(struct towc_library *library, struct towc_context *context,
                     const struct towc_image *image, CUresult *ret_status)
{
    tow_mutex_lock(&knowns.lock);
    struct towc_known *known = known_find(context, image);
    bool answered = known != NULL && known->answered;
    if (answered) {
        *ret_status = send_load(library, context, image);
        if (*ret_status == CUDA_SUCCESS) {
            struct tow_dec facts = tow_dec_init(known->facts, known->facts_size);
            towc_library_take_known(library, context->link, &facts);
            known->libraries++;
            library->known = known;
        }
    }
    tow_mutex_unlock(&knowns.lock);
    return answered;
}

void towc_known_add(struct towc_library *library, const struct towc_context *context,
                    const struct towc_image *image, struct tow_dec facts)
{
    tow_mutex_lock(&knowns.lock);
    struct towc_known *known = known_find(context, image);
    if (known == NULL) {
        known = calloc(1, sizeof *known);
        if (known == NULL) {
            goto unlock;
        }
        known->link = context->link;
        known->device = context->device;
        known->form = image->form;
        known->size = image->size;
        memcpy(known->hash, image->hash, sizeof known->hash);
        known->next = knowns.list;
        knowns.list = known;
    } else if (!known->answered) {
        size_t size = tow_dec_left(&facts);
        known->facts = malloc(size);
        if (known->facts != NULL) {
            memcpy(known->facts, tow_dec_bytes(&facts, size), size);
            known->facts_size = size;
            known->answered = true;
        }
    }
    known->libraries++;
    library->known = known;
unlock:
    tow_mutex_unlock(&knowns.lock);
}

void towc_known_drop(struct towc_library *library)
{
    tow_mutex_lock(&knowns.lock);
    struct towc_known *known = library->known;
    library->known = NULL;
    if (known != NULL && --known->libraries == 0) {
        struct towc_known **at = &knowns.list;
        while (*at != known) {
            at = &(*at)->next;
        }
        *at = known->next;
        free(known->facts);
        free(known);
    }
    tow_mutex_unlock(&knowns.lock);
}
