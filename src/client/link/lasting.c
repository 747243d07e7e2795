/* SPDX-License-Identifier: Apache-2.0 */
/* Connects again for a line that was cut, and says so; and holds the leash: a connection on which
 * nothing is said, so that its end tells the server whether the program has gone or the network. */
#include "client/link/lasting.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "transport/keep.h"
#include "transport/lanes.h"
#include "transport/login.h"
#include "transport/secret_page.h"
#include "transport/transport.h"
#include "wire/control.h"

/* The leash: between two tries, doubled up to the second. */
#define PAUSE_MIN_NS (10 * TOW_TIME_MS)
#define PAUSE_MAX_NS (500 * TOW_TIME_MS)
#define DIAL_NS (4 * TOW_TIME_S)
/* What comes so soon after the last word that all is back is the same cut to the person. */
#define BACK_NS (1 * TOW_TIME_S)
/* One that lived no longer was as good as none. */
#define SHORT_NS (5 * TOW_TIME_S)

enum { STAYS, LEAVES, LEFT };

/* What shows that the session is ours. */
struct session_secret {
    struct tow_login_token token;
    struct tow_grant grant;
};

/* One of the session's lines. Guarded by `cuts.lock`, but for what is set once. */
struct lasting_line {
    struct towc_lasting *lasting; /* set once */
    uint32_t number;              /* set once */
    bool down;                    /* it is being connected again */
};

struct towc_lasting {
    struct towc_link *link;        /* borrowed: it owns this */
    struct session_secret *secret; /* owned, on a secret page */
    bool granted;                  /* its connections are made with the grant */
    uint32_t seconds;
    atomic_int phase;
    char refusal[256]; /* by the own line's thread, before the line ends: so others know */
    atomic_bool over;  /* the server has said so, and `refusal` why */
    struct lasting_line lines[TOW_LANES_MAX + 2]; /* its own, the lanes, the side line */
    /* One cut for the person, however many lines it is. */
    struct {
        struct tow_mutex lock; /* guards all here */
        unsigned down;         /* lines */
        bool said;             /* the person was told of this cut */
        int64_t since_ns;      /* when it was first tried to connect again */
        int64_t back_ns;       /* when the person was told last that it is back; 0: never */
    } cuts;
    struct {
        struct tow_mutex lock; /* guards all here but the thread */
        pthread_cond_t changed;
        bool ends;
        struct tow_line *_Atomic line; /* owned; NULL: there is none now */
        bool started;
        pthread_t thread;
    } leash;
};

/* On a connection to the server, not to the session: -ESTALE if it has ended. */
static int lasting_prove(struct towc_lasting *lasting, struct tow_line *line,
                         const struct tow_resume *resume, int64_t deadline_ns, char *why,
                         size_t why_size)
{
    return tow_login_resume(line, lasting->link->address, resume, &lasting->secret->token,
                            deadline_ns, why, why_size);
}

/* A connection with the grant was closed: is the session no more, or is it not let in from here?
 * Only who has the server's key is believed. Afterwards it is let in. */
static int lasting_ask(struct towc_lasting *lasting, const struct tow_resume *resume,
                       int64_t deadline_ns, char *why, size_t why_size)
{
    struct tow_line *line = NULL;
    int error = tow_transport_connect(lasting->link->address, deadline_ns, why, why_size, &line);
    if (error == 0) {
        error = lasting_prove(lasting, line, resume, deadline_ns, why, why_size);
        tow_line_close(line);
    }
    return error == 0 ? -EAGAIN : error;
}

static int lasting_dial(struct towc_lasting *lasting, uint32_t which, int64_t deadline_ns,
                        char *why, size_t why_size, struct tow_line **ret_line)
{
    const struct tow_resume resume = {.session = lasting->secret->token.id, .line = which};
    const struct tow_grant *grant = lasting->granted ? &lasting->secret->grant : NULL;
    struct tow_line *line = NULL;
    int error = tow_transport_connect_beside(lasting->link->address, grant, deadline_ns, why,
                                             why_size, &line);
    bool refused = grant != NULL && (error == -ECONNRESET || error == -EPIPE || error == -EACCES);
    if (error == 0 && which == TOW_LANE_LEASH) {
        /* From the first byte on: a program may be killed at any time. */
        tow_line_set_abrupt(line);
    }
    if (error == 0 && grant != NULL) {
        /* Who has shaken hands knows the session, or did a moment ago. */
        error = tow_login_go_on(line, &resume, deadline_ns) < 0 ? -EAGAIN : 0;
    } else if (error == 0) {
        error = lasting_prove(lasting, line, &resume, deadline_ns, why, why_size);
    }
    if (error < 0) {
        tow_line_close(line);
        return refused ? lasting_ask(lasting, &resume, deadline_ns, why, why_size) : error;
    }
    *ret_line = line;
    return 0;
}

