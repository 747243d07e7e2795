/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes with initialisation, devices and contexts. Part of errors.c. */

/* ---- before cuInit ------------------------------------------------------------------------- */

CASE(init_flags, NOTHING)
{
    say(cuInit(1));
}
CASE(before_init_device_get, NOTHING)
{
    say(cuDeviceGet(&device, 0));
}
CASE(before_init_device_count, NOTHING)
{
    int count;
    say(cuDeviceGetCount(&count));
}
CASE(before_init_alloc, NOTHING)
{
    say(cuMemAlloc(&memory, 16));
}
CASE(before_init_current, NOTHING)
{
    say(cuCtxGetCurrent(&context));
}
CASE(before_init_synchronize, NOTHING)
{
    say(cuCtxSynchronize());
}
CASE(before_init_version, NOTHING)
{
    int version;
    say(cuDriverGetVersion(&version));
}
CASE(version_null, NOTHING)
{
    say(cuDriverGetVersion(NULL));
}
CASE(error_name_unknown, NOTHING)
{
    const char *name;
    say(cuGetErrorName((CUresult)12345, &name));
}
ALONE(error_string_null, NOTHING)
{
    say(cuGetErrorString(CUDA_SUCCESS, NULL));
}
CASE(export_table_unknown, NOTHING)
{
    const void *table;
    CUuuid id = {{1, 2, 3}};
    say(cuGetExportTable(&table, &id));
}

/* ---- devices ------------------------------------------------------------------------------- */

