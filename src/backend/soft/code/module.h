/* SPDX-License-Identifier: Apache-2.0 */
/* Modules, libraries, functions, kernels; links. */
#ifndef TOW_SOFT_CODE_MODULE_H
#define TOW_SOFT_CODE_MODULE_H

#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/state.h"
#include "ptx/ptx.h"

struct tow_soft_alloc;
struct tow_soft_code;
struct tow_soft_library;
struct tow_soft_module;

struct tow_soft_attributes { /* what cuFuncSetAttribute and cuKernelSetAttribute may change */
    int max_dynamic_shared, carveout, non_portable_cluster, cluster_policy;
    int cluster[3];
    CUfunc_cache cache;
};

struct tow_soft_function {
    struct tow_soft_object object;
    struct tow_soft_module *module; /* borrowed: it owns us */
    const struct tow_ptx_kernel *kernel;
    struct tow_ptx_kernel_info info;
    struct tow_soft_attributes attributes;
    uint64_t of_kernel; /* handle of the CUkernel it stands for; 0 if none */
    bool refused;       /* a launch was, and the log says why */
};

struct tow_soft_module {
    struct tow_soft_object object;
    unsigned refs;
    struct tow_soft_code *code;           /* counted */
    struct tow_ptx_instance *instance;    /* owned */
    struct tow_soft_alloc **variables;    /* owned array; borrowed allocs */
    struct tow_soft_function **functions; /* owned, made on demand */
    struct tow_soft_library *library;     /* borrowed; NULL for a plain module */
    bool of_library;                      /* it was made for one, which may be gone */
    struct tow_soft_module *library_next; /* in library->modules */
};
struct tow_soft_module *tow_soft_module_ref(struct tow_soft_module *module);
void tow_soft_module_unref(struct tow_soft_module *module);

struct tow_soft_kernel {
    struct tow_soft_object object;
    struct tow_soft_library *library; /* borrowed: it owns us */
    size_t index;
    struct tow_ptx_kernel_info info;
    struct tow_soft_attributes attributes[TOW_SOFT_DEVICES_MAX];
};

struct tow_soft_library {
    struct tow_soft_object object;
    struct tow_soft_code *code;       /* counted */
    struct tow_soft_kernel **kernels; /* owned, made on demand */
    struct tow_soft_module *modules;  /* one per context that used it; owned by their contexts */
    struct tow_soft_library *next;
};

/* A CUfunction, or a CUkernel in disguise, for the context. */
CUresult tow_soft_function_of(struct tow_soft_ctx *ctx, CUfunction handle,
                              struct tow_soft_function **ret_function);
CUresult tow_soft_function_of_kernel(struct tow_soft_kernel *kernel, struct tow_soft_ctx *ctx,
                                     struct tow_soft_function **ret_function);
CUresult tow_soft_library_module(struct tow_soft_library *library, struct tow_soft_ctx *ctx,
                                 struct tow_soft_module **ret_module);
void tow_soft_module_end(struct tow_soft_object *object);
void tow_soft_libraries_fini(void);
/* What libraries left to the program; nothing runs any more. */
void tow_soft_variables_fini(void);
void tow_soft_link_end(struct tow_soft_object *object);

#endif
