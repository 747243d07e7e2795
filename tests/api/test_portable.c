/* SPDX-License-Identifier: Apache-2.0 */
/* Page-locked memory in the contexts of two devices, of one server or of two: with unified
 * addressing it is page-locked and reachable in both, wherever it was made. Without a second device
 * there is nothing to test. */
#include <pthread.h>
#include <sys/mman.h>

#include "api.h"

enum { COUNT = 30000, BYTES = COUNT * sizeof(int), LARGE = 12 << 20, ROUNDS = 4 };

static struct api apis[2];
static CUstream streams[2];
static CUdeviceptr memory[2];

static void use(int device)
{
    OK(cuCtxSetCurrent(apis[device].context));
}

static void fill(int *words, int value)
{
    for (int i = 0; i < COUNT; i++) {
        words[i] = value + i;
    }
}

static void expect(const int *words, int value)
{
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        wrong += words[i] != value + i;
    }
    EQUAL(wrong, 0);
}

static int *make(int device)
{
    void *at = NULL;
    use(device);
    OK(cuMemHostAlloc(&at, BYTES, CU_MEMHOSTALLOC_PORTABLE));
    return at;
}

/* Up and down again at the device, by its stream and by none, while the other one's context is
 * where the memory was made. */
static void copies_are_made_in_either(int *words, int device)
{
    use(device);
    fill(words, 100);
    OK(cuMemcpyHtoDAsync(memory[device], words, BYTES, streams[device]));
    OK(api_add(&apis[device], memory[device], COUNT, 5, streams[device]));
    OK(cuMemcpyDtoHAsync(words, memory[device], BYTES, streams[device]));
    OK(cuStreamSynchronize(streams[device]));
    expect(words, 105);
    fill(words, 200);
    OK(cuMemcpyHtoD(memory[device], words, BYTES));
    OK(api_add(&apis[device], memory[device], COUNT, 7, NULL));
    OK(cuMemcpyDtoH(words, memory[device], BYTES));
    expect(words, 207);
}

/* Kernels of both read and write it in turn, and so does the program. */
static void kernels_of_both_reach_it(int *words)
{
    int value = 300;
    fill(words, value);
    for (int round = 0; round < ROUNDS; round++) {
        for (int device = 0; device < 2; device++) {
            CUdeviceptr at = 0;
            use(device);
            OK(cuMemHostGetDevicePointer(&at, words, 0));
            OK(api_add(&apis[device], at, COUNT, 1 + round, streams[device]));
            OK(round % 2 == 0 ? cuCtxSynchronize() : cuStreamSynchronize(streams[device]));
            value += 1 + round;
            expect(words, value);
            words[COUNT - 1]++;
            OK(api_add(&apis[device], at, COUNT, 0, NULL));
            OK(cuCtxSynchronize());
            EQUAL(words[COUNT - 1], value + COUNT);
            words[COUNT - 1]--;
        }
    }
}

static void allocated_memory_is_portable(void)
{
    for (int owner = 0; owner < 2; owner++) {
        int *words = make(owner);
        for (int device = 0; device < 2; device++) {
            copies_are_made_in_either(words, device);
        }
        kernels_of_both_reach_it(words);
        copies_are_made_in_either(words, 1 - owner); /* as before */
        use(1 - owner);
        OK(cuMemFreeHost(words));
    }
}

