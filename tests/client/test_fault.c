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
#include "client/hostmem/copy_pool.h"
#include "client/hostmem/fault.h"
#include "client/link/call.h"
#include "gen/event.h"
#include "gen/stream.h"
#include "transport/transport.h"
#include "wire/control.h"

enum { SIZE = 8 << 20, RUN = TOW_FETCH_MAX / TOW_FAULT_BLOCK };

static struct towc_link server;
static struct tow_line *worker; /* the other end of its side line */
static uint8_t *memory;
static uint8_t piece[4096];
static unsigned sent;     /* pieces of changes */
static uint32_t carrying; /* the context of the last one */
static bool touches;      /* nobody is stopped who writes */

static CUresult count(struct towc_link *to, const struct towc_idle *idle, const uint8_t *bytes,
                      size_t size)
{
    assert_ptr_equal(to, &server);
    assert_true(bytes != NULL && size > 0);
    sent++;
    carrying = towc_link_still_idle(to, idle) ? idle->context : 0;
    return CUDA_SUCCESS;
}

static void push(bool stale)
{
    assert_int_equal(towc_fault_push(&server, stale ? TOW_FAULT_STALE : TOW_FAULT_WORK, piece,
                                     sizeof piece, count),
                     CUDA_SUCCESS);
}

/* A thread of the program that looks at a byte. */
static void *look(void *at)
{
    return (void *)(uintptr_t) * (volatile uint8_t *)at;
}

/* The next thing that the program asks for, and for which context. */
static struct tow_fetch asked_in(uint32_t *ret_context)
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
    *ret_context = frame.context;
    if (frame.context != 0) { /* work waits for it, as it does for changes */
        assert_int_equal(tow_line_peek(worker, TOW_FRAME_HEADER, tow_time_deadline(20 * TOW_TIME_S),
                                       &at, &available),
                         0);
        assert_int_equal(tow_frame_read(at, &frame), 0);
        assert_int_equal(frame.kind, TOW_CONTROL_MIRROR);
        assert_int_equal(frame.length, TOW_FRAME_HEADER);
        tow_line_consume(worker, frame.length);
    }
    return fetch;
}

static struct tow_fetch asked(void)
{
    uint32_t context;
    return asked_in(&context);
}

