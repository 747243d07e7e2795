/* SPDX-License-Identifier: Apache-2.0 */
/* A few threads that copy memory together with whoever asks: one thread moves 10 GB/s, the GPU's
 * link 55. They are started by the first large copy and sleep between copies. */
#ifndef TOW_CLIENT_GANG_H
#define TOW_CLIENT_GANG_H

#include <stdbool.h>
#include <stddef.h>

/* Calls piece(user, i) for i from 0 to count - 1, in about that order, on this thread and on those
 * of the gang that are free; returns when all have returned. Calls from several threads at once are
 * fine: those that find the gang busy work alone. */
void towc_gang_run(size_t count, void (*piece)(void *user, size_t index), void *user);

/* Pieces that go through a few bays, `each` of them (the last time perhaps fewer) in one lot: a bay
 * is opened, filled and sent, in the order of the lots, while others are filled and emptied. */
enum { TOW_FLOW_BAYS = 4 };

struct towc_flow {
    size_t pieces; /* all of them, at least one */
    size_t each;
    /* On any thread, while the bay of its lot is open. */
    void (*piece)(void *user, size_t index);
    /* On the caller's: makes the bay of a lot ready, which was sent TOW_FLOW_BAYS lots ago. 0, or
     * why that fails; -EAGAIN, unless it is to wait, if that would take time. */
    int (*open)(void *user, size_t lot, bool wait);
    /* The same for a lot whose pieces are all done. */
    int (*send)(void *user, size_t lot);
    void *user;
};

/* Runs it with the gang, if that is free. Returns 0, or the first failure: nothing is opened or
 * sent after that. */
int towc_gang_flow(const struct towc_flow *plan);

/* How many threads it has with the caller, instead of as many as the processors allow; for tests.
 * Before the first run. */
void towc_gang_set_size(unsigned size);

#endif