/* Sleeps, unless all is over. */
static void lasting_pause(struct towc_lasting *lasting, int64_t ns)
{
    int64_t until = tow_time_deadline(ns);
    int error = 0;
    tow_mutex_lock(&lasting->leash.lock);
    while (!lasting->leash.ends && error == 0) {
        error = tow_mutex_wait_until(&lasting->leash.lock, &lasting->leash.changed, until);
    }
    tow_mutex_unlock(&lasting->leash.lock);
}

/* ---- the lines ---- */

/* Whether the session's own line is cut: that one goes first, and learns whether there is a
 * session.
 */
static bool cut_begins(struct lasting_line *line)
{
    struct towc_lasting *lasting = line->lasting;
    tow_mutex_lock(&lasting->cuts.lock);
    if (!line->down) {
        line->down = true;
        if (lasting->cuts.down++ == 0) {
            lasting->cuts.since_ns = tow_time_now_ns();
        }
    }
    bool own = lasting->lines[TOW_LANE_MAIN].down;
    tow_mutex_unlock(&lasting->cuts.lock);
    return own;
}

/* `answered`: by the server, which knows the session. Then there is something to say only if that
 * goes on. */
static void cut_stays(struct lasting_line *line, bool answered)
{
    struct towc_lasting *lasting = line->lasting;
    tow_mutex_lock(&lasting->cuts.lock);
    bool long_since = tow_time_now_ns() - lasting->cuts.since_ns > BACK_NS;
    bool says =
        !lasting->cuts.said && (!answered || long_since) && atomic_load(&lasting->phase) == STAYS;
    lasting->cuts.said = lasting->cuts.said || says;
    tow_mutex_unlock(&lasting->cuts.lock);
    if (says) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                "the connection to %s was cut; trying again for %u s", lasting->link->address,
                lasting->seconds);
    }
}

static void cut_ends(struct lasting_line *line)
{
    struct towc_lasting *lasting = line->lasting;
    int64_t now_ns = tow_time_now_ns();
    tow_mutex_lock(&lasting->cuts.lock);
    bool back = line->down && --lasting->cuts.down == 0;
    bool said = back && lasting->cuts.said;
    /* The lines of one cut may notice it one after the other. */
    bool again =
        back && !said && lasting->cuts.back_ns != 0 && now_ns - lasting->cuts.back_ns < BACK_NS;
    int seconds = (int)((now_ns - lasting->cuts.since_ns) / TOW_TIME_S);
    line->down = false;
    if (back) {
        lasting->cuts.said = false;
        lasting->cuts.back_ns = now_ns;
    }
    tow_mutex_unlock(&lasting->cuts.lock);
    if (!back || again || atomic_load(&lasting->phase) != STAYS) {
        return;
    }
    if (said) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                "the connection to %s is back after %d s: the program goes on",
                lasting->link->address, seconds);
    } else {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                "the connection to %s was cut, and is back: the program goes on",
                lasting->link->address);
    }
}

static int dial_again(void *arg, int64_t deadline_ns, struct tow_line **ret_line)
{
    struct lasting_line *line = arg;
    struct towc_lasting *lasting = line->lasting;
    char why[TOW_WHY_MAX] = "";
    /* Perhaps it is this line alone that the program waits for. */
    if (atomic_load(&lasting->phase) == LEFT || atomic_load(&lasting->over)) {
        return -ESTALE;
    }
    if (cut_begins(line) && line->number != TOW_LANE_MAIN) {
        return -EAGAIN;
    }
    int error = lasting_dial(lasting, line->number, deadline_ns, why, sizeof why, ret_line);
    if (error == -ESTALE && line->number == TOW_LANE_MAIN) {
        snprintf(lasting->refusal, sizeof lasting->refusal, "%s", why);
        atomic_store(&lasting->over, true);
    } else if (error == -ESTALE) {
        error = -EAGAIN; /* the session's own line learns it, too, and says why */
    } else if (error < 0) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_INFO, "%s: line %u cannot go on yet (%s): %s",
                lasting->link->address, line->number, strerror(-error), why);
        cut_stays(line, error == -EAGAIN);
    }
    return error;
}

static void line_mended(void *arg)
{
    cut_ends(arg);
}

static struct lasting_line *line_of(struct towc_lasting *lasting, uint32_t number)
{
    unsigned at = number == TOW_LANE_SIDE ? TOW_LANES_MAX + 1 : number;
    struct lasting_line *line = &lasting->lines[at];
    line->lasting = lasting;
    line->number = number;
    return line;
}

static struct tow_keep_setup line_setup(struct towc_lasting *lasting, uint32_t number)
{
    return (struct tow_keep_setup){.redial = dial_again,
                                   .mended = line_mended,
                                   .arg = line_of(lasting, number),
                                   .limit_ns = (int64_t)lasting->seconds * TOW_TIME_S};
}