static void answer(const struct tow_fetch *fetch, uint8_t byte, uint32_t flags)
{
    uint64_t done = 0;
    uint8_t *bytes = malloc(TOW_DATA_MAX);
    memset(bytes, byte, TOW_DATA_MAX);
    do {
        uint8_t head[TOW_DATA_HEAD];
        uint32_t pad = 0;
        uint64_t left = fetch->size - done, n = left < TOW_DATA_MAX ? left : TOW_DATA_MAX;
        struct tow_data data = {
            .flags = flags, .offset = done, .size = flags == 0 ? (uint32_t)n : 0};
        assert_int_equal(tow_data_head_encode(&data, 0, 0, head, &pad), 0);
        struct iovec parts[2] = {{head, sizeof head}, {bytes, data.size}};
        assert_int_equal(tow_line_send_direct(worker, parts, 2), 0);
        done += n;
    } while (done < fetch->size && flags == 0);
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
    towc_copy_pool_set_size(3);
    tow_lock_init(&server.send.lock, CLIENT_SEND);
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

/* What a thread sees in a block that is fetched. Returns how many come. */
static unsigned fetched_as(unsigned block, uint8_t byte)
{
    pthread_t thread;
    pthread_create(&thread, NULL, look, memory + (size_t)block * TOW_FAULT_BLOCK);
    struct tow_fetch fetch = asked();
    assert_int_equal(fetch.address, (uintptr_t)memory + (size_t)block * TOW_FAULT_BLOCK);
    answer(&fetch, byte, 0);
    assert_int_equal(seen_by(thread), byte);
    return (unsigned)(fetch.size / TOW_FAULT_BLOCK);
}

static void what_changed_goes_out_and_stays_until_a_synchronisation(void **state)
{
    (void)state;
    uint8_t *block = memory + TOW_FAULT_BLOCK;
    push(false);
    fetched_as(1, 7);
    for (unsigned i = 1; i <= 3; i++) {
        block[9 + i] = 8;
        sent = 0;
        push(false);
        assert_int_equal(sent, 1);
        push(false); /* nothing new */
        assert_int_equal(sent, 1);
        if (touches) {
            fetched_as(1, 7); /* it has left, and is not forgotten */
        }
    }
    block[20] = 8;
    sent = 0;
    push(true);
    assert_int_equal(sent, 1);
    fetched_as(1, 9);
}

/* How much has been compared so far. */
static uint64_t compared(void)
{
    return atomic_load(&server.counters.compared_bytes);
}

static void what_was_only_read_is_not_compared(void **state)
{
    (void)state;
    if (touches) {
        return;
    }
    push(false);
    for (unsigned at = 0; at < RUN; at += fetched_as(at, 5)) {
    }
    uint64_t before = compared();
    sent = 0;
    push(false);
    push(false);
    assert_int_equal(compared(), before);
    assert_int_equal(sent, 0);
    assert_int_equal(memory[40 * TOW_FAULT_BLOCK], 5); /* nobody is asked */
    memory[40 * TOW_FAULT_BLOCK] = 6;
    memory[58 * TOW_FAULT_BLOCK + 9] = 6;
    push(false);
    assert_int_equal(sent, 1);
    assert_in_range(compared() - before, 2 * TOW_FAULT_BLOCK, 4 * TOW_FAULT_BLOCK);
    push(true);
    assert_int_equal(sent, 1);
    fetched_as(40, 9);
    fetched_as(3, 9);
}

/* All that the program gave is done: its only context was synchronised. */
static void settle(void)
{
    atomic_store(&server.work.contexts, 1);
    uint64_t given = atomic_load(&server.work.given);
    push(true);
    towc_link_synchronised(&server, 3, given);
}

/* Fetches blocks, writes a byte of each, and returns how many pieces go out. */
static unsigned written_in_a_row(bool idle)
{
    push(false);
    if (idle) {
        settle();
    }
    for (unsigned at = 0; at < RUN; at += fetched_as(at, 5)) {
    }
    if (idle) { /* those behind them come, too */
        struct tow_fetch fetch = asked();
        answer(&fetch, 5, 0);
    }
    for (unsigned at = 0; at < RUN; at++) {
        memory[at * TOW_FAULT_BLOCK + 3] = 6;
    }
    sent = 0;
    push(false);
    return sent;
}

/* Who writes all of much memory that nobody else writes does not pay for comparing it. */
static void what_is_written_as_a_whole_goes_as_a_whole(void **state)
{
    (void)state;
    unsigned least = (2 << 20) / sizeof piece, all = TOW_FETCH_MAX / sizeof piece;
    unsigned pieces = written_in_a_row(true);
    assert_in_range(pieces, touches ? 1 : least, touches ? 16 : all);
    push(true);
}

static void bytes_beside_those_that_work_may_write_do_not_go(void **state)
{
    (void)state;
    assert_in_range(written_in_a_row(false), 1, 16);
    push(true);
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

/* Who has walked far finds what follows here, unless work went out since. */
static void what_follows_comes_untouched(void **state)
{
    (void)state;
    uint64_t at = 0;
    push(false);
    settle();
    for (int i = 0; i < 4; i++) { /* 4, 16, 64 blocks, and to the end of the first 4 MiB */
        pthread_t thread;
        pthread_create(&thread, NULL, look, memory + at);
        struct tow_fetch fetch = asked();
        answer(&fetch, 1, 0);
        assert_int_equal(seen_by(thread), 1);
        at += fetch.size;
    }
    assert_int_equal(at, TOW_FETCH_MAX);
    struct tow_fetch fetch = asked();
    assert_int_equal(fetch.address, (uint64_t)(uintptr_t)memory + at);
    assert_int_equal(fetch.size, TOW_FETCH_MAX);
    answer(&fetch, 2, 0);
    assert_int_equal(memory[at], 2); /* nobody is asked again */
    assert_int_equal(memory[SIZE - 1], 2);
    memory[at + 9] = 3;
    sent = 0;
    push(false);
    assert_int_equal(sent, 1);
}

static void what_came_untouched_is_old_after_work(void **state)
{
    (void)state;
    uint64_t at = 0;
    pthread_t thread;
    push(false);
    settle();
    for (int i = 0; i < 4; i++) {
        pthread_create(&thread, NULL, look, memory + at);
        struct tow_fetch fetch = asked();
        answer(&fetch, 1, 0);
        assert_int_equal(seen_by(thread), 1);
        at += fetch.size;
    }
    struct tow_fetch fetch = asked();
    answer(&fetch, 2, 0);
    push(false); /* work goes out, which may write it */
    pthread_create(&thread, NULL, look, memory + at);
    struct tow_fetch again = asked();
    assert_int_equal(again.address, fetch.address);
    assert_int_equal(again.size, fetch.size);
    answer(&again, 3, 0);
    assert_int_equal(seen_by(thread), 3);
}

/* Its memory goes while the worker's answer comes. */
static void memory_may_go_while_it_comes(void **state)
{
    pthread_t thread;
    push(false);
    pthread_create(&thread, NULL, look, memory);
    struct tow_fetch fetch = asked();
    drop(state);
    uint8_t *other =
        mmap(memory, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    assert_ptr_equal(other, memory);
    answer(&fetch, 9, 0);
    assert_int_equal(seen_by(thread), 0);
    munmap(memory, SIZE);
    make(state);
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

/* What context a fetch of a block is for. */
static void touch_only(unsigned block, uint32_t *ret_fetched)
{
    pthread_t thread;
    pthread_create(&thread, NULL, look, memory + (size_t)block * TOW_FAULT_BLOCK);
    struct tow_fetch fetch = asked_in(ret_fetched);
    answer(&fetch, 1, 0);
    assert_int_equal(seen_by(thread), 1);
}

/* The same, and then the push of what was changed there. */
static void touch(unsigned block, uint32_t *ret_fetched, uint32_t *ret_pushed)
{
    touch_only(block, ret_fetched);
    memory[(size_t)block * TOW_FAULT_BLOCK + 5]++;
    sent = 0;
    push(false);
    assert_int_equal(sent, 1);
    *ret_pushed = carrying;
}

static void *give(void *unused)
{
    push(false);
    return unused;
}

static void the_worker_is_told_that_the_device_is_idle(void **state)
{
    (void)state;
    uint32_t fetched, pushed;
    push(false); /* work goes out */
    touch(1, &fetched, &pushed);
    assert_int_equal(fetched, 0);
    assert_int_equal(pushed, 0);
    settle();
    touch(2, &fetched, &pushed);
    assert_int_equal(fetched, 3);
    assert_int_equal(pushed, 3);
    touch(8, &fetched, &pushed); /* and now it works again */
    assert_int_equal(fetched, 0);
    assert_int_equal(pushed, 0);
    /* What changed while it worked is not written over as a whole, though it is idle by now. */
    settle();
    touch(12, &fetched, &pushed);
    assert_int_equal(pushed, 3);
    memory[12 * TOW_FAULT_BLOCK + 99] = 9;
    sent = 0;
    push(true);
    assert_int_equal(sent, 1);
    assert_int_equal(carrying, 0);
    /* Who waits for what is done learns nothing new, and what was fetched stays. */
    settle();
    touch_only(14, &fetched);
    assert_int_equal(fetched, 3);
    memory[14 * TOW_FAULT_BLOCK + 99] = 9;
    sent = 0;
    assert_int_equal(towc_fault_push(&server, TOW_FAULT_WAIT, piece, sizeof piece, count),
                     CUDA_SUCCESS);
    assert_int_equal(sent, 1);
    assert_int_equal(carrying, 3);
    push(true);
    assert_int_equal(memory[14 * TOW_FAULT_BLOCK + 99], 9); /* nobody is asked */
    touch_only(15, &fetched);
    assert_int_equal(fetched, 3);
    push(false);
    /* Another context may have work. */
    settle();
    atomic_store(&server.work.contexts, 2);
    touch(16, &fetched, &pushed);
    assert_int_equal(fetched, 0);
    assert_int_equal(pushed, 0);
    atomic_store(&server.work.contexts, 1);
}

/* The next frame on the session's own line. */
static struct tow_frame commanded(struct tow_line *line, uint64_t *ret_first)
{
    const uint8_t *at = NULL;
    size_t available = 0;
    struct tow_frame frame;
    assert_int_equal(tow_line_peek(line, TOW_FRAME_HEADER + 8, tow_time_deadline(20 * TOW_TIME_S),
                                   &at, &available),
                     0);
    assert_int_equal(tow_frame_read(at, &frame), 0);
    memcpy(ret_first, at + TOW_FRAME_HEADER, 8);
    tow_line_consume(line, frame.length);
    return frame;
}

static void command(unsigned fn)
{
    struct towc_call call;
    assert_int_equal(towc_call_begin_on(&call, &server, 3, fn, 8, 0), CUDA_SUCCESS);
    tow_enc_u64(&call.enc, fn);
    assert_int_equal(towc_call_send(&call), CUDA_SUCCESS);
}

/* A fetch that may be a copy of the driver's comes before all work that the program gives behind
 * it: that could stand still until whoever waits for the fetch has done something. */
static void work_comes_behind_what_is_fetched(void **state)
{
    (void)state;
    struct tow_line *line = server.line, *own = NULL, *theirs = NULL;
    uint64_t first;
    uint32_t fetched;
    pthread_t thread;
    assert_int_equal(tow_line_pair(&own, &theirs), 0);
    server.line = own;
    atomic_store(&server.room, TOW_LINK_ROOM);
    atomic_fetch_add(&towc_mirror_count, 1);
    settle();
    pthread_create(&thread, NULL, look, memory);
    struct tow_fetch fetch = asked_in(&fetched);
    assert_int_equal(fetched, 3);
    uint64_t changes = atomic_load(&server.side_mirrors);
    command(TOW_FN_cuEventRecord); /* no work */
    assert_int_equal(commanded(theirs, &first).kind, TOW_FN_cuEventRecord);
    command(TOW_FN_cuStreamWaitValue32_v2);
    assert_int_equal(commanded(theirs, &first).kind, TOW_CONTROL_FENCE);
    assert_int_equal(first, changes);
    assert_int_equal(commanded(theirs, &first).kind, TOW_FN_cuStreamWaitValue32_v2);
    answer(&fetch, 1, 0);
    assert_int_equal(seen_by(thread), 1);
    /* From then on the CPU fetches, for whom nobody needs to wait. */
    touch_only(9, &fetched);
    assert_int_equal(fetched, 0);
    assert_int_equal(atomic_load(&server.side_mirrors), changes);
    command(TOW_FN_cuStreamWaitValue32_v2);
    assert_int_equal(commanded(theirs, &first).kind, TOW_FN_cuStreamWaitValue32_v2);
    atomic_fetch_sub(&towc_mirror_count, 1);
    atomic_store(&server.room, 0);
    server.line = line;
    tow_line_close(own);
    tow_line_close(theirs);
}

/* Work of a synchronisation's own thread is behind it. Another thread's may be on its way. */
static void with_two_threads_nobody_knows(void **state)
{
    (void)state;
    pthread_t thread;
    uint32_t fetched, pushed;
    push(false);
    pthread_create(&thread, NULL, give, NULL);
    pthread_join(thread, NULL);
    settle();
    touch(1, &fetched, &pushed);
    assert_int_equal(fetched, 0);
    assert_int_equal(pushed, 0);
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
    const char *wish = getenv("TOWLINE_MANAGED");
    touches = wish != NULL && strcmp(wish, "touch") == 0;
    if (!begin()) {
        puts("userfaultfd is not permitted here");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_fetched_before_work_went_out, make, drop),
        cmocka_unit_test_setup_teardown(zeros_are_not_sent_to_who_has_them, make, drop),
        cmocka_unit_test_setup_teardown(what_was_on_its_way_is_not_taken_after_a_synchronisation,
                                        make, drop),
        cmocka_unit_test_setup_teardown(what_changed_goes_out_and_stays_until_a_synchronisation,
                                        make, drop),
        cmocka_unit_test_setup_teardown(what_was_only_read_is_not_compared, make, drop),
        cmocka_unit_test_setup_teardown(what_is_written_as_a_whole_goes_as_a_whole, make, drop),
        cmocka_unit_test_setup_teardown(bytes_beside_those_that_work_may_write_do_not_go, make,
                                        drop),
        cmocka_unit_test_setup_teardown(it_reads_ahead, make, drop),
        cmocka_unit_test_setup_teardown(what_follows_comes_untouched, make, drop),
        cmocka_unit_test_setup_teardown(what_came_untouched_is_old_after_work, make, drop),
        cmocka_unit_test_setup_teardown(memory_may_go_while_it_comes, make, drop),
        cmocka_unit_test_setup_teardown(what_the_worker_does_not_have_is_zero, make, drop),
        cmocka_unit_test_setup_teardown(the_worker_is_told_that_the_device_is_idle, make, drop),
        cmocka_unit_test_setup_teardown(work_comes_behind_what_is_fetched, make, drop),
        cmocka_unit_test_setup_teardown(with_two_threads_nobody_knows, make, drop),
        cmocka_unit_test_setup_teardown(nobody_waits_for_a_lost_worker, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
