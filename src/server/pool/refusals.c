/* SPDX-License-Identifier: Apache-2.0 */
/* Hears which system calls a worker was refused, and logs each name once. */
#include "server/pool/refusals.h"

#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "server/pool/worker_pool.h"
#include "server/walls/refused.h"

void tows_refusals_close(struct tows_worker *worker)
{
    if (worker->refused >= 0) {
        close(worker->refused);
        worker->refused = -1;
    }
}

void tows_refusals_adopt(struct tows_worker *worker, int fd)
{
    tows_refusals_close(worker);
    worker->refused = fd;
}

/* True the first time. */
static bool refusals_record(struct tows_refusals *refusals, int number)
{
    unsigned last = TOW_REFUSALS_NUMBERS - 1;
    unsigned place = number >= 0 && (unsigned)number < last ? (unsigned)number : last;
    uint64_t bit = UINT64_C(1) << place % 64;
    bool first = (refusals->named[place / 64] & bit) == 0;
    refusals->named[place / 64] |= bit;
    return first;
}

static void refusals_tell(const struct tows_worker *worker, int number)
{
    char by_number[32], tenant[TOW_WHO_TEXT_MAX];
    const char *name = tows_refused_name(number);
    struct tow_log_about about = tows_worker_about(worker, tenant);
    snprintf(by_number, sizeof by_number, "number %d", number);
    tow_log_about(TOW_AREA_SERVER, TOW_LOG_WARN, worker->session != 0 ? &about : NULL,
                  "worker %d was refused the system call %s, which no worker needs; if programs "
                  "fail here, please report its name (it is logged once)",
                  (int)worker->pid, name != NULL ? name : by_number);
}

void tows_refusals_hear(struct tows_worker_pool *pool, struct tows_worker *worker)
{
    int number = 0;
    int taken = tows_refused_take(worker->refused, &number);
    if (taken > 0 && refusals_record(&pool->refusals, number)) {
        refusals_tell(worker, number);
    }
    if (taken < 0 || (taken > 0 && ++worker->refusals == TOW_REFUSALS_WORKER_MAX)) {
        tows_refusals_close(worker);
    }
}