/* One try: -ESTALE if the server takes no such line, or has no such session any more; -EAGAIN if it
 * knew the session. */
static int open_further(struct towc_lasting *lasting, const struct tow_keep_setup *setup,
                        uint32_t number, struct tow_line **ret_line)
{
    char why[TOW_WHY_MAX];
    struct tow_line *inner = NULL;
    int error = lasting_dial(lasting, number, tow_time_deadline(DIAL_NS), why, sizeof why, &inner);
    if (error == 0) {
        error = tow_keep_line(inner, setup, ret_line);
        error = error == 0 || error == -ESTALE || error == -ENOMEM ? error : -EAGAIN;
    }
    return error;
}

/* Once it was asked for, the server may have it, and waits for its client as for a cut one: so it
 * is not given up before the session is. */
int towc_lasting_further(struct towc_link *link, uint32_t number, struct tow_line **ret_line)
{
    struct towc_lasting *lasting = link->lasting;
    struct tow_keep_setup setup = line_setup(lasting, number);
    int64_t until = tow_time_deadline(setup.limit_ns), pause = PAUSE_MIN_NS;
    setup.hello_ns = DIAL_NS;
    int error = open_further(lasting, &setup, number, ret_line);
    while (error < 0 && error != -ESTALE && error != -ENOMEM && atomic_load(&link->lost) == 0 &&
           !tow_time_passed(until)) {
        cut_begins(setup.arg);
        cut_stays(setup.arg, error == -EAGAIN);
        lasting_pause(lasting, pause);
        pause = 2 * pause < PAUSE_MAX_NS ? 2 * pause : PAUSE_MAX_NS;
        error = open_further(lasting, &setup, number, ret_line);
    }
    cut_ends(setup.arg);
    int64_t silence_ns = atomic_load(&link->silence_ns);
    if (error == 0 && silence_ns >= 0) {
        tow_line_set_silence(*ret_line, silence_ns);
    }
    return error;
}

/* ---- the leash ---- */

/* Whether the line is held on to; else it is closed. */
static bool leash_keep(struct towc_lasting *lasting, struct tow_line *line)
{
    tow_mutex_lock(&lasting->leash.lock);
    bool ends = lasting->leash.ends;
    if (!ends) {
        int64_t silence_ns = atomic_load(&lasting->link->silence_ns);
        if (silence_ns >= 0) {
            tow_line_set_silence(line, silence_ns);
        }
        atomic_store(&lasting->leash.line, line);
    }
    tow_mutex_unlock(&lasting->leash.lock);
    if (ends) {
        tow_line_close(line);
    }
    return !ends;
}

void towc_lasting_silence(struct towc_link *link)
{
    struct towc_lasting *lasting = link->lasting;
    if (lasting == NULL) {
        return;
    }
    tow_mutex_lock(&lasting->leash.lock);
    if (atomic_load(&lasting->leash.line) != NULL) {
        tow_line_set_silence(atomic_load(&lasting->leash.line), atomic_load(&link->silence_ns));
    }
    tow_mutex_unlock(&lasting->leash.lock);
}

static void leash_drop(struct towc_lasting *lasting)
{
    tow_mutex_lock(&lasting->leash.lock);
    struct tow_line *line = atomic_exchange(&lasting->leash.line, NULL);
    tow_mutex_unlock(&lasting->leash.lock);
    tow_line_close(line);
}

static void *leash_run(void *arg)
{
    struct towc_lasting *lasting = arg;
    int64_t pause = 0, began = 0;
    int error = 0;
    while (error != -ESTALE && atomic_load(&lasting->phase) == STAYS &&
           atomic_load(&lasting->link->lost) == 0) {
        char why[TOW_WHY_MAX];
        struct tow_line *line = NULL;
        error = lasting_dial(lasting, TOW_LANE_LEASH, tow_time_deadline(DIAL_NS), why, sizeof why,
                             &line);
        if (error == 0) {
            began = tow_time_now_ns();
            if (!leash_keep(lasting, line)) {
                break;
            }
            tow_line_await_end(line, TOW_TIME_FOREVER);
            leash_drop(lasting);
        }
        /* Whatever ends each of them at once is not asked without pause. */
        if (error == 0 && tow_time_now_ns() - began > SHORT_NS) {
            pause = 0;
        } else {
            pause = pause == 0 ? PAUSE_MIN_NS : 2 * pause < PAUSE_MAX_NS ? 2 * pause : PAUSE_MAX_NS;
            lasting_pause(lasting, pause);
        }
    }
    return NULL;
}

