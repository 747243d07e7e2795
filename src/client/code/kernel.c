/* SPDX-License-Identifier: Apache-2.0 */
/* cuKernel* and cuFunc*: answered from what came with the lookup. */
#include "base/mutex.h"
#include "client/code/code.h"
#include "gen/module_client.h"

#include <stdlib.h>
#include <string.h>

/* ---- from kernel to function ---- */

CUresult towc_cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
    struct towc_kernel *object = towc_handle_object(TOW_H_KERNEL, (uint64_t)(uintptr_t)kernel);
    if (pFunc == NULL || object == NULL) {
        return pFunc == NULL ? CUDA_ERROR_INVALID_VALUE : towc_no_handle();
    }
    struct towc_context *context = NULL;
    CUresult status = towc_code_context(&context);
    if (TOW_UNLIKELY(status != CUDA_SUCCESS)) {
        return status;
    }
    struct towc_library *library = object->library;
    tow_mutex_lock(&library->lock);
    struct towc_kernel *function = object->functions;
    while (function != NULL && function->context != context->number) {
        function = function->next;
    }
    tow_mutex_unlock(&library->lock);
    if (function != NULL) {
        *pFunc = (CUfunction)(uintptr_t)function->id;
        return CUDA_SUCCESS;
    }
    function = calloc(1, sizeof *function);
    if (function == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    function->library = library;
    function->origin = object;
    function->context = context->number;
    function->param_count = object->param_count;
    function->param_bytes = object->param_bytes;
    function->params = object->params;
    function->name = object->name;
    struct towc_call call;
    status = towc_kernel_reach(object, context->link);
    if (status == CUDA_SUCCESS) {
        status = towc_handle_mint_object(TOW_H_FUNCTION, function, &function->id);
    }
    if (status == CUDA_SUCCESS) {
        /* The id is ours, so nobody needs to wait: should the server fail, the function's uses do.
         */
        status =
            towc_library_begin(library, &call, TOW_FN_cuKernelGetFunction, 16, TOW_CALL_CONTEXT);
    }
    if (status == CUDA_SUCCESS) {
        atomic_fetch_or(&function->links, 1u << call.link->index);
        tow_enc_u64(&call.enc, object->id);
        tow_enc_u64(&call.enc, function->id);
        status = towc_call_send(&call);
    }
    if (status != CUDA_SUCCESS) {
        towc_kernel_destroy(function);
        return status;
    }
    tow_mutex_lock(&library->lock);
    function->next = object->functions;
    object->functions = function;
    tow_mutex_unlock(&library->lock);
    *pFunc = (CUfunction)(uintptr_t)function->id;
    return CUDA_SUCCESS;
}

CUresult towc_cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel)
{
    struct towc_kernel *object = towc_handle_object(TOW_H_KERNEL, (uint64_t)(uintptr_t)kernel);
    if (pLib == NULL || object == NULL) {
        return pLib == NULL ? CUDA_ERROR_INVALID_VALUE : towc_no_handle();
    }
    *pLib = (CUlibrary)(uintptr_t)object->library->id;
    return CUDA_SUCCESS;
}

CUresult towc_cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
    struct towc_kernel *function = towc_kernel_find(hfunc);
    if (hmod == NULL || function == NULL) {
        return hmod == NULL ? CUDA_ERROR_INVALID_VALUE : towc_no_handle();
    }
    if (function->library->kind == TOW_H_LIBRARY) {
        return towc_cuLibraryGetModule(hmod, (CUlibrary)(uintptr_t)function->library->id);
    }
    *hmod = (CUmodule)(uintptr_t)function->library->id;
    return CUDA_SUCCESS;
}

/* ---- names and parameters ---- */

