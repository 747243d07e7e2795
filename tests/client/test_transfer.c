/* SPDX-License-Identifier: Apache-2.0 */
/* What a server brings for the program's memory: taken in its order, or refused. */
#include "base/mutex.h"
#include "cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "client/link/link.h"
#include "transport/line.h"

enum { SIZE = 1000 };

static struct towc_link link_to;
static struct tow_line *server;
static uint8_t memory[3 * SIZE];

static int setup(void **state)
{
    memset(&link_to, 0, sizeof link_to);
    memset(memory, 0xaa, sizeof memory);
    link_to.send.next_transfer = 1;
    tow_mutex_init(&link_to.wait.lock, CLIENT_WAIT);
    tow_mutex_init(&link_to.lane.lock, CLIENT_LANES);
    tow_mutex_init(&link_to.side_send.lock, CLIENT_SIDE);
    pthread_cond_init(&link_to.wait.transfer_done, NULL);
    return tow_line_pair(&server, &link_to.line);
}

static int teardown(void **state)
{
    for (uint32_t i = 1; i < link_to.send.next_transfer; i++) {
        towc_link_forget(&link_to, i);
    }
    assert_int_equal(link_to.wait.outstanding, 0);
    assert_null(link_to.wait.oldest);
    assert_null(link_to.wait.newest);
    tow_line_close(link_to.line);
    tow_line_close(server);
    tow_mutex_fini(&link_to.wait.lock);
    tow_mutex_fini(&link_to.lane.lock);
    tow_mutex_fini(&link_to.side_send.lock);
    pthread_cond_destroy(&link_to.wait.transfer_done);
    return 0;
}

static uint32_t expect(size_t at, enum towc_transfer_form form)
{
    uint32_t number = 0;
    struct towc_host_rect into = towc_host_rect_flat(memory + at, SIZE);
    assert_int_equal(towc_link_expect(&link_to, &into, 1, NULL, form, 0, &number), 0);
    return number;
}

/* Takes a frame whose payload, bytes of `value`, is on the line. */
static int take(uint32_t transfer, uint64_t offset, uint32_t size, uint32_t flags, int value,
                bool on_lane)
{
    uint8_t bytes[2 * SIZE];
    memset(bytes, value, size);
    struct iovec part = {bytes, size};
    struct tow_data data = {.transfer = transfer, .flags = flags, .offset = offset, .size = size};
    if (size > 0) {
        assert_int_equal(tow_line_send_direct(server, &part, 1), 0);
    }
    return towc_link_take_payload(&link_to, link_to.line, &data, on_lane);
}

static void ordered_ones_end_with_their_last_byte_or_word(void **state)
{
    uint32_t first = expect(0, TOW_TRANSFER_ORDERED);
    uint32_t second = expect(SIZE, TOW_TRANSFER_ORDERED);
    uint32_t third = expect(2 * SIZE, TOW_TRANSFER_ORDERED);
    assert_int_equal(take(second, 0, 400, 0, 1, false), 0);
    assert_int_equal(take(second, 400, SIZE - 400, TOW_DATA_LAST, 2, false), 0);
    assert_int_equal(memory[SIZE + 399], 1);
    assert_int_equal(memory[2 * SIZE - 1], 2);
    assert_false(towc_link_expecting(&link_to, memory + SIZE, SIZE));
    assert_true(towc_link_expecting(&link_to, memory + SIZE - 1, 1));
    assert_int_equal(take(third, 0, 0, TOW_DATA_LAST | TOW_DATA_FAILED, 0, false), 0);
    assert_int_equal(take(third, 0, 0, TOW_DATA_LAST, 0, false), -EPROTO);
    assert_int_equal(take(first, 0, SIZE, 0, 3, false), 0);
    assert_false(towc_link_expects(&link_to));
}

