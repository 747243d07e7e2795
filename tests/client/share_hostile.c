/* A client that passes memory which is not as it says; tests/system/test_hostile.py runs it. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/core.h"
#include "client/share.h"
#include "gen/client_api.h"

enum { SIZE = 64 << 10, PAGE = 4096 };

static int failures;

static void expect(CUresult got, CUresult wanted, const char *what)
{
    if (got != wanted) {
        printf("%s: %d, not %d\n", what, (int)got, (int)wanted);
        failures++;
    }
}

static int plain_memory(void)
{
    int fd = memfd_create("plain", MFD_CLOEXEC);
    return fd >= 0 && ftruncate(fd, SIZE + PAGE) == 0 ? fd : -1;
}

int main(void)
{
    CUcontext context;
    CUdeviceptr device;
    if (tow_cuInit(0) != CUDA_SUCCESS ||
        tow_cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        tow_cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        tow_cuMemAlloc_v2(&device, SIZE) != CUDA_SUCCESS) {
        return 2;
    }
    struct tow_link *link = tow_client_link(-1);
    int plain = plain_memory(), sealed = -1, disk = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    uint8_t *host = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, plain, PAGE);
    uint64_t at = (uint64_t)(uintptr_t)host;
    if (link->share == NULL || host == MAP_FAILED || tow_share_make_memory(SIZE, &sealed) < 0) {
        return 2;
    }
    const struct {
        const char *what;
        int fd;
        uint64_t at, size;
        bool file;
        uint64_t offset;
    } wrong[] = {
        {"not sealed", plain, at, SIZE, false, 0},
        {"of another size", sealed, at, SIZE / 2, false, 0},
        {"no address", sealed, at + 8, SIZE, false, 0},
        {"not in memory", disk, at, PAGE, true, 0},
        {"too short", plain, at, SIZE, true, 2 * PAGE},
        {"beyond its end", plain, at, SIZE, true, UINT64_MAX - PAGE + 1},
        {"no offset", plain, at, SIZE, true, 8},
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        expect(tow_share_lend(link, wrong[i].fd, wrong[i].at, wrong[i].size,
                              wrong[i].file ? &wrong[i].offset : NULL),
               CUDA_ERROR_NOT_SUPPORTED, wrong[i].what);
    }
    expect(tow_share_upload(link, device, host, SIZE, NULL, true), CUDA_ERROR_INVALID_VALUE,
           "a copy of memory that is not shared");
    uint64_t offset = PAGE;
    uint8_t back[16];
    memset(host, 7, SIZE);
    expect(tow_share_lend(link, plain, at, SIZE, &offset), CUDA_SUCCESS, "a file of the program's");
    expect(tow_share_lend(link, plain, at, SIZE, &offset), CUDA_ERROR_NOT_SUPPORTED, "twice");
    expect(tow_share_upload(link, device, host, SIZE, NULL, true), CUDA_SUCCESS, "a copy");
    expect(tow_share_upload(link, device, host + PAGE, SIZE, NULL, true), CUDA_ERROR_INVALID_VALUE,
           "a copy of more than there is");
    expect(tow_cuMemcpyDtoH_v2(back, device + SIZE - sizeof back, sizeof back), CUDA_SUCCESS,
           "back");
    expect((CUresult)(back[0] + back[15]), (CUresult)14, "what came back");
    expect(tow_share_take_back(link, at), CUDA_SUCCESS, "its end");
    expect(tow_share_take_back(link, at), CUDA_ERROR_INVALID_VALUE, "its end again");
    expect(tow_cuCtxSynchronize(), CUDA_SUCCESS, "the session");
    puts(failures == 0 ? "OK" : "FAILED");
    return failures != 0;
}
