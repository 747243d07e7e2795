/* SPDX-License-Identifier: Apache-2.0 */
/* After every call that waits for the device, the host sees what kernels wrote: in managed memory,
 * small and large (which the client watches where it may), in mapped and in registered memory.
 *
 * `--list` prints the functions of the API table that are tried; tests/system/test_visible.py
 * compares them with the table. `--waits` says of each call whether it waited for a kernel of 30
 * ms, for a real GPU. */
#include <sys/mman.h>
#include <time.h>

#include "api.h"

enum { KIND_SMALL, KIND_LARGE, KIND_MAPPED, KIND_REGISTERED, KINDS };
enum { SMALL = 4096, LARGE = 8 << 20, WORD = 100, ROW = 1000 };
static const char *const kind_names[KINDS] = {"small managed", "large managed", "mapped",
                                              "registered"};

struct all {
    struct api api;
    CUfunction slow; /* slow(words[4], ns): after a while adds 7 to each */
    CUfunction ask;  /* ask(words): sets the first to 1; to 2 when the second is not 0 */
    int *memory[KINDS];
    CUdeviceptr device[KINDS]; /* the same, as kernels have it */
    uint8_t *host, *pinned;    /* a megabyte each, pageable and page-locked */
    CUdeviceptr plain, other;  /* so much device memory */
    CUarray array;
    CUstream stream; /* the one that the kernel is in; NULL as a rule */
    CUstream own, aside;
    CUevent event, before;
    /* What the next call ends. */
    CUdeviceptr spare;
    void *spare_host;
    CUmodule spare_module;
    CUarray spare_array;
    CUmipmappedArray spare_mipmap;
};
enum { ROOM = 1 << 20 };

