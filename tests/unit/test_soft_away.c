/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the software GPU that is put out and in again: every kind of it. */
#include "base/mutex.h"
#include "soft_lib.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/soft/ground/state.h"
#include "base/clock.h"
#include "gen/copy.h"
#include "gen/event.h"
#include "gen/graph.h"
#include "gen/memory.h"
#include "gen/pool.h"
#include "gen/stream.h"
#include "gen/texture.h"
#include "gen/vmm.h"

#define SOON (tow_time_now_ns() + 100 * TOW_TIME_MS)
#define LATE (tow_time_now_ns() + 20 * TOW_TIME_S)

static char why[256];
static uint64_t saved;

static size_t gpu_used(void)
{
    size_t left, total;
    OK(tow_drive(cu, cuMemGetInfo_v2)(&left, &total));
    return total - left;
}

static int make_file(void)
{
    int fd = memfd_create("away", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    return fd;
}

static void put_out_and_in(void)
{
    int fd = make_file();
    size_t used = gpu_used();
    assert_int_equal(backend.away->lock(LATE, why, sizeof why), 0);
    assert_int_equal(backend.away->save(fd, &saved, why, sizeof why), 0);
    assert_int_equal(saved, used);
    assert_int_equal(tow_soft.devices[0].own_used, 0);
    assert_int_equal(backend.away->load(fd, why, sizeof why), 0);
    assert_int_equal(backend.away->unlock(why, sizeof why), 0);
    struct stat file;
    assert_int_equal(fstat(fd, &file), 0);
    assert_int_equal(file.st_blocks, 0); /* what was read again is not held twice */
    close(fd);
    assert_int_equal(gpu_used(), used);
}

/* Bytes that tell where they are. */
static void fill_with(CUdeviceptr at, size_t size, unsigned char seed)
{
    unsigned char *bytes = malloc(size);
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)(seed + i * 7 + (i >> 12));
    }
    OK(tow_drive(cu, cuMemcpyHtoD_v2)(at, bytes, size));
    free(bytes);
}

static void check_for(CUdeviceptr at, size_t size, unsigned char seed)
{
    unsigned char *bytes = malloc(size);
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(bytes, at, size));
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != (unsigned char)(seed + i * 7 + (i >> 12))) {
            fail_msg("byte %zu of 0x%llx differs", i, (unsigned long long)at);
        }
    }
    free(bytes);
}

static void plain_memory_is_as_before(void **state)
{
    (void)state;
    CUdeviceptr small[3], large, empty, pitched;
    size_t pitch;
    for (int i = 0; i < 3; i++) {
        OK(tow_drive(cu, cuMemAlloc_v2)(&small[i], 1000));
        fill_with(small[i], 1000, (unsigned char)i);
    }
    OK(tow_drive(cu, cuMemAlloc_v2)(&large, 5 * MIB + 123));
    OK(tow_drive(cu, cuMemAlloc_v2)(&empty, 64 * MIB));
    OK(tow_drive(cu, cuMemAllocPitch_v2)(&pitched, &pitch, 1000, 3000, 4));
    fill_with(large, 5 * MIB + 123, 77);
    fill_with(pitched, pitch * 3000, 5);
    fill_with(empty + 40 * MIB, 10, 9); /* a little in the midst of nothing */
    OK(tow_drive(cu, cuMemFree_v2)(small[1]));
    for (int round = 0; round < 3; round++) {
        put_out_and_in();
        check_for(small[0], 1000, 0);
        check_for(small[2], 1000, 2);
        check_for(large, 5 * MIB + 123, 77);
        check_for(pitched, pitch * 3000, 5);
        check_for(empty + 40 * MIB, 10, 9);
    }
    OK(tow_drive(cu, cuMemFree_v2)(large));
    put_out_and_in();
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemFree_v2)(small[1]));
}

static void variables_and_functions_are_as_before(void **state)
{
    (void)state;
    CUmodule module = soft_module();
    CUfunction increment = soft_function(module, "increment");
    CUdeviceptr counter;
    unsigned value = 0;
    OK(tow_drive(cu, cuModuleGetGlobal_v2)(&counter, NULL, module, "counter"));
    void *params[] = {&counter};
    for (unsigned i = 8; i < 11; i++) {
        OK(soft_launch(increment, 1, 1, NULL, params));
        put_out_and_in();
        OK(tow_drive(cu, cuMemcpyDtoH_v2)(&value, counter, 4));
        assert_int_equal(value, i);
    }
}

