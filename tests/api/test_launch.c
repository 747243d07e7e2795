/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds of a launch: what is beyond is refused by the call itself, and nothing comes of it. */
#include "api.h"

static struct {
    CUdevice_attribute attribute;
    const char *name;
} const bounds[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, "grid x"},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, "grid y"},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, "grid z"},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, "block x"},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, "block y"},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, "block z"},
};

static CUdeviceptr word;

/* Of `add`, with nothing to add to. */
static CUresult launch(CUfunction add, const unsigned d[6], unsigned shared)
{
    int count = 0, by = 1;
    void *params[] = {&word, &count, &by};
    return cuLaunchKernel(add, d[0], d[1], d[2], d[3], d[4], d[5], shared, NULL, params, NULL);
}

static CUresult launch_one(CUfunction add, unsigned which, unsigned value)
{
    unsigned d[6] = {1, 1, 1, 1, 1, 1};
    d[which] = value;
    CUresult status = launch(add, d, 0);
    if (cuCtxSynchronize() != CUDA_SUCCESS) {
        printf("%s of %u: it was sent, and failed there\n", bounds[which].name, value);
        api_failures++;
    }
    return status;
}

static void each_dimension_has_its_bound(struct api *api)
{
    for (unsigned i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        int most = 0;
        OK(cuDeviceGetAttribute(&most, bounds[i].attribute, api->device));
        if (i > 0) { /* as many blocks as a row may have take minutes */
            EQUAL(launch_one(api->add, i, (unsigned)most), CUDA_SUCCESS);
        }
        EQUAL(launch_one(api->add, i, (unsigned)most + 1), CUDA_ERROR_INVALID_VALUE);
        EQUAL(launch_one(api->add, i, 0), CUDA_ERROR_INVALID_VALUE);
    }
}

static void a_block_has_so_many_threads(struct api *api)
{
    int most = 0;
    OK(cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, api->add));
    unsigned all[6] = {1, 1, 1, (unsigned)most / 32, 16, 2}, more[6] = {1, 1, 1, 0, 16, 2};
    more[3] = all[3] + 1;
    OK(launch(api->add, all, 0));
    OK(cuCtxSynchronize());
    EQUAL(launch(api->add, more, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSynchronize());
}

static void shared_memory_has_its_bound(struct api *api)
{
    const unsigned one[6] = {1, 1, 1, 1, 1, 1};
    int most = 0;
    OK(cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, api->add));
    for (int i = 0; i < 2; i++) {
        OK(launch(api->add, one, (unsigned)most));
        EQUAL(launch(api->add, one, (unsigned)most + 1), CUDA_ERROR_INVALID_VALUE);
        OK(cuCtxSynchronize());
        most += 1024;
        OK(cuFuncSetAttribute(api->add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most));
    }
}

/* Only what is captured can become a node that the GPU updates. */
static void a_refused_launch_leaves_its_attributes_alone(struct api *api)
{
    char mark;
    int count = 0, by = 1;
    void *params[] = {&word, &count, &by};
    CUlaunchAttribute node = {.id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE};
    node.value.deviceUpdatableKernelNode.deviceUpdatable = 1;
    node.value.deviceUpdatableKernelNode.devNode = (CUgraphDeviceNode)(uintptr_t)&mark;
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .attrs = &node,
                             .numAttrs = 1};
    TRUE(cuLaunchKernelEx(&config, api->add, params, NULL) != CUDA_SUCCESS);
    TRUE(node.value.deviceUpdatableKernelNode.devNode == (CUgraphDeviceNode)(uintptr_t)&mark);
    OK(cuCtxSynchronize());
}

int main(void)
{
    struct api api;
    api_begin(&api);
    OK(cuMemAlloc(&word, 4));
    each_dimension_has_its_bound(&api);
    a_block_has_so_many_threads(&api);
    shared_memory_has_its_bound(&api);
    a_refused_launch_leaves_its_attributes_alone(&api);
    OK(cuMemFree(word));
    return api_end(&api);
}
