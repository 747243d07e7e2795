/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and pools of one program used by another through descriptors: two processes, each a client
 * of its own, and a socket between them. */
#include "api.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { N = 1000 };
#define POSIX CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

/* What the parent tells beside a descriptor. */
struct message {
    size_t size;
    CUmemPoolPtrExportData pointers[2];
};

static void give(int sock, const struct message *message, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof fd)];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec iov = {(void *)message, sizeof *message};
    struct msghdr packet = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&packet);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    EQUAL(sendmsg(sock, &packet, 0), sizeof *message);
    close(fd);
}

static int take(int sock, struct message *message)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {message, sizeof *message};
    struct msghdr packet = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = sizeof control};
    int fd = -1;
    EQUAL(recvmsg(sock, &packet, 0), sizeof *message);
    struct cmsghdr *head = CMSG_FIRSTHDR(&packet);
    if (head == NULL) {
        exit(1); /* the other has failed */
    }
    memcpy(&fd, CMSG_DATA(head), sizeof fd);
    return fd;
}

static void tell(int sock)
{
    EQUAL(send(sock, "x", 1, MSG_NOSIGNAL), 1);
}

static void hear(int sock)
{
    char byte;
    if (recv(sock, &byte, 1, 0) != 1) {
        exit(1);
    }
}

/* The server is inside the program: others have one of their own. */
static bool is_alone(void)
{
    const char *server = getenv("TOWLINE_SERVER");
    return server != NULL && strncmp(server, "self:", 5) == 0;
}

static CUmemAllocationProp prop_of(CUdevice device, CUmemAllocationHandleType types)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    prop.requestedHandleTypes = types;
    return prop;
}

static CUdeviceptr map(struct api *api, CUmemGenericAllocationHandle memory, size_t size)
{
    CUdeviceptr at = 0;
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = api->device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    OK(cuMemAddressReserve(&at, size, 0, 0, 0));
    OK(cuMemMap(at, size, 0, memory, 0));
    OK(cuMemSetAccess(at, size, &access, 1));
    return at;
}

static void unmap(CUdeviceptr at, size_t size)
{
    OK(cuMemUnmap(at, size));
    OK(cuMemAddressFree(at, size));
}

static void check_values(CUdeviceptr memory, int wanted)
{
    int value[N];
    OK(cuMemcpyDtoH(value, memory, sizeof value));
    EQUAL(value[0], wanted);
    EQUAL(value[N - 1], wanted);
}

static void check_types(CUmemGenericAllocationHandle memory, CUdevice device, int types)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    OK(cuMemGetAllocationPropertiesFromHandle(&prop, memory));
    EQUAL(prop.requestedHandleTypes, types);
    EQUAL(prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    EQUAL(prop.location.id, device);
}

/* ---- memory ---- */

static int other_memory(int sock)
{
    struct api api;
    struct message message;
    CUmemGenericAllocationHandle memory = 0, same = 0;
    CUmemoryPool pool = NULL;
    uint64_t allowed = 99;
    api_begin(&api);
    int fd = take(sock, &message);
    if (is_alone()) {
        EQUAL(cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)fd, POSIX),
              CUDA_ERROR_UNKNOWN);
        tell(sock);
        return api_end(&api);
    }
    EQUAL(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, POSIX, 0),
          CUDA_ERROR_NOT_SUPPORTED);
    OK(cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)fd, POSIX));
    close(fd);
    check_types(memory, api.device, 0); /* what is imported is not exported further */
    EQUAL(cuMemExportToShareableHandle(&fd, memory, POSIX, 0), CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr at = map(&api, memory, message.size);
    OK(cuPointerGetAttribute(&allowed, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, at));
    EQUAL(allowed, 0);
    check_values(at, 7);
    OK(api_add(&api, at, N, 5, NULL));
    OK(cuMemsetD32(at + message.size / 2, 77, N));
    OK(cuCtxSynchronize());
    OK(cuMemRetainAllocationHandle(&same, (void *)(uintptr_t)at));
    check_types(same, api.device, 0);
    OK(cuMemRelease(same));
    tell(sock);
    hear(sock); /* the parent has given the memory up */
    OK(api_add(&api, at, N, 1, NULL));
    check_values(at, 21);
    OK(cuMemRelease(memory));
    unmap(at, message.size);
    return api_end(&api);
}

