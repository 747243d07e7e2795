/* SPDX-License-Identifier: Apache-2.0 */
/* A session with everything but a client: what a handler of the server may use, for tests that call
 * it with a driver of their own. */
#ifndef TOW_TESTS_FAKE_SESSION_H
#define TOW_TESTS_FAKE_SESSION_H

#include <pthread.h>
#include <stdlib.h>

#include "base/mutex.h"
#include "base/thread.h"
#include "server/session/session.h"
#include "wire/limits.h"

/* The driver is borrowed, and so is the line, which may be NULL. A failed allocation ends the test.
 */
static inline struct tows_session *fake_session_make(struct tow_driver *driver,
                                                     struct tow_line *line)
{
    static const struct tows_session_options options = {.id = 1};
    static struct tows_session_stats stats;
    tows_session_forget_current(); /* another test's may have lain there */
    struct tows_session *session = calloc(1, sizeof *session);
    if (session == NULL) {
        abort();
    }
    session->driver = driver;
    session->options = &options;
    session->stats = &stats;
    session->line = line;
    session->client_threads.table = calloc(TOW_THREADS_MAX + 1, sizeof(void *));
    tow_mutex_init(&session->lead.lock, SERVER_LEAD);
    pthread_cond_init(&session->lead.free, NULL);
    tow_mutex_init(&session->reply_lock, SERVER_REPLY);
    tow_mutex_init(&session->client_threads.lock, SERVER_THREADS);
    tow_mutex_init(&session->transfers.lock, SERVER_TRANSFERS);
    tow_cond_init(&session->transfers.changed);
    tow_mutex_init(&session->families.lock, SERVER_FAMILIES);
    tows_completion_init(&session->completion);
    tows_hold_init(&session->hold);
    tows_ending_init(&session->ending);
    if (session->client_threads.table == NULL || tows_handles_init(&session->handles) != 0) {
        abort();
    }
    return session;
}

static inline void fake_session_end(struct tows_session *session)
{
    tows_session_end_states(session);
    tows_session_end_threads(session);
    tows_handles_fini(&session->handles);
    tows_hold_fini(&session->hold);
    tows_ending_fini(&session->ending);
    tows_completion_fini(&session->completion);
    tow_mutex_fini(&session->families.lock);
    pthread_cond_destroy(&session->transfers.changed);
    tow_mutex_fini(&session->transfers.lock);
    tow_mutex_fini(&session->client_threads.lock);
    tow_mutex_fini(&session->reply_lock);
    pthread_cond_destroy(&session->lead.free);
    tow_mutex_fini(&session->lead.lock);
    free(session);
}

#endif
