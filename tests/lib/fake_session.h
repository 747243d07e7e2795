/* SPDX-License-Identifier: Apache-2.0 */
/* A session with everything but a client: what a handler of the server may use, for tests that call
 * it with a driver of their own. */
#ifndef TOW_TESTS_FAKE_SESSION_H
#define TOW_TESTS_FAKE_SESSION_H

#include <stdlib.h>

#include "server/session/session.h"

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
    if (tows_session_init(session) != 0) {
        abort();
    }
    return session;
}

static inline void fake_session_end(struct tows_session *session)
{
    tows_session_fini(session);
    free(session);
}

#endif
