/* SPDX-License-Identifier: Apache-2.0 */
/* Modules, libraries and kernels as objects of this process: their lists, and what is known of
 * kernels. Nothing here asks a server: see load.c, lookup.c, symbol.c and end.c. */
#include "client/code/code.h"

#include "base/mutex.h"
#include "client/code/limits.h"
#include "client/link/device.h"
#include "client/link/link.h"

#include <stdlib.h>
#include <string.h>

/* Process-wide: a library belongs to no context, and is loaded on each server that needs it. */
static struct {
    struct tow_mutex lock; /* guards the list */
    struct towc_library *first;
} all = {.lock = TOW_MUTEX(CLIENT_LIBRARIES)};

/* ---- life ---- */

struct towc_library *towc_library_create(enum tow_handle_kind kind)
{
    struct towc_library *library = calloc(1, sizeof *library);
    if (library != NULL) {
        library->kind = kind;
        tow_mutex_init(&library->lock, CLIENT_LIBRARY);
        pthread_cond_init(&library->calm, NULL);
    }
    return library;
}

void towc_kernel_destroy(struct towc_kernel *kernel)
{
    while (kernel != NULL) {
        struct towc_kernel *next = kernel->next;
        towc_kernel_destroy(kernel->functions);
        if (kernel->origin == NULL) {
            struct towc_attributes *a = atomic_load(&kernel->attributes);
            while (a != NULL) {
                struct towc_attributes *after = a->next;
                free(a);
                a = after;
            }
            free((void *)kernel->params);
            free(kernel->name);
        }
        towc_occupancy_free(kernel->occupancy);
        free(kernel->legacy);
        if (kernel->id != 0) {
            towc_handle_retire(kernel->id);
        }
        free(kernel);
        kernel = next;
    }
}

void towc_library_destroy(struct towc_library *library)
{
    if (library == NULL) {
        return;
    }
    while (library->modules != NULL) {
        struct towc_library *module = library->modules;
        library->modules = module->next;
        towc_library_destroy(module);
    }
    for (unsigned i = 0; i < TOW_LIBRARY_BUCKETS; i++) {
        towc_kernel_destroy(library->kernels[i]);
    }
    while (library->symbols != NULL) {
        struct towc_symbol *symbol = library->symbols;
        library->symbols = symbol->next;
        free(symbol);
    }
    for (uint32_t i = 0; i < library->name_count; i++) {
        free(library->names[i]);
    }
    free(library->names);
    if (library->id != 0) {
        towc_handle_retire(library->id);
    }
    towc_image_close(&library->image);
    pthread_cond_destroy(&library->calm);
    tow_mutex_fini(&library->lock);
    free(library);
}

void towc_library_publish(struct towc_library *library)
{
    tow_mutex_lock(&all.lock);
    library->next = all.first;
    all.first = library;
    tow_mutex_unlock(&all.lock);
}

bool towc_library_withdraw(struct towc_library *library)
{
    bool found = false;
    tow_mutex_lock(&all.lock);
    for (struct towc_library **at = &all.first; *at != NULL; at = &(*at)->next) {
        if (*at == library) {
            *at = library->next;
            found = true;
            break;
        }
    }
    tow_mutex_unlock(&all.lock);
    return found;
}

struct towc_library *towc_library_withdraw_modules(uint32_t context)
{
    struct towc_library *taken = NULL;
    tow_mutex_lock(&all.lock);
    for (struct towc_library **at = &all.first; *at != NULL;) {
        struct towc_library *library = *at;
        if (library->kind != TOW_H_MODULE || library->context != context) {
            at = &library->next;
            continue;
        }
        *at = library->next;
        library->next = taken;
        taken = library;
    }
    tow_mutex_unlock(&all.lock);
    return taken;
}