static void what_does_not_fit_is_refused(void **state)
{
    uint32_t ordered = expect(0, TOW_TRANSFER_ORDERED);
    uint32_t closed = expect(SIZE, TOW_TRANSFER_CLOSED);
    assert_int_equal(take(77, 0, 0, TOW_DATA_LAST, 0, false), -EPROTO);
    assert_int_equal(take(ordered, 0, 8, 0, 0, true), -EPROTO);
    assert_int_equal(take(closed, SIZE + 1, 0, TOW_DATA_LAST, 0, false), -EPROTO);
    assert_int_equal(take(closed, UINT64_MAX, 8, 0, 0, true), -EPROTO);
    assert_int_equal(take(closed, SIZE - 7, 8, 0, 0, true), -EPROTO);
    for (size_t i = 0; i < sizeof memory; i++) {
        assert_int_equal(memory[i], 0xaa);
    }
}

static void lanes_may_bring_what_was_given_up(void **state)
{
    uint32_t given_up = expect(0, TOW_TRANSFER_SPREAD);
    towc_link_forget(&link_to, given_up);
    assert_int_equal(take(given_up, 0, 100, 0, 5, true), 0);
    assert_int_equal(memory[0], 0xaa);
}

/* Twelve rows of 5 bytes, three to a plane. */
static void bytes_that_come_packed_go_into_their_rows(void **state)
{
    uint8_t bytes[60];
    struct towc_host_rect into = {
        .first = memory + 2, .width = 5, .rows = 3, .planes = 4, .pitch = 7, .plane = 30};
    uint32_t transfer = 0;
    assert_int_equal(towc_host_rect_size(&into), 60);
    assert_int_equal(towc_host_rect_span(&into), 3 * 30 + 2 * 7 + 5);
    assert_int_equal(towc_link_expect(&link_to, &into, 1, NULL, TOW_TRANSFER_ORDERED, 0, &transfer),
                     0);
    assert_int_equal(towc_link_outstanding(&link_to) % 4096, 60);
    /* All between its first byte and its last one is waited for. */
    assert_false(towc_link_expecting(&link_to, memory, 2));
    assert_true(towc_link_expecting(&link_to, memory + 2, 1));
    assert_true(towc_link_expecting(&link_to, memory + 2 + 5, 1));
    assert_true(towc_link_expecting(&link_to, memory + 2 + 108, 1));
    assert_false(towc_link_expecting(&link_to, memory + 2 + 109, SIZE));
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)i;
    }
    /* Cut where rows are not: within the first, within a plane, and the rest at once. */
    const size_t cuts[] = {0, 3, 24, sizeof bytes};
    struct iovec part = {bytes, sizeof bytes};
    assert_int_equal(tow_line_send_direct(server, &part, 1), 0);
    for (size_t i = 0; i + 1 < sizeof cuts / sizeof cuts[0]; i++) {
        struct tow_data data = {
            .transfer = transfer, .offset = cuts[i], .size = (uint32_t)(cuts[i + 1] - cuts[i])};
        assert_int_equal(towc_link_take_payload(&link_to, link_to.line, &data, false), 0);
    }
    assert_false(towc_link_expects(&link_to));
    size_t right = 0;
    for (size_t z = 0; z < 4; z++) {
        for (size_t y = 0; y < 3; y++) {
            right += memcmp(memory + 2 + z * 30 + y * 7, bytes + (z * 3 + y) * 5, 5) == 0;
        }
    }
    assert_int_equal(right, 12);
    size_t untouched = 0;
    for (size_t i = 0; i < sizeof memory; i++) {
        untouched += memory[i] == 0xaa;
    }
    assert_int_equal(untouched, sizeof memory - 60);
    uint8_t again[60] = {0};
    towc_host_rect_gather(&into, 0, again, sizeof again);
    assert_memory_equal(again, bytes, sizeof bytes);
    for (size_t from = 0; from < sizeof again; from++) {
        for (size_t to = from + 1; to <= sizeof again; to++) {
            memset(again, 0, sizeof again);
            towc_host_rect_gather(&into, from, again, to - from);
            assert_memory_equal(again, bytes + from, to - from);
        }
    }
}

