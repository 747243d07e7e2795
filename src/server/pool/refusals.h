/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that workers were refused: the log names each once.
 *
 * A worker that is in a stranger's hands tries what it likes. A driver, a C library or a kernel
 * that nobody has tried yet may need a call that is not in the list. Both are worth a line.
 */
#ifndef TOW_SERVER_REFUSALS_H
#define TOW_SERVER_REFUSALS_H

#include <stdint.h>

struct tows_worker;
struct tows_worker_pool;

enum {
    /* Of one worker that the listener answers. After them it closes the descriptor: the kernel then
     * refuses by itself, and a worker cannot keep the listener busy. */
    TOW_REFUSALS_WORKER_MAX = 64,
    TOW_REFUSALS_NUMBERS = 512, /* larger ones count as one */
};

struct tows_refusals {
    uint64_t named[TOW_REFUSALS_NUMBERS / 64]; /* a bit for each number that the log has */
};

/* Takes the descriptor of a worker that starts (server/walls/refused.h). */
void tows_refusals_adopt(struct tows_worker *worker, int fd);
/* The descriptor is readable. */
void tows_refusals_hear(struct tows_worker_pool *pool, struct tows_worker *worker);
/* From now on nobody answers this worker, and it waits for nobody. */
void tows_refusals_close(struct tows_worker *worker);

#endif
