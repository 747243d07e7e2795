/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of modules and libraries: where they are, and the program's side of managed ones. */
#include "base/mutex.h"
#include "client/code/code.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/hostmem/mirror.h"
#include "client/hostmem/region.h"
#include "gen/module.h"

enum { NOWHERE = UINT32_MAX }; /* of a managed variable whose context has ended: not to be found */

/* Process-wide: for a moment, and rarely. Who asks for a managed variable while another thread does
 * finds all of it. */
static struct {
    struct tow_mutex lock; /* guards the step from a variable that is not mirrored to one that is */
} adoption = {.lock = TOW_MUTEX(CLIENT_SYMBOLS)};

/* Of a variable the whole pages are demand-paged. What is left at its ends shares its pages with
 * others and is compared. */
static CUresult mirror_variable(struct towc_link *link, uint64_t base, uint64_t size)
{
    const uint64_t mask = (uint64_t)sysconf(_SC_PAGESIZE) - 1, end = base + size;
    uint64_t low = (base + mask) & ~mask, high = end & ~mask;
    CUresult status =
        base <= low && low < high && towc_fault_wanted(link, size)
            ? towc_mirror_managed(link, low, high - low, TOW_MANAGED_TOLD | TOW_MANAGED_PAGED)
            : CUDA_ERROR_NOT_SUPPORTED;
    if (status == CUDA_ERROR_NOT_SUPPORTED) {
        return towc_mirror_managed(link, base, size, TOW_MANAGED_TOLD);
    }
    uint64_t made = status == CUDA_SUCCESS ? low : high; /* from there to `high` it is mirrored */
    if (status == CUDA_SUCCESS && base < low) {
        status = towc_mirror_managed(link, base, low - base, TOW_MANAGED_TOLD);
        made = status == CUDA_SUCCESS ? base : made;
    }
    if (status == CUDA_SUCCESS && high < end) {
        status = towc_mirror_managed(link, high, end - high, TOW_MANAGED_TOLD);
    }
    if (status != CUDA_SUCCESS && made < high) {
        towc_mirror_remove(made, high - made);
    }
    return status;
}

/* A managed variable is the program's as much as the GPU's. Asking again finds it there. With the
 * adoption lock held. `number`: of the context that it ends with; 0 for a library's, which outlives
 * contexts. */
static CUresult symbol_adopt(struct towc_link *link, uint32_t number, CUdeviceptr address,
                             size_t size)
{
    struct towc_context *context = towc_context_current();
    if (towc_mirror_covers(address, size)) {
        return CUDA_SUCCESS;
    }
    CUresult status = mirror_variable(link, address, size);
    struct towc_region region = {
        .base = address,
        .size = size,
        .kind = TOW_REGION_MANAGED,
        .flags = CU_MEM_ATTACH_GLOBAL,
        .variable = true,
        .context = context != NULL && context->number == number ? context->handle : NULL,
        .device = context != NULL ? context->device : 0,
        .link = link,
    };
    if (status == CUDA_SUCCESS && towc_region_add(&region) < 0) {
        towc_mirror_remove(address, size);
        status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return status;
}

/* What was found before. `owner` keeps it: a module, or the library that it is of. */
static bool symbol_recall(struct towc_library *owner, uint32_t context, const char *name,
                          CUdeviceptr *ret_address, size_t *ret_size)
{
    tow_mutex_lock(&owner->lock);
    const struct towc_symbol *s = owner->symbols;
    while (s != NULL && (s->context != context || strcmp(s->name, name) != 0)) {
        s = s->next;
    }
    if (s != NULL) {
        *ret_address = s->address;
        *ret_size = s->size;
    }
    tow_mutex_unlock(&owner->lock);
    return s != NULL;
}

/* The server says whether a variable is managed with its address. */
static CUresult symbol_ask(struct towc_library *library, unsigned fn, const char *name,
                           struct towc_symbol *ret_symbol, struct towc_link **ret_link)
{
    if (towc_thread_in_hostfn()) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    bool managed = fn == TOW_FN_cuLibraryGetManaged;
    size_t name_size = strlen(name) + 1;
    struct towc_call call;
    CUresult status =
        towc_library_begin(library, &call, fn, 32 + name_size,
                           managed ? TOW_CALL_REPLY : TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, library->id);
    tow_enc_u32(&call.enc, 3); /* the address and the size are wanted */
    tow_enc_u32(&call.enc, 0);
    tow_enc_u32(&call.enc, (uint32_t)name_size);
    tow_enc_bytes(&call.enc, name, name_size);
    *ret_link = call.link;
    status = towc_call_wait(&call);
    if (status == CUDA_SUCCESS) {
        ret_symbol->address = tow_dec_u64(&call.dec);
        ret_symbol->size = tow_dec_u64(&call.dec);
        ret_symbol->managed = tow_dec_u32(&call.dec) != 0 || managed;
    }
    return towc_call_end(&call, status);
}

/* Asks for a variable; the owner keeps it. */
static CUresult symbol_find(struct towc_library *library, struct towc_library *owner, unsigned fn,
                            uint32_t context, const char *name, CUdeviceptr *ret_address,
                            size_t *ret_size)
{
    struct towc_symbol *symbol = malloc(sizeof *symbol + strlen(name) + 1);
    struct towc_link *link = NULL;
    CUresult status =
        symbol == NULL ? CUDA_ERROR_OUT_OF_MEMORY : symbol_ask(library, fn, name, symbol, &link);
    if (status == CUDA_SUCCESS && symbol->managed) {
        tow_mutex_lock(&adoption.lock);
        status = symbol_adopt(link, owner->context, symbol->address, symbol->size);
        tow_mutex_unlock(&adoption.lock);
    }
    if (status != CUDA_SUCCESS) {
        free(symbol);
        return status;
    }
    *ret_address = symbol->address;
    *ret_size = symbol->size;
    symbol->context = context;
    memcpy(symbol->name, name, strlen(name) + 1);
    tow_mutex_lock(&owner->lock);
    symbol->next = owner->symbols;
    owner->symbols = symbol;
    tow_mutex_unlock(&owner->lock);
    return CUDA_SUCCESS;
}

CUresult towc_symbol_get(struct towc_library *library, unsigned fn, uint32_t context,
                         const char *name, CUdeviceptr *dptr, size_t *bytes)
{
    struct towc_library *owner = library->parent != NULL ? library->parent : library;
    CUdeviceptr address;
    size_t size;
    if (!symbol_recall(owner, context, name, &address, &size)) {
        CUresult status = symbol_find(library, owner, fn, context, name, &address, &size);
        if (status != CUDA_SUCCESS) {
            return status;
        }
    }
    if (dptr != NULL) {
        *dptr = address;
    }
    if (bytes != NULL) {
        *bytes = size;
    }
    return CUDA_SUCCESS;
}

void towc_symbols_end(struct towc_library *library)
{
    for (const struct towc_symbol *symbol = library->symbols; symbol != NULL;
         symbol = symbol->next) {
        struct towc_region region;
        if (symbol->managed &&
            towc_region_remove(symbol->address, 1u << TOW_REGION_MANAGED, &region)) {
            towc_mirror_remove(region.base, region.size);
        }
    }
}

void towc_symbols_drop_context(struct towc_library *library, uint32_t context)
{
    for (struct towc_symbol **at = &library->symbols; *at != NULL;) {
        struct towc_symbol *symbol = *at;
        if (symbol->context == context && !symbol->managed) {
            *at = symbol->next;
            free(symbol);
            continue;
        }
        if (symbol->context == context) {
            symbol->context = NOWHERE; /* it is the library's */
        }
        at = &symbol->next;
    }
}
