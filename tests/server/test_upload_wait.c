/* SPDX-License-Identifier: Apache-2.0 */
/* How long the commands behind a synchronous upload wait for a device that takes its time. The
 * clock is the test's own, which goes on when somebody looks at it and when somebody sleeps:
 * nothing here depends on how busy the machine is. */
#include "base/mutex.h"
#include "cmocka_all.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/driver.h"
#include "base/clock.h"
#include "fake_session.h"
#include "gen/context.h"
#include "gen/copy_server.h"
#include "gen/event.h"
#include "gen/memory_server.h"
#include "server/session/session.h"
#include "server/session/transfer.h"
#include "transport/line.h"
#include "wire/control.h"
#include "wire/share.h"
#include "wire/id.h"

enum { CONTEXT = 5, PIECE = 4096, MOST = 4, NEVER = 1 << 30 };

/* As in upload.c. */
enum {
    READ_WAIT_MS = 1000,
#if defined(__SANITIZE_THREAD__)
    BEGIN_WAIT_MS = READ_WAIT_MS,
#else
    BEGIN_WAIT_MS = 50,
#endif
};

static struct tow_line *client;
static struct tows_session *session;
static struct tow_driver driver;

/* ---- the clock; the linker has all of the program call these instead ---- */

enum { LOOK_NS = 1000 };

static _Atomic int64_t clock_ns = TOW_TIME_S;

int __real_clock_gettime(clockid_t clock, struct timespec *ret_now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now);
int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_left);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now)
{
    if (clock != CLOCK_MONOTONIC) {
        return __real_clock_gettime(clock, ret_now);
    }
    *ret_now = tow_time_spec(atomic_fetch_add(&clock_ns, LOOK_NS));
    return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_left)
{
    (void)ret_left;
    atomic_fetch_add(&clock_ns, time->tv_sec * TOW_TIME_S + time->tv_nsec);
    return 0;
}

/* ---- the device ---- */

/* The device has read its first, second, ... piece so long after it got it. */
static struct {
    int takes_ms[MOST];
    int64_t ends[MOST]; /* by event, of which each buffer has one */
    void *memory[MOST];
    unsigned events, buffers, pieces, uploads;
} device;

