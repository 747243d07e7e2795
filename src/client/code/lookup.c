/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a server about modules, libraries and their kernels: kernels by name, their attributes,
 * all names. What was asked once is known (code.c). */
#include "base/mutex.h"
#include "client/code/code.h"

#include "client/link/device.h"
#include "client/link/link.h"
#include "gen/module_client.h"

#include <stdlib.h>
#include <string.h>

CUresult towc_library_begin(struct towc_library *library, struct towc_call *call, unsigned fn,
                            size_t bytes, unsigned flags)
{
    struct towc_context *context = towc_context_current();
    CUresult status = CUDA_SUCCESS;
    if ((flags & TOW_CALL_CONTEXT) != 0) {
        status = towc_code_context(&context);
        if (status != CUDA_SUCCESS) {
            return status;
        }
    }
    /* A module lives in its own context, whatever is current; a library is where it is needed. */
    if (library->context != 0 || context == NULL) {
        return towc_call_begin_on(call, library->link, library->context, fn, bytes, flags);
    }
    status = towc_library_reach(library, context->link);
    bool alive = atomic_load_explicit(&context->alive, memory_order_relaxed);
    return status != CUDA_SUCCESS
               ? status
               : towc_call_begin_on(call, context->link, alive ? context->number : 0, fn, bytes,
                                    flags);
}

/* ---- kernels ---- */

/* The device that attributes are first asked for. */
static CUdevice device_of(const struct towc_library *library)
{
    struct towc_context *context = towc_context_current();
    bool here = context != NULL && (library->context == 0 || context->number == library->context);
    return here ? context->device : TOW_DEVICE_NONE;
}

static CUresult lookup_begin(struct towc_library *library, const struct towc_kernel *kernel,
                             const char *name, unsigned flags, struct towc_call *call)
{
    bool module = library->kind == TOW_H_MODULE;
    CUdevice device = device_of(library);
    size_t name_size = strlen(name) + 1;
    CUresult status = towc_library_begin(
        library, call, module ? TOW_FN_cuModuleGetFunction : TOW_FN_cuLibraryGetKernel,
        32 + name_size + 8, flags | (module ? TOW_CALL_CONTEXT : 0));
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call->enc, library->id);
    tow_enc_u64(&call->enc, kernel->id);
    tow_enc_i32(&call->enc,
                device == TOW_DEVICE_NONE ? TOW_DEVICE_NONE : towc_device_to_server(device));
    tow_enc_u32(&call->enc, 0);
    tow_enc_u32(&call->enc, (uint32_t)name_size);
    tow_enc_bytes(&call->enc, name, name_size);
    return CUDA_SUCCESS;
}

/* Looks a kernel up on the server. One that is known is only to be bound, and nobody waits. */
static CUresult kernel_ask(struct towc_library *library, struct towc_kernel *kernel,
                           const char *name, bool known)
{
    CUdevice device = device_of(library);
    struct towc_call call;
    CUresult status = lookup_begin(library, kernel, name, known ? 0 : TOW_CALL_REPLY, &call);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    atomic_fetch_or(&kernel->links, 1u << call.link->index);
    if (known) {
        return towc_call_send(&call);
    }
    status = towc_call_wait(&call);
    if (status == CUDA_SUCCESS) {
        status = towc_kernel_read(kernel, &call.dec, device);
    }
    return towc_call_end(&call, status);
}

/* A kernel that nobody has looked up yet: with what is known of it, taken out of its bucket, or
 * new. */
static struct towc_kernel *kernel_begin(struct towc_library *library, const char *name)
{
    tow_mutex_lock(&library->lock);
    struct towc_kernel *kernel = towc_kernel_take_unbound(library, name);
    tow_mutex_unlock(&library->lock);
    if (kernel != NULL || (kernel = calloc(1, sizeof *kernel)) == NULL) {
        return kernel;
    }
    kernel->library = library;
    kernel->context = library->context;
    kernel->name = strdup(name);
    if (kernel->name == NULL) {
        free(kernel);
        return NULL;
    }
    return kernel;
}