void towc_library_each(void (*visit)(struct towc_library *library, uint32_t context),
                       uint32_t context)
{
    tow_mutex_lock(&all.lock);
    for (struct towc_library *library = all.first; library != NULL; library = library->next) {
        if (library->kind == TOW_H_LIBRARY) {
            visit(library, context);
        }
    }
    tow_mutex_unlock(&all.lock);
}

struct towc_library *towc_library_find(enum tow_handle_kind kind, const void *handle)
{
    return towc_handle_object(kind, (uint64_t)(uintptr_t)handle);
}

CUresult towc_code_context_error(const struct towc_context *context)
{
    if (context == NULL) {
        return towc_no_context();
    }
    if (towc_thread_here->in_hostfn) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    return atomic_load(&context->alive) ? (CUresult)atomic_load(&context->sticky)
                                        : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void towc_code_put(struct towc_call *call, const struct towc_image *image,
                   enum tow_code_stage stage, uint32_t *transfer)
{
    if (stage == TOW_CODE_OFFER) {
        *transfer = call->link->send.next_transfer++; /* the call holds the send lock */
    }
    struct tow_code_ref ref = {
        .size = image->size,
        .form = image->form,
        .stage = stage,
        .transfer = *transfer,
    };
    memcpy(ref.hash, image->hash, sizeof ref.hash);
    tow_enc_bytes(&call->enc, &ref, sizeof ref);
}

/* ---- what is known of a kernel ---- */

static unsigned bucket_of(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name != '\0'; name++) {
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    }
    return (hash ^ hash >> 16) % TOW_LIBRARY_BUCKETS;
}

struct towc_kernel *towc_kernel_by_name(struct towc_library *library, const char *name)
{
    struct towc_kernel *kernel = library->kernels[bucket_of(name)];
    while (kernel != NULL && (kernel->name == NULL || strcmp(kernel->name, name) != 0)) {
        kernel = kernel->next;
    }
    return kernel;
}

struct towc_kernel *towc_kernel_take_unbound(struct towc_library *library, const char *name)
{
    struct towc_kernel **at = &library->kernels[bucket_of(name)];
    while (*at != NULL && ((*at)->id != 0 || strcmp((*at)->name, name) != 0)) {
        at = &(*at)->next;
    }
    struct towc_kernel *kernel = *at;
    if (kernel != NULL) {
        *at = kernel->next;
        kernel->next = NULL;
    }
    return kernel;
}

void towc_kernel_insert(struct towc_library *library, struct towc_kernel *kernel, const char *name)
{
    unsigned bucket = bucket_of(name);
    kernel->next = library->kernels[bucket];
    library->kernels[bucket] = kernel;
}