CASE(device_negative, INIT)
{
    say(cuDeviceGet(&device, -1));
}
CASE(device_too_high, INIT)
{
    say(cuDeviceGet(&device, 1000));
}
CASE(device_null, INIT)
{
    say(cuDeviceGet(NULL, 0));
}
CASE(device_count_null, INIT)
{
    say(cuDeviceGetCount(NULL));
}
CASE(device_name_null, INIT)
{
    say(cuDeviceGetName(NULL, 10, device));
}
ALONE(device_name_no_room, INIT)
{
    say(cuDeviceGetName(host, 0, device));
}
CASE(device_name_bad_device, INIT)
{
    say(cuDeviceGetName(host, 100, 77));
}
CASE(device_attribute_unknown, INIT)
{
    int value;
    say(cuDeviceGetAttribute(&value, (CUdevice_attribute)99999, device));
}
CASE(device_attribute_zero, INIT)
{
    int value;
    say(cuDeviceGetAttribute(&value, (CUdevice_attribute)0, device));
}
CASE(device_attribute_bad_device, INIT)
{
    int value;
    say(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, -5));
}
CASE(device_attribute_null, INIT)
{
    say(cuDeviceGetAttribute(NULL, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
}
CASE(device_total_mem_null, INIT)
{
    say(cuDeviceTotalMem(NULL, device));
}
CASE(device_uuid_null, INIT)
{
    say(cuDeviceGetUuid(NULL, device));
}
CASE(device_by_bus_id_garbage, INIT)
{
    say(cuDeviceGetByPCIBusId(&device, "nonsense"));
}
CASE(device_by_bus_id_absent, INIT)
{
    say(cuDeviceGetByPCIBusId(&device, "0000:fe:1e.0"));
}
CASE(primary_retain_bad_device, INIT)
{
    say(cuDevicePrimaryCtxRetain(&context, 500));
}
CASE(primary_retain_null, INIT)
{
    say(cuDevicePrimaryCtxRetain(NULL, device));
}
ALONE(primary_release_not_retained, INIT)
{
    say(cuDevicePrimaryCtxRelease(device));
}
ALONE(primary_flags_unknown, INIT)
{
    say(cuDevicePrimaryCtxSetFlags(device, 0x40000));
}

/* ---- no context ---------------------------------------------------------------------------- */

CASE(no_context_alloc, INIT)
{
    say(cuMemAlloc(&memory, 16));
}
CASE(no_context_synchronize, INIT)
{
    say(cuCtxSynchronize());
}
CASE(no_context_module, INIT)
{
    say(cuModuleLoadData(&module, kernels_ptx));
}
CASE(no_context_stream, INIT)
{
    CUstream stream;
    say(cuStreamCreate(&stream, 0));
}
CASE(no_context_event, INIT)
{
    CUevent event;
    say(cuEventCreate(&event, 0));
}
CASE(no_context_get_device, INIT)
{
    say(cuCtxGetDevice(&device));
}
CASE(no_context_pop, INIT)
{
    say(cuCtxPopCurrent(&context));
}
CASE(no_context_copy, INIT)
{
    say(cuMemcpyHtoD(NOWHERE, host, 16));
}
CASE(no_context_get_current, INIT)
{
    say(cuCtxGetCurrent(&context));
}
CASE(current_null_out, INIT)
{
    say(cuCtxGetCurrent(NULL));
}
CASE(push_null, INIT)
{
    say(cuCtxPushCurrent(NULL));
}

/* ---- contexts ------------------------------------------------------------------------------ */

CASE(context_create_bad_device, INIT)
{
    say(cuCtxCreate(&context, NULL, 0, 99));
}
CASE(context_create_null, INIT)
{
    say(cuCtxCreate(NULL, NULL, 0, device));
}
ALONE(context_create_flags, INIT)
{
    say(cuCtxCreate(&context, NULL, 0x40000, device));
}
CASE(context_destroy_null, INIT)
{
    say(cuCtxDestroy(NULL));
}
ALONE(context_destroy_twice, INIT)
{
    NEED(cuCtxCreate(&context, NULL, 0, device));
    NEED(cuCtxDestroy(context));
    say(cuCtxDestroy(context));
}
ALONE(context_current_after_destroy, INIT)
{
    NEED(cuCtxCreate(&context, NULL, 0, device));
    NEED(cuCtxDestroy(context));
    say(cuCtxSynchronize());
}
CASE(context_limit_unknown, CONTEXT)
{
    say(cuCtxSetLimit((CUlimit)99, 1));
}
CASE(context_get_limit_unknown, CONTEXT)
{
    size_t value;
    say(cuCtxGetLimit(&value, (CUlimit)99));
}
CASE(context_get_limit_null, CONTEXT)
{
    say(cuCtxGetLimit(NULL, CU_LIMIT_STACK_SIZE));
}
CASE(context_priority_range_null, CONTEXT)
{
    say(cuCtxGetStreamPriorityRange(NULL, NULL));
}
CASE(context_peer_of_itself, CONTEXT)
{
    say(cuCtxEnablePeerAccess(context, 0));
}
ALONE(context_memory_of_another, CONTEXT)
{
    /* Unified addressing: one process's contexts on one device see each other's memory. */
    CUcontext other;
    NEED(cuCtxCreate(&other, NULL, 0, device));
    say(cuMemcpyDtoH(host, memory, 16));
}
ALONE(stream_of_another_context, MODULE)
{
    CUcontext other;
    CUstream stream;
    NEED(cuCtxCreate(&other, NULL, 0, device));
    NEED(cuStreamCreate(&stream, 0));
    NEED(cuCtxSetCurrent(context));
    say_and_sync(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}
ALONE(event_of_another_context, CONTEXT)
{
    CUcontext other;
    CUevent event;
    CUstream stream;
    NEED(cuStreamCreate(&stream, 0));
    NEED(cuCtxCreate(&other, NULL, 0, device));
    NEED(cuEventCreate(&event, 0));
    NEED(cuCtxSetCurrent(context));
    say_and_sync(cuEventRecord(event, stream));
}
ALONE(function_of_another_context, MODULE)
{
    CUcontext other;
    NEED(cuCtxCreate(&other, NULL, 0, device));
    say_and_sync(launch(nothing, 1, 1, NULL));
}
