/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that copy together: every piece once, whoever asks and how many at once. */
#include "client/copy/gang.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { PIECES_MAX = 64, CALLERS = 3, ROUNDS = 400 };

struct work {
    atomic_uint done[PIECES_MAX];
    const uint8_t *from;
    uint8_t *to;
    size_t piece;
};

static void copy_piece(void *user, size_t index)
{
    struct work *work = user;
    atomic_fetch_add(&work->done[index], 1);
    memcpy(work->to + index * work->piece, work->from + index * work->piece, work->piece);
}

/* Runs with other numbers of pieces, some with a pause before, so that the gang is found awake and
 * asleep. Returns how often something was wrong. */
static void *call_often(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    enum { PIECE = 512 };
    uint8_t *from = malloc(PIECES_MAX * PIECE), *to = malloc(PIECES_MAX * PIECE);
    uintptr_t wrong = from == NULL || to == NULL;
    for (unsigned round = 0; wrong == 0 && round < ROUNDS; round++) {
        size_t count = (seed * 7 + round * 13) % PIECES_MAX;
        struct work work = {.from = from, .to = to, .piece = PIECE};
        memset(from, (int)(seed + round), PIECES_MAX * PIECE);
        memset(to, 0xff & ~(int)(seed + round), PIECES_MAX * PIECE);
        if (round % 97 == 96) {
            nanosleep(&(struct timespec){0, 300000}, NULL);
        }
        towc_gang_run(count, copy_piece, &work);
        for (size_t i = 0; i < PIECES_MAX; i++) {
            wrong += atomic_load(&work.done[i]) != (i < count);
        }
        wrong += memcmp(from, to, count * PIECE) != 0;
        wrong += count < PIECES_MAX && to[count * PIECE] == from[count * PIECE];
    }
    free(from);
    free(to);
    return (void *)wrong;
}

static void every_piece_is_done_once(void **state)
{
    (void)state;
    towc_gang_set_size(4);
    assert_null(call_often((void *)(uintptr_t)1));
    pthread_t threads[CALLERS];
    for (uintptr_t i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, (void *)(i + 2)), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}

/* A device that takes bays one after the other, each after a while; all that goes through them is
 * looked at. */
enum { PIECE = 256, EACH_MAX = 4 };

struct device {
    const uint8_t *from;
    size_t pieces, each, bytes;
    size_t fails_at; /* the lot whose sending fails */
    bool opening;    /* or rather its opening */
    uint8_t bays[TOW_FLOW_BAYS][EACH_MAX * PIECE];
    uint8_t *to;
    size_t opened, sent;   /* lots; the caller's */
    atomic_size_t emptied; /* lots */
    atomic_size_t sent_out;
    atomic_size_t opened_out; /* without those that failed */
    atomic_uint strayed;      /* pieces of lots that were not open */
    atomic_bool ended;
    unsigned wrong;
};

static size_t bytes_of(const struct device *d, size_t lot)
{
    size_t offset = lot * d->each * PIECE, rest = d->bytes - offset;
    return rest < d->each * PIECE ? rest : d->each * PIECE;
}

static void *empty_bays(void *arg)
{
    struct device *d = arg;
    size_t lot = 0;
    while (!atomic_load(&d->ended) || lot < atomic_load(&d->sent_out)) {
        if (lot == atomic_load(&d->sent_out)) {
            sched_yield();
            continue;
        }
        if (lot % 7 == 3) {
            nanosleep(&(struct timespec){0, 300000}, NULL); /* the gang falls asleep */
        }
        memcpy(d->to + lot * d->each * PIECE, d->bays[lot % TOW_FLOW_BAYS], bytes_of(d, lot));
        memset(d->bays[lot % TOW_FLOW_BAYS], 0xa5, sizeof d->bays[0]);
        atomic_store(&d->emptied, ++lot);
    }
    return NULL;
}

static void fill(void *user, size_t index)
{
    struct device *d = user;
    size_t offset = index * PIECE, rest = d->bytes - offset;
    size_t lot = index / d->each;
    atomic_fetch_add(&d->strayed, lot >= atomic_load(&d->opened_out));
    memcpy(d->bays[lot % TOW_FLOW_BAYS] + offset % (d->each * PIECE), d->from + offset,
           rest < PIECE ? rest : PIECE);
}

static int open_bay(void *user, size_t lot, bool wait)
{
    struct device *d = user;
    bool is_free = lot < atomic_load(&d->emptied) + TOW_FLOW_BAYS;
    while (!is_free && wait) {
        sched_yield();
        is_free = lot < atomic_load(&d->emptied) + TOW_FLOW_BAYS;
    }
    if (!is_free) {
        return -EAGAIN;
    }
    d->wrong += lot != d->opened++;
    if (d->opening && lot == d->fails_at) {
        return 700;
    }
    atomic_store(&d->opened_out, lot + 1);
    return 0;
}

static int send_bay(void *user, size_t lot)
{
    struct device *d = user;
    d->wrong += lot != d->sent++;
    d->wrong += memcmp(d->bays[lot % TOW_FLOW_BAYS], d->from + lot * d->each * PIECE,
                       bytes_of(d, lot)) != 0;
    if (!d->opening && lot == d->fails_at) {
        return 700;
    }
    atomic_store(&d->sent_out, lot + 1);
    return 0;
}

/* Returns what was wrong with a flow of so many bytes that fails there, or never (SIZE_MAX). */
static unsigned flow_once(size_t bytes, size_t each, size_t fails_at, bool opening)
{
    struct device *d = calloc(1, sizeof *d);
    uint8_t *from = malloc(bytes);
    d->to = calloc(1, bytes);
    for (size_t i = 0; i < bytes; i++) {
        from[i] = (uint8_t)(i * 2654435761u >> 13);
    }
    d->from = from;
    d->bytes = bytes;
    d->each = each;
    d->pieces = (bytes + PIECE - 1) / PIECE;
    d->fails_at = fails_at;
    d->opening = opening;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, empty_bays, d), 0);
    struct towc_flow flow = {.pieces = d->pieces,
                             .each = each,
                             .piece = fill,
                             .open = open_bay,
                             .send = send_bay,
                             .user = d};
    int result = towc_gang_flow(&flow);
    atomic_store(&d->ended, true);
    pthread_join(thread, NULL);
    size_t lots = (d->pieces + each - 1) / each;
    unsigned wrong = d->wrong + atomic_load(&d->strayed);
    if (fails_at < lots) {
        /* Nothing is begun behind the failure. */
        wrong += result != 700 || d->sent > fails_at + !opening || d->opened > fails_at + 1 + 4;
    } else {
        wrong += result != 0 || d->sent != lots || memcmp(d->to, from, bytes) != 0;
    }
    free(d->to);
    free(from);
    free(d);
    return wrong;
}

static void lots_go_through_bays_in_order(void **state)
{
    (void)state;
    towc_gang_set_size(4);
    for (size_t each = 1; each <= EACH_MAX; each++) {
        for (size_t round = 1; round < 60; round++) {
            size_t bytes = round * round * 17 % 30000 + 1;
            assert_int_equal(flow_once(bytes, each, SIZE_MAX, false), 0);
        }
    }
}

static void a_failure_ends_the_flow(void **state)
{
    (void)state;
    for (size_t at = 0; at < 20; at++) {
        assert_int_equal(flow_once(20000, 3, at, false), 0);
        assert_int_equal(flow_once(20000, 3, at, true), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_is_done_once),
        cmocka_unit_test(lots_go_through_bays_in_order),
        cmocka_unit_test(a_failure_ends_the_flow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