static CUresult fake_current(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

/* As the driver's, it goes with its context: here with the test. */
static CUresult fake_allocate(void **ret, size_t size, unsigned flags)
{
    (void)flags;
    assert_in_range(device.buffers, 0, MOST - 1);
    *ret = device.memory[device.buffers++] = malloc(size);
    return CUDA_SUCCESS;
}

static CUresult fake_event(CUevent *ret, unsigned flags)
{
    (void)flags;
    assert_in_range(device.events, 0, MOST - 1);
    *ret = (CUevent)(uintptr_t)++device.events;
    return CUDA_SUCCESS;
}

static CUresult fake_record(CUevent event, CUstream stream)
{
    (void)stream;
    assert_in_range(device.pieces, 0, MOST - 1);
    device.ends[(uintptr_t)event - 1] =
        tow_time_now_ns() + device.takes_ms[device.pieces++] * TOW_TIME_MS;
    return CUDA_SUCCESS;
}

static CUresult fake_query(CUevent event)
{
    bool read = tow_time_now_ns() >= device.ends[(uintptr_t)event - 1];
    return read ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult fake_event_destroy(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

static CUresult fake_copy(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    (void)to, (void)from, (void)size, (void)stream;
    return CUDA_SUCCESS;
}

static int begin(void **state)
{
    static uint8_t context;
    struct tow_line *line;
    (void)state;
    memset(&device, 0, sizeof device);
    tow_driver_set(&driver, cuCtxSetCurrent, fake_current);
    tow_driver_set(&driver, cuMemHostAlloc, fake_allocate);
    tow_driver_set(&driver, cuEventCreate, fake_event);
    tow_driver_set(&driver, cuEventRecord, fake_record);
    tow_driver_set(&driver, cuEventQuery, fake_query);
    tow_driver_set(&driver, cuEventDestroy_v2, fake_event_destroy);
    tow_driver_set(&driver, cuMemcpyHtoDAsync_v2, fake_copy);
    assert_int_equal(tow_line_pair(&client, &line), 0);
    session = fake_session_make(&driver, line);
    uint64_t id = TOW_ID_MAKE(TOW_H_CONTEXT, 0, 1, CONTEXT);
    assert_int_equal(tows_handles_bind(&session->handles, id, &context, CUDA_SUCCESS, 0), 0);
    return 0;
}

static int end(void **state)
{
    struct tow_line *line = session->line;
    (void)state;
    tows_transfer_end_all(session);
    fake_session_end(session);
    tow_line_close(client);
    tow_line_close(line);
    for (unsigned i = 0; i < device.buffers; i++) {
        free(device.memory[i]);
    }
    return 0;
}

static void send_piece(uint32_t transfer, uint64_t offset, bool last)
{
    struct tow_data data = {
        .transfer = transfer, .flags = last ? TOW_DATA_LAST : 0, .offset = offset, .size = PIECE};
    static uint8_t bytes[PIECE];
    uint8_t head[TOW_DATA_HEAD];
    uint32_t pad = 0;
    assert_int_equal(tow_data_head_encode(&data, 0, 0, head, &pad), 0);
    assert_int_equal(pad, 0);
    struct iovec parts[2] = {{head, sizeof head}, {bytes, sizeof bytes}};
    assert_int_equal(tow_line_send_direct(client, parts, 2), 0);
}

static void take_piece(void)
{
    const uint8_t *at = NULL;
    size_t available;
    struct tow_frame frame;
    assert_int_equal(
        tow_line_peek(session->line, TOW_FRAME_HEADER, TOW_TIME_FOREVER, &at, &available), 0);
    assert_int_equal(tow_frame_read(at, &frame), 0);
    assert_int_equal(tows_transfer_take(session, &frame), 0);
}

/* A synchronous one: how long, in ms of the clock above, the thread that leads is kept behind its
 * last byte. */
static int upload(unsigned pieces)
{
    struct {
        uint64_t to, size, stream;
        uint32_t transfer, form;
    } body = {0x1000, (uint64_t)pieces * PIECE, 0, ++device.uploads,
              TOW_COPY_BYTES | TOW_COPY_SYNCHRONOUS};
    struct tows_serve call = {.session = session, .driver = &driver, .frame = {.context = CONTEXT}};
    call.in = tow_dec_init(&body, sizeof body);
    tows_serve_cuMemcpyHtoDAsync_v2(&call);
    assert_false(call.malformed);
    assert_int_equal(call.status, CUDA_SUCCESS);
    for (unsigned i = 0; i < pieces; i++) {
        send_piece(device.uploads, (uint64_t)i * PIECE, i + 1 == pieces);
    }
    for (unsigned i = 0; i + 1 < pieces; i++) {
        take_piece();
    }
    int64_t began = tow_time_now_ns();
    take_piece();
    return (int)((tow_time_now_ns() - began) / TOW_TIME_MS);
}

/* Nothing that is behind on the line holds it up. */
static void what_has_begun_is_waited_for(void **state)
{
    (void)state;
    device.takes_ms[1] = 300;
    assert_in_range(upload(2), 300, 301);
}

/* A kernel in between may want what is behind on the line, all the same. */
static void but_not_for_ever(void **state)
{
    (void)state;
    device.takes_ms[1] = NEVER;
    assert_in_range(upload(2), READ_WAIT_MS, READ_WAIT_MS + 1);
}

static void what_has_not_begun_is_let_alone_soon(void **state)
{
    (void)state;
    device.takes_ms[0] = device.takes_ms[1] = NEVER;
    assert_in_range(upload(2), BEGIN_WAIT_MS, BEGIN_WAIT_MS + 1);
}

/* The second one has a buffer of the first one; of the first one there is another. */
static void what_another_one_had_read_tells_nothing(void **state)
{
    (void)state;
    device.takes_ms[0] = 45;
    device.takes_ms[2] = NEVER;
    assert_in_range(upload(2), 44, 46);
    assert_int_equal(device.buffers, 2);
    assert_in_range(upload(1), BEGIN_WAIT_MS, BEGIN_WAIT_MS + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_has_begun_is_waited_for, begin, end),
        cmocka_unit_test_setup_teardown(but_not_for_ever, begin, end),
        cmocka_unit_test_setup_teardown(what_has_not_begun_is_let_alone_soon, begin, end),
        cmocka_unit_test_setup_teardown(what_another_one_had_read_tells_nothing, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
