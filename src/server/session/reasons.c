/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the last texts, told or not: what comes again is not told again. */
#include "server/session/reasons.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mutex.h"

enum {
    TEXT_MAX_SIZE = 512,
    TEXTS = 8,     /* that are remembered; of more at once the earlier ones are in the log only */
    TOLD_MAX = 32, /* of a program: what fails without end says no more to a person */
};

static struct {
    struct tow_mutex lock; /* guards the rest; taken with those of the driver held */
    char texts[TEXTS][TEXT_MAX_SIZE];
    unsigned said; /* the newest is texts[(said - 1) % TEXTS] */
    unsigned told; /* of those */
    unsigned kept; /* so many were kept to be told */
} reasons = {.lock = TOW_MUTEX(SERVER_REASONS)};

static atomic_bool any; /* one is not told yet */

static bool is_remembered(const char *text)
{
    unsigned count = reasons.said < TEXTS ? reasons.said : TEXTS;
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(reasons.texts[i], text) == 0) {
            return true;
        }
    }
    return false;
}

static void reasons_hear(const char *message)
{
    char text[TEXT_MAX_SIZE];
    snprintf(text, sizeof text, "%s", message);
    tow_mutex_lock(&reasons.lock);
    if (reasons.kept < TOLD_MAX && !is_remembered(text)) {
        memcpy(reasons.texts[reasons.said++ % TEXTS], text, sizeof text);
        reasons.kept++;
        atomic_store(&any, true);
    }
    tow_mutex_unlock(&reasons.lock);
}

void tows_reasons_begin(void)
{
    tow_log_overhear(reasons_hear);
}

/* False: all were told. */
static bool reasons_next(char ret_text[TEXT_MAX_SIZE])
{
    tow_mutex_lock(&reasons.lock);
    if (reasons.said - reasons.told > TEXTS) {
        reasons.told = reasons.said - TEXTS;
    }
    bool more = reasons.told != reasons.said;
    if (more) {
        memcpy(ret_text, reasons.texts[reasons.told++ % TEXTS], TEXT_MAX_SIZE);
    } else {
        atomic_store(&any, false);
    }
    tow_mutex_unlock(&reasons.lock);
    return more;
}

void tows_reasons_tell(struct tows_session *session)
{
    char text[TEXT_MAX_SIZE];
    while (atomic_load_explicit(&any, memory_order_relaxed) && reasons_next(text)) {
        tows_session_tell_reason(session, text);
    }
}
