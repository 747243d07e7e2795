/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that copy together: every stripe once, whoever asks and how many at once. */
#include "client/hostmem/copy_pool.h"

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

enum { STRIPES_MAX = 64, CALLERS = 3, ROUNDS = 400 };

struct work {
    atomic_uint done[STRIPES_MAX];
    const uint8_t *from;
    uint8_t *to;
    size_t stripe;
};

static void copy_stripe(void *user, size_t index)
{
    struct work *work = user;
    atomic_fetch_add(&work->done[index], 1);
    memcpy(work->to + index * work->stripe, work->from + index * work->stripe, work->stripe);
}

/* Runs with other numbers of stripes, some with a pause before, so that the pool is found awake and
 * asleep. Returns how often something was wrong. */
static void *call_often(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    enum { STRIPE = 512 };
    uint8_t *from = malloc(STRIPES_MAX * STRIPE), *to = malloc(STRIPES_MAX * STRIPE);
    uintptr_t wrong = from == NULL || to == NULL;
    for (unsigned round = 0; wrong == 0 && round < ROUNDS; round++) {
        size_t count = (seed * 7 + round * 13) % STRIPES_MAX;
        struct work work = {.from = from, .to = to, .stripe = STRIPE};
        memset(from, (int)(seed + round), STRIPES_MAX * STRIPE);
        memset(to, 0xff & ~(int)(seed + round), STRIPES_MAX * STRIPE);
        if (round % 97 == 96) {
            nanosleep(&(struct timespec){0, 300000}, NULL);
        }
        towc_copy_pool_run(count, copy_stripe, &work);
        for (size_t i = 0; i < STRIPES_MAX; i++) {
            wrong += atomic_load(&work.done[i]) != (i < count);
        }
        wrong += memcmp(from, to, count * STRIPE) != 0;
        wrong += count < STRIPES_MAX && to[count * STRIPE] == from[count * STRIPE];
    }
    free(from);
    free(to);
    return (void *)wrong;
}

static void every_stripe_is_done_once(void **state)
{
    (void)state;
    towc_copy_pool_set_size(4);
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

/* A device that takes slots one after the other, each after a while; all that goes through them is
 * looked at. */
enum { STRIPE = 256, EACH_MAX = 4 };

struct device {
    const uint8_t *from;
    size_t stripes, each, bytes;
    size_t fails_at; /* the chunk whose sending fails */
    bool opening;    /* or rather its opening */
    uint8_t slots[TOW_PIPELINE_SLOTS][EACH_MAX * STRIPE];
    uint8_t *to;
    size_t opened, sent;   /* chunks; the caller's */
    atomic_size_t emptied; /* chunks */
    atomic_size_t sent_out;
    atomic_size_t opened_out; /* without those that failed */
    atomic_uint strayed;      /* stripes of chunks that were not open */
    atomic_bool ended;
    unsigned wrong;
};

static size_t bytes_of(const struct device *d, size_t chunk)
{
    size_t offset = chunk * d->each * STRIPE, rest = d->bytes - offset;
    return rest < d->each * STRIPE ? rest : d->each * STRIPE;
}

static void *empty_slots(void *arg)
{
    struct device *d = arg;
    size_t chunk = 0;
    while (!atomic_load(&d->ended) || chunk < atomic_load(&d->sent_out)) {
        if (chunk == atomic_load(&d->sent_out)) {
            sched_yield();
            continue;
        }
        if (chunk % 7 == 3) {
            nanosleep(&(struct timespec){0, 300000}, NULL); /* the pool falls asleep */
        }
        memcpy(d->to + chunk * d->each * STRIPE, d->slots[chunk % TOW_PIPELINE_SLOTS],
               bytes_of(d, chunk));
        memset(d->slots[chunk % TOW_PIPELINE_SLOTS], 0xa5, sizeof d->slots[0]);
        atomic_store(&d->emptied, ++chunk);
    }
    return NULL;
}

static void fill(void *user, size_t index)
{
    struct device *d = user;
    size_t offset = index * STRIPE, rest = d->bytes - offset;
    size_t chunk = index / d->each;
    atomic_fetch_add(&d->strayed, chunk >= atomic_load(&d->opened_out));
    memcpy(d->slots[chunk % TOW_PIPELINE_SLOTS] + offset % (d->each * STRIPE), d->from + offset,
           rest < STRIPE ? rest : STRIPE);
}

static int open_slot(void *user, size_t chunk, bool wait)
{
    struct device *d = user;
    bool is_free = chunk < atomic_load(&d->emptied) + TOW_PIPELINE_SLOTS;
    while (!is_free && wait) {
        sched_yield();
        is_free = chunk < atomic_load(&d->emptied) + TOW_PIPELINE_SLOTS;
    }
    if (!is_free) {
        return -EAGAIN;
    }
    d->wrong += chunk != d->opened++;
    if (d->opening && chunk == d->fails_at) {
        return 700;
    }
    atomic_store(&d->opened_out, chunk + 1);
    return 0;
}

static int send_slot(void *user, size_t chunk)
{
    struct device *d = user;
    d->wrong += chunk != d->sent++;
    d->wrong += memcmp(d->slots[chunk % TOW_PIPELINE_SLOTS], d->from + chunk * d->each * STRIPE,
                       bytes_of(d, chunk)) != 0;
    if (!d->opening && chunk == d->fails_at) {
        return 700;
    }
    atomic_store(&d->sent_out, chunk + 1);
    return 0;
}

/* Returns what was wrong with a pipeline of so many bytes that fails there, or never (SIZE_MAX). */
static unsigned pipeline_once(size_t bytes, size_t each, size_t fails_at, bool opening)
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
    d->stripes = (bytes + STRIPE - 1) / STRIPE;
    d->fails_at = fails_at;
    d->opening = opening;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, empty_slots, d), 0);
    struct towc_copy_pipeline pipeline = {.stripes = d->stripes,
                                          .each = each,
                                          .stripe = fill,
                                          .open = open_slot,
                                          .send = send_slot,
                                          .user = d};
    int result = towc_copy_pool_pipeline(&pipeline);
    atomic_store(&d->ended, true);
    pthread_join(thread, NULL);
    size_t chunks = (d->stripes + each - 1) / each;
    unsigned wrong = d->wrong + atomic_load(&d->strayed);
    if (fails_at < chunks) {
        /* Nothing is begun behind the failure. */
        wrong += result != 700 || d->sent > fails_at + !opening || d->opened > fails_at + 1 + 4;
    } else {
        wrong += result != 0 || d->sent != chunks || memcmp(d->to, from, bytes) != 0;
    }
    free(d->to);
    free(from);
    free(d);
    return wrong;
}

static void chunks_go_through_slots_in_order(void **state)
{
    (void)state;
    towc_copy_pool_set_size(4);
    for (size_t each = 1; each <= EACH_MAX; each++) {
        for (size_t round = 1; round < 60; round++) {
            size_t bytes = round * round * 17 % 30000 + 1;
            assert_int_equal(pipeline_once(bytes, each, SIZE_MAX, false), 0);
        }
    }
}

static void a_failure_ends_the_pipeline(void **state)
{
    (void)state;
    for (size_t at = 0; at < 20; at++) {
        assert_int_equal(pipeline_once(20000, 3, at, false), 0);
        assert_int_equal(pipeline_once(20000, 3, at, true), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stripe_is_done_once),
        cmocka_unit_test(chunks_go_through_slots_in_order),
        cmocka_unit_test(a_failure_ends_the_pipeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
