/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of memory that both sides hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>

#include "wire/cursor.h"
#include "wire/diff.h"

enum { SIZE = 3 * 4096 + 13 }; /* the last line is short */

struct copy {
    uint8_t now[SIZE], known[SIZE];
};

static bool find(void *user, uint64_t address, size_t size, uint8_t **ret_now, uint8_t **ret_known)
{
    struct copy *c = user;
    if (address < 0x10000 || address - 0x10000 > SIZE || size > SIZE - (address - 0x10000)) {
        return false;
    }
    *ret_now = c->now + (address - 0x10000);
    *ret_known = c->known + (address - 0x10000);
    return true;
}

/* Brings what changed in `from` over to `to`, through outputs of `room` bytes. Returns the bytes
 * sent. */
static size_t exchange(struct copy *from, struct copy *to, size_t room)
{
    struct tow_diff diff = {
        .known = from->known, .now = from->now, .address = 0x10000, .size = SIZE};
    uint8_t *out = malloc(room);
    size_t total = 0, n;
    while ((n = tow_diff_next(&diff, out, room)) > 0) {
        assert_int_equal(tow_diff_apply(out, n, find, to), 0);
        total += n;
    }
    free(out);
    return total;
}

static bool find_without_known(void *user, uint64_t address, size_t size, uint8_t **ret_now,
                               uint8_t **ret_known)
{
    bool found = find(user, address, size, ret_now, ret_known);
    *ret_known = NULL;
    return found;
}

/* Whole lines and single bytes reach a side that remembers nothing, and its own bytes stay. */
static void a_side_may_remember_nothing(void **state)
{
    (void)state;
    struct copy *host = calloc(1, sizeof *host), *device = calloc(1, sizeof *device);
    uint8_t out[4096];
    memset(host->now, 5, 64);
    host->now[128] = 6;
    device->now[129] = 7;
    struct tow_diff diff = {
        .known = host->known, .now = host->now, .address = 0x10000, .size = SIZE};
    size_t n = tow_diff_next(&diff, out, sizeof out);
    assert_int_equal(tow_diff_apply(out, n, find_without_known, device), 0);
    assert_memory_equal(device->now, host->now, 129);
    assert_int_equal(device->now[129], 7);
    assert_int_equal(device->known[0], 0);
    free(host);
    free(device);
}

/* Where nobody else writes, whole lines go, and those of a page with what is between them. */
static void whole_lines_go_where_nobody_else_writes(void **state)
{
    (void)state;
    struct copy *host = calloc(1, sizeof *host), *device = calloc(1, sizeof *device);
    uint8_t out[8192];
    host->now[64] = 1;
    host->now[64 * 5] = 2;
    host->now[4096 + 64] = 3; /* on the next page */
    host->now[SIZE - 1] = 4;  /* in the short line */
    struct tow_diff diff = {
        .known = host->known, .now = host->now, .address = 0x10000, .size = SIZE, .whole = true};
    size_t n = tow_diff_next(&diff, out, sizeof out);
    struct tow_dec dec = tow_dec_init(out, n);
    struct tow_diff_record record;
    static const struct {
        unsigned at, lines;
        bool full;
    } expected[] = {{64, 5, true}, {4096 + 64, 1, true}, {SIZE - 13, 1, false}};
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(tow_diff_record_next(&dec, &record), 1);
        assert_int_equal(record.address, 0x10000 + expected[i].at);
        assert_int_equal(record.lines, expected[i].lines);
        assert_int_equal(record.full, expected[i].full);
    }
    assert_int_equal(tow_diff_record_next(&dec, &record), 0);
    assert_int_equal(tow_diff_next(&diff, out, sizeof out), 0);
    assert_int_equal(tow_diff_apply(out, n, find, device), 0);
    assert_memory_equal(device->now, host->now, SIZE);
    assert_memory_equal(host->known, host->now, SIZE);
    /* What is not compared again is not remembered. */
    host->now[64] = 9;
    host->now[SIZE - 1] = 9;
    diff.at = 0;
    diff.last = true;
    assert_int_equal(tow_diff_next(&diff, out, sizeof out), 2 * (16 + 64) + 8);
    assert_int_equal(host->known[64], 1);
    assert_int_equal(host->known[SIZE - 1], 4);
    free(host);
    free(device);
}

