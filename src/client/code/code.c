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
    struct tow_library *first;
} all = {.lock = TOW_MUTEX(CLIENT_LIBRARIES)};

/* ---- life ---- */

struct tow_library *tow_library_create(enum tow_handle_kind kind)
{
    struct tow_library *library = calloc(1, sizeof *library);
    if (library != NULL) {
        library->kind = kind;
        tow_mutex_init(&library->lock, CLIENT_LIBRARY);
        pthread_cond_init(&library->calm, NULL);
    }
    return library;
}

void tow_kernel_destroy(struct tow_kernel *kernel)
{
    while (kernel != NULL) {
        struct tow_kernel *next = kernel->next;
        tow_kernel_destroy(kernel->functions);
        if (kernel->origin == NULL) {
            struct tow_attributes *a = atomic_load(&kernel->attributes);
            while (a != NULL) {
                struct tow_attributes *after = a->next;
                free(a);
                a = after;
            }
            free((void *)kernel->params);
            free(kernel->name);
        }
        tow_occupancy_free(kernel->occupancy);
        free(kernel->legacy);
        if (kernel->id != 0) {
            tow_handle_retire(kernel->id);
        }
        free(kernel);
        kernel = next;
    }
}

void tow_library_destroy(struct tow_library *library)
{
    if (library == NULL) {
        return;
    }
    while (library->modules != NULL) {
        struct tow_library *module = library->modules;
        library->modules = module->next;
        tow_library_destroy(module);
    }
    for (unsigned i = 0; i < TOW_LIBRARY_BUCKETS; i++) {
        tow_kernel_destroy(library->kernels[i]);
    }
    while (library->symbols != NULL) {
        struct tow_symbol *symbol = library->symbols;
        library->symbols = symbol->next;
        free(symbol);
    }
    for (uint32_t i = 0; i < library->name_count; i++) {
        free(library->names[i]);
    }
    free(library->names);
    if (library->id != 0) {
        tow_handle_retire(library->id);
    }
    tow_image_close(&library->image);
    pthread_cond_destroy(&library->calm);
    tow_mutex_fini(&library->lock);
    free(library);
}

void tow_library_publish(struct tow_library *library)
{
    tow_mutex_lock(&all.lock);
    library->next = all.first;
    all.first = library;
    tow_mutex_unlock(&all.lock);
}

bool tow_library_withdraw(struct tow_library *library)
{
    bool found = false;
    tow_mutex_lock(&all.lock);
    for (struct tow_library **at = &all.first; *at != NULL; at = &(*at)->next) {
        if (*at == library) {
            *at = library->next;
            found = true;
            break;
        }
    }
    tow_mutex_unlock(&all.lock);
    return found;
}