/* Of a file in memory, or private: over shared memory that is another thing. */
static void registered_memory_is_portable(bool file)
{
    for (int owner = 0; owner < 2; owner++) {
        size_t size = (BYTES + 65535) / 65536 * 65536;
        int fd = file ? memfd_create("registered", MFD_CLOEXEC) : -1;
        TRUE(!file || (fd >= 0 && ftruncate(fd, (off_t)size) == 0));
        int *words = mmap(NULL, size, PROT_READ | PROT_WRITE,
                          file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
        TRUE(words != MAP_FAILED);
        use(owner);
        OK(cuMemHostRegister(words, size, CU_MEMHOSTREGISTER_PORTABLE));
        for (int device = 0; device < 2; device++) {
            copies_are_made_in_either(words, device);
        }
        kernels_of_both_reach_it(words);
        use(1 - owner);
        OK(cuMemHostUnregister(words));
        fill(words, 400);
        copies_are_made_in_either(words, owner);
        munmap(words, size);
        if (file) {
            close(fd);
        }
    }
}

/* To free it waits for copies that are still to come: natively for those of the context in which it
 * was made. Those of another server's GPU, which come through the program, are waited for as well:
 * they must not come down on something else. */
static void memory_is_freed_behind_its_copies(int owner, int device)
{
    pthread_t opening;
    int *words = make(owner);
    fill(words, 500);
    use(device);
    OK(cuMemsetD32(memory[device], 0x77, COUNT));
    OK(cuCtxSynchronize());
    sem_init(&api_gate, 0, 0);
    OK(cuLaunchHostFunc(streams[device], api_pass_gate, NULL));
    OK(cuMemcpyDtoHAsync(words, memory[device], BYTES, streams[device]));
    pthread_create(&opening, NULL, api_open_gate, NULL);
    use(owner);
    OK(cuMemFreeHost(words));
    int *next = make(owner); /* where that was, most likely */
    fill(next, 600);
    use(device);
    OK(cuStreamSynchronize(streams[device]));
    pthread_join(opening, NULL);
    expect(next, 600);
    OK(cuMemFreeHost(next));
}

static void *wait_run(void *user)
{
    int device = *(int *)user;
    use(device);
    OK(cuStreamSynchronize(streams[device]));
    return NULL;
}

/* Other threads of the program wait for one device meanwhile, so that its server carries this out
 * in a thread that has not done anything yet. */
static void memory_ends_while_a_device_is_waited_for(int owner, int busy)
{
    pthread_t opening, waiting[5];
    int *words = make(owner);
    kernels_of_both_reach_it(words);
    sem_init(&api_gate, 0, 0);
    use(busy);
    OK(cuLaunchHostFunc(streams[busy], api_pass_gate, NULL));
    for (int i = 0; i < 5; i++) {
        pthread_create(&waiting[i], NULL, wait_run, &busy);
    }
    usleep(50000);
    pthread_create(&opening, NULL, api_open_gate, NULL);
    use(1 - busy);
    OK(cuMemFreeHost(words));
    for (int i = 0; i < 5; i++) {
        pthread_join(waiting[i], NULL);
    }
    pthread_join(opening, NULL);
    int *next = make(owner); /* where that was, most likely */
    kernels_of_both_reach_it(next);
    OK(cuMemFreeHost(next));
}

/* Looked at, waited for and recorded again where the other device's context is current. */
static void events_are_looked_at_from_the_other(int device)
{
    CUevent event = NULL;
    use(device);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int round = 0; round < 20; round++) {
        use(device);
        OK(cuMemsetD32Async(memory[device], (unsigned)round, COUNT, streams[device]));
        use(1 - device);
        OK(cuEventRecord(event, streams[device]));
        CUresult status = CUDA_ERROR_NOT_READY;
        for (int i = 0; i < 20000 && status == CUDA_ERROR_NOT_READY; i++) {
            status = cuEventQuery(event);
            usleep(status == CUDA_SUCCESS ? 0 : 100);
        }
        OK(status);
        OK(cuEventSynchronize(event));
        OK(cuStreamQuery(streams[device]));
        OK(cuStreamSynchronize(streams[device]));
    }
    OK(cuEventDestroy(event));
}

/* Memory of one device is freed where the other's context is current. */
static void device_memory_ends_in_either(int device)
{
    size_t before = 0, after = 0, all = 0;
    CUdeviceptr there = 0;
    use(device);
    OK(cuMemGetInfo(&before, &all));
    OK(cuMemAlloc(&there, 64 << 20));
    use(1 - device);
    OK(cuMemFree(there));
    EQUAL(cuMemFree(there), CUDA_ERROR_INVALID_VALUE);
    use(device);
    OK(cuMemGetInfo(&after, &all));
    EQUAL(after, before);
}

/* Large copies of pageable memory at both devices at once. */
static void *copy_much(void *user)
{
    int device = *(int *)user;
    CUdeviceptr there = 0;
    unsigned *from = malloc(LARGE), *to = malloc(LARGE);
    use(device);
    OK(cuMemAlloc(&there, LARGE));
    for (unsigned round = 0; round < 6; round++) {
        int wrong = 0;
        for (unsigned i = 0; i < LARGE / sizeof *from; i++) {
            from[i] = (i + round) * 2654435761u + (unsigned)device;
            to[i] = 0;
        }
        OK(cuMemcpyHtoD(there, from, LARGE));
        OK(cuMemcpyDtoH(to, there, LARGE));
        for (unsigned i = 0; i < LARGE / sizeof *from; i++) {
            wrong += from[i] != to[i];
        }
        EQUAL(wrong, 0);
    }
    OK(cuMemFree(there));
    free(from);
    free(to);
    return NULL;
}

static void large_copies_at_once(void)
{
    pthread_t threads[4];
    int devices[4] = {0, 1, 1, 0};
    for (int i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, copy_much, &devices[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
}

int main(void)
{
    int count = 0;
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    if (count < 2) {
        puts("there is one device only");
        return api_failures != 0 ? 1 : 77;
    }
    for (int i = 0; i < 2; i++) {
        api_begin_on(&apis[i], i);
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        OK(cuMemAlloc(&memory[i], BYTES));
    }
    allocated_memory_is_portable();
    registered_memory_is_portable(true);
    registered_memory_is_portable(false);
    for (int round = 0; round < 4; round++) {
        memory_ends_while_a_device_is_waited_for(round / 2, round % 2);
    }
    for (int owner = 0; owner < 2; owner++) {
        int same_server = 0;
        OK(cuDeviceCanAccessPeer(&same_server, owner, 1 - owner));
        memory_is_freed_behind_its_copies(owner, owner);
        if (api_is_remote() && !same_server) {
            memory_is_freed_behind_its_copies(owner, 1 - owner);
        }
        events_are_looked_at_from_the_other(owner);
        device_memory_ends_in_either(owner);
    }
    large_copies_at_once();
    for (int i = 0; i < 2; i++) {
        use(i);
        OK(cuMemFree(memory[i]));
        OK(cuStreamDestroy(streams[i]));
        OK(cuModuleUnload(apis[i].module));
        OK(cuDevicePrimaryCtxRelease(apis[i].device));
    }
    printf("%s\n", api_failures == 0 ? "OK" : "FAILED");
    return api_failures != 0;
}
