/* SPDX-License-Identifier: Apache-2.0 */
/* One thread asks at a time; the others wait for its answer. */
#include "server/worker/room.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "server/session/session.h"

/* What is asked for at once. */
#define STEP (UINT64_C(8) << 20)
/* So much is kept though it is not needed. */
#define SPARE (4 * STEP)
/* How long the program has waited when its user is told why. */
#define TELL_NS TOW_TIME_S

static struct {
    struct tows_session_stats *page; /* borrowed; NULL: nobody has begun */
    void (*tell)(void);
    void (*say)(const char *sentence);
    atomic_bool let_go;
    struct tow_mutex lock; /* guards `asks`, and who changes `room` of the page */
    pthread_cond_t changed;
    bool asks; /* a thread waits for an answer */
} room = {.lock = TOW_MUTEX(SERVER_ROOM), .changed = PTHREAD_COND_INITIALIZER};

static unsigned place_of(unsigned device)
{
    return device < TOW_STATS_GPUS_MAX ? device : TOW_STATS_GPUS_MAX - 1;
}

static uint64_t round_up(uint64_t bytes)
{
    return bytes < UINT64_MAX - STEP ? (bytes + STEP - 1) / STEP * STEP : bytes;
}

void tows_room_begin(struct tows_session_stats *stats, void (*tell)(void),
                     void (*say)(const char *sentence))
{
    room.tell = tell;
    room.say = say;
    room.page = stats;
}

bool tows_room_is_on(void)
{
    return room.page != NULL;
}

bool tows_room_has(unsigned device, uint64_t bytes)
{
    if (room.page == NULL) {
        return true;
    }
    tow_mutex_lock(&room.lock);
    bool has = atomic_load(&room.page->room[place_of(device)]) >= bytes;
    tow_mutex_unlock(&room.lock);
    return has;
}

/* Without the lock, by the thread that asks. */
static void await_answer(uint32_t number)
{
    int64_t tell_ns = tow_time_deadline(TELL_NS);
    bool told = false;
    for (;;) {
        uint32_t news = atomic_load(&room.page->room_news);
        if (atomic_load(&room.page->room_answered) == number || atomic_load(&room.let_go)) {
            break;
        }
        if (!told && tow_time_passed(tell_ns)) {
            told = true;
            room.say("waits for GPU memory: other programs have it, and it is made free for this "
                     "one (overcommit = swap)");
        }
        tow_futex_wait(&room.page->room_news, news, told ? TOW_TIME_FOREVER : tell_ns, true);
    }
    if (told && !atomic_load(&room.let_go)) {
        room.say("has its GPU memory: the program goes on");
    }
}

/* With the lock held, which is given back meanwhile. False: refused. */
static bool ask_for(unsigned place, uint64_t bytes)
{
    struct tows_session_stats *page = room.page;
    room.asks = true;
    atomic_store(&page->room_gpu, place);
    atomic_store(&page->room_wanted, round_up(bytes));
    uint32_t number = atomic_load(&page->room_asked) + 1;
    atomic_store(&page->room_asked, number);
    tow_mutex_unlock(&room.lock);
    room.tell();
    await_answer(number);
    tow_mutex_lock(&room.lock);
    bool has = atomic_load(&page->room_answered) == number && atomic_load(&page->room_given) != 0;
    if (has) {
        atomic_store(&page->room[place], round_up(bytes));
    }
    atomic_store(&page->room_taken, number);
    room.asks = false;
    pthread_cond_broadcast(&room.changed);
    return has;
}

bool tows_room_hold(unsigned device, uint64_t bytes)
{
    unsigned place = place_of(device);
    bool can = true;
    if (room.page == NULL) {
        return true;
    }
    tow_mutex_lock(&room.lock);
    while (can && !atomic_load(&room.let_go) && atomic_load(&room.page->room[place]) < bytes) {
        if (room.asks) {
            tow_mutex_wait(&room.lock, &room.changed);
        } else {
            can = ask_for(place, bytes);
        }
    }
    tow_mutex_unlock(&room.lock);
    return can;
}

/* What is needed is asked with the lock held: who reserves more meanwhile sees what is left. */
void tows_room_shrink(unsigned device, uint64_t (*needed)(unsigned device))
{
    unsigned place = place_of(device);
    if (room.page == NULL) {
        return;
    }
    tow_mutex_lock(&room.lock);
    uint64_t bytes = needed(device);
    bool spares = bytes < UINT64_MAX - SPARE - STEP &&
                  atomic_load(&room.page->room[place]) > round_up(bytes) + SPARE;
    if (spares && !room.asks) {
        atomic_store(&room.page->room[place], round_up(bytes));
    }
    tow_mutex_unlock(&room.lock);
}

void tows_room_let_go(void)
{
    atomic_store(&room.let_go, true);
    if (room.page != NULL) {
        atomic_fetch_add(&room.page->room_news, 1);
        tow_futex_wake(&room.page->room_news, 64, true);
    }
}
