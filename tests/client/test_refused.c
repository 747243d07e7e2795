/* SPDX-License-Identifier: Apache-2.0 */
/* A driver that refuses the copies of the staging: the program gets its answer, once, and no copy
 * is made again that was not to be. The server is a process of its own, since only such a one can
 * have the client's memory where the client has it. */
#include "cmocka_all.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/hostmem/copy_pool.h"
#include "client/copy/shared.h"
#include "fake_backend.h"
#include "gen/context_client.h"
#include "gen/copy.h"
#include "gen/copy_client.h"
#include "gen/core_client.h"
#include "gen/memory.h"
#include "gen/memory_client.h"
#include "gen/stream.h"
#include "gen/stream_client.h"
#include "server/run/run.h"
#include "server/session/session.h"
#include "transport/transport.h"

/* Small: beside a note, or of nobody waited for. Of `SIZE` the staging makes one piece, up. */
enum { SMALL = 64, LITTLE = 20 << 10, MIDDLE = 64 << 10, SIZE = 128 << 10 };
enum { PLACES = 8 }; /* for uploads like LITTLE, in client/copy/stage.c */

/* Both processes have it. */
struct account {
    atomic_int up, down; /* copies that the driver was asked for */
    atomic_int answer;   /* what it answers to them */
    atomic_int byte;     /* what it brings */
    atomic_bool slow;    /* a copy takes a while */
    atomic_bool stands;  /* no stream gets anywhere, and to wait for one fails */
};
static struct account *account;
static pid_t server;
static CUdeviceptr device;
static uint8_t bytes[SIZE];

/* ---- the driver ---- */

static CUresult copy_up(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    atomic_fetch_add(&account->up, 1);
    return (CUresult)atomic_load(&account->answer);
}

static CUresult copy_down(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    atomic_fetch_add(&account->down, 1);
    if (atomic_load(&account->slow)) {
        tow_time_sleep(20 * TOW_TIME_MS);
    }
    if (atomic_load(&account->answer) == CUDA_SUCCESS) {
        memset(to, atomic_load(&account->byte), size);
    }
    return (CUresult)atomic_load(&account->answer);
}

static CUresult register_memory(void *memory, size_t size, unsigned flags)
{
    return CUDA_SUCCESS;
}

static CUresult unregister_memory(void *memory)
{
    return CUDA_SUCCESS;
}

static CUresult write_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    if (!atomic_load(&account->stands)) {
        atomic_store((_Atomic uint32_t *)(uintptr_t)address, value);
    }
    return CUDA_SUCCESS;
}

