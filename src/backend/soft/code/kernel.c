/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of libraries and functions of modules: attributes, names, parameters. */
#include "backend/soft/code/image.h"
#include "backend/soft/code/module.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/state.h"
#include "gen/module.h"

#include <string.h>

static CUresult enter_kernel(CUkernel handle, struct tow_soft_kernel **ret_kernel)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_kernel = tow_soft_lookup(TOW_SOFT_KERNEL, TOW_SOFT_HANDLE(handle));
    return *ret_kernel != NULL ? CUDA_SUCCESS : tow_soft_leave(CUDA_ERROR_INVALID_HANDLE);
}

static CUresult soft_cuKernelGetFunction(CUfunction *pFunc, CUkernel handle)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_kernel *kernel = tow_soft_lookup(TOW_SOFT_KERNEL, TOW_SOFT_HANDLE(handle));
    if (kernel == NULL || pFunc == NULL) {
        return tow_soft_leave(kernel == NULL ? CUDA_ERROR_INVALID_HANDLE
                                             : CUDA_ERROR_INVALID_VALUE);
    }
    struct tow_soft_function *function;
    result = tow_soft_function_of_kernel(kernel, ctx, &function);
    if (result == CUDA_SUCCESS) {
        *pFunc = TOW_SOFT_POINTER(function->object.handle);
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuKernelGetLibrary(CUlibrary *pLib, CUkernel handle)
{
    struct tow_soft_kernel *kernel;
    CUresult result = enter_kernel(handle, &kernel);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (pLib == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pLib = TOW_SOFT_POINTER(kernel->library->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult attribute_get(int *pi, CUfunction_attribute attrib,
                              const struct tow_ptx_kernel_info *info,
                              const struct tow_soft_attributes *attributes, int target)
{
    if (pi == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (attrib) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        /* What a block must have is not told here: a driver tells the most there may be. */
        *pi = info->reqntid[0] != 0 ? 1024 : (int)info->max_threads;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *pi = (int)info->static_shared;
        break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *pi = (int)info->const_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *pi = (int)info->local_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *pi = (int)info->registers;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *pi = target;
        break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *pi = tow_soft.capability;
        break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
        *pi = 0;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *pi = attributes->max_dynamic_shared;
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *pi = attributes->carveout;
        break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
        *pi = info->explicit_cluster && info->reqcluster[0] == 0;
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        *pi = attributes->cluster[attrib - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];
        break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *pi = attributes->non_portable_cluster;
        break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        *pi = attributes->cluster_policy;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult attribute_set(CUfunction_attribute attrib, int value,
                              const struct tow_ptx_kernel_info *info,
                              struct tow_soft_attributes *attributes)
{
    struct tow_soft_limits_of_device limits;
    tow_soft_device_limits(&limits);
    switch (attrib) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || value > limits.shared_optin - (int)info->static_shared) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        attributes->max_dynamic_shared = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < -1 || value > 100) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        attributes->carveout = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        if (value < 0 || info->reqcluster[0] != 0) {
            return value < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_PERMITTED;
        }
        attributes->cluster[attrib - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        attributes->non_portable_cluster = value != 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        if (value < 0 || value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        attributes->cluster_policy = value;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult soft_cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel handle,
                                          CUdevice dev)
{
    struct tow_soft_kernel *kernel;
    CUresult result = enter_kernel(handle, &kernel);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_device *device = tow_soft_device_of(dev);
    if (device == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_DEVICE);
    }
    return tow_soft_leave(attribute_get(pi, attrib, &kernel->info,
                                        &kernel->attributes[device->ordinal],
                                        kernel->library->code->ptx_target));
}

static CUresult soft_cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel handle,
                                          CUdevice dev)
{
    struct tow_soft_kernel *kernel;
    CUresult result = enter_kernel(handle, &kernel);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_device *device = tow_soft_device_of(dev);
    if (device == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_DEVICE);
    }
    result = attribute_set(attrib, val, &kernel->info, &kernel->attributes[device->ordinal]);
    for (struct tow_soft_module *m = kernel->library->modules; m != NULL && result == CUDA_SUCCESS;
         m = m->library_next) {
        struct tow_soft_function *function = m->functions[kernel->index];
        if (m->object.ctx->device == device && function != NULL) {
            attribute_set(attrib, val, &function->info, &function->attributes);
        }
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice dev)
{
    struct tow_soft_kernel *kernel;
    CUresult result = enter_kernel(handle, &kernel);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (tow_soft_device_of(dev) == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_DEVICE);
    }
    return tow_soft_leave((int)config < 0 || config > CU_FUNC_CACHE_PREFER_EQUAL
                              ? CUDA_ERROR_INVALID_VALUE
                              : CUDA_SUCCESS);
}

static CUresult soft_cuKernelGetName(const char **name, CUkernel handle)
{
    struct tow_soft_kernel *kernel;
    CUresult result = enter_kernel(handle, &kernel);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (name == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *name = kernel->info.name;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult param_get(const struct tow_ptx_kernel_info *info, size_t index, size_t *offset,
                          size_t *size)
{
    if (offset == NULL || index >= info->param_count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *offset = info->params[index].offset;
    if (size != NULL) {
        *size = info->params[index].size;
    }
    return CUDA_SUCCESS;
}

static CUresult soft_cuKernelGetParamInfo(CUkernel handle, size_t paramIndex, size_t *paramOffset,
                                          size_t *paramSize)
{
    struct tow_soft_kernel *kernel;
    CUresult result = enter_kernel(handle, &kernel);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    /* Of no context's own, but NVIDIA's driver answers in one only, and not in one that failed. */
    const struct tow_soft_ctx *ctx = tow_soft_current();
    if (ctx == NULL || ctx->error != CUDA_SUCCESS) {
        return tow_soft_leave(ctx == NULL ? CUDA_ERROR_INVALID_CONTEXT : ctx->error);
    }
    return tow_soft_leave(param_get(&kernel->info, paramIndex, paramOffset, paramSize));
}

static CUresult enter_function(CUfunction handle, struct tow_soft_ctx **ret_ctx,
                               struct tow_soft_function **ret_function)
{
    CUresult result = tow_soft_enter(ret_ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = tow_soft_function_of(*ret_ctx, handle, ret_function);
    return result == CUDA_SUCCESS ? result : tow_soft_leave(result);
}

static CUresult soft_cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_function *function;
    CUresult result = enter_function(hfunc, &ctx, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return tow_soft_leave(attribute_get(pi, attrib, &function->info, &function->attributes,
                                        function->module->code->ptx_target));
}

static CUresult soft_cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_function *function;
    CUresult result = enter_function(hfunc, &ctx, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return tow_soft_leave(attribute_set(attrib, value, &function->info, &function->attributes));
}

static CUresult soft_cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_function *function;
    CUresult result = enter_function(hfunc, &ctx, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return tow_soft_leave((int)config < 0 || config > CU_FUNC_CACHE_PREFER_EQUAL
                              ? CUDA_ERROR_INVALID_VALUE
                              : CUDA_SUCCESS);
}

static CUresult soft_cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config)
{
    (void)config;
    struct tow_soft_ctx *ctx;
    struct tow_soft_function *function;
    CUresult result = enter_function(hfunc, &ctx, &function);
    return result == CUDA_SUCCESS ? tow_soft_leave(result) : result;
}

static CUresult soft_cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_function *function;
    CUresult result = enter_function(hfunc, &ctx, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (hmod == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *hmod = TOW_SOFT_POINTER(function->module->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuFuncGetName(const char **name, CUfunction hfunc)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_function *function;
    CUresult result = enter_function(hfunc, &ctx, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (name == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *name = function->info.name;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuFuncGetParamInfo(CUfunction hfunc, size_t paramIndex, size_t *paramOffset,
                                        size_t *paramSize)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_function *function;
    CUresult result = enter_function(hfunc, &ctx, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return tow_soft_leave(param_get(&function->info, paramIndex, paramOffset, paramSize));
}

static CUresult soft_cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction hfunc)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_function *function;
    CUresult result = enter_function(hfunc, &ctx, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (state == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuFuncLoad(CUfunction hfunc)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_function *function;
    CUresult result = enter_function(hfunc, &ctx, &function);
    return result == CUDA_SUCCESS ? tow_soft_leave(result) : result;
}

void tow_soft_fill_kernel(struct tow_driver *driver)
{
    tow_driver_set(driver, cuKernelGetFunction, soft_cuKernelGetFunction);
    tow_driver_set(driver, cuKernelGetLibrary, soft_cuKernelGetLibrary);
    tow_driver_set(driver, cuKernelGetAttribute, soft_cuKernelGetAttribute);
    tow_driver_set(driver, cuKernelSetAttribute, soft_cuKernelSetAttribute);
    tow_driver_set(driver, cuKernelSetCacheConfig, soft_cuKernelSetCacheConfig);
    tow_driver_set(driver, cuKernelGetName, soft_cuKernelGetName);
    tow_driver_set(driver, cuKernelGetParamInfo, soft_cuKernelGetParamInfo);
    tow_driver_set(driver, cuFuncGetAttribute, soft_cuFuncGetAttribute);
    tow_driver_set(driver, cuFuncSetAttribute, soft_cuFuncSetAttribute);
    tow_driver_set(driver, cuFuncSetCacheConfig, soft_cuFuncSetCacheConfig);
    tow_driver_set(driver, cuFuncSetSharedMemConfig, soft_cuFuncSetSharedMemConfig);
    tow_driver_set(driver, cuFuncGetModule, soft_cuFuncGetModule);
    tow_driver_set(driver, cuFuncGetName, soft_cuFuncGetName);
    tow_driver_set(driver, cuFuncGetParamInfo, soft_cuFuncGetParamInfo);
    tow_driver_set(driver, cuFuncIsLoaded, soft_cuFuncIsLoaded);
    tow_driver_set(driver, cuFuncLoad, soft_cuFuncLoad);
}