/* However little room there is. */
static void whole_lines_are_cut_where_the_room_ends(void **state)
{
    (void)state;
    for (size_t room = TOW_DIFF_ROOM_MIN; room < 9000; room += room < 700 ? 8 : 1000) {
        struct copy *host = calloc(1, sizeof *host), *device = calloc(1, sizeof *device);
        uint8_t out[9000];
        size_t n;
        for (unsigned i = 0; i < SIZE; i += 64 * (1 + i / 64 % 11)) {
            host->now[i] = (uint8_t)(1 + i / 64);
        }
        struct tow_diff diff = {.known = host->known,
                                .now = host->now,
                                .address = 0x10000,
                                .size = SIZE,
                                .whole = true};
        while ((n = tow_diff_next(&diff, out, room)) > 0) {
            assert_true(n <= room);
            assert_int_equal(tow_diff_apply(out, n, find, device), 0);
        }
        assert_memory_equal(device->now, host->now, SIZE);
        free(host);
        free(device);
    }
}

static void both_sides_keep_their_own_bytes(void **state)
{
    (void)state;
    struct copy *host = calloc(1, sizeof *host), *device = calloc(1, sizeof *device);
    for (unsigned seed = 1; seed < 200; seed++) {
        srand(seed);
        for (int i = 0; i < 50; i++) {
            size_t at = (size_t)rand() % SIZE;
            ((at & 1) ? host : device)->now[at] =
                (uint8_t)rand(); /* neighbours belong to different sides */
        }
        if (seed % 3 == 0) {
            memset(host->now + 128, (int)seed, 1024);
            memset(device->now + 128, (int)seed, 1024);
        }
        exchange(host, device, TOW_DIFF_ROOM_MIN + seed * 7);
        exchange(device, host, 100000);
        assert_memory_equal(host->now, device->now, SIZE);
        assert_memory_equal(host->known, host->now, SIZE);
        assert_memory_equal(device->known, device->now, SIZE);
        assert_int_equal(exchange(host, device, 100000), 0);
    }
    free(host);
    free(device);
}

static void whole_lines_cost_their_bytes_only(void **state)
{
    (void)state;
    struct copy *host = calloc(1, sizeof *host), *device = calloc(1, sizeof *device);
    memset(host->now, 7, SIZE);
    assert_int_equal(exchange(host, device, 1 << 20), 3 * 4096 + 16 + 16 + 8 + 64);
    host->now[5000] = 9;
    assert_int_equal(exchange(host, device, 1 << 20), 16 + 8 + 64);
    free(host);
    free(device);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    struct copy *to = calloc(1, sizeof *to);
    struct {
        uint64_t address;
        uint32_t lines, kind;
        uint8_t bytes[64];
    } r = {0x10000, 1, 1, {1}};
    assert_int_equal(tow_diff_apply((uint8_t *)&r, sizeof r, find, to), 0);
    for (size_t cut = 16; cut < sizeof r; cut++) {
        assert_int_equal(tow_diff_apply((uint8_t *)&r, cut, find, to), -EPROTO);
    }
    r.kind = 3;
    assert_int_equal(tow_diff_apply((uint8_t *)&r, sizeof r, find, to), -EPROTO);
    r.kind = 1;
    struct copy *before = malloc(sizeof *before);
    memcpy(before, to, sizeof *before);
    r.address = 0x10000 + SIZE; /* not held (any more): passed over */
    assert_int_equal(tow_diff_apply((uint8_t *)&r, sizeof r, find, to), 0);
    assert_memory_equal(before, to, sizeof *to);
    free(before);
    r.address = 0x10000;
    r.lines = UINT32_MAX;
    assert_int_equal(tow_diff_apply((uint8_t *)&r, sizeof r, find, to), -EPROTO);
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_keep_their_own_bytes),
        cmocka_unit_test(a_side_may_remember_nothing),
        cmocka_unit_test(whole_lines_go_where_nobody_else_writes),
        cmocka_unit_test(whole_lines_are_cut_where_the_room_ends),
        cmocka_unit_test(whole_lines_cost_their_bytes_only),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