static CUresult wait_for_stream(CUstream stream)
{
    return atomic_load(&account->stands) ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

/* ---- the client's sending ---- */

static unsigned staged; /* commands of copies that name an address */
static bool fail_send;  /* the next one */

CUresult __real_towc_shared_send(unsigned fn, CUdeviceptr to, const void *host, size_t size,
                                 CUstream stream, const struct tow_fence_word *note, uint32_t value,
                                 uint64_t *ret_number);
CUresult __wrap_towc_shared_send(unsigned fn, CUdeviceptr to, const void *host, size_t size,
                                 CUstream stream, const struct tow_fence_word *note, uint32_t value,
                                 uint64_t *ret_number);
CUresult __wrap_towc_shared_send(unsigned fn, CUdeviceptr to, const void *host, size_t size,
                                 CUstream stream, const struct tow_fence_word *note, uint32_t value,
                                 uint64_t *ret_number)
{
    if (fail_send) {
        fail_send = false;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    staged++;
    return __real_towc_shared_send(fn, to, host, size, stream, note, value, ret_number);
}

/* ---- the server ---- */

/* Room for mappings. The system takes the highest gap: the server's are to lie in the upper one and
 * the client's in the lower one, so that the server can have the client's memory where it is. */
enum { ROOM = 1 << 30 };
static void *reserve(void)
{
    return mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

/* Small gaps above are taken, until what is mapped comes to lie in the room that was left free. */
static void take_gaps(const uint8_t *room)
{
    for (size_t size = 1 << 20; size >= 4096; size /= 16) {
        const uint8_t *at = NULL;
        do {
            at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        } while (at != MAP_FAILED && at > room + ROOM);
        munmap((void *)(uintptr_t)at, size);
    }
}

static int serve(struct tow_listener *listener)
{
    static const struct tows_session_options options = {.id = 1};
    static struct tow_backend backend;
    char why[TOW_WHY_MAX], who[TOW_ADDRESS_MAX];
    struct tow_line *line = NULL;
    int fd = -1, error = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    tow_fake_open(&backend);
    tow_driver_set(&backend.driver, cuMemcpyHtoDAsync_v2, copy_up);
    tow_driver_set(&backend.driver, cuMemcpyDtoHAsync_v2, copy_down);
    tow_driver_set(&backend.driver, cuMemHostRegister_v2, register_memory);
    tow_driver_set(&backend.driver, cuMemHostUnregister, unregister_memory);
    tow_driver_set(&backend.driver, cuStreamWriteValue32_v2, write_value);
    tow_driver_set(&backend.driver, cuStreamSynchronize, wait_for_stream);
    while ((error = tow_listener_accept(listener, &fd, who)) == -EAGAIN) {
        poll(&(struct pollfd){.fd = listener->fd, .events = POLLIN}, 1, -1);
    }
    return error != 0 || tow_line_from_fd(fd, listener->kind, tow_time_deadline(20 * TOW_TIME_S),
                                          why, sizeof why, &line) != 0
               ? 1
               : tows_session_run(line, &backend, &options);
}

/* ---- tests ---- */

static void begin(CUresult answer)
{
    assert_int_equal(towc_cuCtxSynchronize(), CUDA_SUCCESS);
    atomic_store(&account->up, 0);
    atomic_store(&account->down, 0);
    atomic_store(&account->answer, (int)answer);
}

/* The driver answers as before, and nothing is left of what it refused. */
static void end(void)
{
    atomic_store(&account->answer, CUDA_SUCCESS);
    assert_int_equal(towc_cuCtxSynchronize(), CUDA_SUCCESS);
}

/* What a bay's note said long ago is not taken for what it says of the newest copy. The first of
 * all: each bay is used once before. */
static void a_copy_that_failed_leaves_no_old_bytes(void **state)
{
    begin(CUDA_SUCCESS);
    for (unsigned i = 0; i < TOW_PIPELINE_SLOTS; i++) {
        assert_int_equal(towc_cuMemcpyDtoH_v2(bytes, device, MIDDLE), CUDA_SUCCESS);
    }
    assert_int_equal(staged, TOW_PIPELINE_SLOTS);
    atomic_store(&account->stands, true);
    assert_int_equal(towc_cuMemcpyDtoH_v2(bytes, device, MIDDLE), CUDA_ERROR_NOT_PERMITTED);
    atomic_store(&account->stands, false);
    atomic_store(&account->byte, 9);
    atomic_store(&account->slow, true);
    for (unsigned i = 0; i < TOW_PIPELINE_SLOTS; i++) {
        memset(bytes, 0, MIDDLE);
        assert_int_equal(towc_cuMemcpyDtoH_v2(bytes, device, MIDDLE), CUDA_SUCCESS);
        assert_int_equal(bytes[0], 9);
        assert_int_equal(bytes[MIDDLE - 1], 9);
    }
    atomic_store(&account->slow, false);
    atomic_store(&account->byte, 7);
    end();
}

/* What could not be sent takes no part of the staging with it. */
static void a_copy_that_was_not_sent_leaves_its_place(void **state)
{
    begin(CUDA_SUCCESS);
    fail_send = true;
    assert_int_equal(towc_cuMemcpyHtoDAsync_v2(device, bytes, LITTLE, NULL),
                     CUDA_ERROR_OUT_OF_MEMORY);
    staged = 0;
    for (unsigned i = 0; i < PLACES; i++) {
        assert_int_equal(towc_cuMemcpyHtoDAsync_v2(device, bytes, LITTLE, NULL), CUDA_SUCCESS);
        assert_int_equal(towc_cuCtxSynchronize(), CUDA_SUCCESS);
    }
    assert_int_equal(staged, PLACES);
    end();
}

static void copies_are_made_once(void **state)
{
    begin(CUDA_SUCCESS);
    assert_int_equal(towc_cuMemcpyHtoD_v2(device, bytes, SIZE), CUDA_SUCCESS);
    assert_int_equal(towc_cuMemcpyDtoH_v2(bytes, device, SMALL), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&account->up), 1);
    assert_int_equal(atomic_load(&account->down), 1);
    assert_int_equal(bytes[SMALL - 1], 7);
    end();
}

/* An upload is told of, and by whoever waits next if nobody waits for it. */
static void a_refused_upload_is_not_sent_again(void **state)
{
    begin(CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(towc_cuMemcpyHtoD_v2(device, bytes, SIZE), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(atomic_load(&account->up), 1);
    end();
    begin(CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(towc_cuMemcpyHtoDAsync_v2(device, bytes, MIDDLE, NULL), CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamSynchronize(NULL), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(atomic_load(&account->up), 1);
    end();
}

/* A download is asked for once more, in the way that is answered. */
static void a_refused_download_is_asked_for_once_more(void **state)
{
    for (int i = 0; i < 2; i++) {
        begin(CUDA_ERROR_NOT_SUPPORTED);
        memset(bytes, 1, SIZE);
        assert_int_equal(towc_cuMemcpyDtoH_v2(bytes, device, i == 0 ? SMALL : MIDDLE),
                         CUDA_ERROR_NOT_SUPPORTED);
        assert_int_equal(atomic_load(&account->down), 2);
        assert_int_equal(bytes[0], 1);
        end();
    }
}

static int setup(void **state)
{
    struct tow_listener *listener = NULL;
    char address[64], why[TOW_WHY_MAX];
    CUcontext context;
    void *upper = reserve(), *lower = reserve();
    account =
        mmap(NULL, sizeof *account, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(address, sizeof address, "shm://@towline-refused-%d", (int)getpid());
    if (account == MAP_FAILED || upper == MAP_FAILED || lower == MAP_FAILED ||
        tow_listener_open(address, 0600, why, sizeof why, &listener) != 0 ||
        (server = fork()) < 0) {
        return 1;
    }
    munmap(lower, ROOM);
    if (server == 0) {
        munmap(upper, ROOM);
        _exit(serve(listener));
    }
    tow_listener_close(listener);
    take_gaps(lower);
    atomic_store(&account->byte, 7);
    setenv("TOWLINE_SERVER", address, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return towc_cuInit(0) != CUDA_SUCCESS ||
           towc_cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
           towc_cuCtxSetCurrent(context) != CUDA_SUCCESS ||
           towc_cuMemAlloc_v2(&device, SIZE) != CUDA_SUCCESS;
}

static int teardown(void **state)
{
    kill(server, SIGKILL);
    return waitpid(server, NULL, 0) == server ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_that_failed_leaves_no_old_bytes),
        cmocka_unit_test(a_copy_that_was_not_sent_leaves_its_place),
        cmocka_unit_test(copies_are_made_once),
        cmocka_unit_test(a_refused_upload_is_not_sent_again),
        cmocka_unit_test(a_refused_download_is_asked_for_once_more),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
