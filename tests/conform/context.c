/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, devices, and what the driver tells about itself. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>

CASE_ALONE_AT(context_primary_state, INIT, "a primary context is active while it is retained")
{
    unsigned flags = 99;
    int active = 99;
    CUcontext a = NULL, b = NULL;
    OK(cuDevicePrimaryCtxGetState(dev, &flags, &active));
    EQ(active, 0);
    NUM(flags);
    OK(cuDevicePrimaryCtxRetain(&a, dev));
    OK(cuDevicePrimaryCtxRetain(&b, dev));
    TRUE(a == b);
    OK(cuDevicePrimaryCtxRelease(dev));
    OK(cuDevicePrimaryCtxGetState(dev, &flags, &active));
    EQ(active, 1);
    OK(cuDevicePrimaryCtxRelease(dev));
    OK(cuDevicePrimaryCtxGetState(dev, &flags, &active));
    EQ(active, 0);
}

CASE_ALONE_AT(context_primary_flags, INIT, "a primary context's flags are set before it is made")
{
    unsigned flags = 99;
    int active = 99;
    CUcontext a = NULL;
    IS(cuDevicePrimaryCtxSetFlags(dev, CU_CTX_SCHED_BLOCKING_SYNC), CUDA_SUCCESS);
    OK(cuDevicePrimaryCtxGetState(dev, &flags, &active));
    EQ(flags, CU_CTX_SCHED_BLOCKING_SYNC);
    OK(cuDevicePrimaryCtxRetain(&a, dev));
    OK(cuCtxSetCurrent(a));
    OK(cuCtxGetFlags(&flags));
    NUM(flags);
    SEE(cuDevicePrimaryCtxSetFlags(dev, CU_CTX_SCHED_YIELD));
    OK(cuDevicePrimaryCtxGetState(dev, &flags, &active));
    NUM(flags);
}

