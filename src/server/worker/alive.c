/* SPDX-License-Identifier: Apache-2.0 */
/* Answers each question of the listener's, asleep in between. */
#include "server/worker/alive.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

static uint64_t (*_Atomic gpu_time)(void);

void tows_alive_tell_time(uint64_t (*ask)(void))
{
    atomic_store(&gpu_time, ask);
}

static void *alive_answer(void *arg)
{
    struct tows_session_stats *stats = arg;
    for (;;) {
        uint32_t asked = atomic_load(&stats->alive_asked);
        atomic_store(&stats->alive_answered, asked);
        uint64_t (*ask)(void) = atomic_load(&gpu_time);
        if (ask != NULL) {
            atomic_store(&stats->gpu_ns, ask());
        }
        tow_futex_wait(&stats->alive_asked, asked, TOW_TIME_FOREVER, true);
    }
    return NULL;
}

void tows_alive_start(struct tows_session_stats *stats)
{
    pthread_t thread;
    /* 0 is never answered: the listener asks nobody then. The first answer is there before the
     * thread is: who stops right after its start is noticed, too. */
    atomic_store(&stats->alive_asked, 1);
    atomic_store(&stats->alive_answered, 1);
    if (tow_thread_start("tow-alive", alive_answer, stats, &thread) < 0) {
        atomic_store(&stats->alive_answered, 0);
        tow_log(
            TOW_AREA_SERVER, TOW_LOG_WARN,
            "no thread for the watchdog can be had: nobody notices if this worker stands still");
    } else {
        pthread_detach(thread);
    }
}