/* The other way: planes, rows or pieces of rows, packed only if there is something between. */
static void frames_are_of_whole_rows_where_they_fit(void **state)
{
    static const struct {
        size_t width, rows, planes, most, each;
    } cases[] = {
        {5, 3, 4, 1000, 60}, {5, 3, 4, 59, 45}, {5, 3, 4, 15, 15},  {5, 3, 4, 14, 10},
        {5, 3, 4, 5, 5},     {5, 3, 4, 4, 4},   {5, 1, 12, 11, 10}, {60, 1, 1, 7, 7},
    };
    uint8_t bytes[60], room[60];
    for (size_t i = 0; i < sizeof memory; i++) {
        memory[i] = (uint8_t)(i * 7 + i / 251);
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t gap = 0; gap < 3; gap++) {
            struct towc_host_rect rect = {.first = memory + 3,
                                          .width = cases[i].width,
                                          .rows = cases[i].rows,
                                          .planes = cases[i].planes,
                                          .pitch = cases[i].width + (gap == 1 ? 2 : 0)};
            rect.plane = rect.pitch * rect.rows + (gap == 2 ? 3 : 0);
            struct towc_packer packer = towc_packer_of(&rect, cases[i].most);
            bool flat = towc_host_rect_span(&rect) == sizeof bytes;
            assert_int_equal(packer.each, cases[i].each);
            assert_int_equal(towc_host_rect_is_flat(&rect), flat);
            packer.room = flat ? NULL : room;
            towc_host_rect_gather(&rect, 0, bytes, sizeof bytes);
            for (size_t at = 0; at < sizeof bytes; at += packer.each) {
                size_t n = sizeof bytes - at < packer.each ? sizeof bytes - at : packer.each;
                const uint8_t *frame = towc_packer_bytes(&packer, at, n);
                assert_memory_equal(frame, bytes + at, n);
                assert_ptr_equal(frame, flat ? rect.first + at : room);
            }
        }
    }
}

struct closing {
    uint32_t transfer;
    uint32_t flags;
    _Atomic int result; /* 1: none yet */
};

/* The reader of the own line, at the frame that closes a transfer. */
static void *close_it(void *user)
{
    struct closing *c = user;
    struct tow_data data = {.transfer = c->transfer, .flags = c->flags, .offset = SIZE};
    atomic_store(&c->result, towc_link_take_payload(&link_to, link_to.line, &data, false));
    return NULL;
}

static void the_reader_waits_at_the_end_of_what_lanes_bring(void **state)
{
    struct closing c = {expect(0, TOW_TRANSFER_CLOSED), TOW_DATA_LAST, 1};
    pthread_t thread;
    assert_int_equal(take(c.transfer, 600, 400, 0, 1, true), 0);
    assert_int_equal(pthread_create(&thread, NULL, close_it, &c), 0);
    tow_time_sleep(20 * TOW_TIME_MS);
    assert_int_equal(atomic_load(&c.result), 1);
    assert_int_equal(take(c.transfer, 0, 500, 0, 2, true), 0);
    tow_time_sleep(20 * TOW_TIME_MS);
    assert_int_equal(atomic_load(&c.result), 1);
    assert_int_equal(take(c.transfer, 500, 100, 0, 3, true), 0);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&c.result), 0);
    assert_false(towc_link_expects(&link_to));
    assert_int_equal(memory[499], 2);
    assert_int_equal(memory[599], 3);
    assert_int_equal(memory[999], 1);
    /* Not twice. */
    assert_int_equal(take(c.transfer, SIZE, 0, TOW_DATA_LAST, 0, false), -EPROTO);
}

static void bytes_alone_do_not_end_what_is_to_be_closed(void **state)
{
    uint32_t closed = expect(0, TOW_TRANSFER_CLOSED);
    assert_int_equal(take(closed, 0, SIZE, TOW_DATA_LAST, 1, true), 0);
    assert_true(towc_link_expects(&link_to));
    assert_int_equal(take(closed, SIZE, 0, TOW_DATA_LAST, 0, false), 0);
    assert_false(towc_link_expects(&link_to));
    /* All of it on the own line: where the server has no lanes. */
    closed = expect(0, TOW_TRANSFER_CLOSED);
    assert_int_equal(take(closed, 0, 900, 0, 2, false), 0);
    assert_int_equal(take(closed, 900, 100, TOW_DATA_LAST, 2, false), 0);
    assert_false(towc_link_expects(&link_to));
    assert_int_equal(memory[999], 2);
}