static void memory_of_pools_and_mappings_is_as_before(void **state)
{
    (void)state;
    CUstream stream;
    CUmemoryPool pools[2];
    CUdeviceptr of_default, of_pool[2], va;
    CUmemGenericAllocationHandle mapped, unmapped;
    OK(tow_drive(cu, cuStreamCreate)(&stream, 0));
    OK(tow_drive(cu, cuMemAllocAsync)(&of_default, 3 * MIB, stream));
    for (int i = 0; i < 2; i++) {
        CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .handleTypes = i == 1 ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                      : CU_MEM_HANDLE_TYPE_NONE,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
        OK(tow_drive(cu, cuMemPoolCreate)(&pools[i], &props));
        OK(tow_drive(cu, cuMemAllocFromPoolAsync)(&of_pool[i], 3 * MIB, pools[i], stream));
    }
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(tow_drive(cu, cuMemAddressReserve)(&va, 8 * MIB, 0, 0, 0));
    OK(tow_drive(cu, cuMemCreate)(&mapped, 4 * MIB, &prop, 0));
    OK(tow_drive(cu, cuMemCreate)(&unmapped, 2 * MIB, &prop, 0));
    OK(tow_drive(cu, cuMemMap)(va, 4 * MIB, 0, mapped, 0));
    OK(tow_drive(cu, cuMemMap)(va + 4 * MIB, 2 * MIB, 0, unmapped, 0));
    OK(tow_drive(cu, cuMemSetAccess)(va, 6 * MIB, &access, 1));
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    fill_with(of_default, 3 * MIB, 1);
    fill_with(of_pool[0], 3 * MIB, 2);
    fill_with(of_pool[1], 3 * MIB, 3);
    fill_with(va, 4 * MIB, 4);
    fill_with(va + 4 * MIB, 2 * MIB, 5);
    OK(tow_drive(cu, cuMemUnmap)(va + 4 * MIB, 2 * MIB));
    put_out_and_in();
    OK(tow_drive(cu, cuMemMap)(va + 6 * MIB, 2 * MIB, 0, unmapped, 0));
    OK(tow_drive(cu, cuMemSetAccess)(va + 6 * MIB, 2 * MIB, &access, 1));
    check_for(of_default, 3 * MIB, 1);
    check_for(of_pool[0], 3 * MIB, 2);
    check_for(of_pool[1], 3 * MIB, 3);
    check_for(va, 4 * MIB, 4);
    check_for(va + 6 * MIB, 2 * MIB, 5);
    OK(tow_drive(cu, cuMemFreeAsync)(of_pool[1], stream));
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    put_out_and_in();
}

static void arrays_and_graphs_are_as_before(void **state)
{
    (void)state;
    CUDA_ARRAY_DESCRIPTOR desc = {
        .Width = 1 << 20, .Height = 0, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    desc.Width = 65536;
    CUarray array;
    unsigned words[1000], back[1000];
    for (unsigned i = 0; i < 1000; i++) {
        words[i] = i * 2654435761u;
    }
    OK(tow_drive(cu, cuArrayCreate_v2)(&array, &desc));
    OK(tow_drive(cu, cuMemcpyHtoA_v2)(array, 4000, words, sizeof words));
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
                                        .bytesize = 4 * MIB};
    OK(tow_drive(cu, cuGraphCreate)(&graph, 0));
    OK(tow_drive(cu, cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &alloc));
    OK(tow_drive(cu, cuGraphInstantiateWithFlags)(&exec, graph, 0));
    OK(tow_drive(cu, cuGraphLaunch)(exec, NULL));
    OK(tow_drive(cu, cuCtxSynchronize)());
    fill_with(alloc.dptr, 4 * MIB, 12);
    put_out_and_in();
    check_for(alloc.dptr, 4 * MIB, 12);
    OK(tow_drive(cu, cuMemcpyAtoH_v2)(back, array, 4000, sizeof back));
    assert_memory_equal(back, words, sizeof words);
    OK(tow_drive(cu, cuMemFree_v2)(alloc.dptr));
    OK(tow_drive(cu, cuGraphLaunch)(exec, NULL));
    OK(tow_drive(cu, cuCtxSynchronize)());
    put_out_and_in();
}

