/* What modules and libraries share: kernels by name, the end. Loading is in load.c, variables in
 * symbol.c. */
#include "client/code/code.h"

#include "client/link/device.h"
#include "client/code/known.h"
#include "client/code/launch.h"
#include "client/link/link.h"
#include "gen/module_client.h"

#include <stdlib.h>
#include <string.h>

/* Process-wide: a library belongs to no context, and is loaded on each server that needs it. */
static struct {
    pthread_mutex_t lock; /* guards the list */
    struct tow_library *first;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- life ---- */

struct tow_library *tow_library_create(enum tow_handle_kind kind)
{
    struct tow_library *library = calloc(1, sizeof *library);
    if (library != NULL) {
        library->kind = kind;
        pthread_mutex_init(&library->lock, NULL);
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
    tow_known_drop(library);
    for (uint32_t i = 0; i < library->name_count; i++) {
        free(library->names[i]);
    }
    free(library->names);
    if (library->id != 0) {
        tow_handle_retire(library->id);
    }
    tow_image_close(&library->image);
    pthread_cond_destroy(&library->calm);
    pthread_mutex_destroy(&library->lock);
    free(library);
}

void tow_library_publish(struct tow_library *library)
{
    pthread_mutex_lock(&all.lock);
    library->next = all.first;
    all.first = library;
    pthread_mutex_unlock(&all.lock);
}

/* False if somebody else has already taken it out. */
static bool library_withdraw(struct tow_library *library)
{
    bool found = false;
    pthread_mutex_lock(&all.lock);
    for (struct tow_library **at = &all.first; *at != NULL; at = &(*at)->next) {
        if (*at == library) {
            *at = library->next;
            found = true;
            break;
        }
    }
    pthread_mutex_unlock(&all.lock);
    return found;
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

CUresult tow_library_begin(struct tow_library *library, struct tow_call *call, unsigned fn,
                           size_t bytes, unsigned flags)
{
    struct tow_context *context = tow_context_current();
    CUresult status = CUDA_SUCCESS;
    if ((flags & TOW_CALL_CONTEXT) != 0) {
        status = tow_code_context(&context);
        if (status != CUDA_SUCCESS) {
            return status;
        }
    }
    /* A module lives in its own context, whatever is current; a library is where it is needed. */
    if (library->context != 0 || context == NULL) {
        return tow_call_begin_on(call, library->link, library->context, fn, bytes, flags);
    }
    status = tow_library_reach(library, context->link);
    bool alive = atomic_load_explicit(&context->alive, memory_order_relaxed);
    return status != CUDA_SUCCESS
               ? status
               : tow_call_begin_on(call, context->link, alive ? context->number : 0, fn, bytes,
                                   flags);
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

static struct tow_kernel *kernel_by_name(struct tow_library *library, const char *name)
{
    struct tow_kernel *kernel = library->kernels[bucket_of(name)];
    while (kernel != NULL && (kernel->name == NULL || strcmp(kernel->name, name) != 0)) {
        kernel = kernel->next;
    }
    return kernel;
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

/* Reads what a lookup's reply says of a kernel. */
static CUresult kernel_read(struct tow_kernel *kernel, struct tow_dec *dec, CUdevice device)
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
        if (kernel_by_name(library, name) != NULL) {
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
        unsigned bucket = bucket_of(name);
        kernel->next = library->kernels[bucket];
        library->kernels[bucket] = kernel;
    }
}

void tow_library_take_known(struct tow_library *library, struct tow_link *link, struct tow_dec *dec)
{
    struct tow_dec head = *dec;
    take_facts(library, visible_device(link, tow_dec_i32(&head)), dec);
}

/* ---- the end ---- */

enum { DROP_MAX = 4096 }; /* ids in one command */

struct dropping {
    uint64_t ids[DROP_MAX];
    uint32_t count;
    const struct tow_library *library;
    struct tow_link *link;
    CUresult status;
};

/* Tells the server which handles end; the last one ends the library itself. */
static void drop_send(struct dropping *d, bool last)
{
    unsigned fn = d->library->kind == TOW_H_MODULE ? TOW_FN_cuModuleUnload : TOW_FN_cuLibraryUnload;
    struct tow_call call;
    CUresult status =
        tow_call_begin_on(&call, d->link, d->library->context, fn, 16 + 8 * (size_t)d->count, 0);
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, d->library->id);
        tow_enc_u32(&call.enc, last);
        tow_enc_u32(&call.enc, d->count);
        tow_enc_bytes(&call.enc, d->ids, 8 * (size_t)d->count);
        status = tow_call_send(&call);
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

static bool is_on(const atomic_uint *links, const struct tow_link *link)
{
    return (atomic_load(links) >> link->index & 1) != 0;
}

static void drop_kernels(struct dropping *d, const struct tow_library *library)
{
    for (unsigned i = 0; i < TOW_LIBRARY_BUCKETS; i++) {
        for (struct tow_kernel *k = library->kernels[i]; k != NULL; k = k->next) {
            for (struct tow_kernel *f = k->functions; f != NULL; f = f->next) {
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

CUresult tow_library_unload(struct tow_library *library)
{
    if (library->parent != NULL || !library_withdraw(library)) {
        return tow_no_handle();
    }
    struct dropping *d = malloc(sizeof *d);
    if (d == NULL) {
        tow_library_publish(library);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    d->count = 0;
    d->library = library;
    d->status = CUDA_SUCCESS;
    tow_known_drop(library);
    tow_symbols_end(library);
    for (unsigned i = 0; i < tow_client_link_count(); i++) {
        d->link = tow_client_link_at(i);
        if (!is_on(&library->links, d->link)) {
            continue;
        }
        for (struct tow_library *m = library->modules; m != NULL; m = m->next) {
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
    tow_library_destroy(library);
    return status;
}

/* Takes the functions of a context out of a library's kernels. */
static struct tow_kernel *take_functions(struct tow_library *library, uint32_t context)
{
    struct tow_kernel *taken = NULL;
    for (unsigned i = 0; i < TOW_LIBRARY_BUCKETS; i++) {
        for (struct tow_kernel *k = library->kernels[i]; k != NULL; k = k->next) {
            for (struct tow_kernel **at = &k->functions; *at != NULL;) {
                struct tow_kernel *f = *at;
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

void tow_code_drop_context(uint32_t context)
{
    struct tow_library *dead = NULL;
    pthread_mutex_lock(&all.lock);
    for (struct tow_library **at = &all.first; *at != NULL;) {
        struct tow_library *library = *at;
        if (library->kind == TOW_H_MODULE && library->context == context) {
            *at = library->next;
            library->next = dead;
            dead = library;
            continue;
        }
        at = &library->next;
        if (library->kind != TOW_H_LIBRARY) {
            continue;
        }
        pthread_mutex_lock(&library->lock);
        struct tow_kernel *functions = take_functions(library, context);
        struct tow_library *modules = NULL;
        for (struct tow_library **m = &library->modules; *m != NULL;) {
            struct tow_library *module = *m;
            if (module->context != context) {
                m = &module->next;
                continue;
            }
            *m = module->next;
            module->next = modules;
            modules = module;
        }
        tow_symbols_drop_context(library, context);
        pthread_mutex_unlock(&library->lock);
        tow_kernel_destroy(functions);
        while (modules != NULL) {
            struct tow_library *module = modules;
            modules = module->next;
            tow_library_destroy(module);
        }
    }
    pthread_mutex_unlock(&all.lock);
    while (dead != NULL) {
        struct tow_library *library = dead;
        dead = library->next;
        tow_symbols_end(library);
        tow_library_destroy(library);
    }
}

/* ---- kernels ---- */

/* The device that attributes are first asked for. */
static CUdevice device_of(const struct tow_library *library)
{
    struct tow_context *context = tow_context_current();
    bool here = context != NULL && (library->context == 0 || context->number == library->context);
    return here ? context->device : TOW_DEVICE_NONE;
}

static CUresult lookup_begin(struct tow_library *library, const struct tow_kernel *kernel,
                             const char *name, unsigned flags, struct tow_call *call)
{
    bool module = library->kind == TOW_H_MODULE;
    CUdevice device = device_of(library);
    size_t name_size = strlen(name) + 1;
    CUresult status = tow_library_begin(
        library, call, module ? TOW_FN_cuModuleGetFunction : TOW_FN_cuLibraryGetKernel,
        32 + name_size + 8, flags | (module ? TOW_CALL_CONTEXT : 0));
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call->enc, library->id);
    tow_enc_u64(&call->enc, kernel->id);
    tow_enc_i32(&call->enc,
                device == TOW_DEVICE_NONE ? TOW_DEVICE_NONE : tow_device_to_server(device));
    tow_enc_u32(&call->enc, 0);
    tow_enc_u32(&call->enc, (uint32_t)name_size);
    tow_enc_bytes(&call->enc, name, name_size);
    return CUDA_SUCCESS;
}

/* Looks a kernel up on the server. One that is known is only to be bound, and nobody waits. */
static CUresult kernel_ask(struct tow_library *library, struct tow_kernel *kernel, const char *name,
                           bool known)
{
    CUdevice device = device_of(library);
    struct tow_call call;
    CUresult status = lookup_begin(library, kernel, name, known ? 0 : TOW_CALL_REPLY, &call);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    atomic_fetch_or(&kernel->links, 1u << call.link->index);
    if (known) {
        return tow_call_send(&call);
    }
    status = tow_call_wait(&call);
    if (status == CUDA_SUCCESS) {
        status = kernel_read(kernel, &call.dec, device);
    }
    return tow_call_end(&call, status);
}

/* A kernel that nobody has looked up yet: with what is known of it, taken out of its bucket, or
 * new. */
static struct tow_kernel *kernel_begin(struct tow_library *library, const char *name)
{
    pthread_mutex_lock(&library->lock);
    struct tow_kernel **at = &library->kernels[bucket_of(name)];
    while (*at != NULL && ((*at)->id != 0 || strcmp((*at)->name, name) != 0)) {
        at = &(*at)->next;
    }
    struct tow_kernel *kernel = *at;
    if (kernel != NULL) {
        *at = kernel->next;
        kernel->next = NULL;
    }
    pthread_mutex_unlock(&library->lock);
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

CUresult tow_library_kernel(struct tow_library *library, const char *name,
                            struct tow_kernel **ret_kernel)
{
    pthread_mutex_lock(&library->lock);
    struct tow_kernel *kernel = kernel_by_name(library, name);
    bool ready = kernel != NULL && kernel->id != 0;
    pthread_mutex_unlock(&library->lock);
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
    CUresult status = tow_handle_mint_object(
        library->kind == TOW_H_MODULE ? TOW_H_FUNCTION : TOW_H_KERNEL, kernel, &kernel->id);
    if (status == CUDA_SUCCESS) {
        status = kernel_ask(library, kernel, name, known);
    }
    if (status != CUDA_SUCCESS) {
        tow_kernel_destroy(kernel);
        return status;
    }
    pthread_mutex_lock(&library->lock);
    struct tow_kernel *other = kernel_by_name(library, name);
    if (other != NULL) {
        /* Two threads asked at once: one handle is for the program, both end with the library. */
        free(kernel->name);
        kernel->name = NULL;
    }
    unsigned bucket = bucket_of(name);
    kernel->next = library->kernels[bucket];
    library->kernels[bucket] = kernel;
    pthread_mutex_unlock(&library->lock);
    *ret_kernel = other != NULL ? other : kernel;
    return CUDA_SUCCESS;
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
        pthread_mutex_lock(&owner->library->lock);
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
        pthread_mutex_unlock(&owner->library->lock);
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

CUresult tow_kernel_attribute(struct tow_kernel *kernel, CUdevice device,
                              CUfunction_attribute attribute, int *ret_value)
{
    if ((unsigned)attribute >= TOW_KERNEL_ATTRIBUTES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct tow_attributes *a = tow_kernel_attributes(kernel, device);
    if (a != NULL &&
        (atomic_load_explicit(&a->known, memory_order_acquire) >> (unsigned)attribute & 1) != 0) {
        *ret_value = atomic_load_explicit(&a->value[attribute], memory_order_relaxed);
        return CUDA_SUCCESS;
    }
    int value;
    CUresult status;
    if (TOW_ID_KIND(kernel->id) == TOW_H_KERNEL) {
        status = tow_kernel_reach(kernel, tow_client_link(device));
        if (status != CUDA_SUCCESS) {
            return status;
        }
        status = tow_send_cuKernelGetAttribute(&value, attribute, (CUkernel)(uintptr_t)kernel->id,
                                               device);
    } else {
        status = tow_send_cuFuncGetAttribute(&value, attribute, (CUfunction)(uintptr_t)kernel->id);
    }
    if (status == CUDA_SUCCESS) {
        tow_kernel_learn(kernel, device, attribute, value);
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
static CUresult names_ask(struct tow_library *library, char ***ret_names, uint32_t *ret_count)
{
    bool module = library->kind == TOW_H_MODULE;
    char **names = NULL;
    uint32_t got = 0, total = 0;
    CUresult status = CUDA_SUCCESS;
    do {
        struct tow_call call;
        status = tow_library_begin(library, &call,
                                   module ? TOW_FN_cuModuleEnumerateFunctions
                                          : TOW_FN_cuLibraryEnumerateKernels,
                                   16, TOW_CALL_REPLY | (module ? TOW_CALL_CONTEXT : 0));
        if (status != CUDA_SUCCESS) {
            break;
        }
        tow_enc_u64(&call.enc, library->id);
        tow_enc_u32(&call.enc, got);
        tow_enc_u32(&call.enc, 0);
        status = tow_call_wait(&call);
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
        status = tow_call_end(&call, status);
    } while (status == CUDA_SUCCESS && got < total);
    if (status != CUDA_SUCCESS) {
        names_free(names, got);
        return status;
    }
    *ret_names = names;
    *ret_count = total;
    return CUDA_SUCCESS;
}

CUresult tow_library_names(struct tow_library *library)
{
    pthread_mutex_lock(&library->lock);
    bool known = library->enumerated;
    pthread_mutex_unlock(&library->lock);
    if (known) {
        return CUDA_SUCCESS;
    }
    char **names = NULL;
    uint32_t count = 0;
    CUresult status = names_ask(library, &names, &count);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    pthread_mutex_lock(&library->lock);
    if (!library->enumerated) {
        library->names = names;
        library->name_count = count;
        library->enumerated = true;
        names = NULL;
    }
    pthread_mutex_unlock(&library->lock);
    if (names != NULL) {
        names_free(names, count);
    }
    return CUDA_SUCCESS;
}

CUresult tow_library_enumerate(struct tow_library *library, unsigned room, void **ret_handles)
{
    CUresult status = tow_library_names(library);
    for (unsigned i = 0; i < room && i < library->name_count && status == CUDA_SUCCESS; i++) {
        struct tow_kernel *kernel;
        status = tow_library_kernel(library, library->names[i], &kernel);
        if (status == CUDA_SUCCESS) {
            ret_handles[i] = (void *)(uintptr_t)kernel->id;
        }
    }
    return status;
}