void towc_lasting_hold(struct towc_link *link)
{
    struct towc_lasting *lasting = link->lasting;
    if (lasting == NULL) {
        return;
    }
    int error = tow_thread_start("towline-leash", leash_run, lasting, &lasting->leash.thread);
    lasting->leash.started = error == 0;
    if (error < 0) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_INFO, "%s: no thread for a second connection: %s",
                link->address, strerror(-error));
    }
}

/* ---- life ---- */

static struct towc_lasting *lasting_create(struct towc_link *link, const struct tow_lasting *told,
                                           const uint8_t left[TOW_LOGIN_SIZE])
{
    struct towc_lasting *lasting = calloc(1, sizeof *lasting);
    const struct tow_grant *grant = link->line->grant;
    struct session_secret *secret = tow_secret_page_make(sizeof *secret);
    if (lasting == NULL || secret == NULL) {
        free(lasting);
        if (secret != NULL) {
            tow_secret_page_forget(secret, sizeof *secret);
        }
        return NULL;
    }
    tow_login_session(link->welcome.session, told->secret, left, &secret->token);
    if (grant != NULL) {
        secret->grant = *grant;
    }
    lasting->granted = grant != NULL;
    lasting->link = link;
    lasting->secret = secret;
    lasting->seconds = told->seconds;
    tow_mutex_init(&lasting->cuts.lock, CLIENT_CUTS);
    tow_mutex_init(&lasting->leash.lock, CLIENT_LEASH);
    tow_cond_init(&lasting->leash.changed);
    return lasting;
}

int towc_lasting_begin(struct towc_link *link, const uint8_t left[TOW_LOGIN_SIZE],
                       int64_t deadline_ns, char *why, size_t why_size)
{
    const uint8_t *at = NULL;
    size_t available = 0;
    struct tow_frame frame;
    struct tow_lasting told;
    int error = tow_line_peek(link->line, TOW_FRAME_HEADER, deadline_ns, &at, &available);
    if (error == 0) {
        error = tow_frame_read(at, &frame);
    }
    if (error == 0) {
        error = tow_line_peek(link->line, frame.length, deadline_ns, &at, &available);
    }
    if (error == 0) {
        error = tow_lasting_decode(at, &frame, &told);
    }
    if (error == 0) {
        tow_line_consume(link->line, frame.length);
        link->lasting = lasting_create(link, &told, left);
        error = link->lasting == NULL ? -ENOMEM : 0;
    }
    if (error == 0) {
        const struct tow_keep_setup setup = line_setup(link->lasting, TOW_LANE_MAIN);
        struct tow_line *inner = link->line;
        link->line = NULL;
        error = tow_keep_line(inner, &setup, &link->line);
    }
    if (error < 0) {
        snprintf(why, why_size, "the connection to %s cannot be set up: %s", link->address,
                 strerror(-error));
    }
    return error;
}

static void set_phase(struct towc_link *link, int phase)
{
    if (link->lasting != NULL) {
        atomic_store(&link->lasting->phase, phase);
    }
}

void towc_lasting_leave(struct towc_link *link)
{
    set_phase(link, LEAVES);
}

void towc_lasting_left(struct towc_link *link)
{
    set_phase(link, LEFT);
}

const char *towc_lasting_why(const struct towc_link *link, const char *otherwise)
{
    const struct towc_lasting *lasting = link->lasting;
    return lasting != NULL && lasting->refusal[0] != '\0' ? lasting->refusal : otherwise;
}

const char *towc_lasting_closed(const struct towc_link *link)
{
    return link->lasting != NULL ? towc_lasting_why(link, "the connection was closed")
                                 : "a connection of its session was closed";
}

void towc_lasting_abandon(struct towc_link *link)
{
    struct tow_line *line = link->lasting != NULL ? atomic_load(&link->lasting->leash.line) : NULL;
    if (line != NULL) {
        tow_line_abandon(line);
    }
}

void towc_lasting_end(struct towc_link *link)
{
    struct towc_lasting *lasting = link->lasting;
    set_phase(link, LEFT);
    if (lasting != NULL && lasting->leash.started) {
        tow_mutex_lock(&lasting->leash.lock);
        lasting->leash.ends = true;
        if (atomic_load(&lasting->leash.line) != NULL) {
            tow_line_shutdown(atomic_load(&lasting->leash.line));
        }
        pthread_cond_broadcast(&lasting->leash.changed);
        tow_mutex_unlock(&lasting->leash.lock);
        pthread_join(lasting->leash.thread, NULL);
    }
    tow_line_close(link->line);
    link->line = NULL;
    link->lasting = NULL;
    if (lasting != NULL) {
        tow_secret_page_forget(lasting->secret, sizeof *lasting->secret);
        tow_mutex_fini(&lasting->leash.lock);
        tow_mutex_fini(&lasting->cuts.lock);
        pthread_cond_destroy(&lasting->leash.changed);
        free(lasting);
    }
}