static void what_runs_is_named(void **state)
{
    (void)state;
    CUdeviceptr word;
    CUstream stream;
    OK(tow_drive(cu, cuMemAlloc_v2)(&word, 4));
    OK(tow_drive(cu, cuMemsetD32_v2)(word, 0, 1));
    OK(tow_drive(cu, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    void *params[] = {&word};
    OK(soft_launch(soft_function(soft_module(), "spin"), 1, 1, stream, params));
    assert_int_equal(backend.away->lock(SOON, why, sizeof why), -ETIMEDOUT);
    assert_string_equal(why, "kernel spin runs");
    OK(tow_drive(cu, cuStreamWriteValue32_v2)(NULL, word, 1, 0)); /* it goes on */
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    OK(tow_drive(cu, cuStreamWaitValue32_v2)(stream, word, 2, CU_STREAM_WAIT_VALUE_EQ));
    assert_int_equal(backend.away->lock(SOON, why, sizeof why), -ETIMEDOUT);
    assert_string_equal(why, "a stream waits for a value in memory");
    OK(tow_drive(cu, cuMemsetD32_v2)(word, 2, 1));
    put_out_and_in();
}

static atomic_int began, ended;

static void host_function(void *user)
{
    (void)user;
    atomic_store(&began, 1);
    while (atomic_load(&ended) == 0) {
        sched_yield();
    }
}

static void a_host_function_is_waited_for(void **state)
{
    (void)state;
    CUstream stream;
    OK(tow_drive(cu, cuStreamCreate)(&stream, 0));
    OK(tow_drive(cu, cuLaunchHostFunc)(stream, host_function, NULL));
    while (atomic_load(&began) == 0) {
        sched_yield();
    }
    assert_int_equal(backend.away->lock(SOON, why, sizeof why), -ETIMEDOUT);
    assert_string_equal(why, "a host function in a stream has not ended");
    atomic_store(&ended, 1);
    put_out_and_in();
}

static atomic_int called;

static void *make_call(void *user)
{
    CUdeviceptr *memory = user;
    atomic_store(&called, 1);
    OK(tow_drive(cu, cuCtxSetCurrent)(context));
    check_for(*memory, MIB, 3);
    atomic_store(&called, 2);
    return NULL;
}

static void whoever_calls_meanwhile_waits(void **state)
{
    (void)state;
    CUdeviceptr memory;
    pthread_t thread;
    int fd = make_file();
    OK(tow_drive(cu, cuMemAlloc_v2)(&memory, MIB));
    fill_with(memory, MIB, 3);
    atomic_store(&called, 0);
    assert_int_equal(backend.away->lock(LATE, why, sizeof why), 0);
    assert_int_equal(backend.away->save(fd, &saved, why, sizeof why), 0);
    assert_int_equal(pthread_create(&thread, NULL, make_call, &memory), 0);
    while (atomic_load(&called) == 0) {
        sched_yield();
    }
    assert_int_equal(backend.away->load(fd, why, sizeof why), 0);
    assert_int_equal(atomic_load(&called), 1);
    assert_int_equal(backend.away->unlock(why, sizeof why), 0);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&called), 2);
    close(fd);
}

static void without_room_all_is_as_before(void **state)
{
    (void)state;
    CUdeviceptr memory[2];
    for (int i = 0; i < 2; i++) {
        OK(tow_drive(cu, cuMemAlloc_v2)(&memory[i], 4 * MIB));
        fill_with(memory[i], 4 * MIB, (unsigned char)i);
    }
    size_t used = gpu_used();
    int closed = open("/dev/null", O_RDONLY | O_CLOEXEC), sealed = make_file();
    assert_int_equal(ftruncate(sealed, 4 * MIB), 0);
    assert_int_equal(fcntl(sealed, F_ADD_SEALS, F_SEAL_GROW), 0);
    assert_int_equal(backend.away->lock(LATE, why, sizeof why), 0);
    assert_true(backend.away->save(closed, &saved, why, sizeof why) < 0);
    assert_true(backend.away->save(sealed, &saved, why, sizeof why) < 0);
    assert_non_null(strstr(why, "its memory cannot be kept: "));
    assert_int_equal(backend.away->unlock(why, sizeof why), 0);
    assert_int_equal(gpu_used(), used);
    check_for(memory[0], 4 * MIB, 0);
    check_for(memory[1], 4 * MIB, 1);
    close(closed);
    close(sealed);
}

static void what_others_have_is_not_put_out(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle memory;
    int fd;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    OK(tow_drive(cu, cuMemCreate)(&memory, 2 * MIB, &prop, 0));
    put_out_and_in(); /* nobody was given it yet */
    OK(tow_drive(cu, cuMemExportToShareableHandle)(&fd, memory,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    assert_int_equal(backend.away->lock(LATE, why, sizeof why), -EOPNOTSUPP);
    assert_string_equal(why, "it shares GPU memory with other programs");
    OK(tow_drive(cu, cuCtxSynchronize)());
    close(fd);
    OK(tow_drive(cu, cuMemRelease)(memory));
    put_out_and_in();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, soft_setup, soft_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(plain_memory_is_as_before),
        TEST(variables_and_functions_are_as_before),
        TEST(memory_of_pools_and_mappings_is_as_before),
        TEST(arrays_and_graphs_are_as_before),
        TEST(what_runs_is_named),
        TEST(a_host_function_is_waited_for),
        TEST(whoever_calls_meanwhile_waits),
        TEST(without_room_all_is_as_before),
        TEST(what_others_have_is_not_put_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
