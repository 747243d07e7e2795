/* SPDX-License-Identifier: Apache-2.0 */
/* Managed memory that is watched, with the test as the worker: what comes and leaves in which
 * order.
 */
#include "base/mutex.h"
#include "cmocka_all.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/hostmem/fault.h"
#include "transport/transport.h"
#include "wire/control.h"

enum { SIZE = 4 << 20 };

static struct towc_link server;
static struct tow_line *worker; /* the other end of its side line */
static uint8_t *memory;
static uint8_t piece[4096];
static unsigned sent; /* pieces of changes */

static CUresult count(struct towc_link *to, const uint8_t *bytes, size_t size)
{
    assert_ptr_equal(to, &server);
    assert_true(bytes != NULL && size > 0);
    sent++;
    return CUDA_SUCCESS;
}

static void push(bool stale)
{
    assert_int_equal(towc_fault_push(&server, stale, piece, sizeof piece, count), CUDA_SUCCESS);
}

/* A thread of the program that looks at a byte. */
static void *look(void *at)
{
    return (void *)(uintptr_t) * (volatile uint8_t *)at;
}

/* The next thing that the program asks for. */
static struct tow_fetch asked(void)
{
    const uint8_t *at = NULL;
    size_t available = 0;
    struct tow_frame frame;
    struct tow_fetch fetch = {0};
    int64_t deadline = tow_time_deadline(20 * TOW_TIME_S);
    assert_int_equal(tow_line_peek(worker, 32, deadline, &at, &available), 0);
    assert_int_equal(tow_frame_read(at, &frame), 0);
    assert_int_equal(tow_fetch_decode(at, &frame, &fetch), 0);
    tow_line_consume(worker, frame.length);
    return fetch;
}

static void answer(const struct tow_fetch *fetch, uint8_t byte, uint32_t flags)
{
    uint8_t head[TOW_DATA_HEAD];
    uint32_t pad = 0;
    struct tow_data data = {.flags = flags, .size = flags == 0 ? (uint32_t)fetch->size : 0};
    uint8_t *bytes = malloc(fetch->size);
    memset(bytes, byte, fetch->size);
    assert_int_equal(tow_data_head_encode(&data, 0, 0, head, &pad), 0);
    struct iovec parts[2] = {{head, sizeof head}, {bytes, data.size}};
    assert_int_equal(tow_line_send_direct(worker, parts, 2), 0);
    free(bytes);
}

static uint8_t seen_by(pthread_t thread)
{
    void *seen = NULL;
    pthread_join(thread, &seen);
    return (uint8_t)(uintptr_t)seen;
}

static bool begin(void)
{
    /* Asked whether the server is in this process, and not used. */
    static const struct tow_line_ops elsewhere = {.name = "elsewhere"};
    static struct tow_line own = {.ops = &elsewhere};
    struct tow_line *side = NULL;
    if (tow_line_pair(&side, &worker) < 0) {
        return false;
    }
    server.line = &own;
    tow_mutex_init(&server.wait.lock, CLIENT_WAIT);
    tow_mutex_init(&server.lane.lock, CLIENT_LANES);
    tow_mutex_init(&server.side_send.lock, CLIENT_SIDE);
    server.wait.listening = true;
    atomic_store(&server.side_tried, true);
    atomic_store(&server.side, side);
    return towc_fault_wanted(&server, SIZE);
}

