/* Device memory of one program used by another: two processes, each a client of its own. */
#include "api.h"

#include <sys/wait.h>
#include <unistd.h>

enum { N = 1000 };

struct message {
    CUresult result;
    CUipcMemHandle handle[2];
};

static void give(int fd, const void *bytes, size_t size)
{
    EQUAL(write(fd, bytes, size), size);
}

static void take(int fd, void *bytes, size_t size)
{
    EQUAL(read(fd, bytes, size), size);
}

/* Opens what the other gave, adds to it, and closes it again. */
static int other(int from, int to)
{
    struct api api;
    struct message message;
    CUdeviceptr memory = 0, again = 0, large = 0;
    int value[N], done = 1;
    api_begin(&api);
    take(from, &message, sizeof message);
    if (message.result == CUDA_SUCCESS) {
        OK(cuIpcOpenMemHandle(&memory, message.handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        OK(cuMemcpyDtoH(value, memory, sizeof value));
        EQUAL(value[0] + value[N - 1], 14);
        CUdeviceptr base = 0;
        OK(cuMemGetAddressRange(&base, NULL, memory));
        EQUAL(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
        OK(api_add(&api, memory, N, 5, NULL));
        OK(cuIpcOpenMemHandle(&large, message.handle[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        OK(cuMemsetD32(large, 77, N));
        OK(cuCtxSynchronize());
        OK(cuIpcCloseMemHandle(large));
        OK(cuIpcCloseMemHandle(memory));
        EQUAL(cuIpcCloseMemHandle(memory), CUDA_ERROR_INVALID_VALUE);
        memset(&message.handle[0], 1, sizeof message.handle[0]);
        TRUE(cuIpcOpenMemHandle(&again, message.handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) !=
             CUDA_SUCCESS);
    }
    give(to, &done, sizeof done);
    return api_end(&api);
}

static void memory_is_shared(struct api *api, int to, int from)
{
    struct message message = {0};
    CUdeviceptr memory = 0, large = 0, opened = 0;
    int value[N], done = 0;
    OK(cuMemAlloc(&memory, sizeof value));
    OK(cuMemAlloc(&large, 8 << 20));
    OK(cuMemsetD32(memory, 7, N));
    OK(cuCtxSynchronize());
    message.result = cuIpcGetMemHandle(&message.handle[0], memory);
    if (message.result == CUDA_ERROR_NOT_SUPPORTED) {
        printf("shared memory is not supported by this device\n");
    } else {
        OK(message.result);
        OK(cuIpcGetMemHandle(&message.handle[1], large));
        TRUE(cuIpcOpenMemHandle(&opened, message.handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) !=
             CUDA_SUCCESS); /* not in the process that it comes from */
    }
    give(to, &message, sizeof message);
    take(from, &done, sizeof done);
    if (message.result == CUDA_SUCCESS) {
        OK(cuMemcpyDtoH(value, memory, sizeof value));
        EQUAL(value[0], 12);
        EQUAL(value[N - 1], 12);
        OK(cuMemcpyDtoH(value, large, sizeof value));
        EQUAL(value[N / 2], 77);
        OK(api_add(api, memory, N, 1, NULL)); /* still the program's own */
        OK(cuMemcpyDtoH(value, memory, sizeof value));
        EQUAL(value[1], 13);
    }
    OK(cuMemFree(large));
    OK(cuMemFree(memory));
}

int main(void)
{
    /* Before CUDA is touched: a forked child cannot use its parent's. */
    int there[2], back[2], status = -1;
    if (pipe(there) != 0 || pipe(back) != 0) {
        return 1;
    }
    pid_t child = fork();
    if (child == 0) {
        return other(there[0], back[1]);
    }
    struct api api;
    api_begin(&api);
    memory_is_shared(&api, there[1], back[0]);
    EQUAL(waitpid(child, &status, 0), child);
    EQUAL(status, 0);
    return api_end(&api);
}