static const char slow_ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry slow(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3, "
    ".param .u64 p4)\n{\n"
    ".reg .u64 %a, %n, %from, %now; .reg .u32 %v; .reg .pred %p;\n"
    "ld.param.u64 %n, [p4]; mov.u64 %from, %globaltimer;\n"
    "again: mov.u64 %now, %globaltimer; sub.u64 %now, %now, %from;\n"
    "setp.lt.u64 %p, %now, %n; @%p bra again;\n"
    "ld.param.u64 %a, [p0]; ld.global.u32 %v, [%a]; add.u32 %v, %v, 7; st.global.u32 [%a], %v;\n"
    "ld.param.u64 %a, [p1]; ld.global.u32 %v, [%a]; add.u32 %v, %v, 7; st.global.u32 [%a], %v;\n"
    "ld.param.u64 %a, [p2]; ld.global.u32 %v, [%a]; add.u32 %v, %v, 7; st.global.u32 [%a], %v;\n"
    "ld.param.u64 %a, [p3]; ld.global.u32 %v, [%a]; add.u32 %v, %v, 7; st.global.u32 [%a], %v;\n"
    "ret;\n}\n"
    /* For 10 s at most. */
    ".visible .entry ask(.param .u64 p0)\n{\n"
    ".reg .u64 %a, %from, %now; .reg .u32 %v; .reg .pred %p;\n"
    "ld.param.u64 %a, [p0]; mov.u64 %from, %globaltimer; mov.u32 %v, 1;\n"
    "st.volatile.global.u32 [%a], %v; membar.sys;\n"
    "again: mov.u64 %now, %globaltimer; sub.u64 %now, %now, %from;\n"
    "setp.gt.u64 %p, %now, 10000000000; @%p bra done;\n"
    "ld.volatile.global.u32 %v, [%a+4]; setp.eq.u32 %p, %v, 0; @%p bra again;\n"
    "mov.u32 %v, 2; st.volatile.global.u32 [%a], %v;\n"
    "done: ret;\n}\n";

static CUdeviceptr at(const void *host)
{
    return (CUdeviceptr)(uintptr_t)host;
}

/* ---- the calls ---- */

static CUresult ctx_synchronize(struct all *a)
{
    (void)a;
    return cuCtxSynchronize();
}

static CUresult ctx_synchronize_v2(struct all *a)
{
    return cuCtxSynchronize_v2(a->api.context);
}

static CUresult stream_synchronize(struct all *a)
{
    return cuStreamSynchronize(a->stream);
}

static CUresult stream_query(struct all *a)
{
    CUresult status;
    while ((status = cuStreamQuery(a->stream)) == CUDA_ERROR_NOT_READY) {
    }
    return status;
}

static CUresult event_synchronize(struct all *a)
{
    OK(cuEventRecord(a->event, a->stream));
    return cuEventSynchronize(a->event);
}

static CUresult event_query(struct all *a)
{
    CUresult status;
    OK(cuEventRecord(a->event, a->stream));
    while ((status = cuEventQuery(a->event)) == CUDA_ERROR_NOT_READY) {
    }
    return status;
}

static CUresult elapsed(struct all *a, CUresult (*ask)(float *, CUevent, CUevent))
{
    CUresult status;
    float took;
    OK(cuEventRecord(a->event, a->stream));
    while ((status = ask(&took, a->before, a->event)) == CUDA_ERROR_NOT_READY) {
    }
    return status;
}

#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end);

static CUresult event_elapsed(struct all *a)
{
    return elapsed(a, cuEventElapsedTime);
}

static CUresult event_elapsed_v2(struct all *a)
{
    return elapsed(a, cuEventElapsedTime_v2);
}

/* Copies of several sizes: inside a command, in one piece of the staging, in several. */
static CUresult down_4(struct all *a)
{
    return cuMemcpyDtoH(a->host, a->plain, 4);
}

static CUresult down_100k(struct all *a)
{
    return cuMemcpyDtoH(a->host, a->plain, 100000);
}

static CUresult down_all(struct all *a)
{
    return cuMemcpyDtoH(a->host, a->plain, ROOM);
}

static CUresult down_pinned(struct all *a)
{
    return cuMemcpyDtoH(a->pinned, a->plain, ROOM);
}

static CUresult down_small(struct all *a)
{
    return cuMemcpyDtoH(a->host, a->device[KIND_SMALL], SMALL);
}

static CUresult down_large(struct all *a)
{
    return cuMemcpyDtoH(a->host, a->device[KIND_LARGE], ROOM);
}

static CUresult down_mapped(struct all *a)
{
    return cuMemcpyDtoH(a->host, a->device[KIND_MAPPED], SMALL);
}

static CUresult up_all(struct all *a)
{
    return cuMemcpyHtoD(a->plain, a->host, ROOM);
}

static CUresult up_pinned(struct all *a)
{
    return cuMemcpyHtoD(a->plain, a->pinned, ROOM);
}

static CUresult up_large(struct all *a)
{
    return cuMemcpyHtoD(a->device[KIND_LARGE] + ROOM, a->host, ROOM);
}

static CUresult unified_down(struct all *a)
{
    return cuMemcpy(at(a->host), a->plain, ROOM);
}

static CUresult unified_down_large(struct all *a)
{
    return cuMemcpy(at(a->host), a->device[KIND_LARGE], ROOM);
}

static CUresult unified_up(struct all *a)
{
    return cuMemcpy(a->plain, at(a->pinned), ROOM);
}

static CUresult unified_managed(struct all *a)
{
    return cuMemcpy(a->plain, a->device[KIND_LARGE], ROOM);
}

/* Into pageable memory a copy in stream order is done when it returns. */
static CUresult async_down(struct all *a)
{
    return cuMemcpyDtoHAsync(a->host, a->plain, 100000, a->stream);
}

static CUresult async_down_all(struct all *a)
{
    return cuMemcpyDtoHAsync(a->host, a->device[KIND_LARGE], ROOM, a->stream);
}

static CUresult unified_async_down(struct all *a)
{
    return cuMemcpyAsync(at(a->host), a->plain, ROOM, a->stream);
}

static CUDA_MEMCPY2D rows_down(struct all *a)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = a->plain,
                           .srcPitch = ROW + 24,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = a->host,
                           .dstPitch = ROW,
                           .WidthInBytes = ROW,
                           .Height = 500};
}

static CUDA_MEMCPY2D rows_up(struct all *a)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = a->pinned,
                           .srcPitch = ROW + 24,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = a->plain,
                           .dstPitch = ROW,
                           .WidthInBytes = ROW,
                           .Height = 500};
}

static CUresult box_down(struct all *a)
{
    CUDA_MEMCPY2D p = rows_down(a);
    return cuMemcpy2D(&p);
}

