/* SPDX-License-Identifier: Apache-2.0 */
/* cuModule*. Linking is in link_state.c, functions in kernel.c. */
#include "client/code/code.h"
#include "client/hostmem/mirror.h"
#include "gen/module_client.h"

#include <stdlib.h>
#include <string.h>

static CUresult load_module(struct tow_image *image, const struct tow_jit *jit, CUmodule *module)
{
    uint64_t id;
    CUresult status = tow_library_load(TOW_H_MODULE, image, jit, false, &id);
    if (status == CUDA_SUCCESS) {
        *module = (CUmodule)(uintptr_t)id;
    }
    return status;
}

CUresult tow_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                                CUjit_option *options, void **optionValues)
{
    struct tow_jit jit = {numOptions, options, optionValues};
    CUresult status =
        module == NULL || image == NULL ? CUDA_ERROR_INVALID_VALUE : tow_jit_check(&jit);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct tow_context *context = NULL;
    status = tow_code_context(&context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct tow_image code;
    int error = tow_image_open(image, &code);
    return error < 0 ? tow_image_result(error) : load_module(&code, &jit, module);
}

CUresult tow_cuModuleLoadData(CUmodule *module, const void *image)
{
    return tow_cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

CUresult tow_cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    return tow_cuModuleLoadDataEx(module, fatCubin, 0, NULL, NULL);
}

CUresult tow_cuModuleLoad(CUmodule *module, const char *fname)
{
    if (module == NULL || fname == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct tow_context *context = NULL;
    CUresult status = tow_code_context(&context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct tow_jit none = {0};
    struct tow_image code;
    int error = tow_image_open_file(fname, &code);
    return error < 0 ? tow_image_result(error) : load_module(&code, &none, module);
}

CUresult tow_cuModuleUnload(CUmodule hmod)
{
    if (hmod == NULL) {
        return tow_no_handle(); /* without a context, too */
    }
    struct tow_context *context = NULL;
    CUresult status = tow_code_context(&context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct tow_library *module = tow_library_find(TOW_H_MODULE, hmod);
    if (module == NULL) {
        return tow_no_handle();
    }
    CUresult settled = tow_mirror_settle();
    status = tow_library_unload(module);
    return status == CUDA_SUCCESS ? settled : status;
}

CUresult tow_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    if (mode == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const char *asked = getenv("CUDA_MODULE_LOADING");
    *mode = asked != NULL && strcmp(asked, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING
                                                         : CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

CUresult tow_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    if (hfunc == NULL || name == NULL || name[0] == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct tow_context *context = NULL;
    CUresult status = tow_code_context(&context);
    struct tow_library *module = tow_library_find(TOW_H_MODULE, hmod);
    if (module == NULL && (status == CUDA_SUCCESS || status == CUDA_ERROR_CONTEXT_IS_DESTROYED)) {
        return tow_no_handle(); /* a module that went with its context, too */
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct tow_kernel *function;
    status = tow_library_kernel(module, name, &function);
    if (status == CUDA_SUCCESS) {
        *hfunc = (CUfunction)(uintptr_t)function->id;
    }
    return status;
}

CUresult tow_cuModuleGetFunctionCount(unsigned int *count, CUmodule mod)
{
    struct tow_library *module = tow_library_find(TOW_H_MODULE, mod);
    if (count == NULL || module == NULL) {
        return count == NULL ? CUDA_ERROR_INVALID_VALUE : tow_no_handle();
    }
    CUresult status = tow_library_names(module);
    if (status == CUDA_SUCCESS) {
        *count = module->name_count;
    }
    return status;
}

CUresult tow_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions,
                                        CUmodule mod)
{
    struct tow_library *module = tow_library_find(TOW_H_MODULE, mod);
    if (functions == NULL || module == NULL) {
        return functions == NULL ? CUDA_ERROR_INVALID_VALUE : tow_no_handle();
    }
    return tow_library_enumerate(module, numFunctions, (void **)functions);
}

CUresult tow_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
    struct tow_library *module = tow_library_find(TOW_H_MODULE, hmod);
    if (name == NULL || (dptr == NULL && bytes == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct tow_context *context = NULL;
    CUresult status = tow_code_context(&context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (module == NULL) {
        return tow_no_handle();
    }
    return tow_symbol_get(module, TOW_FN_cuModuleGetGlobal_v2, module->context, name, dptr, bytes);
}
