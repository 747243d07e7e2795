/* SPDX-License-Identifier: Apache-2.0 */
/* Green contexts: sharing out a device's processors, and working in a share. */
#include "api.h"

static CUgreenCtx make_green(CUdevice device, CUdevResource *ret_half)
{
    CUdevResource all, group, rest;
    CUdevResourceDesc desc = NULL;
    CUgreenCtx green = NULL;
    memset(&all, 0, sizeof all);
    OK(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    TRUE(all.sm.smCount > 0);
    unsigned possible = 0, groups = 1;
    unsigned size = all.sm.smCount >= 2 ? all.sm.smCount / 2 : 1;
    OK(cuDevSmResourceSplitByCount(NULL, &possible, &all, NULL, 0, size));
    TRUE(possible >= 1);
    OK(cuDevSmResourceSplitByCount(&group, &groups, &all, &rest, 0, size));
    EQUAL(groups, 1);
    TRUE(group.sm.smCount >= size);
    EQUAL(group.sm.smCount + (rest.type == CU_DEV_RESOURCE_TYPE_SM ? rest.sm.smCount : 0),
          all.sm.smCount);
    OK(cuDevResourceGenerateDesc(&desc, &group, 1));
    OK(cuGreenCtxCreate(&green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM));
    *ret_half = group;
    return green;
}

static void wrong_arguments_are_refused(struct api *api)
{
    CUdevResource all;
    CUgreenCtx green = NULL;
    EQUAL(cuDeviceGetDevResource(99, &all, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_DEVICE);
    EQUAL(cuDeviceGetDevResource(api->device, NULL, CU_DEV_RESOURCE_TYPE_SM),
          CUDA_ERROR_INVALID_VALUE);
    TRUE(cuGreenCtxCreate(&green, NULL, 99, CU_GREEN_CTX_DEFAULT_STREAM) != CUDA_SUCCESS);
    TRUE(cuGreenCtxDestroy((CUgreenCtx)NULL) != CUDA_SUCCESS);
}

/* NVIDIA's driver does without; what it then shares out is not written anywhere. */
static void a_description_may_be_missing(struct api *api)
{
    CUgreenCtx green = NULL;
    OK(cuGreenCtxCreate(&green, NULL, api->device, CU_GREEN_CTX_DEFAULT_STREAM));
    TRUE(green != NULL);
    OK(cuGreenCtxDestroy(green));
}

static void a_share_works_like_a_context(struct api *api)
{
    CUdevResource half, told;
    CUgreenCtx green = make_green(api->device, &half), same = NULL;
    CUcontext context = NULL, again = NULL, current = NULL;
    CUdevice device = -1;
    OK(cuGreenCtxGetDevResource(green, &told, CU_DEV_RESOURCE_TYPE_SM));
    EQUAL(told.sm.smCount, half.sm.smCount);
    OK(cuCtxFromGreenCtx(&context, green));
    OK(cuCtxFromGreenCtx(&again, green));
    TRUE(context == again);
    TRUE(context != api->context);
    OK(cuCtxGetDevResource(context, &told, CU_DEV_RESOURCE_TYPE_SM));
    EQUAL(told.sm.smCount, half.sm.smCount);

    OK(cuCtxPushCurrent(context));
    OK(cuCtxGetCurrent(&current));
    TRUE(current == context);
    OK(cuCtxGetDevice(&device));
    EQUAL(device, api->device);
    CUmodule module = NULL;
    CUfunction add = NULL;
    CUstream stream = NULL;
    CUdeviceptr data = 0;
    int count = 100, by = 3, value[100];
    OK(cuModuleLoadData(&module, api_ptx));
    OK(cuModuleGetFunction(&add, module, "add"));
    OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    OK(cuStreamGetGreenCtx(stream, &same));
    TRUE(same == green);
    OK(cuStreamGetCtx(stream, &again));
    TRUE(again == context);
    OK(cuMemAlloc(&data, sizeof value));
    OK(cuMemsetD32Async(data, 4, 100, stream));
    void *params[] = {&data, &count, &by};
    OK(cuLaunchKernel(add, 2, 1, 1, 64, 1, 1, 0, stream, params, NULL));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(value, data, sizeof value));
    EQUAL(value[0] + value[99], 14);
    OK(cuMemFree(data));
    OK(cuStreamDestroy(stream));
    OK(cuModuleUnload(module));
    OK(cuCtxPopCurrent(&current));

    OK(cuStreamGetGreenCtx(NULL, &same));
    TRUE(same == NULL);
    OK(cuStreamGetCtx_v2(NULL, &again, &same));
    TRUE(again == api->context && same == NULL);
    /* Once, and its context is not used again: of either NVIDIA's driver dies. */
    OK(cuGreenCtxDestroy(green));
}

int main(void)
{
    struct api api;
    api_begin(&api);
    wrong_arguments_are_refused(&api);
    a_description_may_be_missing(&api);
    a_share_works_like_a_context(&api);
    return api_end(&api);
}
