/* SPDX-License-Identifier: Apache-2.0 */
/* Modules, libraries, kernels and functions as the client keeps them. */
#ifndef TOW_CLIENT_CODE_H
#define TOW_CLIENT_CODE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"
#include "client/link/call.h"
#include "client/stream/context.h"
#include "client/session/handle.h"
#include "client/code/image.h"
#include "client/code/jit_options.h"
#include "client/code/limits.h"
#include "wire/code.h"

struct towc_reusable_image;
struct towc_library;
struct towc_occupancy;
struct towc_legacy_launch;

/* A kernel's attributes on one device. */
struct towc_attributes {
    CUdevice device;
    struct towc_bounds bounds;
    atomic_uint known; /* bit i: value[i] is there */
    atomic_int value[TOW_KERNEL_ATTRIBUTES];
    struct towc_attributes *next;
};

struct towc_param {
    uint32_t offset, size;
};

/* A CUkernel, or a CUfunction: of a module, or of a kernel in one context. */
struct towc_kernel {
    uint64_t id;
    struct towc_library *library; /* borrowed: it owns this */
    struct towc_kernel
        *origin;       /* borrowed: the CUkernel that this CUfunction was made from; or NULL */
    uint32_t context;  /* of a CUfunction: the context's number */
    atomic_uint links; /* bit i: server i has it under this id */
    uint32_t param_count;
    uint32_t param_bytes;            /* up to the end of the last one */
    const struct towc_param *params; /* owned, or the origin's */
    struct towc_attributes
        *_Atomic attributes;       /* owned list; empty where there is an origin, whose count */
    atomic_bool loaded;            /* for cuFuncIsLoaded */
    _Atomic uint64_t node_block;   /* of the graph node that the driver took last; graph_node.c */
    char *name;                    /* owned, or the origin's; NULL: not to be found by name */
    struct towc_kernel *functions; /* owned: made of this CUkernel; guarded by the library's lock */
    struct towc_kernel *next; /* in `functions` or in a bucket; guarded by the library's lock */
    struct towc_occupancy *occupancy;            /* owned; guarded by the library's lock */
    _Atomic(struct towc_legacy_launch *) legacy; /* owned; what cuParamSet* collected */
};

/* A variable of a module or a library, where it was found. */
struct towc_symbol {
    uint32_t context; /* 0: whichever is current */
    bool managed;     /* host memory of the program, too, until its module or library ends */
    CUdeviceptr address;
    size_t size;
    struct towc_symbol *next;
    char name[];
};

enum { TOW_LIBRARY_BUCKETS = 64 };

/* A CUmodule or a CUlibrary. */
struct towc_library {
    uint64_t id;
    enum tow_handle_kind kind; /* TOW_H_MODULE or TOW_H_LIBRARY */
    struct towc_link *link;    /* borrowed: where it was loaded first, or the module's context is */
    atomic_uint links;         /* bit i: server i has it under this id */
    uint32_t context;          /* a module's context; 0 for a library */
    struct towc_library *parent; /* borrowed: the library that this module is of, or NULL */
    struct towc_reusable_image *reusable; /* of image_reuse.c: its image; or NULL */

    struct tow_mutex lock;   /* guards what follows, and what its kernels say it guards */
    pthread_cond_t calm;     /* `spreading` is over */
    bool spreading;          /* some thread takes it, or a kernel of it, to another server */
    struct towc_image image; /* a library's, where there are several servers; size 0: not kept */
    struct towc_kernel *kernels[TOW_LIBRARY_BUCKETS]; /* owned, by name */
    struct towc_symbol *symbols;                      /* owned */
    struct towc_library *modules;                     /* owned: of a library, one per context */
    char **names;                                     /* owned, with its texts: once enumerated */
    uint32_t name_count;
    bool enumerated;

    struct towc_library
        *next; /* of all; guarded by a lock in code.c. Of a parent's: by the parent's lock */
};