CUresult towc_library_kernel(struct towc_library *library, const char *name,
                             struct towc_kernel **ret_kernel)
{
    tow_mutex_lock(&library->lock);
    struct towc_kernel *kernel = towc_kernel_by_name(library, name);
    bool ready = kernel != NULL && kernel->id != 0;
    tow_mutex_unlock(&library->lock);
    if (ready) {
        *ret_kernel = kernel;
        return CUDA_SUCCESS;
    }
    if (strlen(name) > TOW_KERNEL_NAME_MAX) {
        return CUDA_ERROR_NOT_FOUND;
    }
    kernel = kernel_begin(library, name);
    if (kernel == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool known = atomic_load(&kernel->attributes) != NULL;
    CUresult status = towc_handle_mint_object(
        library->kind == TOW_H_MODULE ? TOW_H_FUNCTION : TOW_H_KERNEL, kernel, &kernel->id);
    if (status == CUDA_SUCCESS) {
        status = kernel_ask(library, kernel, name, known);
    }
    if (status != CUDA_SUCCESS) {
        towc_kernel_destroy(kernel);
        return status;
    }
    tow_mutex_lock(&library->lock);
    struct towc_kernel *other = towc_kernel_by_name(library, name);
    if (other != NULL) {
        /* Two threads asked at once: one handle is for the program, both end with the library. */
        free(kernel->name);
        kernel->name = NULL;
    }
    towc_kernel_insert(library, kernel, name);
    tow_mutex_unlock(&library->lock);
    *ret_kernel = other != NULL ? other : kernel;
    return CUDA_SUCCESS;
}

CUresult towc_kernel_attribute(struct towc_kernel *kernel, CUdevice device,
                               CUfunction_attribute attribute, int *ret_value)
{
    if ((unsigned)attribute >= TOW_KERNEL_ATTRIBUTES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_attributes *a = towc_kernel_attributes(kernel, device);
    if (a != NULL &&
        (atomic_load_explicit(&a->known, memory_order_acquire) >> (unsigned)attribute & 1) != 0) {
        *ret_value = atomic_load_explicit(&a->value[attribute], memory_order_relaxed);
        return CUDA_SUCCESS;
    }
    int value;
    CUresult status;
    if (TOW_ID_KIND(kernel->id) == TOW_H_KERNEL) {
        status = towc_kernel_reach(kernel, towc_client_link(device));
        if (status != CUDA_SUCCESS) {
            return status;
        }
        status = towc_send_cuKernelGetAttribute(&value, attribute, (CUkernel)(uintptr_t)kernel->id,
                                                device);
    } else {
        status = towc_send_cuFuncGetAttribute(&value, attribute, (CUfunction)(uintptr_t)kernel->id);
    }
    if (status == CUDA_SUCCESS) {
        towc_kernel_learn(kernel, device, attribute, value);
        *ret_value = value;
    }
    return status;
}

/* ---- names ---- */

static void names_free(char **names, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(names[i]);
    }
    free(names);
}

/* Names come in as many replies as they need: each says how many there are, and has those from
 * `start`. */
static CUresult names_ask(struct towc_library *library, char ***ret_names, uint32_t *ret_count)
{
    bool module = library->kind == TOW_H_MODULE;
    char **names = NULL;
    uint32_t got = 0, total = 0;
    CUresult status = CUDA_SUCCESS;
    do {
        struct towc_call call;
        status = towc_library_begin(library, &call,
                                    module ? TOW_FN_cuModuleEnumerateFunctions
                                           : TOW_FN_cuLibraryEnumerateKernels,
                                    16, TOW_CALL_REPLY | (module ? TOW_CALL_CONTEXT : 0));
        if (status != CUDA_SUCCESS) {
            break;
        }
        tow_enc_u64(&call.enc, library->id);
        tow_enc_u32(&call.enc, got);
        tow_enc_u32(&call.enc, 0);
        status = towc_call_wait(&call);
        if (status == CUDA_SUCCESS) {
            uint32_t all_of_them = tow_dec_u32(&call.dec);
            uint32_t here = tow_dec_count(&call.dec, UINT32_MAX, 4);
            if (names == NULL && all_of_them > 0) {
                total = all_of_them;
                names = total <= (1u << 24) ? calloc(total, sizeof *names) : NULL;
                status = names == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
            }
            for (uint32_t i = 0; i < here && got < total && status == CUDA_SUCCESS; i++) {
                const char *name = tow_dec_cstr(&call.dec, TOW_KERNEL_NAME_MAX);
                names[got] = name != NULL ? strdup(name) : NULL;
                if (names[got] == NULL) {
                    status = CUDA_ERROR_OUT_OF_MEMORY;
                    break;
                }
                got++;
            }
            if (here == 0 && got < total && status == CUDA_SUCCESS) {
                status = CUDA_ERROR_UNKNOWN;
            }
        }
        status = towc_call_end(&call, status);
    } while (status == CUDA_SUCCESS && got < total);
    if (status != CUDA_SUCCESS) {
        names_free(names, got);
        return status;
    }
    *ret_names = names;
    *ret_count = total;
    return CUDA_SUCCESS;
}

CUresult towc_library_names(struct towc_library *library)
{
    tow_mutex_lock(&library->lock);
    bool known = library->enumerated;
    tow_mutex_unlock(&library->lock);
    if (known) {
        return CUDA_SUCCESS;
    }
    char **names = NULL;
    uint32_t count = 0;
    CUresult status = names_ask(library, &names, &count);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_mutex_lock(&library->lock);
    if (!library->enumerated) {
        library->names = names;
        library->name_count = count;
        library->enumerated = true;
        names = NULL;
    }
    tow_mutex_unlock(&library->lock);
    if (names != NULL) {
        names_free(names, count);
    }
    return CUDA_SUCCESS;
}

CUresult towc_library_enumerate(struct towc_library *library, unsigned room, void **ret_handles)
{
    CUresult status = towc_library_names(library);
    for (unsigned i = 0; i < room && i < library->name_count && status == CUDA_SUCCESS; i++) {
        struct towc_kernel *kernel;
        status = towc_library_kernel(library, library->names[i], &kernel);
        if (status == CUDA_SUCCESS) {
            ret_handles[i] = (void *)(uintptr_t)kernel->id;
        }
    }
    return status;
}