struct tow_library *tow_library_withdraw_modules(uint32_t context)
{
    struct tow_library *taken = NULL;
    tow_mutex_lock(&all.lock);
    for (struct tow_library **at = &all.first; *at != NULL;) {
        struct tow_library *library = *at;
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

void tow_library_each(void (*visit)(struct tow_library *library, uint32_t context),
                      uint32_t context)
{
    tow_mutex_lock(&all.lock);
    for (struct tow_library *library = all.first; library != NULL; library = library->next) {
        if (library->kind == TOW_H_LIBRARY) {
            visit(library, context);
        }
    }
    tow_mutex_unlock(&all.lock);
}

struct tow_library *tow_library_find(enum tow_handle_kind kind, const void *handle)
{
    return tow_handle_object(kind, (uint64_t)(uintptr_t)handle);
}

CUresult tow_code_context_error(const struct tow_context *context)
{
    if (context == NULL) {
        return tow_no_context();
    }
    if (tow_thread_here->in_hostfn) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    return atomic_load(&context->alive) ? (CUresult)atomic_load(&context->sticky)
                                        : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void tow_code_put(struct tow_call *call, const struct tow_image *image, enum tow_code_stage stage,
                  uint32_t *transfer)
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

struct tow_kernel *tow_kernel_by_name(struct tow_library *library, const char *name)
{
    struct tow_kernel *kernel = library->kernels[bucket_of(name)];
    while (kernel != NULL && (kernel->name == NULL || strcmp(kernel->name, name) != 0)) {
        kernel = kernel->next;
    }
    return kernel;
}

struct tow_kernel *tow_kernel_take_unbound(struct tow_library *library, const char *name)
{
    struct tow_kernel **at = &library->kernels[bucket_of(name)];
    while (*at != NULL && ((*at)->id != 0 || strcmp((*at)->name, name) != 0)) {
        at = &(*at)->next;
    }
    struct tow_kernel *kernel = *at;
    if (kernel != NULL) {
        *at = kernel->next;
        kernel->next = NULL;
    }
    return kernel;
}

void tow_kernel_insert(struct tow_library *library, struct tow_kernel *kernel, const char *name)
{
    unsigned bucket = bucket_of(name);
    kernel->next = library->kernels[bucket];
    library->kernels[bucket] = kernel;
}

static CUresult kernel_fill(struct tow_kernel *kernel, const struct tow_kernel_info *info,
                            const uint8_t *bytes, CUdevice device)
{
    if (info->params > 0) {
        struct tow_param *params = malloc(info->params * sizeof *params);
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
            tow_kernel_learn(kernel, device, (CUfunction_attribute)i, info->attributes[i]);
        }
    }
    return CUDA_SUCCESS;
}

CUresult tow_kernel_read(struct tow_kernel *kernel, struct tow_dec *dec, CUdevice device)
{
    struct tow_kernel_info info;
    tow_dec_copy(dec, &info, sizeof info);
    if (dec->bad || info.params > TOW_KERNEL_PARAMS_MAX ||
        info.params > tow_dec_left(dec) / sizeof(struct tow_param)) {
        return CUDA_ERROR_UNKNOWN;
    }
    return kernel_fill(kernel, &info, tow_dec_bytes(dec, info.params * sizeof(struct tow_param)),
                       device);
}

static CUdevice visible_device(const struct tow_link *link, int ordinal)
{
    for (CUdevice i = 0; i < tow_device_count(); i++) {
        const struct tow_device *device = tow_device_at(i);
        if (device->link == link && device->ordinal == ordinal) {
            return i;
        }
    }
    return TOW_DEVICE_NONE;
}

/* Facts from earlier sessions: the kernel is there, asleep (without an id), until somebody looks it
 * up. */
static void take_facts(struct tow_library *library, CUdevice device, struct tow_dec *dec)
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
        if (tow_kernel_by_name(library, name) != NULL) {
            continue; /* nobody else knows the library yet: no lock is needed */
        }
        struct tow_kernel *kernel = calloc(1, sizeof *kernel);
        if (kernel == NULL) {
            return;
        }
        kernel->library = library;
        kernel->context = library->context;
        kernel->name = strdup(name);
        if (kernel->name == NULL || kernel_fill(kernel, &info, params, device) != CUDA_SUCCESS) {
            tow_kernel_destroy(kernel);
            return;
        }
        tow_kernel_insert(library, kernel, name);
    }
}

void tow_library_take_known(struct tow_library *library, struct tow_link *link, struct tow_dec *dec)
{
    struct tow_dec head = *dec;
    take_facts(library, visible_device(link, tow_dec_i32(&head)), dec);
}

void tow_kernel_learn(struct tow_kernel *kernel, CUdevice device, CUfunction_attribute attribute,
                      int value)
{
    if ((unsigned)attribute >= TOW_KERNEL_ATTRIBUTES) {
        return;
    }
    struct tow_attributes *a = tow_kernel_attributes(kernel, device);
    if (a == NULL) {
        struct tow_kernel *owner = kernel->origin != NULL ? kernel->origin : kernel;
        tow_mutex_lock(&owner->library->lock);
        a = tow_kernel_attributes(kernel, device);
        if (a == NULL) {
            a = calloc(1, sizeof *a);
            if (a != NULL) {
                a->device = device;
                tow_launch_bounds_init(&a->bounds, device);
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
        const struct tow_launch_limits *limits = tow_launch_limits(device);
        bool lower = limits == NULL || (unsigned)value < limits->threads;
        atomic_store(&a->bounds.threads, lower ? (unsigned)value : limits->threads);
    } else if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        atomic_store(&a->bounds.shared, (unsigned)value);
    }
    atomic_fetch_or_explicit(&a->known, 1u << attribute, memory_order_release);
}
