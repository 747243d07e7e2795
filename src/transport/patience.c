/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a silent server's listener whether it is there, and paces retries. */
#include "transport/patience.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "transport/transport.h"

#define ASK_NS TOW_TIME_S        /* how long nothing is heard before the listener is asked */
#define LONG_NS (5 * TOW_TIME_S) /* after which the user is told */
#define LOOK_NS                                                                                    \
    (100 * TOW_TIME_MS) /* how often one in line looks whether its user has had enough */

/* A listener keeps an answered stranger for 2 s (server/door/pending_conn.c). */
#define RETRY_NS (3 * TOW_TIME_S)
#define PAUSE_MIN_NS (50 * TOW_TIME_MS)
#define PAUSE_MAX_NS (500 * TOW_TIME_MS)

static void wait_on(struct tow_patience *patience)
{
    int64_t waited = tow_time_now_ns() - patience->began_ns;
    patience->deadline_ns = tow_time_deadline(TOW_CONNECT_TIMEOUT_NS);
    patience->ask_ns = patience->address == NULL ? TOW_TIME_FOREVER : tow_time_deadline(ASK_NS);
    if (!patience->said && patience->say != NULL && waited >= LONG_NS) {
        patience->said = true;
        patience->say(patience->address, (int)(waited / TOW_TIME_S));
    }
}

void tow_patience_begin(struct tow_patience *patience, const char *address, tow_patience_ask *ask,
                        void (*say)(const char *address, int seconds))
{
    address = tow_transport_behind_hook(address);
    *patience = (struct tow_patience){
        .address = strncmp(address, "self:", 5) == 0 ? NULL : address,
        .ask = ask,
        .say = say,
        .began_ns = tow_time_now_ns(),
        .until_ns = tow_time_deadline(TOW_PATIENCE_MAX_S * TOW_TIME_S),
    };
    wait_on(patience);
}

struct tow_patience tow_patience_none(int64_t deadline_ns)
{
    return (struct tow_patience){.began_ns = tow_time_now_ns(),
                                 .deadline_ns = deadline_ns,
                                 .ask_ns = TOW_TIME_FOREVER,
                                 .until_ns = TOW_TIME_FOREVER};
}

void tow_patience_heard(struct tow_patience *patience)
{
    patience->until_ns = tow_time_deadline(TOW_PATIENCE_MAX_S * TOW_TIME_S);
    patience->answered = false;
    wait_on(patience);
}

void tow_patience_place(struct tow_patience *patience, uint64_t places, uint64_t wait_for)
{
    struct tow_place place = {(uint32_t)places, (uint32_t)(places >> 32),
                              wait_for <= TOW_WAIT_BEFORE ? (enum tow_wait_for)wait_for
                                                          : TOW_WAIT_NOT};
    bool moved = place.place != patience->place.place || place.of != patience->place.of ||
                 place.wait_for != patience->place.wait_for;
    patience->place = place;
    /* It is told where it stands, and no more that nobody serves it yet. */
    patience->said |= place.place != 0;
    if (moved && patience->say_place != NULL) {
        patience->say_place(patience->address, &place);
    }
    tow_patience_heard(patience);
}

int64_t tow_patience_next(const struct tow_patience *patience)
{
    int64_t next =
        patience->ask_ns < patience->deadline_ns ? patience->ask_ns : patience->deadline_ns;
    int64_t look = patience->place.place != 0 && patience->interrupted != NULL
                       ? tow_time_deadline(LOOK_NS)
                       : TOW_TIME_FOREVER;
    return look < next ? look : next;
}

bool tow_patience_goes_on(struct tow_patience *patience)
{
    bool interrupted =
        patience->place.place != 0 && patience->interrupted != NULL && patience->interrupted() == 1;
    if (interrupted || tow_time_passed(patience->deadline_ns)) {
        return false;
    }
    if (!tow_time_passed(patience->ask_ns)) {
        return true;
    }
    int error = patience->ask(patience->address, patience->deadline_ns);
    if (error == 0 && !tow_time_passed(patience->until_ns)) {
        patience->answered = true;
        wait_on(patience);
    } else {
        patience->answered &= error == 0;
        /* What has come meanwhile is looked at once more; for more, the time that is left. */
        patience->ask_ns = tow_time_deadline(ASK_NS);
    }
    return true;
}

/* How long an error is worth another try; 0: it is not. */
static int64_t retry_time(int error)
{
    switch (-error) {
    case ECONNRESET:
    case EPIPE:
        return RETRY_NS;
    case EUSERS:
        return TOW_RETRY_FULL_S * TOW_TIME_S;
    default:
        return 0;
    }
}

bool tow_retry_pause(struct tow_retry *retry, int error, int64_t deadline_ns)
{
    int64_t now = tow_time_now_ns();
    if (retry->pause_ns == 0) {
        *retry = (struct tow_retry){.began_ns = now, .pause_ns = PAUSE_MIN_NS};
    }
    int64_t worth = retry_time(error);
    retry->worth_ns = worth > retry->worth_ns ? worth : retry->worth_ns;
    int64_t until = retry->began_ns + retry->worth_ns;
    until = until < deadline_ns ? until : deadline_ns;
    if (worth == 0 || now + retry->pause_ns >= until) {
        return false;
    }
    tow_time_sleep(retry->pause_ns);
    retry->pause_ns = 2 * retry->pause_ns < PAUSE_MAX_NS ? 2 * retry->pause_ns : PAUSE_MAX_NS;
    return true;
}
