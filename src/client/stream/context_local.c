/* SPDX-License-Identifier: Apache-2.0 */
/* Values that libraries tie to a context. */
#include "base/mutex.h"
#include "client/stream/context.h"

#include <stdlib.h>

/* One value of context-local storage. Entries are never freed; a deleted one has no key and is used
 * again. */
struct towc_local_value {
    _Atomic(void *) key;
    _Atomic(void *) value;
    towc_local_destroy *destroy; /* guarded by the context's lock */
    struct towc_local_value *next;
};

CUresult towc_context_put_local(CUcontext handle, void *key, void *value,
                                towc_local_destroy *destroy)
{
    struct towc_context *context = towc_context_or_current(handle);
    if (context == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (key == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = CUDA_SUCCESS;
    struct towc_local_value *spare = NULL, *entry;
    tow_mutex_lock(&context->lock);
    for (entry = atomic_load(&context->values); entry != NULL; entry = entry->next) {
        void *has = atomic_load_explicit(&entry->key, memory_order_relaxed);
        if (has == key) {
            break;
        }
        if (has == NULL) {
            spare = entry;
        }
    }
    if (entry == NULL && spare == NULL) {
        entry = calloc(1, sizeof *entry);
        if (entry == NULL) {
            status = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            atomic_init(&entry->value, value);
            entry->destroy = destroy;
            atomic_init(&entry->key, key);
            entry->next = atomic_load_explicit(&context->values, memory_order_relaxed);
            atomic_store_explicit(&context->values, entry, memory_order_release);
        }
    } else {
        entry = entry != NULL ? entry : spare;
        entry->destroy = destroy;
        atomic_store_explicit(&entry->value, value, memory_order_relaxed);
        atomic_store_explicit(&entry->key, key, memory_order_release);
    }
    tow_mutex_unlock(&context->lock);
    return status;
}

CUresult towc_context_get_local(void **ret_value, CUcontext handle, void *key)
{
    struct towc_context *context = towc_context_or_current(handle);
    if (context == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    struct towc_local_value *entry = atomic_load_explicit(&context->values, memory_order_acquire);
    for (; entry != NULL; entry = entry->next) {
        if (atomic_load_explicit(&entry->key, memory_order_acquire) == key && key != NULL) {
            *ret_value = atomic_load_explicit(&entry->value, memory_order_relaxed);
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult towc_context_delete_local(CUcontext handle, void *key)
{
    struct towc_context *context = towc_context_or_current(handle);
    if (context == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    CUresult status = CUDA_ERROR_INVALID_HANDLE;
    tow_mutex_lock(&context->lock);
    struct towc_local_value *entry = atomic_load(&context->values);
    for (; entry != NULL; entry = entry->next) {
        if (atomic_load_explicit(&entry->key, memory_order_relaxed) == key && key != NULL) {
            atomic_store_explicit(&entry->key, NULL, memory_order_release);
            status = CUDA_SUCCESS;
        }
    }
    tow_mutex_unlock(&context->lock);
    return status;
}

/* Libraries' destructors may call us again, so no lock is held while they run. */
void towc_context_end_locals(struct towc_context *context)
{
    struct towc_local_value *entry = atomic_load(&context->values);
    for (; entry != NULL; entry = entry->next) {
        tow_mutex_lock(&context->lock);
        void *key = atomic_load_explicit(&entry->key, memory_order_relaxed);
        void *value = atomic_load_explicit(&entry->value, memory_order_relaxed);
        towc_local_destroy *destroy = entry->destroy;
        atomic_store_explicit(&entry->key, NULL, memory_order_release);
        tow_mutex_unlock(&context->lock);
        if (key != NULL && destroy != NULL) {
            destroy(context->handle, key, value);
        }
    }
}