static CUresult get_name(const char **name, const void *handle)
{
    if (name == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_kernel *kernel = towc_kernel_find(handle);
    if (kernel == NULL) {
        return handle == NULL ? CUDA_ERROR_INVALID_VALUE : towc_no_handle();
    }
    *name = kernel->name;
    return CUDA_SUCCESS;
}

CUresult towc_cuKernelGetName(const char **name, CUkernel hfunc)
{
    return get_name(name, hfunc);
}

CUresult towc_cuFuncGetName(const char **name, CUfunction hfunc)
{
    return get_name(name, hfunc);
}

static CUresult get_param(const void *handle, size_t index, size_t *offset, size_t *size)
{
    struct towc_kernel *kernel = towc_kernel_find(handle);
    if (kernel == NULL) {
        return towc_no_handle();
    }
    if (offset == NULL || index >= kernel->param_count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *offset = kernel->params[index].offset;
    if (size != NULL) {
        *size = kernel->params[index].size;
    }
    return CUDA_SUCCESS;
}

/* In a context only, though it depends on none: as NVIDIA's driver answers. */
CUresult towc_cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset,
                                   size_t *paramSize)
{
    if (towc_context_current() == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return get_param(kernel, paramIndex, paramOffset, paramSize);
}

CUresult towc_cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset,
                                 size_t *paramSize)
{
    return get_param(func, paramIndex, paramOffset, paramSize);
}

/* ---- attributes ---- */

CUresult towc_cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel,
                                   CUdevice dev)
{
    if (pi == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_kernel *object = towc_handle_object(TOW_H_KERNEL, (uint64_t)(uintptr_t)kernel);
    if (object == NULL) {
        return towc_no_handle();
    }
    if (towc_device_to_server(dev) < 0) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    return towc_kernel_attribute(object, dev, attrib, pi);
}

/* The device that a function is on: its context's. */
static CUresult function_device(struct towc_kernel *function, CUdevice *ret_device)
{
    struct towc_context *context = NULL;
    CUresult status = towc_code_context(&context);
    if (TOW_UNLIKELY(status != CUDA_SUCCESS)) {
        return status;
    }
    *ret_device = context->device;
    if (function->origin == NULL && TOW_ID_KIND(function->id) == TOW_H_FUNCTION) {
        /* A module's function has the attributes of its own context's device, whatever is current.
         */
        struct towc_attributes *a =
            atomic_load_explicit(&function->attributes, memory_order_acquire);
        if (a != NULL) {
            *ret_device = a->device;
        }
    }
    return CUDA_SUCCESS;
}

CUresult towc_cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    if (pi == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_kernel *function = towc_kernel_find(hfunc);
    if (function == NULL) {
        return towc_no_handle();
    }
    CUdevice device;
    CUresult status = function_device(function, &device);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    atomic_store_explicit(&function->loaded, true, memory_order_relaxed);
    return towc_kernel_attribute(function, device, attrib, pi);
}

enum setting {
    SETTING_REFUSED, /* the driver would refuse it at once */
    SETTING_SURE,    /* it will be taken: nobody needs to wait */
    SETTING_ASK,     /* only the driver knows */
};

static enum setting kernel_judge(struct towc_kernel *kernel, CUdevice device,
                                 CUfunction_attribute attribute, int value)
{
    int fixed = 0;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
        const struct towc_launch_limits *limits = towc_launch_limits(device);
        if (value < 0) {
            return SETTING_REFUSED;
        }
        if (limits == NULL ||
            towc_kernel_attribute(kernel, device, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &fixed) !=
                CUDA_SUCCESS) {
            return SETTING_ASK;
        }
        return (uint64_t)value + (uint64_t)fixed > limits->shared_optin ? SETTING_REFUSED
                                                                        : SETTING_SURE;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        return value < CU_SHAREDMEM_CARVEOUT_DEFAULT || value > CU_SHAREDMEM_CARVEOUT_MAX_SHARED
                   ? SETTING_REFUSED
                   : SETTING_SURE;
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
        return SETTING_REFUSED;
    default:
        return (unsigned)attribute < TOW_KERNEL_ATTRIBUTES ? SETTING_ASK : SETTING_REFUSED;
    }
}

/* Body of cuFuncSetAttribute and cuKernelSetAttribute: as the generator lays it out, sent without a
 * reply. */
static CUresult send_setting(struct towc_kernel *kernel, bool of_kernel, CUdevice device,
                             CUfunction_attribute attribute, int value)
{
    struct towc_call call;
    unsigned fn = of_kernel ? TOW_FN_cuKernelSetAttribute : TOW_FN_cuFuncSetAttribute;
    CUresult status =
        of_kernel ? towc_kernel_reach(kernel, towc_client_link(device)) : CUDA_SUCCESS;
    if (status != CUDA_SUCCESS) {
        return status;
    }
    status = of_kernel ? towc_call_begin_for(&call, towc_client_link(device), fn, 24, 0)
                       : towc_call_begin(&call, fn, 24, TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, kernel->id);
    tow_enc_u32(&call.enc, (uint32_t)attribute);
    tow_enc_u32(&call.enc, (uint32_t)value);
    if (of_kernel) {
        tow_enc_u32(&call.enc, (uint32_t)towc_device_to_server(device));
    }
    tow_enc_align(&call.enc, 8);
    return towc_call_send(&call);
}

