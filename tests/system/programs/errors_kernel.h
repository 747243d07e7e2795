/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes inside a kernel, resets, and what every later call is then answered. Part of errors.c.
 */

/* ---- mistakes inside a kernel, and what follows -------------------------------------------- */

ALONE(kernel_illegal_address, MODULE)
{
    say_and_sync(launch_poke(NOWHERE));
}
ALONE(kernel_null_address, MODULE)
{
    say_and_sync(launch_poke(0));
}
ALONE(kernel_misaligned, MODULE)
{
    say_and_sync(launch_poke(memory + 1));
}
ALONE(kernel_far_outside, MODULE)
{
    say_and_sync(launch_poke(memory + ((CUdeviceptr)1 << 36)));
}
ALONE(kernel_freed_memory, MODULE)
{
    CUdeviceptr big;
    NEED(cuMemAlloc(&big, 64 << 20));
    NEED(cuMemFree(big));
    say_and_sync(launch_poke(big + (32 << 20)));
}
ALONE(kernel_shared_outside, MODULE)
{
    CUfunction function;
    unsigned address = 8 << 20;
    void *params[] = {&address};
    NEED(cuModuleGetFunction(&function, module, "poke_shared"));
    say_and_sync(launch(function, 1, 1, params));
}
ALONE(kernel_trap, MODULE)
{
    CUfunction function;
    NEED(cuModuleGetFunction(&function, module, "stop"));
    say_and_sync(launch(function, 1, 1, NULL));
}
ALONE(kernel_trap_then_alloc, MODULE)
{
    CUfunction function;
    NEED(cuModuleGetFunction(&function, module, "stop"));
    launch(function, 1, 1, NULL);
    say(cuCtxSynchronize());
    then(cuMemAlloc(&memory, 16));
}
ALONE(kernel_error_found_by_stream, MODULE)
{
    CUstream stream;
    void *params[] = {(void *)&NOWHERE};
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    say(cuStreamSynchronize(stream));
    then(cuStreamSynchronize(NULL));
}
ALONE(kernel_error_found_by_event, MODULE)
{
    CUevent event;
    NEED(cuEventCreate(&event, 0));
    NEED(launch_poke(NOWHERE));
    cuEventRecord(event, NULL);
    say(cuEventSynchronize(event));
}
ALONE(kernel_error_found_by_copy, MODULE)
{
    NEED(launch_poke(NOWHERE));
    say(cuMemcpyDtoH(host, memory, 16));
}

/* Each later call, after a kernel has ruined the context. Those that would end something have it to
 * themselves. */
static void ruin(void)
{
    NEED(launch_poke(NOWHERE));
    if (cuCtxSynchronize() != CUDA_ERROR_ILLEGAL_ADDRESS) {
        printf(" [the context was not ruined]");
    }
}
#define AFTER_AS(kind, name, call)                                                                 \
    kind(after_illegal_address_##name, RUINED)                                                     \
    {                                                                                              \
        CUdeviceptr pointer;                                                                       \
        size_t free_bytes, total;                                                                  \
        int number;                                                                                \
        void *pinned;                                                                              \
        say(call);                                                                                 \
        (void)pointer, (void)free_bytes, (void)total, (void)number, (void)pinned;                  \
    }
#define AFTER(name, call) AFTER_AS(CASE, name, call)
#define AFTER_ALONE(name, call) AFTER_AS(ALONE, name, call)
AFTER(synchronize, cuCtxSynchronize())
AFTER(alloc, cuMemAlloc(&pointer, 16))
AFTER_ALONE(free, cuMemFree(memory))
AFTER(copy_up, cuMemcpyHtoD(memory, host, 16))
AFTER(copy_down, cuMemcpyDtoH(host, memory, 16))
AFTER(memset, cuMemsetD8(memory, 0, 16))
AFTER(launch, launch(nothing, 1, 1, NULL))
AFTER(stream_create, cuStreamCreate(&stream, 0))
AFTER_ALONE(stream_destroy, cuStreamDestroy(stream))
AFTER(stream_query, cuStreamQuery(stream))
AFTER(stream_synchronize, cuStreamSynchronize(stream))
AFTER(event_create, cuEventCreate(&event, 0))
AFTER(event_record, cuEventRecord(event, stream))
AFTER(event_query, cuEventQuery(event))
AFTER_ALONE(event_destroy, cuEventDestroy(event))
AFTER(module_load, cuModuleLoadData(&module, kernels_ptx))
AFTER_ALONE(module_unload, cuModuleUnload(module))
AFTER(get_function, cuModuleGetFunction(&poke, module, "scale"))
AFTER(mem_info, cuMemGetInfo(&free_bytes, &total))
AFTER(host_alloc, cuMemHostAlloc(&pinned, 4096, 0))
AFTER(host_function, cuLaunchHostFunc(stream, slow, NULL))
AFTER(device_count, cuDeviceGetCount(&number))
AFTER(device_attribute, cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device))
AFTER(get_current, cuCtxGetCurrent(&context))
AFTER(get_device, cuCtxGetDevice(&device))
AFTER(get_limit, cuCtxGetLimit(&total, CU_LIMIT_STACK_SIZE))
AFTER(func_attribute, cuFuncGetAttribute(&number, CU_FUNC_ATTRIBUTE_NUM_REGS, poke))
AFTER_ALONE(pop, cuCtxPopCurrent(&context))
AFTER_ALONE(primary_release, cuDevicePrimaryCtxRelease(device))
AFTER_ALONE(primary_reset, cuDevicePrimaryCtxReset(device))
ALONE(after_illegal_address_in_new_context, RUINED)
{
    CUcontext other;
    CUresult created = cuCtxCreate(&other, NULL, 0, device);
    say(created);
    if (created == CUDA_SUCCESS) {
        then(cuMemAlloc(&memory, 16));
    }
}

/* ---- after a reset of the primary context -------------------------------------------------- */

#define RESET(name, call)                                                                          \
    ALONE(after_reset_##name, MODULE)                                                              \
    {                                                                                              \
        NEED(cuDevicePrimaryCtxReset(device));                                                     \
        say(call);                                                                                 \
    }
RESET(synchronize, cuCtxSynchronize())
RESET(alloc, cuMemAlloc(&memory, 16))
RESET(free, cuMemFree(memory))
RESET(copy_down, cuMemcpyDtoH(host, memory, 16))
RESET(launch, launch(nothing, 1, 1, NULL))
RESET(get_function, cuModuleGetFunction(&poke, module, "poke"))
RESET(release, cuDevicePrimaryCtxRelease(device))
ALONE(after_reset_retain, MODULE)
{
    NEED(cuDevicePrimaryCtxReset(device));
    say(cuDevicePrimaryCtxRetain(&context, device));
    cuCtxSetCurrent(context);
    then(cuMemAlloc(&memory, 16));
}
ALONE(after_release_alloc, CONTEXT)
{
    NEED(cuDevicePrimaryCtxRelease(device));
    say(cuMemAlloc(&memory, 16));
}
