/* SPDX-License-Identifier: Apache-2.0 */
/* Modules, libraries, kernels, functions, and the variables in them.
 *
 * Code is parsed once per load (tow_soft_code). A module is that code in one context, with memory
 * for its variables; a library is that code for all contexts, with a module made in each context
 * that uses it. Functions belong to modules, kernels to libraries; work in flight holds a reference
 * to its module.
 */
#include "backend/soft/code/image.h"
#include "backend/soft/code/module.h"
#include "backend/soft/engine/engine.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/index.h"
#include "backend/soft/ground/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mutex.h"
#include "gen/module.h"

static struct tow_soft_library *libraries; /* all of them; guarded by tow_soft.lock */
/* Managed variables of libraries that are gone; the same. */
static struct tow_soft_alloc *kept_variables;

struct tow_soft_module *tow_soft_module_ref(struct tow_soft_module *module)
{
    module->refs++;
    return module;
}

void tow_soft_module_unref(struct tow_soft_module *module)
{
    if (module == NULL || --module->refs != 0) {
        return;
    }
    for (size_t i = 0; i < module->code->variable_count && module->variables != NULL; i++) {
        struct tow_soft_alloc *variable = module->variables[i];
        /* A library's managed variable is the program's as well, which may look at it to its end.
         */
        if (variable != NULL && module->of_library && variable->kind == TOW_SOFT_MEM_MANAGED) {
            variable->next = kept_variables;
            kept_variables = variable;
        } else if (variable != NULL) {
            tow_soft_alloc_drop(variable);
        }
    }
    tow_ptx_instance_free(module->instance);
    for (size_t i = 0; i < module->code->kernel_count && module->functions != NULL; i++) {
        free(module->functions[i]);
    }
    free(module->functions);
    free(module->variables);
    tow_soft_code_unref(module->code);
    free(module);
}

static void module_destroy(struct tow_soft_module *module)
{
    if (module->library != NULL) {
        struct tow_soft_module **at = &module->library->modules;
        while (*at != NULL && *at != module) {
            at = &(*at)->library_next;
        }
        if (*at != NULL) {
            *at = module->library_next;
        }
        module->library = NULL;
    }
    tow_soft_object_remove(&module->object);
    for (size_t i = 0; i < module->code->kernel_count; i++) {
        if (module->functions[i] != NULL) {
            tow_soft_object_remove(&module->functions[i]->object);
        }
    }
    tow_soft_module_unref(module);
}

void tow_soft_module_end(struct tow_soft_object *object)
{
    module_destroy((struct tow_soft_module *)object);
}

static void attributes_init(struct tow_soft_attributes *attributes,
                            const struct tow_ptx_kernel_info *info)
{
    int left = 48 * 1024 - (int)info->static_shared;
    *attributes =
        (struct tow_soft_attributes){.max_dynamic_shared = left > 0 ? left : 0, .carveout = -1};
    for (int i = 0; i < 3; i++) {
        attributes->cluster[i] = (int)info->reqcluster[i];
    }
}

