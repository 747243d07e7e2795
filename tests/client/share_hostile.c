/* SPDX-License-Identifier: Apache-2.0 */
/* A client that passes memory which is not as it says; tests/system/test_hostile.py runs it. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/session/state.h"
#include "client/copy/shared.h"
#include "client/copy/stage.h"
#include "gen/context_client.h"
#include "gen/copy_client.h"
#include "gen/core_client.h"
#include "gen/memory_client.h"

enum { SIZE = 64 << 10, PAGE = 4096 };

static int failures;

static void expect(CUresult got, CUresult wanted, const char *what)
{
    if (got != wanted) {
        printf("%s: %d, not %d\n", what, (int)got, (int)wanted);
        failures++;
    }
}

/* CUDA_ERROR_NOT_SUPPORTED: it cannot be shared. */
static CUresult share_lend(struct towc_link *link, int fd, uint64_t at, uint64_t size,
                           const uint64_t *offset)
{
    CUresult status = CUDA_SUCCESS;
    return towc_share_lend(link, fd, at, size, offset, &status) ? status : CUDA_ERROR_NOT_SUPPORTED;
}

static int memory_with(size_t size, int seals)
{
    int fd = memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool made = fd >= 0 && ftruncate(fd, (off_t)size) == 0;
    return made && fcntl(fd, F_ADD_SEALS, seals) == 0 ? fd : -1;
}

/* Rows from packed memory to the device, as the staging sends them. */
static CUresult send_rows(CUdeviceptr to, uint8_t *packed, size_t width, size_t rows,
                          const struct tow_fence_word *word, uint32_t value)
{
    struct tow_copy_3d copy_3d = {.from = {.kind = TOW_AT_HOST},
                                  .to = {.kind = TOW_AT_DEVICE, .address = to, .pitch = 256}};
    struct towc_staged staged = {.up = true, .copy_3d = &copy_3d};
    struct towc_part part = {.width = width, .rows = rows, .planes = 1};
    uint64_t number;
    return towc_staged_send(&staged, &part, packed, word, value, &number);
}

/* A copy that names an address, wherever that is. */
static CUresult shared_upload(struct towc_link *link, CUdeviceptr device, uint8_t *host)
{
    struct towc_copy copy = {.link = link,
                             .facts = TOW_FACT_FLAT | TOW_FACT_UP | TOW_FACT_WAIT | TOW_FACT_SHARED,
                             .to = device,
                             .size = SIZE,
                             .host = towc_host_rect_flat(host, SIZE)};
    CUresult status = CUDA_SUCCESS;
    towc_shared_copy(&copy, &status);
    return status;
}