/* What a call without a current context answers, and one with a handle that is none: before cuInit,
 * and when the server is lost, something else is the matter. */
static inline CUresult towc_no_context(void)
{
    CUresult state = towc_client_state();
    return state != CUDA_SUCCESS     ? state
           : towc_thread_in_hostfn() ? CUDA_ERROR_NOT_PERMITTED
                                     : CUDA_ERROR_INVALID_CONTEXT;
}

static inline CUresult towc_no_handle(void)
{
    CUresult state = towc_client_state();
    return state != CUDA_SUCCESS ? state : CUDA_ERROR_INVALID_HANDLE;
}

/* The current context if it can be worked with: CONTEXT_IS_DESTROYED, or its sticky error, if not.
 */
CUresult towc_code_context_error(const struct towc_context *context);
static inline CUresult towc_code_context(struct towc_context **ret_context)
{
    struct towc_context *context = towc_context_current();
    if (TOW_UNLIKELY(context == NULL || towc_thread_here->in_hostfn ||
                     !atomic_load_explicit(&context->alive, memory_order_relaxed) ||
                     atomic_load_explicit(&context->sticky, memory_order_relaxed) != 0)) {
        return towc_code_context_error(context);
    }
    *ret_context = context;
    return CUDA_SUCCESS;
}

/* The object of a handle: NULL if it is stale or foreign. A CUfunction may be a CUkernel and the
 * other way round. */
static inline struct towc_kernel *towc_kernel_find(const void *handle)
{
    uint64_t id = (uint64_t)(uintptr_t)handle;
    unsigned kind = TOW_ID_KIND(id);
    if (kind != TOW_H_FUNCTION && kind != TOW_H_KERNEL) {
        return NULL;
    }
    return towc_handle_object((enum tow_handle_kind)kind, id);
}

/* What is known of a kernel on a device; NULL if nothing. */
static inline struct towc_attributes *towc_kernel_attributes(struct towc_kernel *kernel,
                                                             CUdevice device)
{
    if (kernel->origin != NULL) {
        kernel = kernel->origin;
    }
    struct towc_attributes *a = atomic_load_explicit(&kernel->attributes, memory_order_acquire);
    while (a != NULL && a->device != device) {
        a = a->next;
    }
    return a;
}

/* ---- code.c ---- */

struct towc_library *towc_library_create(enum tow_handle_kind kind);
/* Ends the handles of a library and frees it; the server is told by others (towc_library_unload).
 */
void towc_library_destroy(struct towc_library *library);
/* Makes a loaded library one of all, which end with their contexts. */
void towc_library_publish(struct towc_library *library);
/* Takes it out of them; false if somebody else has. */
bool towc_library_withdraw(struct towc_library *library);
/* Takes out all modules of a context: a list by `next`, the caller's. */
struct towc_library *towc_library_withdraw_modules(uint32_t context);
/* Calls `visit` for each CUlibrary, under the lock of the list. */
void towc_library_each(void (*visit)(struct towc_library *library, uint32_t context),
                       uint32_t context);
/* What a load's reply says of kernels. */
void towc_library_take_known(struct towc_library *library, struct towc_link *link,
                             struct tow_dec *dec);
/* Ends a kernel and those that follow it in its list, in the same way. */
void towc_kernel_destroy(struct towc_kernel *kernel);
/* Kernels of a library, under its lock, or before others know the library. One that has no id is
 * not bound to a server yet: only facts of it are known. */
struct towc_kernel *towc_kernel_by_name(struct towc_library *library, const char *name);
struct towc_kernel *towc_kernel_take_unbound(struct towc_library *library, const char *name);
void towc_kernel_insert(struct towc_library *library, struct towc_kernel *kernel, const char *name);
/* Reads what a lookup's reply says of a kernel. */
CUresult towc_kernel_read(struct towc_kernel *kernel, struct tow_dec *dec, CUdevice device);
/* Remembers an attribute that was set or asked for. */
void towc_kernel_learn(struct towc_kernel *kernel, CUdevice device, CUfunction_attribute attribute,
                       int value);

