/* SPDX-License-Identifier: Apache-2.0 */
/* The end of modules and libraries: the program unloads them, or their context ends. */
#include "base/mutex.h"
#include "client/code/code.h"

#include "client/code/image_reuse.h"
#include "client/link/link.h"
#include "gen/module.h"

#include <stdlib.h>

enum { DROP_MAX = 4096 }; /* ids in one command */

struct dropping {
    uint64_t ids[DROP_MAX];
    uint32_t count;
    const struct towc_library *library;
    struct towc_link *link;
    CUresult status;
};

/* Tells the server which handles end; the last one ends the library itself. */
static void drop_send(struct dropping *d, bool last)
{
    unsigned fn = d->library->kind == TOW_H_MODULE ? TOW_FN_cuModuleUnload : TOW_FN_cuLibraryUnload;
    struct towc_call call;
    CUresult status =
        towc_call_begin_on(&call, d->link, d->library->context, fn, 16 + 8 * (size_t)d->count, 0);
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, d->library->id);
        tow_enc_u32(&call.enc, last);
        tow_enc_u32(&call.enc, d->count);
        tow_enc_bytes(&call.enc, d->ids, 8 * (size_t)d->count);
        status = towc_call_send(&call);
    }
    if (d->status == CUDA_SUCCESS) {
        d->status = status;
    }
    d->count = 0;
}

static void drop_id(struct dropping *d, uint64_t id)
{
    d->ids[d->count++] = id;
    if (d->count == DROP_MAX) {
        drop_send(d, false);
    }
}

static bool is_on(const atomic_uint *links, const struct towc_link *link)
{
    return (atomic_load(links) >> link->index & 1) != 0;
}

static void drop_kernels(struct dropping *d, const struct towc_library *library)
{
    for (unsigned i = 0; i < TOW_LIBRARY_BUCKETS; i++) {
        for (struct towc_kernel *k = library->kernels[i]; k != NULL; k = k->next) {
            for (struct towc_kernel *f = k->functions; f != NULL; f = f->next) {
                if (is_on(&f->links, d->link)) {
                    drop_id(d, f->id);
                }
            }
            if (is_on(&k->links, d->link)) {
                drop_id(d, k->id);
            }
        }
    }
}

CUresult towc_library_unload(struct towc_library *library)
{
    if (library->parent != NULL || !towc_library_withdraw(library)) {
        return towc_no_handle();
    }
    struct dropping *d = malloc(sizeof *d);
    if (d == NULL) {
        towc_library_publish(library);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    d->count = 0;
    d->library = library;
    d->status = CUDA_SUCCESS;
    towc_image_reuse_drop(library);
    towc_symbols_end(library);
    for (unsigned i = 0; i < towc_client_link_count(); i++) {
        d->link = towc_client_link_at(i);
        if (!is_on(&library->links, d->link)) {
            continue;
        }
        for (struct towc_library *m = library->modules; m != NULL; m = m->next) {
            drop_kernels(d, m);
            if (is_on(&m->links, d->link)) {
                drop_id(d, m->id);
            }
        }
        drop_kernels(d, library);
        drop_send(d, true);
    }
    CUresult status = d->status;
    free(d);
    towc_library_destroy(library);
    return status;
}

/* Takes the functions of a context out of a library's kernels. */
static struct towc_kernel *take_functions(struct towc_library *library, uint32_t context)
{
    struct towc_kernel *taken = NULL;
    for (unsigned i = 0; i < TOW_LIBRARY_BUCKETS; i++) {
        for (struct towc_kernel *k = library->kernels[i]; k != NULL; k = k->next) {
            for (struct towc_kernel **at = &k->functions; *at != NULL;) {
                struct towc_kernel *f = *at;
                if (f->context != context) {
                    at = &f->next;
                    continue;
                }
                *at = f->next;
                f->next = taken;
                taken = f;
            }
        }
    }
    return taken;
}

/* Of a library, which outlives contexts: what it had in this one. */
static void drop_from_library(struct towc_library *library, uint32_t context)
{
    tow_mutex_lock(&library->lock);
    struct towc_kernel *functions = take_functions(library, context);
    struct towc_library *modules = NULL;
    for (struct towc_library **at = &library->modules; *at != NULL;) {
        struct towc_library *module = *at;
        if (module->context != context) {
            at = &module->next;
            continue;
        }
        *at = module->next;
        module->next = modules;
        modules = module;
    }
    towc_symbols_drop_context(library, context);
    tow_mutex_unlock(&library->lock);
    towc_kernel_destroy(functions);
    while (modules != NULL) {
        struct towc_library *module = modules;
        modules = module->next;
        towc_library_destroy(module);
    }
}

void towc_code_drop_context(uint32_t context)
{
    struct towc_library *modules = towc_library_withdraw_modules(context);
    towc_library_each(drop_from_library, context);
    while (modules != NULL) {
        struct towc_library *module = modules;
        modules = module->next;
        towc_symbols_end(module);
        towc_library_destroy(module);
    }
}