static void nothing_is_waited_for_that_failed(void **state)
{
    struct closing c = {expect(0, TOW_TRANSFER_CLOSED), TOW_DATA_LAST | TOW_DATA_FAILED, 1};
    assert_int_equal(take(c.transfer, 0, 100, 0, 1, true), 0);
    close_it(&c);
    assert_int_equal(atomic_load(&c.result), 0);
    assert_false(towc_link_expects(&link_to));
}

static void nothing_is_waited_for_of_a_lost_server(void **state)
{
    struct closing c = {expect(0, TOW_TRANSFER_CLOSED), TOW_DATA_LAST, 1};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, close_it, &c), 0);
    tow_time_sleep(20 * TOW_TIME_MS);
    assert_int_equal(atomic_load(&c.result), 1);
    towc_link_lose(&link_to, "a test");
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&c.result), -EPIPE);
    assert_true(towc_link_expecting(&link_to, memory, 1));
    assert_int_equal(towc_link_await(&link_to, c.transfer), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

static void a_copy_that_is_done_and_lacks_bytes_loses_the_server(void **state)
{
    uint32_t whole = expect(0, TOW_TRANSFER_ORDERED), part = 0;
    struct towc_host_rect into = towc_host_rect_flat(memory + SIZE, SIZE);
    assert_int_equal(towc_link_expect(&link_to, &into, 1, NULL, TOW_TRANSFER_ORDERED, whole, &part),
                     0);
    assert_int_equal(take(whole, 0, SIZE, TOW_DATA_LAST, 1, false), 0);
    assert_int_equal(towc_link_check_whole(&link_to, part), CUDA_SUCCESS); /* a part is no copy */
    assert_int_equal(towc_link_check_whole(&link_to, whole), CUDA_ERROR_DEVICE_UNAVAILABLE);
    assert_false(towc_link_expecting(&link_to, memory, sizeof memory));
}

static void nothing_is_written_to_memory_that_was_given_back(void **state)
{
    uint32_t first = expect(0, TOW_TRANSFER_ORDERED), second = expect(SIZE, TOW_TRANSFER_CLOSED);
    assert_int_equal(take(first, 0, 10, 0, 1, false), 0);
    towc_link_abandon(&link_to, memory + SIZE - 1, 2);
    assert_false(towc_link_expecting(&link_to, memory, sizeof memory));
    assert_true(towc_link_expects(&link_to));
    assert_int_equal(take(first, 10, SIZE - 10, TOW_DATA_LAST, 2, false), 0);
    assert_int_equal(take(second, 0, SIZE, 0, 3, true), 0);
    assert_int_equal(take(second, SIZE, 0, TOW_DATA_LAST, 0, false), 0);
    assert_int_equal(memory[9], 1);
    for (size_t i = 10; i < sizeof memory; i++) {
        assert_int_equal(memory[i], 0xaa);
    }
    assert_false(towc_link_expects(&link_to));
}

/* Its reader has seen the end, and is still at it when the copy's own thread has. */
static void what_is_being_closed_stays_until_its_reader_has_left(void **state)
{
    struct closing c = {expect(0, TOW_TRANSFER_CLOSED), TOW_DATA_LAST, 1};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, close_it, &c), 0);
    tow_time_sleep(20 * TOW_TIME_MS);
    towc_link_lose(&link_to, "a test");
    towc_link_forget(&link_to, c.transfer);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&c.result), -EPIPE);
    assert_false(towc_link_expects(&link_to));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ordered_ones_end_with_their_last_byte_or_word, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(lanes_may_bring_what_was_given_up, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_that_come_packed_go_into_their_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(frames_are_of_whole_rows_where_they_fit, setup, teardown),
        cmocka_unit_test_setup_teardown(the_reader_waits_at_the_end_of_what_lanes_bring, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(bytes_alone_do_not_end_what_is_to_be_closed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(nothing_is_waited_for_that_failed, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_is_waited_for_of_a_lost_server, setup, teardown),
        cmocka_unit_test_setup_teardown(a_copy_that_is_done_and_lacks_bytes_loses_the_server, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(nothing_is_written_to_memory_that_was_given_back, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_being_closed_stays_until_its_reader_has_left, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