/* Also in the program itself a descriptor is good for another handle of the same memory. */
static void import_own(struct api *api, int fd, size_t size)
{
    CUmemGenericAllocationHandle memory = 0;
    OK(cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)fd, POSIX));
    CUdeviceptr at = map(api, memory, size);
    check_values(at, 7);
    unmap(at, size);
    OK(cuMemRelease(memory));
}

static void memory_is_shared(struct api *api, int sock)
{
    struct message message = {0};
    CUmemAllocationProp prop = prop_of(api->device, POSIX);
    CUmemGenericAllocationHandle memory = 0, plain = 0;
    int fd = -1, second = -1;
    uint64_t allowed = 0;
    OK(cuMemGetAllocationGranularity(&message.size, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    message.size *= 2;
    OK(cuMemCreate(&memory, message.size, &prop, 0));
    check_types(memory, api->device, POSIX);
    CUdeviceptr at = map(api, memory, message.size);
    OK(cuPointerGetAttribute(&allowed, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, at));
    EQUAL(allowed, POSIX);
    OK(cuMemsetD32(at, 7, N));
    OK(cuCtxSynchronize());
    OK(cuMemExportToShareableHandle(&fd, memory, POSIX, 0));
    OK(cuMemExportToShareableHandle(&second, memory, POSIX, 0));
    TRUE(fd >= 0 && second >= 0 && fd != second);
    close(fd);
    fd = -1;
    if (api_is_remote()) {
        EQUAL(cuMemExportToShareableHandle(NULL, memory, POSIX, 0), CUDA_ERROR_INVALID_VALUE);
    }
    EQUAL(cuMemExportToShareableHandle(&fd, memory, POSIX, 1), CUDA_ERROR_INVALID_VALUE);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    OK(cuMemCreate(&plain, message.size, &prop, 0));
    TRUE(cuMemExportToShareableHandle(&fd, plain, POSIX, 0) != CUDA_SUCCESS);
    EQUAL(fd, -1);
    OK(cuMemRelease(plain));
    import_own(api, second, message.size);
    give(sock, &message, second);
    hear(sock);
    if (!is_alone()) {
        check_values(at, 12);
        check_values(at + message.size / 2, 77);
        OK(api_add(api, at, N, 8, NULL));
        OK(cuCtxSynchronize());
    }
    unmap(at, message.size);
    OK(cuMemRelease(memory));
    if (!is_alone()) {
        tell(sock);
    }
}

/* ---- pools ---- */

static int other_pool(int sock)
{
    struct api api;
    struct message message;
    CUmemoryPool pool = NULL;
    CUmemGenericAllocationHandle memory = 0;
    CUdeviceptr at[2] = {0}, own = 0, base = 0;
    CUstream stream;
    api_begin(&api);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    int fd = take(sock, &message);
    if (is_alone()) {
        EQUAL(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, POSIX, 0),
              CUDA_ERROR_UNKNOWN);
        tell(sock);
        return api_end(&api);
    }
    EQUAL(cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)fd, POSIX),
          CUDA_ERROR_NOT_SUPPORTED);
    OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, POSIX, 0));
    close(fd);
    TRUE(cuMemAllocFromPoolAsync(&own, 4096, pool, stream) != CUDA_SUCCESS);
    TRUE(cuDeviceSetMemPool(api.device, pool) != CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        OK(cuMemPoolImportPointer(&at[i], pool, &message.pointers[i]));
        check_values(at[i], 3 + i);
    }
    OK(cuMemGetAddressRange(&base, NULL, at[1] + 100));
    EQUAL(base == at[1], 1);
    OK(api_add(&api, at[0], N, 10, stream));
    OK(cuMemsetD32Async(at[1], 99, N, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemFreeAsync(at[0], stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemFree(at[1]));
    if (api_is_remote()) {
        EQUAL(cuMemPoolImportPointer(&at[0], NULL, &message.pointers[0]), CUDA_ERROR_INVALID_VALUE);
        memset(&message.pointers[0], 1, sizeof message.pointers[0]);
        EQUAL(cuMemPoolImportPointer(&at[0], pool, &message.pointers[0]), CUDA_ERROR_INVALID_VALUE);
    }
    OK(cuMemPoolDestroy(pool));
    OK(cuStreamDestroy(stream));
    tell(sock);
    return api_end(&api);
}

static void pool_is_shared(struct api *api, int sock)
{
    struct message message = {0};
    CUmemPoolProps props;
    CUmemPoolPtrExportData none;
    CUmemoryPool pool = NULL;
    CUdeviceptr at[2] = {0}, plain = 0;
    CUstream stream;
    int fd = -1, types = 0;
    OK(cuDeviceGetAttribute(&types, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
                            api->device));
    EQUAL(types & POSIX, POSIX);
    memset(&props, 0, sizeof props);
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = POSIX;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = api->device;
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemPoolExportToShareableHandle(&fd, pool, POSIX, 0));
    for (int i = 0; i < 2; i++) { /* memory that the pool did not have when it was exported */
        OK(cuMemAllocFromPoolAsync(&at[i], i == 0 ? N * sizeof(int) : 8 << 20, pool, stream));
        OK(cuMemsetD32Async(at[i], 3 + (unsigned)i, N, stream));
        OK(cuMemPoolExportPointer(&message.pointers[i], at[i]));
    }
    OK(cuMemAllocAsync(&plain, 4096, stream));
    TRUE(cuMemPoolExportPointer(&none, plain) != CUDA_SUCCESS);
    OK(cuMemFreeAsync(plain, stream));
    OK(cuStreamSynchronize(stream));
    if (api_is_remote()) {
        EQUAL(cuMemPoolExportToShareableHandle(NULL, pool, POSIX, 0), CUDA_ERROR_INVALID_VALUE);
    }
    give(sock, &message, fd);
    hear(sock);
    if (!is_alone()) {
        check_values(at[0], 13);
        check_values(at[1], 99);
    }
    OK(cuMemFreeAsync(at[0], stream));
    OK(cuMemFreeAsync(at[1], stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolDestroy(pool));
    OK(cuStreamDestroy(stream));
}

/* ---- what is no handle ---- */

static void refuse(int fd)
{
    CUmemGenericAllocationHandle memory = 0;
    CUmemoryPool pool = NULL;
    EQUAL(cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)fd, POSIX), CUDA_ERROR_UNKNOWN);
    EQUAL(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, POSIX, 0),
          CUDA_ERROR_UNKNOWN);
    TRUE(memory == 0 && pool == NULL);
}