/* Makes the code's instance in a context. */
static CUresult module_create(struct tow_soft_ctx *ctx, struct tow_soft_code *code,
                              struct tow_soft_library *library, struct tow_soft_module **ret_module)
{
    struct tow_soft_module *module = calloc(1, sizeof *module);
    uint64_t *addresses = calloc(code->variable_count + 1, sizeof *addresses);
    if (module == NULL || addresses == NULL) {
        free(module);
        free(addresses);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    module->refs = 1;
    module->code = tow_soft_code_ref(code);
    module->functions = calloc(code->kernel_count + 1, sizeof *module->functions);
    module->variables = calloc(code->variable_count + 1, sizeof *module->variables);
    module->object.ctx = ctx;
    module->of_library = library != NULL;
    CUresult result = module->functions == NULL || module->variables == NULL
                          ? CUDA_ERROR_OUT_OF_MEMORY
                          : CUDA_SUCCESS;
    for (size_t i = 0; i < code->variable_count && result == CUDA_SUCCESS; i++) {
        const struct tow_ptx_variable *variable = tow_ptx_variable_at(code->ptx, i);
        enum tow_soft_alloc_kind kind =
            variable->managed ? TOW_SOFT_MEM_MANAGED : TOW_SOFT_MEM_GLOBAL;
        /* A GPU's managed variables lie side by side: large ones begin on no page's boundary. */
        uint64_t lead =
            variable->managed && variable->size > TOW_SOFT_BLOCK / 2 ? TOW_SOFT_UNIT : 0;
        result = tow_soft_alloc_make(ctx, ctx->device->ordinal, kind,
                                     (variable->size != 0 ? variable->size : 1) + lead,
                                     CU_MEM_ATTACH_GLOBAL, &module->variables[i]);
        if (result == CUDA_SUCCESS && lead != 0) {
            result = tow_soft_alloc_shift(module->variables[i], lead);
        }
        addresses[i] = result == CUDA_SUCCESS ? module->variables[i]->base : 0;
        if (result == CUDA_SUCCESS) {
            module->variables[i]->variable = true;
        }
        if (result == CUDA_SUCCESS && variable->managed && library != NULL) {
            tow_soft_alloc_disown(module->variables[i]);
        }
    }
    if (result == CUDA_SUCCESS) {
        int rc = tow_ptx_instantiate(code->ptx, addresses, &module->instance);
        result = rc == 0         ? CUDA_SUCCESS
                 : rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
                                 : CUDA_ERROR_INVALID_PTX;
    }
    if (result == CUDA_SUCCESS && tow_soft_object_add(&module->object, TOW_SOFT_MODULE, ctx) != 0) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    free(addresses);
    if (result != CUDA_SUCCESS) {
        tow_soft_module_unref(module);
        return result;
    }
    module->library = library;
    if (library != NULL) {
        module->library_next = library->modules;
        library->modules = module;
    }
    *ret_module = module;
    return CUDA_SUCCESS;
}

static struct tow_soft_function *function_at(struct tow_soft_module *module, size_t index)
{
    if (module->functions[index] == NULL) {
        struct tow_soft_function *function = calloc(1, sizeof *function);
        if (function == NULL ||
            tow_soft_object_add(&function->object, TOW_SOFT_FUNCTION, NULL) != 0) {
            free(function);
            return NULL;
        }
        function->object.ctx = NULL;
        function->module = module;
        function->kernel = tow_ptx_kernel_at(module->code->ptx, index);
        tow_ptx_kernel_describe(function->kernel, &function->info);
        attributes_init(&function->attributes, &function->info);
        module->functions[index] = function;
    }
    return module->functions[index];
}

static int kernel_index(const struct tow_soft_code *code, const char *name, size_t *ret_index)
{
    const struct tow_ptx_kernel *kernel = tow_ptx_kernel_find(code->ptx, name);
    for (size_t i = 0; i < code->kernel_count && kernel != NULL; i++) {
        if (tow_ptx_kernel_at(code->ptx, i) == kernel) {
            *ret_index = i;
            return 0;
        }
    }
    return -ENOENT;
}

static int variable_index(const struct tow_soft_code *code, const char *name, size_t *ret_index)
{
    /* nvcc makes nothing visible that it need not, and a driver finds it all the same. */
    int error = -ENOENT;
    for (size_t i = 0; i < code->variable_count; i++) {
        const struct tow_ptx_variable *variable = tow_ptx_variable_at(code->ptx, i);
        if (variable->texture == 0 && strcmp(variable->name, name) == 0 &&
            (error != 0 || variable->visible)) {
            *ret_index = i;
            error = 0;
        }
    }
    return error;
}

CUresult tow_soft_library_module(struct tow_soft_library *library, struct tow_soft_ctx *ctx,
                                 struct tow_soft_module **ret_module)
{
    for (struct tow_soft_module *m = library->modules; m != NULL; m = m->library_next) {
        if (m->object.ctx == ctx) {
            *ret_module = m;
            return CUDA_SUCCESS;
        }
    }
    return module_create(ctx, library->code, library, ret_module);
}

CUresult tow_soft_function_of_kernel(struct tow_soft_kernel *kernel, struct tow_soft_ctx *ctx,
                                     struct tow_soft_function **ret_function)
{
    struct tow_soft_module *module;
    CUresult result = tow_soft_library_module(kernel->library, ctx, &module);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_function *function = function_at(module, kernel->index);
    if (function == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (function->of_kernel == 0) {
        function->of_kernel = kernel->object.handle;
        function->attributes = kernel->attributes[ctx->device->ordinal];
    }
    *ret_function = function;
    return CUDA_SUCCESS;
}

CUresult tow_soft_function_of(struct tow_soft_ctx *ctx, CUfunction handle,
                              struct tow_soft_function **ret_function)
{
    uint64_t value = TOW_SOFT_HANDLE(handle);
    if (tow_soft_handle_kind(value) == TOW_SOFT_KERNEL) {
        struct tow_soft_kernel *kernel = tow_soft_lookup(TOW_SOFT_KERNEL, value);
        return kernel != NULL ? tow_soft_function_of_kernel(kernel, ctx, ret_function)
                              : CUDA_ERROR_INVALID_HANDLE;
    }
    *ret_function = tow_soft_lookup(TOW_SOFT_FUNCTION, value);
    return *ret_function != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- modules
 * ---------------------------------------------------------------------------------------------- */

static CUresult module_load(CUmodule *ret_module, const void *image, unsigned count,
                            CUjit_option *options, void **values)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (ret_module == NULL || image == NULL ||
        (count != 0 && (options == NULL || values == NULL))) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    tow_soft_leave(result); /* parsing takes time, and needs nothing of ours */
    struct tow_soft_jit jit;
    result = tow_soft_jit_parse(count, options, values, &jit);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_code *code;
    result = tow_soft_code_load(image, &jit, &code);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        tow_soft_enter_anyway();
        tow_soft_code_unref(code);
        return tow_soft_leave(result);
    }
    struct tow_soft_module *module;
    result = module_create(ctx, code, NULL, &module);
    tow_soft_code_unref(code);
    if (result == CUDA_SUCCESS) {
        *ret_module = TOW_SOFT_POINTER(module->object.handle);
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuModuleLoadData(CUmodule *module, const void *image)
{
    return module_load(module, image, 0, NULL, NULL);
}

static CUresult soft_cuModuleLoadDataEx(CUmodule *module, const void *image,
                                        unsigned int numOptions, CUjit_option *options,
                                        void **optionValues)
{
    return module_load(module, image, numOptions, options, optionValues);
}

static CUresult read_image(const char *path, struct tow_buf *buf)
{
    if (path == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    tow_buf_init(buf, TOW_SOFT_IMAGE_MAX);
    int rc = tow_file_read(path, buf);
    if (rc == 0) {
        rc = tow_buf_append(buf, "\0\0\0\0", 4);
    }
    if (rc != 0) {
        tow_buf_fini(buf);
        return rc == -ENOENT ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_IMAGE;
    }
    return CUDA_SUCCESS;
}

static CUresult soft_cuModuleLoad(CUmodule *module, const char *fname)
{
    struct tow_buf buf;
    CUresult result = read_image(fname, &buf);
    if (result == CUDA_SUCCESS) {
        result = module_load(module, buf.data, 0, NULL, NULL);
        tow_buf_fini(&buf);
    }
    return result;
}

static CUresult enter_module(CUmodule handle, struct tow_soft_ctx **ret_ctx,
                             struct tow_soft_module **ret_module)
{
    CUresult result = tow_soft_enter(ret_ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_module = tow_soft_lookup(TOW_SOFT_MODULE, TOW_SOFT_HANDLE(handle));
    return *ret_module != NULL ? CUDA_SUCCESS : tow_soft_leave(CUDA_ERROR_INVALID_HANDLE);
}

static CUresult soft_cuModuleUnload(CUmodule hmod)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_module *module;
    CUresult result = enter_module(hmod, &ctx, &module);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (module->library != NULL) {
        return tow_soft_leave(CUDA_ERROR_NOT_PERMITTED); /* it belongs to its library */
    }
    result = tow_soft_ctx_wait_strict(ctx);
    module = tow_soft_lookup(TOW_SOFT_MODULE, TOW_SOFT_HANDLE(hmod));
    if (result == CUDA_SUCCESS && module != NULL) {
        module_destroy(module);
    }
    return tow_soft_leave_printed(ctx->object.handle, result);
}

static CUresult soft_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    if (mode == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

static CUresult soft_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_module *module;
    CUresult result = enter_module(hmod, &ctx, &module);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    size_t index = 0;
    if (hfunc == NULL || name == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (kernel_index(module->code, name, &index) != 0) {
        return tow_soft_leave(CUDA_ERROR_NOT_FOUND);
    }
    struct tow_soft_function *function = function_at(module, index);
    if (function == NULL) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *hfunc = TOW_SOFT_POINTER(function->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuModuleGetFunctionCount(unsigned int *count, CUmodule mod)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_module *module;
    CUresult result = enter_module(mod, &ctx, &module);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (count == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *count = (unsigned)module->code->kernel_count;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions,
                                                CUmodule mod)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_module *module;
    CUresult result = enter_module(mod, &ctx, &module);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (functions == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t i = 0; i < module->code->kernel_count && i < numFunctions; i++) {
        struct tow_soft_function *function = function_at(module, i);
        if (function == NULL) {
            return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
        }
        functions[i] = TOW_SOFT_POINTER(function->object.handle);
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult variable_get(struct tow_soft_module *module, const char *name, bool managed_only,
                             CUdeviceptr *dptr, size_t *bytes)
{
    size_t index = 0;
    if (name == NULL || (dptr == NULL && bytes == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (variable_index(module->code, name, &index) != 0) {
        return CUDA_ERROR_NOT_FOUND;
    }
    const struct tow_ptx_variable *variable = tow_ptx_variable_at(module->code->ptx, index);
    if (managed_only && !variable->managed) {
        return CUDA_ERROR_NOT_FOUND;
    }
    if (dptr != NULL) {
        *dptr = module->variables[index]->base;
    }
    if (bytes != NULL) {
        *bytes = variable->size;
    }
    return CUDA_SUCCESS;
}

static CUresult soft_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod,
                                          const char *name)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_module *module;
    CUresult result = enter_module(hmod, &ctx, &module);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = variable_get(module, name, false, dptr, bytes);
    size_t kernel;
    if (result == CUDA_ERROR_NOT_FOUND && kernel_index(module->code, name, &kernel) == 0) {
        result = CUDA_ERROR_INVALID_VALUE; /* it is something, but no variable */
    }
    return tow_soft_leave(result);
}

/* ---- libraries
 * ---------------------------------------------------------------------------------------------- */

static void library_destroy(struct tow_soft_library *library)
{
    struct tow_soft_library **at = &libraries;
    while (*at != NULL && *at != library) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = library->next;
    }
    while (library->modules != NULL) {
        module_destroy(library->modules);
    }
    for (size_t i = 0; i < library->code->kernel_count; i++) {
        if (library->kernels[i] != NULL) {
            tow_soft_object_remove(&library->kernels[i]->object);
            free(library->kernels[i]);
        }
    }
    free(library->kernels);
    tow_soft_object_remove(&library->object);
    tow_soft_code_unref(library->code);
    free(library);
}

void tow_soft_libraries_fini(void)
{
    while (libraries != NULL) {
        library_destroy(libraries);
    }
}

void tow_soft_variables_fini(void)
{
    while (kept_variables != NULL) {
        struct tow_soft_alloc *variable = kept_variables;
        kept_variables = variable->next;
        tow_soft_alloc_drop(variable);
    }
}

static CUresult soft_cuLibraryLoadData(CUlibrary *ret_library, const void *code_image,
                                       CUjit_option *jitOptions, void **jitOptionsValues,
                                       unsigned int numJitOptions, CUlibraryOption *libraryOptions,
                                       void **libraryOptionValues, unsigned int numLibraryOptions)
{
    (void)libraryOptionValues;
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    tow_soft_leave(result);
    if (ret_library == NULL || code_image == NULL ||
        (numLibraryOptions != 0 && libraryOptions == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct tow_soft_jit jit;
    result = tow_soft_jit_parse(numJitOptions, jitOptions, jitOptionsValues, &jit);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_code *code;
    result = tow_soft_code_load(code_image, &jit, &code);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    tow_soft_enter_anyway();
    struct tow_soft_library *library = calloc(1, sizeof *library);
    struct tow_soft_kernel **kernels = calloc(code->kernel_count + 1, sizeof *kernels);
    if (library == NULL || kernels == NULL ||
        tow_soft_object_add(&library->object, TOW_SOFT_LIBRARY, NULL) != 0) {
        free(library);
        free(kernels);
        tow_soft_code_unref(code);
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    library->code = code;
    library->kernels = kernels;
    library->next = libraries;
    libraries = library;
    *ret_library = TOW_SOFT_POINTER(library->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuLibraryLoadFromFile(CUlibrary *library, const char *fileName,
                                           CUjit_option *jitOptions, void **jitOptionsValues,
                                           unsigned int numJitOptions,
                                           CUlibraryOption *libraryOptions,
                                           void **libraryOptionValues,
                                           unsigned int numLibraryOptions)
{
    struct tow_buf buf;
    CUresult result = read_image(fileName, &buf);
    if (result == CUDA_SUCCESS) {
        result =
            soft_cuLibraryLoadData(library, buf.data, jitOptions, jitOptionsValues, numJitOptions,
                                   libraryOptions, libraryOptionValues, numLibraryOptions);
        tow_buf_fini(&buf);
    }
    return result;
}

static CUresult enter_library(CUlibrary handle, struct tow_soft_library **ret_library)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_library = tow_soft_lookup(TOW_SOFT_LIBRARY, TOW_SOFT_HANDLE(handle));
    return *ret_library != NULL ? CUDA_SUCCESS : tow_soft_leave(CUDA_ERROR_INVALID_HANDLE);
}

static CUresult soft_cuLibraryUnload(CUlibrary handle)
{
    struct tow_soft_library *library;
    CUresult result = enter_library(handle, &library);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    library_destroy(library);
    return tow_soft_leave(CUDA_SUCCESS);
}

static struct tow_soft_kernel *kernel_at(struct tow_soft_library *library, size_t index)
{
    if (library->kernels[index] == NULL) {
        struct tow_soft_kernel *kernel = calloc(1, sizeof *kernel);
        if (kernel == NULL || tow_soft_object_add(&kernel->object, TOW_SOFT_KERNEL, NULL) != 0) {
            free(kernel);
            return NULL;
        }
        kernel->library = library;
        kernel->index = index;
        tow_ptx_kernel_describe(tow_ptx_kernel_at(library->code->ptx, index), &kernel->info);
        for (unsigned i = 0; i < TOW_SOFT_DEVICES_MAX; i++) {
            attributes_init(&kernel->attributes[i], &kernel->info);
        }
        library->kernels[index] = kernel;
    }
    return library->kernels[index];
}

static CUresult soft_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary handle, const char *name)
{
    struct tow_soft_library *library;
    CUresult result = enter_library(handle, &library);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    size_t index = 0;
    if (pKernel == NULL || name == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (kernel_index(library->code, name, &index) != 0) {
        return tow_soft_leave(CUDA_ERROR_NOT_FOUND);
    }
    struct tow_soft_kernel *kernel = kernel_at(library, index);
    if (kernel == NULL) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *pKernel = TOW_SOFT_POINTER(kernel->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuLibraryGetKernelCount(unsigned int *count, CUlibrary handle)
{
    struct tow_soft_library *library;
    CUresult result = enter_library(handle, &library);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (count == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *count = (unsigned)library->code->kernel_count;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels,
                                               CUlibrary handle)
{
    struct tow_soft_library *library;
    CUresult result = enter_library(handle, &library);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (kernels == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t i = 0; i < library->code->kernel_count && i < numKernels; i++) {
        struct tow_soft_kernel *kernel = kernel_at(library, i);
        if (kernel == NULL) {
            return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
        }
        kernels[i] = TOW_SOFT_POINTER(kernel->object.handle);
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

/* The module of the library in the current context; locked on success. */
static CUresult enter_library_module(CUlibrary handle, struct tow_soft_module **ret_module)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_library *library = tow_soft_lookup(TOW_SOFT_LIBRARY, TOW_SOFT_HANDLE(handle));
    result = library != NULL ? tow_soft_library_module(library, ctx, ret_module)
                             : CUDA_ERROR_INVALID_HANDLE;
    return result == CUDA_SUCCESS ? result : tow_soft_leave(result);
}

static CUresult soft_cuLibraryGetModule(CUmodule *pMod, CUlibrary handle)
{
    if (pMod == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct tow_soft_module *module;
    CUresult result = enter_library_module(handle, &module);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *pMod = TOW_SOFT_POINTER(module->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary handle,
                                        const char *name)
{
    struct tow_soft_module *module;
    CUresult result = enter_library_module(handle, &module);
    return result == CUDA_SUCCESS ? tow_soft_leave(variable_get(module, name, false, dptr, bytes))
                                  : result;
}

static CUresult soft_cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary handle,
                                         const char *name)
{
    struct tow_soft_module *module;
    CUresult result = enter_library_module(handle, &module);
    return result == CUDA_SUCCESS ? tow_soft_leave(variable_get(module, name, true, dptr, bytes))
                                  : result;
}

static CUresult soft_cuLibraryGetUnifiedFunction(void **fptr, CUlibrary handle, const char *symbol)
{
    struct tow_soft_library *library;
    CUresult result = enter_library(handle, &library);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return tow_soft_leave(fptr == NULL || symbol == NULL ? CUDA_ERROR_INVALID_VALUE
                                                         : CUDA_ERROR_NOT_FOUND);
}

void tow_soft_fill_module(struct tow_driver *driver)
{
    tow_driver_set(driver, cuModuleLoad, soft_cuModuleLoad);
    tow_driver_set(driver, cuModuleLoadData, soft_cuModuleLoadData);
    tow_driver_set(driver, cuModuleLoadDataEx, soft_cuModuleLoadDataEx);
    tow_driver_set(driver, cuModuleLoadFatBinary, soft_cuModuleLoadData);
    tow_driver_set(driver, cuModuleUnload, soft_cuModuleUnload);
    tow_driver_set(driver, cuModuleGetLoadingMode, soft_cuModuleGetLoadingMode);
    tow_driver_set(driver, cuModuleGetFunction, soft_cuModuleGetFunction);
    tow_driver_set(driver, cuModuleGetFunctionCount, soft_cuModuleGetFunctionCount);
    tow_driver_set(driver, cuModuleEnumerateFunctions, soft_cuModuleEnumerateFunctions);
    tow_driver_set(driver, cuModuleGetGlobal_v2, soft_cuModuleGetGlobal_v2);
    tow_driver_set(driver, cuLibraryLoadData, soft_cuLibraryLoadData);
    tow_driver_set(driver, cuLibraryLoadFromFile, soft_cuLibraryLoadFromFile);
    tow_driver_set(driver, cuLibraryUnload, soft_cuLibraryUnload);
    tow_driver_set(driver, cuLibraryGetKernel, soft_cuLibraryGetKernel);
    tow_driver_set(driver, cuLibraryGetKernelCount, soft_cuLibraryGetKernelCount);
    tow_driver_set(driver, cuLibraryEnumerateKernels, soft_cuLibraryEnumerateKernels);
    tow_driver_set(driver, cuLibraryGetModule, soft_cuLibraryGetModule);
    tow_driver_set(driver, cuLibraryGetGlobal, soft_cuLibraryGetGlobal);
    tow_driver_set(driver, cuLibraryGetManaged, soft_cuLibraryGetManaged);
    tow_driver_set(driver, cuLibraryGetUnifiedFunction, soft_cuLibraryGetUnifiedFunction);
}
