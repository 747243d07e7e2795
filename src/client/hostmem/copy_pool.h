/* SPDX-License-Identifier: Apache-2.0 */
/* A few threads that copy memory together with whoever asks: one thread moves 10 GB/s, the GPU's
 * link 55. They are started by the first large copy and sleep between copies. */
#ifndef TOW_CLIENT_COPY_POOL_H
#define TOW_CLIENT_COPY_POOL_H

#include <stdbool.h>
#include <stddef.h>

/* Calls stripe(user, i) for i from 0 to count - 1, in about that order, on this thread and on those
 * of the pool that are free; returns when all have returned. Calls from several threads at once are
 * fine: those that find the pool busy work alone. */
void towc_copy_pool_run(size_t count, void (*stripe)(void *user, size_t index), void *user);

/* Stripes that go through a few slots, `each` of them (the last time perhaps fewer) in one chunk: a
 * slot is opened, filled and sent, in the order of the chunks, while others are filled and emptied.
 */
enum { TOW_PIPELINE_SLOTS = 4 };

struct towc_copy_pipeline {
    size_t stripes; /* all of them, at least one */
    size_t each;
    /* On any thread, while the slot of its chunk is open. */
    void (*stripe)(void *user, size_t index);
    /* On the caller's: makes the slot of a chunk ready, which was sent TOW_PIPELINE_SLOTS chunks
     * ago. 0, or why that fails; -EAGAIN, unless it is to wait, if that would take time. */
    int (*open)(void *user, size_t chunk, bool wait);
    /* The same for a chunk whose stripes are all done. */
    int (*send)(void *user, size_t chunk);
    void *user;
};

/* Runs it with the pool, if that is free. Returns 0, or the first failure: nothing is opened or
 * sent after that. */
int towc_copy_pool_pipeline(const struct towc_copy_pipeline *plan);

/* How many threads it has with the caller, instead of as many as the processors allow; for tests.
 * Before the first run. */
void towc_copy_pool_set_size(unsigned size);

#endif
