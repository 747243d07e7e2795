/* A few threads that copy memory together with whoever asks: one thread moves 10 GB/s, the GPU's
 * link 55. They are started by the first large copy and sleep between copies. */
#ifndef TOW_CLIENT_GANG_H
#define TOW_CLIENT_GANG_H

#include <stddef.h>

/* Calls piece(user, i) for i from 0 to count - 1, in about that order, on this thread and on those
 * of the gang that are free; returns when all have returned. Calls from several threads at once are
 * fine: those that find the gang busy work alone. */
void tow_gang_run(size_t count, void (*piece)(void *user, size_t index), void *user);

/* How many threads it has with the caller, instead of as many as the processors allow; for tests.
 * Before the first run. */
void tow_gang_set_size(unsigned size);

#endif