static CUresult box_down_few(struct all *a)
{
    CUDA_MEMCPY2D p = rows_down(a);
    p.Height = 5;
    return cuMemcpy2D(&p);
}

static CUresult box_up(struct all *a)
{
    CUDA_MEMCPY2D p = rows_up(a);
    return cuMemcpy2D(&p);
}

static CUresult box_unaligned_down(struct all *a)
{
    CUDA_MEMCPY2D p = rows_down(a);
    return cuMemcpy2DUnaligned(&p);
}

static CUresult box_async_down(struct all *a)
{
    CUDA_MEMCPY2D p = rows_down(a);
    return cuMemcpy2DAsync(&p, a->stream);
}

static CUDA_MEMCPY3D slices_down(struct all *a)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = a->plain,
                           .srcPitch = ROW + 24,
                           .srcHeight = 110,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = a->host,
                           .dstPitch = ROW,
                           .dstHeight = 100,
                           .WidthInBytes = ROW,
                           .Height = 100,
                           .Depth = 4};
}

static CUresult slices(struct all *a)
{
    CUDA_MEMCPY3D p = slices_down(a);
    return cuMemcpy3D(&p);
}

static CUresult slices_async(struct all *a)
{
    CUDA_MEMCPY3D p = slices_down(a);
    return cuMemcpy3DAsync(&p, a->stream);
}

static CUDA_MEMCPY3D_PEER peer_down(struct all *a)
{
    return (CUDA_MEMCPY3D_PEER){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = a->plain,
                                .srcContext = a->api.context,
                                .srcPitch = ROW + 24,
                                .srcHeight = 110,
                                .dstMemoryType = CU_MEMORYTYPE_HOST,
                                .dstHost = a->host,
                                .dstContext = a->api.context,
                                .dstPitch = ROW,
                                .dstHeight = 100,
                                .WidthInBytes = ROW,
                                .Height = 100,
                                .Depth = 4};
}

static CUresult peer_slices(struct all *a)
{
    CUDA_MEMCPY3D_PEER p = peer_down(a);
    return cuMemcpy3DPeer(&p);
}

static CUresult peer_slices_async(struct all *a)
{
    CUDA_MEMCPY3D_PEER p = peer_down(a);
    return cuMemcpy3DPeerAsync(&p, a->stream);
}

static CUresult peer_managed(struct all *a)
{
    return cuMemcpyPeer(a->device[KIND_LARGE] + ROOM, a->api.context, a->plain, a->api.context,
                        SMALL);
}

static CUresult array_down(struct all *a)
{
    return cuMemcpyAtoH(a->host, a->array, 0, 256 << 10);
}

static CUresult array_up(struct all *a)
{
    return cuMemcpyHtoA(a->array, 0, a->pinned, 256 << 10);
}

static CUresult array_async_down(struct all *a)
{
    return cuMemcpyAtoHAsync(a->host, a->array, 0, 256 << 10, a->stream);
}

/* Fills are waited for where the host can look at what they fill. */
static CUresult fill_8(struct all *a)
{
    return cuMemsetD8(a->device[KIND_LARGE] + ROOM, 1, 4096);
}

static CUresult fill_16(struct all *a)
{
    return cuMemsetD16(a->device[KIND_LARGE] + ROOM, 1, 4096);
}

static CUresult fill_32(struct all *a)
{
    return cuMemsetD32(a->device[KIND_MAPPED] + SMALL / 2, 1, 16);
}

static CUresult fill_rows_8(struct all *a)
{
    return cuMemsetD2D8(a->device[KIND_LARGE] + ROOM, 512, 1, 100, 8);
}

static CUresult fill_rows_16(struct all *a)
{
    return cuMemsetD2D16(a->device[KIND_LARGE] + ROOM, 512, 1, 100, 8);
}

static CUresult fill_rows_32(struct all *a)
{
    return cuMemsetD2D32(a->device[KIND_LARGE] + ROOM, 512, 1, 100, 8);
}

static CUresult free_device(struct all *a)
{
    return cuMemFree(a->spare);
}

static void make_device(struct all *a)
{
    OK(cuMemAlloc(&a->spare, ROOM));
}

static void make_managed(struct all *a)
{
    OK(cuMemAllocManaged(&a->spare, ROOM, CU_MEM_ATTACH_GLOBAL));
}

