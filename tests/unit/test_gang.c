/* Threads that copy together: every piece once, whoever asks and how many at once. */
#include "client/gang.h"

#include <pthread.h>
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
        tow_gang_run(count, copy_piece, &work);
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
    tow_gang_set_size(4);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_piece_is_done_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