static CUresult kernel_fill(struct towc_kernel *kernel, const struct tow_kernel_info *info,
                            const uint8_t *bytes, CUdevice device)
{
    if (info->params > 0) {
        struct towc_param *params = malloc(info->params * sizeof *params);
        if (params == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        memcpy(params, bytes, info->params * sizeof *params);
        kernel->params = params;
        kernel->param_count = info->params;
        for (uint32_t i = 0; i < info->params; i++) {
            if (params[i].offset > TOW_LAUNCH_ARGS_MAX || params[i].size > TOW_LAUNCH_ARGS_MAX) {
                return CUDA_ERROR_UNKNOWN;
            }
            uint32_t end = params[i].offset + params[i].size;
            if (params[i].offset < kernel->param_bytes || end > TOW_LAUNCH_ARGS_MAX) {
                /* Parameters stand in order and do not overlap: the launch path relies on it. */
                return CUDA_ERROR_UNKNOWN;
            }
            kernel->param_bytes = end;
        }
    }
    for (unsigned i = 0; i < TOW_KERNEL_ATTRIBUTES; i++) {
        if ((info->known >> i & 1) != 0) {
            towc_kernel_learn(kernel, device, (CUfunction_attribute)i, info->attributes[i]);
        }
    }
    return CUDA_SUCCESS;
}

CUresult towc_kernel_read(struct towc_kernel *kernel, struct tow_dec *dec, CUdevice device)
{
    struct tow_kernel_info info;
    tow_dec_copy(dec, &info, sizeof info);
    if (dec->bad || info.params > TOW_KERNEL_PARAMS_MAX ||
        info.params > tow_dec_left(dec) / sizeof(struct towc_param)) {
        return CUDA_ERROR_UNKNOWN;
    }
    return kernel_fill(kernel, &info, tow_dec_bytes(dec, info.params * sizeof(struct towc_param)),
                       device);
}

static CUdevice visible_device(const struct towc_link *link, int ordinal)
{
    for (CUdevice i = 0; i < towc_device_count(); i++) {
        const struct towc_device *device = towc_device_at(i);
        if (device->link == link && device->ordinal == ordinal) {
            return i;
        }
    }
    return TOW_DEVICE_NONE;
}

/* Facts from earlier sessions: the kernel is there, asleep (without an id), until somebody looks it
 * up. */
static void take_facts(struct towc_library *library, CUdevice device, struct tow_dec *dec)
{
    tow_dec_i32(dec);
    uint32_t bytes = tow_dec_u32(dec);
    if (bytes > tow_dec_left(dec)) {
        tow_dec_fail(dec);
        return;
    }
    struct tow_dec facts = tow_dec_init(dec->at, bytes);
    tow_dec_bytes(dec, bytes);
    struct tow_kernel_info info;
    const uint8_t *params;
    const char *name;
    while (device != TOW_DEVICE_NONE && tow_kernel_fact_read(&facts, &info, &params, &name)) {
        if (towc_kernel_by_name(library, name) != NULL) {
            continue; /* nobody else knows the library yet: no lock is needed */
        }
        struct towc_kernel *kernel = calloc(1, sizeof *kernel);
        if (kernel == NULL) {
            return;
        }
        kernel->library = library;
        kernel->context = library->context;
        kernel->name = strdup(name);
        if (kernel->name == NULL || kernel_fill(kernel, &info, params, device) != CUDA_SUCCESS) {
            towc_kernel_destroy(kernel);
            return;
        }
        towc_kernel_insert(library, kernel, name);
    }
}

void towc_library_take_known(struct towc_library *library, struct towc_link *link,
                             struct tow_dec *dec)
{
    struct tow_dec head = *dec;
    take_facts(library, visible_device(link, tow_dec_i32(&head)), dec);
}

void towc_kernel_learn(struct towc_kernel *kernel, CUdevice device, CUfunction_attribute attribute,
                       int value)
{
    if ((unsigned)attribute >= TOW_KERNEL_ATTRIBUTES) {
        return;
    }
    struct towc_attributes *a = towc_kernel_attributes(kernel, device);
    if (a == NULL) {
        struct towc_kernel *owner = kernel->origin != NULL ? kernel->origin : kernel;
        tow_mutex_lock(&owner->library->lock);
        a = towc_kernel_attributes(kernel, device);
        if (a == NULL) {
            a = calloc(1, sizeof *a);
            if (a != NULL) {
                a->device = device;
                towc_launch_bounds_init(&a->bounds, device);
                a->next = atomic_load_explicit(&owner->attributes, memory_order_relaxed);
                atomic_store_explicit(&owner->attributes, a, memory_order_release);
            }
        }
        tow_mutex_unlock(&owner->library->lock);
        if (a == NULL) {
            return; /* it is only a cache */
        }
    }
    atomic_store_explicit(&a->value[attribute], value, memory_order_relaxed);
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) {
        const struct towc_launch_limits *limits = towc_launch_limits(device);
        bool lower = limits == NULL || (unsigned)value < limits->threads;
        atomic_store(&a->bounds.threads, lower ? (unsigned)value : limits->threads);
    } else if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        atomic_store(&a->bounds.shared, (unsigned)value);
    }
    atomic_fetch_or_explicit(&a->known, 1u << attribute, memory_order_release);
}