CASE_ALONE_AT(context_retain_is_not_current, INIT, "retaining a context does not make it current")
{
    CUcontext a = NULL, current = (CUcontext)1;
    OK(cuDevicePrimaryCtxRetain(&a, dev));
    IS(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    TRUE(current == NULL);
}

CASE(context_push_and_pop, "contexts are pushed and popped as a stack")
{
    CUcontext a = NULL, b = NULL, got = NULL;
    OK(cuCtxCreate(&a, NULL, 0, dev));
    OK(cuCtxGetCurrent(&got));
    TRUE(got == a);
    OK(cuCtxPushCurrent(ctx));
    OK(cuCtxGetCurrent(&got));
    TRUE(got == ctx);
    IS(cuCtxPopCurrent(&b), CUDA_SUCCESS);
    TRUE(b == ctx);
    IS(cuCtxPopCurrent(&b), CUDA_SUCCESS);
    TRUE(b == a);
    OK(cuCtxGetCurrent(&got));
    TRUE(got == ctx);
    OK(cuCtxPushCurrent(a));
    IS(cuCtxDestroy(a), CUDA_SUCCESS);
    OK(cuCtxGetCurrent(&got));
    NUM(got == ctx);
}

CASE(context_set_current_replaces,
     "cuCtxSetCurrent replaces the top of the stack, and NULL pops it")
{
    CUcontext a = NULL, got = NULL;
    OK(cuCtxCreate(&a, NULL, 0, dev));
    OK(cuCtxSetCurrent(ctx));
    OK(cuCtxPopCurrent(&got));
    TRUE(got == ctx);
    OK(cuCtxGetCurrent(&got));
    TRUE(got == ctx);
    OK(cuCtxSetCurrent(NULL));
    OK(cuCtxGetCurrent(&got));
    NUM(got == NULL);
    OK(cuCtxSetCurrent(ctx));
    OK(cuCtxDestroy(a));
}

static void look_at_current(void *unused)
{
    CUcontext got = (CUcontext)1;
    CUdeviceptr p;
    (void)unused;
    OK(cuCtxSetCurrent(NULL));
    IS(cuCtxGetCurrent(&got), CUDA_SUCCESS);
    TRUE(got == NULL);
    IS(cuMemAlloc(&p, 4), CUDA_ERROR_INVALID_CONTEXT);
}

CASE(context_is_the_threads_own, "another thread has a current context of its own")
{
    CUcontext got = NULL;
    in_thread(look_at_current, NULL);
    OK(cuCtxGetCurrent(&got));
    TRUE(got == ctx);
}

CASE(context_facts, "a context tells its device, version and an id of its own")
{
    CUdevice d = 99;
    unsigned version = 0;
    unsigned long long id = 0, other_id = 0;
    CUcontext other = NULL;
    IS(cuCtxGetDevice(&d), CUDA_SUCCESS);
    EQ(d, 0);
    IS(cuCtxGetApiVersion(ctx, &version), CUDA_SUCCESS);
    NUM(version);
    IS(cuCtxGetId(ctx, &id), CUDA_SUCCESS);
    OK(cuCtxCreate(&other, NULL, CU_CTX_SCHED_SPIN, dev));
    OK(cuCtxGetId(other, &other_id));
    TRUE(id != other_id);
    unsigned flags = 0;
    OK(cuCtxGetFlags(&flags));
    NUM(flags & CU_CTX_SCHED_MASK);
}

CASE(context_flags_are_set, "flags set later replace those a context was made with")
{
    CUcontext a = NULL;
    unsigned flags = 99;
    OK(cuCtxCreate(&a, NULL, CU_CTX_SCHED_SPIN, dev));
    IS(cuCtxSetFlags(CU_CTX_SCHED_BLOCKING_SYNC), CUDA_SUCCESS);
    OK(cuCtxGetFlags(&flags));
    EQ(flags & CU_CTX_SCHED_MASK, CU_CTX_SCHED_BLOCKING_SYNC);
    IS(cuCtxSetFlags(1u << 30), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxGetFlags(&flags));
    EQ(flags & CU_CTX_SCHED_MASK, CU_CTX_SCHED_BLOCKING_SYNC);
    OK(cuCtxDestroy(a));
}

CASE(context_attach_and_detach, "a context that was attached to ends with the second detach")
{
    CUcontext a = NULL, b = NULL, got = NULL;
    CUdeviceptr p = 0;
    OK(cuCtxCreate(&a, NULL, 0, dev));
    IS(cuCtxAttach(&b, 1), CUDA_ERROR_INVALID_VALUE);
    IS(cuCtxAttach(&b, 0), CUDA_SUCCESS);
    TRUE(b == a);
    IS(cuCtxDetach(b), CUDA_SUCCESS);
    OK(cuCtxGetCurrent(&got));
    TRUE(got == a);
    IS(cuMemAlloc(&p, 256), CUDA_SUCCESS);
    if (got == a) { /* or else it is gone, and must not be named */
        IS(cuCtxDetach(a), CUDA_SUCCESS);
    }
    OK(cuCtxSetCurrent(ctx));
}

CASE(context_affinity, "what a context says that may use all processors")
{
    CUexecAffinityParam p;
    memset(&p, 0, sizeof p);
    SEE(cuCtxGetExecAffinity(&p, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
}

static CUgreenCtx green_whole(void)
{
    CUdevResource all;
    CUdevResourceDesc description = NULL;
    CUgreenCtx green = NULL;
    OK(cuDeviceGetDevResource(dev, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevResourceGenerateDesc(&description, &all, 1));
    OK(cuGreenCtxCreate(&green, description, dev, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

CASE(green_ids, "each green context has an id of its own")
{
    CUgreenCtx a = green_whole(), b = green_whole();
    unsigned long long a_id = 0, again = 0, b_id = 0;
    IS(cuGreenCtxGetId(a, &a_id), CUDA_SUCCESS);
    IS(cuGreenCtxGetId(b, &b_id), CUDA_SUCCESS);
    OK(cuGreenCtxGetId(a, &again));
    TRUE(a_id == again);
    TRUE(a_id != b_id);
    OK(cuGreenCtxDestroy(a));
    OK(cuGreenCtxDestroy(b));
}

CASE_ALONE(context_limits, "limits are what was set, or more")
{
    size_t value = 0;
    OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    NUM(value);
    IS(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
    OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    EQ(value, 4096);
    IS(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20), CUDA_SUCCESS);
    OK(cuCtxGetLimit(&value, CU_LIMIT_PRINTF_FIFO_SIZE));
    TRUE(value >= 1 << 20);
    IS(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 16 << 20), CUDA_SUCCESS);
    OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
    TRUE(value >= 16 << 20);
}

CASE_ALONE(context_limits_at_first, "the limits a context begins with")
{
    const CUlimit names[] = {CU_LIMIT_STACK_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE,
                             CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT,
                             CU_LIMIT_MAX_L2_FETCH_GRANULARITY};
    for (int i = 0; i < 5; i++) {
        size_t value = 0;
        CUresult r = cuCtxGetLimit(&value, names[i]);
        conform_say("limit %d -> %s %zu", names[i], result_name(r), value);
    }
}

CASE_ALONE(context_cache_config, "the cache preference is what was set")
{
    CUfunc_cache got = (CUfunc_cache)99;
    OK(cuCtxGetCacheConfig(&got));
    NUM(got);
    SEE(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
    OK(cuCtxGetCacheConfig(&got));
    NUM(got);
    SEE(cuCtxSetCacheConfig((CUfunc_cache)7));
    SEE(cuCtxResetPersistingL2Cache());
}

CASE(context_destroyed_takes_its_memory, "what is in a context ends with it")
{
    CUcontext a = NULL;
    CUdeviceptr p = 0, base = 0;
    size_t size = 0;
    OK(cuCtxCreate(&a, NULL, 0, dev));
    OK(cuMemAlloc(&p, 4096));
    IS(cuCtxDestroy(a), CUDA_SUCCESS);
    OK(cuCtxSetCurrent(ctx));
    SEE(cuMemGetAddressRange(&base, &size, p));
}

CASE(context_memory_is_seen_by_others,
     "memory of one context is reached from another of the same device")
{
    CUcontext a = NULL;
    CUdeviceptr w = words(1);
    int value = 5, got = 0;
    OK(cuCtxCreate(&a, NULL, 0, dev));
    IS(cuMemcpyHtoD(w, &value, 4), CUDA_SUCCESS);
    IS(cuMemcpyDtoH(&got, w, 4), CUDA_SUCCESS);
    EQ(got, 5);
    OK(cuCtxDestroy(a));
}

CASE_ALONE(context_reset_makes_anew, "after a reset a retained primary context can be used again")
{
    CUdeviceptr p = 0;
    int active = 99;
    unsigned flags;
    IS(cuDevicePrimaryCtxReset(dev), CUDA_SUCCESS);
    OK(cuDevicePrimaryCtxGetState(dev, &flags, &active));
    EQ(active, 0);
    SEE(cuCtxSynchronize());
    CUcontext again = NULL;
    OK(cuDevicePrimaryCtxRetain(&again, dev));
    OK(cuCtxSetCurrent(again));
    IS(cuMemAlloc(&p, 256), CUDA_SUCCESS);
}

CASE_ALONE(context_sticky_error,
           "a kernel that traps is told by each later call, also to threads that come later")
{
    CUdeviceptr p;
    OK(cuLaunchKernel(function("broken"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    IS(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
    IS(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
    IS(cuMemAlloc(&p, 4), CUDA_ERROR_LAUNCH_FAILED);
    CUevent e = NULL;
    IS(cuEventCreate(&e, 0), CUDA_ERROR_LAUNCH_FAILED);
    size_t value;
    SEE(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    int number;
    IS(cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_WARP_SIZE, dev), CUDA_SUCCESS);
}

CASE(context_plain_error_is_told_once, "an error in arguments is gone with the next call")
{
    CUdeviceptr p;
    IS(cuMemAlloc(&p, 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuCtxSynchronize(), CUDA_SUCCESS);
    IS(cuMemAlloc(&p, 16), CUDA_SUCCESS);
}

static int device_attribute(CUdevice_attribute name)
{
    int value = -1;
    OK(cuDeviceGetAttribute(&value, name, dev));
    return value;
}

CASE_AT(device_fixed_attributes, INIT, "attributes that every device of our days shares")
{
    EQ(device_attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
    EQ(device_attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
    EQ(device_attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X), 1024);
    EQ(device_attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z), 64);
    EQ(device_attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X), 2147483647);
    EQ(device_attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y), 65535);
    EQ(device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK), 49152);
    EQ(device_attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY), 65536);
    EQ(device_attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), 1);
    EQ(device_attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY), 1);
    EQ(device_attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY), 1);
    EQ(device_attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS), 1);
    EQ(device_attribute(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED), 1);
    EQ(device_attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED), 1);
    EQ(device_attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 1);
    EQ(device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED), 1);
    EQ(device_attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED), 0);
    NUM(device_attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT));
    NUM(device_attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK));
    NUM(device_attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH));
}

