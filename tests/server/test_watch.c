/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of awaited events before a reply, also while a thread stands in the driver. */
#include "base/mutex.h"
#include "cmocka_all.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backend/driver.h"
#include "base/clock.h"
#include "gen/context.h"
#include "gen/event.h"
#include "fake_session.h"
#include "server/session/session.h"
#include "server/session/completion.h"
#include "transport/line.h"
#include "wire/control.h"
#include "wire/id.h"
#include "wire/limits.h"

enum { THREAD = 3, CONTEXT = 5, WATCH_ID = 7, VALUE = 9 };

static struct tow_line *client;
static struct tows_session *session;
static struct tow_driver driver;
static uint64_t event_id;
static sem_t stands, go;
static _Atomic CUresult answer; /* what the driver says of the event */
static atomic_uint answers;     /* how often it has */

static CUresult fake_current(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

/* Stands until it is let go, once. */
static CUresult fake_query(CUevent event)
{
    (void)event;
    sem_post(&stands);
    sem_wait(&go);
    sem_post(&go);
    atomic_fetch_add(&answers, 1);
    return atomic_load(&answer);
}

static int begin(void **state)
{
    static uint8_t handles[2];
    (void)state;
    tow_driver_set(&driver, cuCtxSetCurrent, fake_current);
    tow_driver_set(&driver, cuEventQuery, fake_query);
    sem_init(&stands, 0, 0);
    sem_init(&go, 0, 0);
    atomic_store(&answer, CUDA_ERROR_NOT_READY);
    atomic_store(&answers, 0);
    struct tow_line *line = NULL;
    assert_int_equal(tow_line_pair(&client, &line), 0);
    session = fake_session_make(&driver, line);
    uint64_t context = TOW_ID_MAKE(TOW_H_CONTEXT, 0, 1, CONTEXT);
    event_id = TOW_ID_MAKE(TOW_H_EVENT, 0, 1, 1);
    assert_int_equal(tows_handles_bind(&session->handles, context, &handles[0], CUDA_SUCCESS, 0),
                     0);
    assert_int_equal(
        tows_handles_bind(&session->handles, event_id, &handles[1], CUDA_SUCCESS, CONTEXT), 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    sem_post(&go); /* where a test has failed the thread still stands */
    struct tow_line *line = session->line;
    fake_session_end(session);
    tow_line_close(client);
    tow_line_close(line);
    sem_destroy(&stands);
    sem_destroy(&go);
    return 0;
}

/* The client asked, and wants to hear of it. */
static void await_event(void)
{
    uint32_t body[2] = {WATCH_ID, VALUE};
    struct tows_serve call = {.session = session,
                              .driver = &driver,
                              .frame = {.kind = 1, .thread = THREAD, .context = CONTEXT, .seq = 1},
                              .status = CUDA_ERROR_NOT_READY};
    call.in = tow_dec_init(body, sizeof body);
    const struct tows_handle_entry *entry = tows_handles_find(&session->handles, event_id);
    tows_completion_await_event(&call, event_id, entry->handle);
    assert_false(call.malformed);
}

/* The next frame is of this one event; says whether it is to be asked for. */
static bool next_told(void)
{
    const uint8_t *at = NULL;
    size_t available = 0;
    struct tow_frame frame;
    static struct tow_done done;
    assert_int_equal(tow_line_peek(client, TOW_FRAME_HEADER, tow_time_deadline(20 * TOW_TIME_S),
                                   &at, &available),
                     0);
    assert_int_equal(tow_frame_read(at, &frame), 0);
    assert_int_equal(
        tow_line_peek(client, frame.length, tow_time_deadline(20 * TOW_TIME_S), &at, &available),
        0);
    assert_int_equal(tow_done_decode(at, &frame, &done), 0);
    assert_int_equal(done.count, 1);
    assert_int_equal(done.entries[0].watch_id, WATCH_ID);
    assert_int_equal(done.entries[0].value, VALUE);
    tow_line_consume(client, frame.length);
    return done.entries[0].refused;
}

/* The thread that watches stands in the driver, or waits for a processor there. What a reply lets
 * the program know may be done, and nobody can tell: the client is to ask. */
static void a_reply_that_cannot_wait_sends_the_client_to_ask(void **state)
{
    (void)state;
    await_event();
    sem_wait(&stands);
    tows_completion_sweep(session);
    assert_true(next_told());
    /* It is told all the same once it is done. */
    atomic_store(&answer, CUDA_SUCCESS);
    sem_post(&go);
    assert_false(next_told());
}

/* Nobody stands anywhere: what is done is told before the reply, and what is not is not. */
static void what_is_done_is_told_before_a_reply(void **state)
{
    (void)state;
    sem_post(&go);
    await_event();
    sem_wait(&stands);
    atomic_store(&answer, CUDA_SUCCESS);
    tows_completion_sweep(session);
    /* A watcher that has lost its processor in the driver is the case above: its doubt comes first.
     */
    while (next_told()) {
    }
}

static void *drop_thread(void *arg)
{
    const struct tows_handle_entry *entry = tows_handles_find(&session->handles, event_id);
    (void)arg;
    tows_completion_drop(session, entry->handle);
    assert_int_not_equal(atomic_load(&answers), 0); /* it was asked for no longer than that */
    return NULL;
}

/* The leading thread goes on meanwhile: it gives up what is asked for only when that is over. */
static void who_stands_in_the_driver_holds_up_nobody_else(void **state)
{
    (void)state;
    static uint8_t other;
    pthread_t thread;
    await_event();
    sem_wait(&stands);
    await_event();
    tows_completion_drop(session, &other);
    assert_int_equal(atomic_load(&answers), 0);
    assert_int_equal(pthread_create(&thread, NULL, drop_thread, NULL), 0);
    sem_post(&go);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(next_told()); /* it was dropped: the client asks */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_reply_that_cannot_wait_sends_the_client_to_ask, begin,
                                        end),
        cmocka_unit_test_setup_teardown(what_is_done_is_told_before_a_reply, begin, end),
        cmocka_unit_test_setup_teardown(who_stands_in_the_driver_holds_up_nobody_else, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