/* A file of our own with these bytes, sealed as Towline's are. */
static void refuse_file(const void *bytes, size_t size)
{
    int fd = memfd_create("test", MFD_ALLOW_SEALING);
    EQUAL(write(fd, bytes, size), size);
    refuse(fd);
    EQUAL(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
    refuse(fd);
    close(fd);
}

static void others_are_refused(struct api *api)
{
    CUmemAllocationProp prop = prop_of(api->device, POSIX);
    CUmemGenericAllocationHandle memory = 0;
    size_t size = 0;
    int fd = -1, ends[2];
    char bytes[4096] = "towlshr1";
    refuse(-1);
    refuse(1000000);
    EQUAL(pipe(ends), 0);
    refuse(ends[0]); /* and nobody waits for it to be written */
    refuse(ends[1]);
    close(ends[0]);
    close(ends[1]);
    EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    refuse(ends[0]);
    close(ends[0]);
    close(ends[1]);
    fd = open("/dev/zero", O_RDONLY);
    refuse(fd);
    close(fd);
    refuse_file(bytes, 1);
    refuse_file(bytes, 24); /* a token that no server gave */
    refuse_file(bytes + 1, 24);
    refuse_file(bytes, sizeof bytes);
    OK(cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(cuMemCreate(&memory, size, &prop, 0));
    OK(cuMemExportToShareableHandle(&fd, memory, POSIX, 0));
    close(fd);
    refuse(fd);
    fd = -1;
    if (api_is_remote()) {
        CUmemGenericAllocationHandle other = 0;
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
        EQUAL(cuMemCreate(&other, size, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
        EQUAL(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_FABRIC, 0),
              CUDA_ERROR_NOT_SUPPORTED);
        EQUAL(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_WIN32, 0),
              CUDA_ERROR_NOT_SUPPORTED);
        EQUAL(cuMemImportFromShareableHandle(&memory, bytes, CU_MEM_HANDLE_TYPE_FABRIC),
              CUDA_ERROR_NOT_SUPPORTED);
    }
    EQUAL(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_NONE, 0),
          CUDA_ERROR_INVALID_VALUE);
    EQUAL(fd, -1);
    OK(cuMemRelease(memory));
}

/* ---- descriptors that are closed ---- */

/* For tests/system/test_shareable.py: exports and closes many, keeps some open until told. */
static int hold(void)
{
    enum { MANY = 300, HELD = 20, LEFT = 5 };
    struct api api;
    CUmemGenericAllocationHandle memory = 0;
    size_t size = 0;
    int fd[HELD];
    api_begin(&api);
    CUmemAllocationProp prop = prop_of(api.device, POSIX);
    OK(cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(cuMemCreate(&memory, size, &prop, 0));
    for (int i = 0; i < MANY; i++) {
        OK(cuMemExportToShareableHandle(&fd[0], memory, POSIX, 0));
        close(dup(fd[0]));
        close(fd[0]);
    }
    for (int i = 0; i < HELD; i++) {
        OK(cuMemExportToShareableHandle(&fd[i], memory, POSIX, 0));
        int copy = dup(fd[i]); /* as good as the first */
        close(fd[i]);
        fd[i] = copy;
    }
    OK(cuMemRelease(memory));
    printf("holds %d\n", HELD);
    getchar();
    for (int i = LEFT; i < HELD; i++) {
        close(fd[i]);
    }
    OK(cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)fd[0], POSIX));
    OK(cuMemRelease(memory));
    printf("holds %d\n", LEFT);
    getchar();
    return api_end(&api);
}

/* ---- two processes ---- */

struct child {
    pid_t pid;
    int sock;
};

static void start(struct child *child, int (*run)(int sock))
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) {
        exit(1);
    }
    child->pid = fork();
    if (child->pid == 0) {
        close(pair[0]);
        exit(run(pair[1]));
    }
    close(pair[1]);
    child->sock = pair[0];
}

static void finish(struct child *child)
{
    int status = -1;
    EQUAL(waitpid(child->pid, &status, 0), child->pid);
    EQUAL(status, 0);
    close(child->sock);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "hold") == 0) {
        return hold();
    }
    struct child memory, pool;
    signal(SIGPIPE, SIG_IGN);
    /* Before CUDA is touched: a forked child cannot use its parent's. */
    start(&memory, other_memory);
    start(&pool, other_pool);
    struct api api;
    int supported = 0;
    api_begin(&api);
    OK(cuDeviceGetAttribute(
        &supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, api.device));
    EQUAL(supported, 1);
    memory_is_shared(&api, memory.sock);
    finish(&memory);
    pool_is_shared(&api, pool.sock);
    finish(&pool);
    others_are_refused(&api);
    return api_end(&api);
}