CASE_AT(device_properties_agree, INIT, "cuDeviceGetProperties and attributes say the same")
{
    CUdevprop p;
    memset(&p, 0, sizeof p);
    IS(cuDeviceGetProperties(&p, dev), CUDA_SUCCESS);
    EQ(p.maxThreadsPerBlock, 1024);
    EQ(p.SIMDWidth, 32);
    EQ(p.sharedMemPerBlock, 49152);
    TRUE(p.clockRate == device_attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE));
    TRUE(p.regsPerBlock == device_attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK));
    TRUE(p.maxGridSize[0] == device_attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X));
    int major = -1, minor = -1;
    IS(cuDeviceComputeCapability(&major, &minor, dev), CUDA_SUCCESS);
    TRUE(major == device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
    TRUE(minor == device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
}

CASE_AT(device_bus_id, INIT, "a device is found again by its bus id, short or long")
{
    char text[32] = "", small[13];
    CUdevice got = 99;
    int domain = 0, bus = 0, slot = 0;
    IS(cuDeviceGetPCIBusId(text, sizeof text, dev), CUDA_SUCCESS);
    EQ(strlen(text), 12);
    IS(cuDeviceGetByPCIBusId(&got, text), CUDA_SUCCESS);
    EQ(got, 0);
    EQ(sscanf(text, "%x:%x:%x", &domain, &bus, &slot), 3);
    TRUE(bus == device_attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID));
    TRUE(slot == device_attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
    TRUE(domain == device_attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID));
    SEE(cuDeviceGetPCIBusId(small, 5, dev));
    IS(cuDeviceGetPCIBusId(small, 13, dev), CUDA_SUCCESS);
    IS(cuDeviceGetByPCIBusId(&got, text + 5), CUDA_SUCCESS);
}