static void make_host(struct all *a)
{
    OK(cuMemHostAlloc(&a->spare_host, ROOM, 0));
}

static CUresult free_host(struct all *a)
{
    return cuMemFreeHost(a->spare_host);
}

static void make_registered(struct all *a)
{
    a->spare_host = aligned_alloc(4096, ROOM);
    OK(cuMemHostRegister(a->spare_host, ROOM, 0));
}

static CUresult unregister(struct all *a)
{
    CUresult status = cuMemHostUnregister(a->spare_host);
    free(a->spare_host);
    return status;
}

static void make_module(struct all *a)
{
    OK(cuModuleLoadData(&a->spare_module, slow_ptx));
}

static CUresult unload_module(struct all *a)
{
    return cuModuleUnload(a->spare_module);
}

static void make_array(struct all *a)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {
        .Width = 256, .Height = 256, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    OK(cuArray3DCreate(&a->spare_array, &d));
}

static CUresult destroy_array(struct all *a)
{
    return cuArrayDestroy(a->spare_array);
}

static void make_mipmap(struct all *a)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {
        .Width = 64, .Height = 64, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    OK(cuMipmappedArrayCreate(&a->spare_mipmap, &d, 2));
}

static CUresult destroy_mipmap(struct all *a)
{
    return cuMipmappedArrayDestroy(a->spare_mipmap);
}

/* ---- trying them ---- */

static const struct call {
    const char *name, *form; /* the table's, and with what */
    CUresult (*call)(struct all *a);
    void (*make)(struct all *a); /* what it ends, if it does */
} calls[] = {
    {"cuCtxSynchronize", "", ctx_synchronize, NULL},
    {"cuCtxSynchronize_v2", "", ctx_synchronize_v2, NULL},
    {"cuStreamSynchronize", "", stream_synchronize, NULL},
    {"cuStreamQuery", "", stream_query, NULL},
    {"cuEventSynchronize", "", event_synchronize, NULL},
    {"cuEventSynchronize", "again", event_synchronize, NULL}, /* watched by now */
    {"cuEventQuery", "", event_query, NULL},
    {"cuEventQuery", "again", event_query, NULL},
    {"cuEventElapsedTime", "", event_elapsed, NULL},
    {"cuEventElapsedTime_v2", "", event_elapsed_v2, NULL},
    {"cuMemcpyDtoH_v2", "4 bytes", down_4, NULL},
    {"cuMemcpyDtoH_v2", "100,000 bytes", down_100k, NULL},
    {"cuMemcpyDtoH_v2", "1 MiB", down_all, NULL},
    {"cuMemcpyDtoH_v2", "to page-locked memory", down_pinned, NULL},
    {"cuMemcpyDtoH_v2", "of small managed memory", down_small, NULL},
    {"cuMemcpyDtoH_v2", "of large managed memory", down_large, NULL},
    {"cuMemcpyDtoH_v2", "of mapped memory", down_mapped, NULL},
    {"cuMemcpyHtoD_v2", "1 MiB", up_all, NULL},
    {"cuMemcpyHtoD_v2", "from page-locked memory", up_pinned, NULL},
    {"cuMemcpyHtoD_v2", "to large managed memory", up_large, NULL},
    {"cuMemcpy", "to the host", unified_down, NULL},
    {"cuMemcpy", "of large managed memory", unified_down_large, NULL},
    {"cuMemcpy", "from page-locked memory", unified_up, NULL},
    {"cuMemcpy", "from managed to device memory", unified_managed, NULL},
    {"cuMemcpyDtoHAsync_v2", "to pageable memory", async_down, NULL},
    {"cuMemcpyDtoHAsync_v2", "of large managed memory", async_down_all, NULL},
    {"cuMemcpyAsync", "to pageable memory", unified_async_down, NULL},
    {"cuMemcpy2D_v2", "to the host", box_down, NULL},
    {"cuMemcpy2D_v2", "a few rows to the host", box_down_few, NULL},
    {"cuMemcpy2D_v2", "from page-locked memory", box_up, NULL},
    {"cuMemcpy2DUnaligned_v2", "to the host", box_unaligned_down, NULL},
    {"cuMemcpy2DAsync_v2", "to pageable memory", box_async_down, NULL},
    {"cuMemcpy3D_v2", "to the host", slices, NULL},
    {"cuMemcpy3DAsync_v2", "to pageable memory", slices_async, NULL},
    {"cuMemcpy3DPeer", "to the host", peer_slices, NULL},
    {"cuMemcpy3DPeerAsync", "to pageable memory", peer_slices_async, NULL},
    {"cuMemcpyPeer", "to managed memory", peer_managed, NULL},
    {"cuMemcpyAtoH_v2", "", array_down, NULL},
    {"cuMemcpyHtoA_v2", "from page-locked memory", array_up, NULL},
    {"cuMemcpyAtoHAsync_v2", "to pageable memory", array_async_down, NULL},
    {"cuMemsetD8_v2", "managed memory", fill_8, NULL},
    {"cuMemsetD16_v2", "managed memory", fill_16, NULL},
    {"cuMemsetD32_v2", "mapped memory", fill_32, NULL},
    {"cuMemsetD2D8_v2", "managed memory", fill_rows_8, NULL},
    {"cuMemsetD2D16_v2", "managed memory", fill_rows_16, NULL},
    {"cuMemsetD2D32_v2", "managed memory", fill_rows_32, NULL},
    {"cuMemFree_v2", "device memory", free_device, make_device},
    {"cuMemFree_v2", "managed memory", free_device, make_managed},
    {"cuMemFreeHost", "", free_host, make_host},
    {"cuMemHostUnregister", "", unregister, make_registered},
    {"cuModuleUnload", "", unload_module, make_module},
    {"cuArrayDestroy", "", destroy_array, make_array},
    {"cuMipmappedArrayDestroy", "", destroy_mipmap, make_mipmap},
};
enum { CALLS = sizeof calls / sizeof calls[0] };

