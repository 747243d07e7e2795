/* SPDX-License-Identifier: Apache-2.0 */
/* The functions cuLibrary*: libraries, their kernels and their variables. */
#include "base/mutex.h"
#include "client/code/code.h"
#include "gen/module_client.h"

#include <string.h>

static CUresult load_library(struct towc_image *image, const struct towc_jit *jit, bool stays,
                             CUlibrary *library)
{
    uint64_t id;
    CUresult status = towc_library_load(TOW_H_LIBRARY, image, jit, stays, &id);
    if (status == CUDA_SUCCESS) {
        *library = (CUlibrary)(uintptr_t)id;
    }
    return status;
}

/* BINARY_IS_PRESERVED only says that the program keeps its image, which we need no longer than the
 * call. */
static CUresult check_library_options(const CUlibraryOption *options, void **values, unsigned count)
{
    if (count > 0 && options == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < count; i++) {
        if ((unsigned)options[i] >= CU_LIBRARY_NUM_OPTIONS) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

CUresult towc_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                                void **jitOptionsValues, unsigned int numJitOptions,
                                CUlibraryOption *libraryOptions, void **libraryOptionValues,
                                unsigned int numLibraryOptions)
{
    struct towc_jit jit = {numJitOptions, jitOptions, jitOptionsValues};
    CUresult status =
        library == NULL || code == NULL ? CUDA_ERROR_INVALID_VALUE : towc_jit_check(&jit);
    if (status == CUDA_SUCCESS) {
        status = check_library_options(libraryOptions, libraryOptionValues, numLibraryOptions);
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    bool stays = false;
    for (unsigned i = 0; i < numLibraryOptions && libraryOptionValues != NULL; i++) {
        stays = stays || (libraryOptions[i] == CU_LIBRARY_BINARY_IS_PRESERVED &&
                          libraryOptionValues[i] != NULL);
    }
    struct towc_image image;
    int error = towc_image_open(code, &image);
    return error < 0 ? towc_image_result(error) : load_library(&image, &jit, stays, library);
}

CUresult towc_cuLibraryLoadFromFile(CUlibrary *library, const char *fileName,
                                    CUjit_option *jitOptions, void **jitOptionsValues,
                                    unsigned int numJitOptions, CUlibraryOption *libraryOptions,
                                    void **libraryOptionValues, unsigned int numLibraryOptions)
{
    struct towc_jit jit = {numJitOptions, jitOptions, jitOptionsValues};
    CUresult status =
        library == NULL || fileName == NULL ? CUDA_ERROR_INVALID_VALUE : towc_jit_check(&jit);
    if (status == CUDA_SUCCESS) {
        status = check_library_options(libraryOptions, libraryOptionValues, numLibraryOptions);
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct towc_image image;
    int error = towc_image_open_file(fileName, &image);
    return error < 0 ? towc_image_result(error) : load_library(&image, &jit, true, library);
}

CUresult towc_cuLibraryUnload(CUlibrary library)
{
    if (library == NULL) {
        return CUDA_ERROR_INVALID_HANDLE; /* before cuInit, too */
    }
    struct towc_library *object = towc_library_find(TOW_H_LIBRARY, library);
    return object == NULL ? towc_no_handle() : towc_library_unload(object);
}

CUresult towc_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
    if (pKernel == NULL || name == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_library *object = towc_library_find(TOW_H_LIBRARY, library);
    if (object == NULL) {
        return towc_no_handle();
    }
    struct towc_kernel *kernel;
    CUresult status = towc_library_kernel(object, name, &kernel);
    if (status == CUDA_SUCCESS) {
        *pKernel = (CUkernel)(uintptr_t)kernel->id;
    }
    return status;
}

CUresult towc_cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib)
{
    struct towc_library *object = towc_library_find(TOW_H_LIBRARY, lib);
    if (count == NULL || object == NULL) {
        return count == NULL ? CUDA_ERROR_INVALID_VALUE : towc_no_handle();
    }
    CUresult status = towc_library_names(object);
    if (status == CUDA_SUCCESS) {
        *count = object->name_count;
    }
    return status;
}

CUresult towc_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
    struct towc_library *object = towc_library_find(TOW_H_LIBRARY, lib);
    if (kernels == NULL || object == NULL) {
        return kernels == NULL ? CUDA_ERROR_INVALID_VALUE : towc_no_handle();
    }
    return towc_library_enumerate(object, numKernels, (void **)kernels);
}

static struct towc_library *module_of(struct towc_library *library, uint32_t context)
{
    struct towc_library *module = library->modules;
    while (module != NULL && module->context != context) {
        module = module->next;
    }
    return module;
}

CUresult towc_cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
    struct towc_library *object = towc_library_find(TOW_H_LIBRARY, library);
    if (pMod == NULL || object == NULL) {
        return pMod == NULL ? CUDA_ERROR_INVALID_VALUE : towc_no_handle();
    }
    struct towc_context *context = NULL;
    CUresult status = towc_code_context(&context);
    if (TOW_UNLIKELY(status != CUDA_SUCCESS)) {
        return status;
    }
    tow_mutex_lock(&object->lock);
    struct towc_library *module = module_of(object, context->number);
    tow_mutex_unlock(&object->lock);
    if (module != NULL) {
        *pMod = (CUmodule)(uintptr_t)module->id;
        return CUDA_SUCCESS;
    }
    module = towc_library_create(TOW_H_MODULE);
    if (module == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    module->parent = object;
    module->link = object->link;
    module->context = context->number;
    struct towc_call call;
    status = towc_handle_mint_object(TOW_H_MODULE, module, &module->id);
    if (status == CUDA_SUCCESS) {
        status = towc_library_begin(object, &call, TOW_FN_cuLibraryGetModule, 16,
                                    TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    }
    if (status == CUDA_SUCCESS) {
        module->link = call.link;
        atomic_store(&module->links, 1u << call.link->index);
        tow_enc_u64(&call.enc, object->id);
        tow_enc_u64(&call.enc, module->id);
        status = towc_call_end(&call, towc_call_wait(&call));
    }
    if (status != CUDA_SUCCESS) {
        towc_library_destroy(module);
        return status;
    }
    tow_mutex_lock(&object->lock);
    struct towc_library *first = module_of(object, context->number);
    struct towc_library **at = &object->modules;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = module; /* at the end: who came first is found first */
    tow_mutex_unlock(&object->lock);
    *pMod = (CUmodule)(uintptr_t)(first != NULL ? first->id : module->id);
    return CUDA_SUCCESS;
}

CUresult towc_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
                                 const char *name)
{
    struct towc_library *object = towc_library_find(TOW_H_LIBRARY, library);
    if (name == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (object == NULL) {
        return towc_no_handle();
    }
    struct towc_context *context = NULL;
    CUresult status = towc_code_context(&context);
    return TOW_UNLIKELY(status != CUDA_SUCCESS)
               ? status
               : towc_symbol_get(object, TOW_FN_cuLibraryGetGlobal, context->number, name, dptr,
                                 bytes);
}

/* A managed variable is one for all contexts, and the runtime asks for it before there is any. */
CUresult towc_cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
                                  const char *name)
{
    struct towc_library *object = towc_library_find(TOW_H_LIBRARY, library);
    if (name == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return object == NULL
               ? towc_no_handle()
               : towc_symbol_get(object, TOW_FN_cuLibraryGetManaged, 0, name, dptr, bytes);
}