struct towc_library *towc_library_find(enum tow_handle_kind kind, const void *handle);

/* Puts an image's name into a command; `stage` OFFER takes a number for the transfer. */
void towc_code_put(struct towc_call *call, const struct towc_image *image,
                   enum tow_code_stage stage, uint32_t *transfer);

/* ---- load.c ---- */

/* Loads an image as a module of the current context or as a library; closes the image. `stays`: the
 * program's memory that it borrows stays as long as the library. */
CUresult towc_library_load(enum tow_handle_kind kind, struct towc_image *image,
                           const struct towc_jit *jit, bool stays, uint64_t *ret_id);
/* What a load of an image that could not be opened returns (error of towc_image_open). */
CUresult towc_image_result(int error);
/* Libraries and kernels belong to no server: these take them where they are needed. */
CUresult towc_library_spread(struct towc_library *library, struct towc_link *link);
CUresult towc_kernel_spread(struct towc_kernel *kernel, struct towc_link *link);
static inline CUresult towc_library_reach(struct towc_library *library, struct towc_link *link)
{
    return (atomic_load_explicit(&library->links, memory_order_acquire) >> link->index & 1) != 0
               ? CUDA_SUCCESS
               : towc_library_spread(library, link);
}
static inline CUresult towc_kernel_reach(struct towc_kernel *kernel, struct towc_link *link)
{
    unsigned here = atomic_load_explicit(&kernel->links, memory_order_acquire) >> link->index & 1;
    return __builtin_expect(here != 0, 1) ? CUDA_SUCCESS : towc_kernel_spread(kernel, link);
}

/* ---- lookup.c ---- */

/* Begins a call about a library on its server. */
CUresult towc_library_begin(struct towc_library *library, struct towc_call *call, unsigned fn,
                            size_t bytes, unsigned flags);
CUresult towc_library_kernel(struct towc_library *library, const char *name,
                             struct towc_kernel **ret_kernel);
/* One attribute of a kernel, from the cache or the server. */
CUresult towc_kernel_attribute(struct towc_kernel *kernel, CUdevice device,
                               CUfunction_attribute attribute, int *ret_value);
/* The names of all kernels, asked once. */
CUresult towc_library_names(struct towc_library *library);
/* The kernels in the order of the names, at most `room`. */
CUresult towc_library_enumerate(struct towc_library *library, unsigned room, void **ret_handles);

/* ---- symbol.c ---- */

/* Where a variable is, asked once: `fn` is cuModuleGetGlobal_v2, cuLibraryGetGlobal or
 * cuLibraryGetManaged. The program can use a managed one at its address from then on. */
CUresult towc_symbol_get(struct towc_library *library, unsigned fn, uint32_t context,
                         const char *name, CUdeviceptr *dptr, size_t *bytes);
/* Managed variables end with their module or library, before the server is told of its end. */
void towc_symbols_end(struct towc_library *library);
/* With the library's lock held: what was found in this context is not there any more. */
void towc_symbols_drop_context(struct towc_library *library, uint32_t context);

/* ---- end.c ---- */

/* Ends a module or library on both sides. */
CUresult towc_library_unload(struct towc_library *library);
/* A context is gone: its modules and functions are, too. Called by whoever destroys or resets
 * contexts. */
void towc_code_drop_context(uint32_t context);

/* ---- occupancy_cache.c ---- */

/* An answer that was kept for a kernel, and keeping one. The key is all that it depends on. */
bool towc_occupancy_recall(struct towc_kernel *kernel, const void *key, uint32_t size,
                           uint64_t *ret_answer);
void towc_occupancy_remember(struct towc_kernel *kernel, const void *key, uint32_t size,
                             uint64_t answer);
/* Forgets them (an attribute was set). */
void towc_occupancy_forget(struct towc_kernel *kernel);
void towc_occupancy_free(struct towc_occupancy *occupancy);

#endif