static void launch(struct all *a, uint64_t ns)
{
    CUdeviceptr words[KINDS];
    void *params[KINDS + 1];
    for (int i = 0; i < KINDS; i++) {
        words[i] = a->device[i] + WORD * sizeof(int);
        params[i] = &words[i];
    }
    params[KINDS] = &ns;
    OK(cuLaunchKernel(a->slow, 1, 1, 1, 1, 1, 1, 0, a->stream, params, NULL));
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void see(struct all *a, const struct call *call, int value)
{
    for (int i = 0; i < KINDS; i++) {
        int found = ((volatile int *)a->memory[i])[WORD];
        if (found != value) {
            printf("%s %s, %s stream: %s memory has %d, not %d\n", call->name, call->form,
                   a->stream == NULL     ? "the default"
                   : a->stream == a->own ? "a blocking"
                                         : "a non-blocking",
                   kind_names[i], found, value);
            api_failures++;
        }
    }
}

/* Host and kernel write the same words in turns; the call is all that is between them. */
static void try_call(struct all *a, const struct call *call)
{
    /* Two kernels that are over when somebody looks, and one that takes longer than that. */
    static const uint64_t ns[] = {0, 0, 3000000};
    for (int round = 0; round < 3; round++) {
        int value = round * 1000;
        if (call->make != NULL) {
            call->make(a);
        }
        for (int i = 0; i < KINDS; i++) {
            a->memory[i][WORD] = value;
        }
        OK(cuEventRecord(a->before, a->stream));
        launch(a, ns[round]);
        CUresult status = call->call(a);
        if (status != CUDA_SUCCESS) {
            printf("%s %s: error %d\n", call->name, call->form, status);
            api_failures++;
        }
        see(a, call, value + 7);
    }
}

static void say_whether_it_waits(struct all *a, const struct call *call)
{
    if (call->make != NULL) {
        call->make(a);
    }
    OK(cuCtxSynchronize());
    OK(cuEventRecord(a->before, a->stream));
    launch(a, 30000000);
    double begun = now_ms();
    CUresult status = call->call(a);
    double took = now_ms() - begun;
    printf("%s %s (%s): %s, %d\n", call->name, call->form, a->stream == NULL ? "default" : "own",
           took > 25 ? "waits" : "does not wait", status);
    cuCtxSynchronize();
}

/* A kernel says how far it is, and goes on when the host has answered: who polls sees it, as on
 * hardware, and so does the kernel. */
static void progress(struct all *a, CUstream stream, bool by_event)
{
    for (int i = 0; i < KINDS; i++) {
        volatile int *words = a->memory[i];
        CUdeviceptr address = a->device[i];
        void *params[] = {&address};
        double begun = now_ms();
        CUresult status = CUDA_ERROR_NOT_READY;
        words[0] = words[1] = 0;
        OK(cuLaunchKernel(a->ask, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
        OK(cuEventRecord(a->event, stream));
        while (words[0] == 0 && status == CUDA_ERROR_NOT_READY && now_ms() - begun < 20000) {
            status = by_event ? cuEventQuery(a->event) : cuStreamQuery(stream);
        }
        EQUAL(status, CUDA_ERROR_NOT_READY);
        EQUAL(words[0], 1);
        __atomic_store_n(&words[1], 1, __ATOMIC_RELAXED); /* a kernel waits for it */
        while ((status = by_event ? cuEventQuery(a->event) : cuStreamQuery(stream)) ==
               CUDA_ERROR_NOT_READY) {
        }
        OK(status);
        EQUAL(words[0], 2);
    }
}

static void make(struct all *a)
{
    CUmodule module;
    CUdeviceptr managed[2];
    CUDA_ARRAY_DESCRIPTOR d = {65536, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1};
    OK(cuModuleLoadData(&module, slow_ptx));
    OK(cuModuleGetFunction(&a->slow, module, "slow"));
    OK(cuModuleGetFunction(&a->ask, module, "ask"));
    OK(cuMemAllocManaged(&managed[0], SMALL, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocManaged(&managed[1], LARGE, CU_MEM_ATTACH_GLOBAL));
    a->memory[KIND_SMALL] = (int *)(uintptr_t)managed[0];
    a->memory[KIND_LARGE] = (int *)(uintptr_t)managed[1];
    OK(cuMemHostAlloc((void **)&a->memory[KIND_MAPPED], SMALL, CU_MEMHOSTALLOC_DEVICEMAP));
    /* Not of the heap, where the worker may have its own. */
    a->memory[KIND_REGISTERED] =
        mmap(NULL, SMALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OK(cuMemHostRegister(a->memory[KIND_REGISTERED], SMALL, CU_MEMHOSTREGISTER_DEVICEMAP));
    for (int i = 0; i < KINDS; i++) {
        a->device[i] = at(a->memory[i]);
    }
    OK(cuMemHostGetDevicePointer(&a->device[KIND_MAPPED], a->memory[KIND_MAPPED], 0));
    OK(cuMemHostGetDevicePointer(&a->device[KIND_REGISTERED], a->memory[KIND_REGISTERED], 0));
    a->host = calloc(1, ROOM);
    OK(cuMemHostAlloc((void **)&a->pinned, ROOM, 0));
    OK(cuMemAlloc(&a->plain, ROOM));
    OK(cuMemAlloc(&a->other, ROOM));
    OK(cuArrayCreate(&a->array, &d));
    OK(cuStreamCreate(&a->own, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&a->aside, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&a->event, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&a->before, CU_EVENT_DEFAULT));
}

/* Calls that take a stream, and those that end all of a context's work, whichever it is in. */
static bool takes_streams(const struct call *call)
{
    return strstr(call->name, "Async") != NULL || strncmp(call->name, "cuStream", 8) == 0 ||
           strncmp(call->name, "cuEvent", 7) == 0 || strncmp(call->name, "cuCtx", 5) == 0;
}

int main(int argc, char **argv)
{
    static struct all a;
    bool waits = argc > 1 && strcmp(argv[1], "--waits") == 0;
    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < CALLS; i++) {
            printf("%s\n", calls[i].name);
        }
        return 0;
    }
    api_begin(&a.api);
    make(&a);
    CUstream streams[] = {NULL, a.own, a.aside};
    for (size_t i = 0; i < CALLS && (waits || api_failures < 100); i++) {
        for (int s = 0; s < (takes_streams(&calls[i]) && !waits ? 3 : 1); s++) {
            a.stream = streams[s];
            (waits ? say_whether_it_waits : try_call)(&a, &calls[i]);
        }
    }
    if (!waits) {
        progress(&a, NULL, false);
        progress(&a, a.aside, true);
    }
    return api_end(&a.api);
}
