/* SPDX-License-Identifier: Apache-2.0 */
/* cuModule*. Linking is in link_state.c, functions in kernel.c. */
#include "client/code/code.h"
#include "client/hostmem/mirror.h"
#include "gen/module_client.h"

#include <stdlib.h>
#include <string.h>

static CUresult load_module(struct towc_image *image, const struct towc_jit *jit, CUmodule *module)
{
    uint64_t id;
    CUresult status = towc_library_load(TOW_H_MODULE, image, jit, false, &id);
    if (status == CUDA_SUCCESS) {
        *module = (CUmodule)(uintptr_t)id;
    }
    return status;
}

CUresult towc_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                                 CUjit_option *options, void **optionValues)
{
    struct towc_jit jit = {numOptions, options, optionValues};
    CUresult status =
        module == NULL || image == NULL ? CUDA_ERROR_INVALID_VALUE : towc_jit_check(&jit);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct towc_context *context = NULL;
    status = towc_code_context(&context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct towc_image code;
    int error = towc_image_open(image, &code);
    return error < 0 ? towc_image_result(error) : load_module(&code, &jit, module);
}

CUresult towc_cuModuleLoadData(CUmodule *module, const void *image)
{
    return towc_cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

CUresult towc_cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    return towc_cuModuleLoadDataEx(module, fatCubin, 0, NULL, NULL);
}

CUresult towc_cuModuleLoad(CUmodule *module, const char *fname)
{
    if (module == NULL || fname == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_context *context = NULL;
    CUresult status = towc_code_context(&context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct towc_jit none = {0};
    struct towc_image code;
    int error = towc_image_open_file(fname, &code);
    return error < 0 ? towc_image_result(error) : load_module(&code, &none, module);
}

CUresult towc_cuModuleUnload(CUmodule hmod)
{
    if (hmod == NULL) {
        return towc_no_handle(); /* without a context, too */
    }
    struct towc_context *context = NULL;
    CUresult status = towc_code_context(&context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct towc_library *module = towc_library_find(TOW_H_MODULE, hmod);
    if (module == NULL) {
        return towc_no_handle();
    }
    CUresult synced = towc_mirror_sync_device();
    status = towc_library_unload(module);
    return status == CUDA_SUCCESS ? synced : status;
}

CUresult towc_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    if (mode == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const char *asked = getenv("CUDA_MODULE_LOADING");
    *mode = asked != NULL && strcmp(asked, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING
                                                         : CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

CUresult towc_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    if (hfunc == NULL || name == NULL || name[0] == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_context *context = NULL;
    CUresult status = towc_code_context(&context);
    struct towc_library *module = towc_library_find(TOW_H_MODULE, hmod);
    if (module == NULL && (status == CUDA_SUCCESS || status == CUDA_ERROR_CONTEXT_IS_DESTROYED)) {
        return towc_no_handle(); /* a module that went with its context, too */
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct towc_kernel *function;
    status = towc_library_kernel(module, name, &function);
    if (status == CUDA_SUCCESS) {
        *hfunc = (CUfunction)(uintptr_t)function->id;
    }
    return status;
}

CUresult towc_cuModuleGetFunctionCount(unsigned int *count, CUmodule mod)
{
    struct towc_library *module = towc_library_find(TOW_H_MODULE, mod);
    if (count == NULL || module == NULL) {
        return count == NULL ? CUDA_ERROR_INVALID_VALUE : towc_no_handle();
    }
    CUresult status = towc_library_names(module);
    if (status == CUDA_SUCCESS) {
        *count = module->name_count;
    }
    return status;
}

CUresult towc_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions,
                                         CUmodule mod)
{
    struct towc_library *module = towc_library_find(TOW_H_MODULE, mod);
    if (functions == NULL || module == NULL) {
        return functions == NULL ? CUDA_ERROR_INVALID_VALUE : towc_no_handle();
    }
    return towc_library_enumerate(module, numFunctions, (void **)functions);
}

CUresult towc_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod,
                                   const char *name)
{
    struct towc_library *module = towc_library_find(TOW_H_MODULE, hmod);
    if (name == NULL || (dptr == NULL && bytes == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_context *context = NULL;
    CUresult status = towc_code_context(&context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (module == NULL) {
        return towc_no_handle();
    }
    return towc_symbol_get(module, TOW_FN_cuModuleGetGlobal_v2, module->context, name, dptr, bytes);
}