/* Before every test: fresh memory, on which work went out, so that it is fetched. */
static int make(void **state)
{
    (void)state;
    uint8_t *room = mmap(NULL, 2 * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory = (uint8_t *)(((uintptr_t)room + SIZE - 1) & ~(uintptr_t)(SIZE - 1));
    assert_int_equal(mprotect(memory, SIZE, PROT_READ | PROT_WRITE), 0);
    assert_true(towc_fault_add(&server, (uint64_t)(uintptr_t)memory, SIZE));
    assert_int_equal(atomic_load(&towc_fault_count), 1);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    towc_fault_remove((uint64_t)(uintptr_t)memory);
    munmap(memory, SIZE);
    assert_int_equal(atomic_load(&towc_fault_count), 0);
    return 0;
}

static void nothing_is_fetched_before_work_went_out(void **state)
{
    (void)state;
    assert_int_equal(memory[SIZE - 1], 0);
    memory[5] = 1;
    sent = 0;
    push(false); /* two blocks, all of them: nobody knows what the worker has there */
    assert_in_range(sent, 2 * TOW_FAULT_BLOCK / sizeof piece, 3 * TOW_FAULT_BLOCK / sizeof piece);
    unsigned before = sent;
    push(false);
    push(false);
    assert_int_equal(sent, before);
}

static void zeros_are_not_sent_to_who_has_them(void **state)
{
    (void)state;
    towc_fault_told((uint64_t)(uintptr_t)memory, true);
    assert_int_equal(memory[SIZE - 1], 0);
    memory[5] = 1;
    sent = 0;
    push(false);
    assert_int_equal(sent, 1);
    push(false);
    push(false);
    assert_int_equal(sent, 1);
}

static void what_was_on_its_way_is_not_taken_after_a_synchronisation(void **state)
{
    (void)state;
    pthread_t thread;
    push(false);
    pthread_create(&thread, NULL, look, memory + 3 * TOW_FAULT_BLOCK + 1);
    struct tow_fetch first = asked();
    assert_int_equal(first.address, (uint64_t)(uintptr_t)memory + 3 * TOW_FAULT_BLOCK);
    push(true); /* a synchronising call has returned */
    answer(&first, 1, 0);
    struct tow_fetch again = asked();
    assert_int_equal(again.address, first.address);
    answer(&again, 2, 0);
    assert_int_equal(seen_by(thread), 2);
}

static void blocks_leave_when_they_are_old(void **state)
{
    (void)state;
    pthread_t thread;
    push(false);
    pthread_create(&thread, NULL, look, memory + TOW_FAULT_BLOCK);
    struct tow_fetch fetch = asked();
    answer(&fetch, 7, 0);
    assert_int_equal(seen_by(thread), 7);
    memory[TOW_FAULT_BLOCK + 9] = 8;
    sent = 0;
    push(false); /* compared, and stays */
    assert_int_equal(sent, 1);
    memory[TOW_FAULT_BLOCK + 10] = 8;
    push(false); /* leaves, and is not forgotten */
    assert_int_equal(sent, 2);
    pthread_create(&thread, NULL, look, memory + TOW_FAULT_BLOCK);
    fetch = asked();
    answer(&fetch, 9, 0);
    assert_int_equal(seen_by(thread), 9);
}

/* Who walks through memory gets more each time. */
static void it_reads_ahead(void **state)
{
    (void)state;
    uint64_t at = 0, size = 0;
    push(false);
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, look, memory + at);
        struct tow_fetch fetch = asked();
        assert_int_equal(fetch.address, (uint64_t)(uintptr_t)memory + at);
        assert_true(fetch.size > size);
        answer(&fetch, 1, 0);
        assert_int_equal(seen_by(thread), 1);
        at += fetch.size;
        size = fetch.size;
    }
}

static void what_the_worker_does_not_have_is_zero(void **state)
{
    (void)state;
    pthread_t thread;
    push(false);
    pthread_create(&thread, NULL, look, memory + 2 * TOW_FAULT_BLOCK);
    struct tow_fetch fetch = asked();
    answer(&fetch, 1, TOW_DATA_FAILED);
    assert_int_equal(seen_by(thread), 0);
    assert_int_equal(atomic_load(&server.lost), 0);
}

/* The last: the worker goes while a thread waits. */
static void nobody_waits_for_a_lost_worker(void **state)
{
    (void)state;
    pthread_t thread;
    push(false);
    pthread_create(&thread, NULL, look, memory);
    asked();
    atomic_store(&server.lost, CUDA_ERROR_DEVICE_UNAVAILABLE); /* as the own line has told */
    tow_line_close(worker);
    assert_int_equal(seen_by(thread), 0);
}

int main(void)
{
    if (!begin()) {
        puts("userfaultfd is not permitted here");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_fetched_before_work_went_out, make, drop),
        cmocka_unit_test_setup_teardown(zeros_are_not_sent_to_who_has_them, make, drop),
        cmocka_unit_test_setup_teardown(what_was_on_its_way_is_not_taken_after_a_synchronisation,
                                        make, drop),
        cmocka_unit_test_setup_teardown(blocks_leave_when_they_are_old, make, drop),
        cmocka_unit_test_setup_teardown(it_reads_ahead, make, drop),
        cmocka_unit_test_setup_teardown(what_the_worker_does_not_have_is_zero, make, drop),
        cmocka_unit_test_setup_teardown(nobody_waits_for_a_lost_worker, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