static CUresult set_attribute(struct towc_kernel *kernel, bool of_kernel, CUdevice device,
                              CUfunction_attribute attribute, int value)
{
    CUresult status = CUDA_ERROR_INVALID_VALUE;
    switch (kernel_judge(kernel, device, attribute, value)) {
    case SETTING_REFUSED:
        return CUDA_ERROR_INVALID_VALUE;
    case SETTING_SURE:
        status = send_setting(kernel, of_kernel, device, attribute, value);
        break;
    case SETTING_ASK:
        status = of_kernel ? towc_send_cuKernelSetAttribute(attribute, value,
                                                            (CUkernel)(uintptr_t)kernel->id, device)
                           : towc_send_cuFuncSetAttribute((CUfunction)(uintptr_t)kernel->id,
                                                          attribute, value);
        break;
    }
    if (status == CUDA_SUCCESS) {
        towc_kernel_learn(kernel, device, attribute, value);
        towc_occupancy_forget(kernel);
    }
    return status;
}

CUresult towc_cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel,
                                   CUdevice dev)
{
    struct towc_kernel *object = towc_handle_object(TOW_H_KERNEL, (uint64_t)(uintptr_t)kernel);
    if (object == NULL) {
        return towc_no_handle();
    }
    if (towc_device_to_server(dev) < 0) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    return set_attribute(object, true, dev, attrib, val);
}

CUresult towc_cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    struct towc_kernel *function = towc_kernel_find(hfunc);
    if (function == NULL) {
        return towc_no_handle();
    }
    CUdevice device;
    CUresult status = function_device(function, &device);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    bool of_kernel = TOW_ID_KIND(function->id) == TOW_H_KERNEL;
    return set_attribute(function, of_kernel, device, attrib, value);
}

/* ---- preferences: they never fail once their arguments are right ---- */

CUresult towc_cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
    if (!towc_handle_valid(TOW_H_KERNEL, (uint64_t)(uintptr_t)kernel)) {
        return towc_no_handle();
    }
    if ((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_kernel *object = towc_kernel_find(kernel);
    if (object == NULL || towc_client_link(dev) == NULL) {
        return object == NULL ? towc_no_handle() : CUDA_ERROR_INVALID_DEVICE;
    }
    CUresult status = towc_kernel_reach(object, towc_client_link(dev));
    return status != CUDA_SUCCESS ? status : towc_send_cuKernelSetCacheConfig(kernel, config, dev);
}

CUresult towc_cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
    if (towc_kernel_find(hfunc) == NULL) {
        return towc_no_handle();
    }
    if ((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return towc_send_cuFuncSetCacheConfig(hfunc, config);
}

CUresult towc_cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config)
{
    if (towc_kernel_find(hfunc) == NULL) {
        return towc_no_handle();
    }
    if ((unsigned)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return towc_send_cuFuncSetSharedMemConfig(hfunc, config);
}

/* ---- lazy loading: what the program can see of it ---- */

CUresult towc_cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    struct towc_kernel *object = towc_kernel_find(function);
    if (state == NULL || object == NULL) {
        return state == NULL ? CUDA_ERROR_INVALID_VALUE : towc_no_handle();
    }
    CUmoduleLoadingMode mode;
    towc_cuModuleGetLoadingMode(&mode);
    bool loaded = mode == CU_MODULE_EAGER_LOADING ||
                  atomic_load_explicit(&object->loaded, memory_order_relaxed);
    *state = loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}

CUresult towc_cuFuncLoad(CUfunction function)
{
    struct towc_kernel *object = towc_kernel_find(function);
    if (object == NULL) {
        return towc_no_handle();
    }
    /* Its lookup asked for its attributes, and that has loaded it on the server. */
    atomic_store_explicit(&object->loaded, true, memory_order_relaxed);
    return CUDA_SUCCESS;
}