/* With SIZE bytes at `host` shared, the first of them a fence word. */
static void rows_in_shared_memory(CUdeviceptr device, uint8_t *host)
{
    static uint8_t own[PAGE];
    struct tow_fence_word *word = (struct tow_fence_word *)host;
    const struct {
        const char *what;
        uint8_t *packed;
        size_t width, rows;
    } wrong[] = {
        {"rows that are not shared", own, 64, 4},
        {"rows of which the last is not", host + SIZE - 64 * 3, 64, 4},
        {"rows of which the last is half shared", host + SIZE - 64 * 3 - 32, 64, 4},
        {"rows without an end", host + PAGE, 64, UINT64_MAX / 32},
        {"rows that are wider than all memory", host + PAGE, UINT64_MAX - 8, 2},
        {"rows for more than there is", host + PAGE, 64, 2 * SIZE / 256},
    };
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        expect(send_rows(device, wrong[i].packed, wrong[i].width, wrong[i].rows, word, i + 1),
               CUDA_SUCCESS, wrong[i].what);
        expect(towc_cuCtxSynchronize(), CUDA_ERROR_INVALID_VALUE, wrong[i].what);
        expect((CUresult)towc_fence_word_query(word, i + 1), (CUresult)TOW_COMPLETION_REFUSED,
               wrong[i].what);
    }
    uint8_t back[256];
    memset(host + PAGE, 9, 128);
    expect(send_rows(device + 256, host + PAGE, 64, 2, word, 100), CUDA_SUCCESS, "rows");
    expect(towc_cuCtxSynchronize(), CUDA_SUCCESS, "rows");
    expect((CUresult)towc_fence_word_query(word, 100), (CUresult)TOW_COMPLETION_DONE, "their note");
    expect(towc_cuMemcpyDtoH_v2(back, device + 512, sizeof back), CUDA_SUCCESS, "rows back");
    expect((CUresult)(back[0] + back[63] + back[64]), (CUresult)(18 + 7), "what came back of rows");
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUdeviceptr device;
    if (towc_cuInit(0) != CUDA_SUCCESS ||
        towc_cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        towc_cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        towc_cuMemAlloc_v2(&device, SIZE) != CUDA_SUCCESS) {
        return 2;
    }
    struct towc_link *link = towc_client_link(-1);
    int plain = memory_with(SIZE + PAGE, 0), sealed = -1;
    int disk = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    /* Of the right size, and could still be made another. */
    int open_memory = memory_with(SIZE, 0), grows = memory_with(SIZE, F_SEAL_SHRINK),
        shrinks = memory_with(SIZE, F_SEAL_GROW);
    uint8_t *host = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, plain, PAGE);
    uint64_t at = (uint64_t)(uintptr_t)host;
    if (link->share == NULL || host == MAP_FAILED || open_memory < 0 || grows < 0 || shrinks < 0 ||
        towc_share_make_memory(SIZE, &sealed) < 0) {
        return 2;
    }
    const struct {
        const char *what;
        int fd;
        uint64_t at, size;
        bool file;
        uint64_t offset;
    } wrong[] = {
        {"not sealed", open_memory, at, SIZE, false, 0},
        {"sealed against shrinking only", grows, at, SIZE, false, 0},
        {"sealed against growing only", shrinks, at, SIZE, false, 0},
        {"of another size", sealed, at, SIZE / 2, false, 0},
        {"no address", sealed, at + 8, SIZE, false, 0},
        {"not in memory", disk, at, PAGE, true, 0},
        {"too short", plain, at, SIZE, true, 2 * PAGE},
        {"beyond its end", plain, at, SIZE, true, UINT64_MAX - PAGE + 1},
        {"no offset", plain, at, SIZE, true, 8},
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        expect(share_lend(link, wrong[i].fd, wrong[i].at, wrong[i].size,
                          wrong[i].file ? &wrong[i].offset : NULL),
               CUDA_ERROR_NOT_SUPPORTED, wrong[i].what);
    }
    expect(shared_upload(link, device, host), CUDA_ERROR_INVALID_VALUE,
           "a copy of memory that is not shared");
    uint64_t offset = PAGE;
    uint8_t back[16];
    memset(host, 7, SIZE);
    expect(share_lend(link, plain, at, SIZE, &offset), CUDA_SUCCESS, "a file of the program's");
    expect(share_lend(link, plain, at, SIZE, &offset), CUDA_ERROR_NOT_SUPPORTED, "twice");
    expect(shared_upload(link, device, host), CUDA_SUCCESS, "a copy");
    expect(shared_upload(link, device, host + PAGE), CUDA_ERROR_INVALID_VALUE,
           "a copy of more than there is");
    expect(towc_cuMemcpyDtoH_v2(back, device + SIZE - sizeof back, sizeof back), CUDA_SUCCESS,
           "back");
    expect((CUresult)(back[0] + back[15]), (CUresult)14, "what came back");
    rows_in_shared_memory(device, host);
    if (argc > 1 && strcmp(argv[1], "note") == 0) {
        /* Nobody may be told where no memory is shared: that is no client of ours. */
        static struct tow_fence_word own;
        expect(send_rows(device, host + PAGE, 64, 2, &own, 1), CUDA_SUCCESS, "a note elsewhere");
        puts(towc_cuCtxSynchronize() != CUDA_SUCCESS && failures == 0 ? "OK" : "FAILED");
        return failures != 0;
    }
    expect(towc_share_take_back(link, at), CUDA_SUCCESS, "its end");
    expect(towc_share_take_back(link, at), CUDA_ERROR_INVALID_VALUE, "its end again");
    expect(towc_cuCtxSynchronize(), CUDA_SUCCESS, "the session");
    puts(failures == 0 ? "OK" : "FAILED");
    return failures != 0;
}