CASE_AT(device_uuid_and_name, INIT, "a device has a name, and one uuid")
{
    char name[256] = "", part[4];
    CUuuid a, b;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    OK(cuDeviceGetName(name, sizeof name, dev));
    TRUE(strlen(name) > 0);
    OK(cuDeviceGetName(part, sizeof part, dev));
    EQ(strlen(part), 3);
    EQ(memcmp(name, part, 3), 0);
    OK(cuDeviceGetUuid(&a, dev));
    OK(cuDeviceGetUuid(&b, dev));
    EQ(memcmp(&a, &b, sizeof a), 0);
    char zero[16] = {0};
    TRUE(memcmp(&a, zero, 16) != 0);
}

CASE_AT(device_peers, INIT, "a device is no peer of its own")
{
    int can = 99, value = 99;
    IS(cuDeviceCanAccessPeer(&can, dev, dev), CUDA_SUCCESS);
    EQ(can, 0);
    SEE(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, dev, dev));
}

CASE_AT(device_atomics_with_itself, INIT, "a device has no atomics with itself as a peer")
{
    CUatomicOperation operation = CU_ATOMIC_OPERATION_INTEGER_ADD;
    unsigned can = 0;
    IS(cuDeviceGetP2PAtomicCapabilities(&can, &operation, 1, dev, dev), CUDA_ERROR_INVALID_DEVICE);
}

CASE_AT(device_versions, BARE, "the driver's version is told before anything else")
{
    int version = 0;
    IS(cuDriverGetVersion(&version), CUDA_SUCCESS);
    TRUE(version >= 12000);
    IS(cuInit(0), CUDA_SUCCESS);
    IS(cuInit(0), CUDA_SUCCESS);
}

