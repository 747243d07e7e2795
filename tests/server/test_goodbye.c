/* SPDX-License-Identifier: Apache-2.0 */
/* Why a session ends reaches a client that reads, though much is being sent to it. */
#include "base/mutex.h"
#include "cmocka_all.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/driver.h"
#include "base/clock.h"
#include "base/thread.h"
#include "fake_session.h"
#include "server/session/session.h"
#include "transport/line.h"
#include "wire/control.h"

#define SIZE (UINT64_C(8) << 30) /* so much takes far longer than the goodbye may */

static struct tow_line *client;
static struct tows_session *session;
static struct tow_driver driver;
static const void *bytes;
static int sent;
static atomic_uint frames;
static bool said;

static int begin(void **state)
{
    struct tow_line *line;
    (void)state;
    bytes = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    assert_int_equal(tow_line_pair(&client, &line), 0);
    session = fake_session_make(&driver, line);
    frames = 0;
    said = false;
    return 0;
}

static int end(void **state)
{
    struct tow_line *line = session->line;
    (void)state;
    fake_session_end(session);
    tow_line_close(client);
    tow_line_close(line);
    munmap((void *)(uintptr_t)bytes, SIZE);
    return 0;
}

static void *send_all(void *arg)
{
    uint64_t place;
    sent = tows_session_lend_data(session, 1, 0, bytes, SIZE, 0, &place);
    return arg;
}

/* Until the goodbye, or the end of the line. */
static void *read_all(void *arg)
{
    const uint8_t *at;
    size_t available;
    struct tow_frame frame;
    while (!said &&
           tow_line_peek(client, TOW_FRAME_HEADER, TOW_TIME_FOREVER, &at, &available) == 0 &&
           tow_frame_read(at, &frame) == 0 && tow_line_discard(client, frame.length) == 0) {
        said = frame.kind == TOW_CONTROL_BYE;
        atomic_fetch_add(&frames, 1);
    }
    return arg;
}

static void a_goodbye_comes_before_what_is_left_of_a_download(void **state)
{
    pthread_t sender, reader;
    (void)state;
    assert_int_equal(tow_thread_start("reader", read_all, NULL, &reader), 0);
    assert_int_equal(tow_thread_start("sender", send_all, NULL, &sender), 0);
    while (atomic_load(&frames) < 3) {
        tow_time_sleep(TOW_TIME_MS);
    }
    tows_session_dismiss(session, "a test is over", 2 * TOW_TIME_S);
    pthread_join(sender, NULL);
    pthread_join(reader, NULL);
    assert_true(said);
    assert_int_not_equal(sent, 0);
}

/* Whether it is had by luck is another matter each time. */
#define AGAIN                                                                                      \
    cmocka_unit_test_setup_teardown(a_goodbye_comes_before_what_is_left_of_a_download, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {AGAIN, AGAIN, AGAIN, AGAIN, AGAIN, AGAIN};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
