/* SPDX-License-Identifier: Apache-2.0 */
/* Says where a program stands in line, and watches for Ctrl-C meanwhile. */
#include "client/link/waiting.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

/* Process-wide: signals are the process's, and one link waits at a time. */
static struct {
    bool shown;              /* a line stands on the terminal */
    bool watched;            /* our handler stands before the program's */
    struct sigaction before; /* the program's */
    atomic_bool came;
} waiting;

/* ---- Ctrl-C ---- */

static void hear_signal(int number, siginfo_t *info, void *context)
{
    atomic_store(&waiting.came, true);
    if ((waiting.before.sa_flags & SA_SIGINFO) != 0) {
        waiting.before.sa_sigaction(number, info, context);
    } else {
        waiting.before.sa_handler(number);
    }
}

/* A program without a handler ends by itself. One with a handler hears it first, as always. */
static void watch_signal(void)
{
    struct sigaction ours = {.sa_sigaction = hear_signal};
    if (waiting.watched || sigaction(SIGINT, NULL, &waiting.before) != 0 ||
        waiting.before.sa_handler == SIG_DFL || waiting.before.sa_handler == SIG_IGN) {
        return;
    }
    ours.sa_mask = waiting.before.sa_mask;
    ours.sa_flags = waiting.before.sa_flags | SA_SIGINFO;
    atomic_store(&waiting.came, false);
    waiting.watched = sigaction(SIGINT, &ours, NULL) == 0;
}

static void leave_signal(void)
{
    struct sigaction now;
    /* Whoever has set another one meanwhile keeps it. */
    if (waiting.watched && sigaction(SIGINT, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 &&
        now.sa_sigaction == hear_signal) {
        sigaction(SIGINT, &waiting.before, NULL);
    }
    waiting.watched = false;
}

int towc_waiting_interrupted(void)
{
    return waiting.watched && atomic_load(&waiting.came) ? 1 : 0;
}

/* ---- the place ---- */

static const char *what_for(enum tow_wait_for wait_for)
{
    switch (wait_for) {
    case TOW_WAIT_SERVER:
        return "it serves as many programs as it may";
    case TOW_WAIT_CLASS:
        return "as many programs of your class run as may";
    case TOW_WAIT_PEER:
        return "as many programs of yours run as may";
    case TOW_WAIT_MEMORY:
        return "the GPU's memory is promised to others";
    case TOW_WAIT_EXCLUSIVE:
        return "somebody has the GPU alone";
    case TOW_WAIT_ALONE:
        return "others use the GPU, which this program wants alone";
    default:
        return "others wait before you";
    }
}

/* On a terminal the line is written anew; elsewhere it is one of the log's. */
static bool on_terminal(void)
{
    const char *file = getenv("TOWLINE_LOG_FILE"), *format = getenv("TOWLINE_LOG_FORMAT");
    return isatty(STDERR_FILENO) == 1 && (file == NULL || file[0] == '\0') &&
           (format == NULL || strcmp(format, "json") != 0);
}

void towc_waiting_say(const char *address, const struct tow_place *place)
{
    if (place->place == 0) {
        if (waiting.shown) {
            fputs("\r\033[K", stderr);
            fflush(stderr);
            waiting.shown = false;
        }
        return;
    }
    watch_signal();
    if (!tow_log_on(TOW_AREA_CLIENT, TOW_LOG_WARN)) {
        return;
    }
    if (on_terminal()) {
        fprintf(stderr, "\r\033[Ktowline: waits in line at %s, place %u of %u (%s); Ctrl-C ends it",
                address, place->place, place->of, what_for(place->wait_for));
        fflush(stderr);
        waiting.shown = true;
    } else {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN, "waits in line at %s, place %u of %u (%s)", address,
                place->place, place->of, what_for(place->wait_for));
    }
}

void towc_waiting_end(const char *address)
{
    towc_waiting_say(address, &(struct tow_place){.place = 0});
    leave_signal();
}