CASE_AT(device_texture_width, INIT, "the width of linear textures depends on the element's size")
{
    size_t one = 0, four = 0;
    SEE(cuDeviceGetTexture1DLinearMaxWidth(&one, CU_AD_FORMAT_FLOAT, 1, dev));
    SEE(cuDeviceGetTexture1DLinearMaxWidth(&four, CU_AD_FORMAT_FLOAT, 4, dev));
    TRUE(one > 0 && four > 0 && four <= one);
}

CASE_AT(errors_have_names, BARE, "cuGetErrorName knows the names of all errors")
{
    for (int i = 0; i <= 1000; i++) {
        const char *name = NULL, *text = NULL;
        if (cuGetErrorName((CUresult)i, &name) == CUDA_SUCCESS) {
            CUresult r = cuGetErrorString((CUresult)i, &text);
            conform_say("%d %s, described: %s", i, name,
                        r == CUDA_SUCCESS && text != NULL && text[0] ? "yes" : "no");
        }
    }
    const char *name = (const char *)1;
    IS(cuGetErrorName((CUresult)12345, &name), CUDA_ERROR_INVALID_VALUE);
    TRUE(name == NULL);
    IS(cuGetErrorString((CUresult)12345, &name), CUDA_ERROR_INVALID_VALUE);
}

static void ask(const char *symbol, int version, cuuint64_t flags)
{
    void *found = (void *)1;
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)99;
    CUresult r = cuGetProcAddress(symbol, &found, version, flags, &status);
    conform_say("%s version %d flags %d -> %s, status %d, %s", symbol, version, (int)flags,
                result_name(r), (int)status, found == NULL ? "nothing" : "found");
}

CASE_AT(procs_answers, BARE, "cuGetProcAddress knows symbols, versions and flags")
{
    ask("cuMemAlloc", 12000, 0);
    ask("cuMemAlloc", 3020, 0);
    ask("cuMemAlloc", 2000, 0);
    ask("cuMemAlloc", 1000, 0);
    ask("cuMemAlloc_v2", 12000, 0);
    ask("cuNothing", 12000, 0);
    ask("", 12000, 0);
    ask("cuMemAllocAsync", 11010, 0);
    ask("cuMemAllocAsync", 11020, 0);
    ask("cuGraphAddNode", 12010, 0);
    ask("cuGraphAddNode", 12020, 0);
    ask("cuLaunchKernel", 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    ask("cuLaunchKernel", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    ask("cuInit", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    ask("cuLaunchKernel", 12000, 3);
    ask("cuLaunchKernel", 12000, 64);
    ask("cuGetProcAddress", 12000, 0);
    ask("cuStreamGetCaptureInfo", 12000, 0);
}

CASE_AT(procs_are_those_of_the_library, BARE,
        "cuGetProcAddress gives the entry points that the library exports")
{
    const struct {
        const char *ask;
        int version;
        cuuint64_t flags;
        const char *exported;
    } table[] = {
        {"cuMemAlloc", 2000, 0, "cuMemAlloc"},
        {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
        {"cuLaunchKernel", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
         "cuLaunchKernel_ptsz"},
        {"cuMemcpy", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, "cuMemcpy_ptds"},
        {"cuMemcpyHtoD", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
         "cuMemcpyHtoD_v2_ptds"},
        {"cuStreamGetCaptureInfo", 12000, 0, "cuStreamGetCaptureInfo_v2"},
        {"cuStreamGetCaptureInfo", 12030, 0, "cuStreamGetCaptureInfo_v3"},
        {"cuGraphInstantiate", 12000, 0, "cuGraphInstantiateWithFlags"},
        {"cuGraphExecUpdate", 12000, 0, "cuGraphExecUpdate_v2"},
        {"cuCtxCreate", 3020, 0, "cuCtxCreate_v2"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        void *found = NULL;
        CUdriverProcAddressQueryResult status;
        CUresult r =
            cuGetProcAddress(table[i].ask, &found, table[i].version, table[i].flags, &status);
        conform_say("%s %d -> %s, that of %s: %s", table[i].ask, table[i].version, result_name(r),
                    table[i].exported,
                    found != NULL && found == dlsym(RTLD_DEFAULT, table[i].exported) ? "yes"
                                                                                     : "no");
    }
}
