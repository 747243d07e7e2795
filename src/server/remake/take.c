/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers in front of recorded functions. */
#include "server/remake/take.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "server/remake/record.h"
#include "server/session/session.h"
#include "wire/id.h"

/* A record may have such a part of what its session may have of host memory: it is no reason to end
 * one. */
enum { SHARE = 8 };

/* How long the record and the session may differ, because another thread is in the midst of a call.
 */
#define STILL_NS TOW_TIME_S
#define LOOK_NS (5 * TOW_TIME_MS)

struct tows_take {
    struct tows_session *session;        /* borrowed */
    struct tow_mutex lock;               /* guards all but `behind` */
    pthread_cond_t never;                /* nobody signals it: who looks again waits so long */
    struct tows_record *record;          /* owned; NULL: the session stays where it is */
    char reason[160];                    /* why */
    tows_serve_fn *behind[TOW_FN_LIMIT]; /* the handlers themselves; NULL: none is recorded */
    uint64_t check_every, calls;
    uint64_t held; /* bytes that it has claimed */
};

static bool take_claim(void *user, uint64_t size)
{
    struct tows_take *take = user;
    uint64_t memory_max = take->session->options->memory_max;
    bool has_room = (memory_max == 0 || take->held + size <= memory_max / SHARE) &&
                    tows_session_claim(take->session, size);
    take->held += has_room ? size : 0;
    return has_room;
}

static void take_unclaim(void *user, uint64_t size)
{
    struct tows_take *take = user;
    take->held -= size;
    tows_session_unclaim(take->session, size);
}

/* With the lock held: nothing is recorded from here on, and nothing kept. */
static void take_lose(struct tows_take *take, const char *reason)
{
    if (take->record != NULL) {
        snprintf(take->reason, sizeof take->reason, "%s", reason);
        tow_log(TOW_AREA_SERVER, TOW_LOG_DEBUG, "the session stays where it is: %s", reason);
        tows_record_destroy(take->record);
        take->record = NULL;
    }
}

static bool id_is_live(void *user, uint64_t id)
{
    const struct tows_session *session = user;
    return tows_handles_find(&session->handles, id) != NULL;
}

/* ---- comparing ---- */

struct comparison {
    const struct tows_record *record;
    uint64_t handles, unknown; /* the first handle of which the record does not know */
};

static void compare_handle(void *user, uint64_t id, const struct tows_handle_entry *entry)
{
    struct comparison *comparison = user;
    bool known = tows_record_knows(comparison->record, TOW_NAME_HANDLE, id);
    /* One whose making has failed stands for the error only. */
    bool counts = known || atomic_load(&entry->error) == CUDA_SUCCESS;
    comparison->handles += counts;
    if (counts && !known && comparison->unknown == 0) {
        comparison->unknown = id;
    }
}

/* With the lock held. */
static bool take_agrees(struct tows_session *session, const struct tows_take *take,
                        struct comparison *ret_comparison)
{
    *ret_comparison = (struct comparison){.record = take->record};
    tows_handles_each(&session->handles, TOW_H_NONE, compare_handle, ret_comparison);
    return ret_comparison->unknown == 0 &&
           ret_comparison->handles == tows_record_size(take->record).handles;
}

/* With the lock held, which is given meanwhile. Another thread may be in the midst of a call: only
 * what stays so while no command comes is wrong. `own`: so many calls beside the leader are ours.
 */
static bool take_is_wrong(struct tows_session *session, struct tows_take *take, unsigned own)
{
    struct comparison comparison;
    uint64_t calls = atomic_load(&session->stats->calls);
    int64_t until = tow_time_deadline(STILL_NS);
    bool agrees = take_agrees(session, take, &comparison);
    while (!agrees && !tow_time_passed(until)) {
        tow_mutex_wait_until(&take->lock, &take->never, tow_time_deadline(LOOK_NS));
        agrees = take->record == NULL || atomic_load(&session->stats->calls) != calls ||
                 atomic_load(&session->stats->in_flight) > own ||
                 take_agrees(session, take, &comparison);
    }
    if (agrees) {
        return false;
    }
    tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR,
            "the record is wrong: of %llu handles the first that it does not know is 0x%llx, and "
            "it has %llu",
            (unsigned long long)comparison.handles, (unsigned long long)comparison.unknown,
            (unsigned long long)tows_record_size(take->record).handles);
    return true;
}

/* ---- taking ---- */

/* With the lock held. */
static void take_call(struct tows_session *session, struct tows_take *take,
                      const struct tows_record_call *call)
{
    const struct tows_record_rule *rule = &tows_record_rules[call->fn];
    if (rule->what == TOW_RECORD_STAYS) {
        take_lose(take, tows_record_reasons[rule->reason]);
        return;
    }
    int error = tows_record_take(take->record, call);
    if (error < 0) {
        char reason[sizeof take->reason];
        snprintf(reason, sizeof reason,
                 error == -EDQUOT ? "its objects are too many to be remembered (%s)"
                                  : "what %s did to its objects was not understood",
                 tow_fn_info(call->fn)->name);
        take_lose(take, reason);
        return;
    }
    uint64_t id = 0;
    if (rule->what == TOW_RECORD_ENDS && rule->kind == TOW_NAME_HANDLE && call->body_size >= 8) {
        memcpy(&id, call->body, sizeof id);
    }
    if (TOW_ID_KIND(id) == TOW_H_CONTEXT || TOW_ID_KIND(id) == TOW_H_GREENCTX) {
        tows_record_sweep(take->record, id_is_live, session);
    }
}

/* False: the record is wrong. */
static bool take_result(const struct tows_serve *call, const struct tows_record_call *taken,
                        bool is_whole)
{
    struct tows_session *session = call->session;
    struct tows_take *take = session->take;
    bool wrong = false;
    tow_mutex_lock(&take->lock);
    if (take->record != NULL && !is_whole) {
        take_lose(take, "its worker has no memory for its record");
    } else if (take->record != NULL) {
        take_call(session, take, taken);
    }
    if (take->record != NULL && ++take->calls % take->check_every == 0) {
        wrong = take_is_wrong(session, take, call->frame.seq != 0);
    }
    tow_mutex_unlock(&take->lock);
    return !wrong;
}

/* In front of each recorded function. */
static void take_serve(struct tows_serve *call)
{
    struct tows_serve_ids ids = {NULL, 0, 0, false};
    struct tows_record_call taken = {
        .fn = call->frame.kind,
        .thread = call->frame.thread,
        .context = call->frame.context,
        .body = call->in.at,
        .body_size = (uint32_t)tow_dec_left(&call->in),
    };
    tows_serve_list_ids(&ids);
    call->session->take->behind[call->frame.kind](call);
    tows_serve_list_ids(NULL);
    taken.id_count = ids.count;
    taken.ids = ids.ids;
    taken.reply = call->out_start;
    taken.reply_size = (uint32_t)(call->out.at - call->out_start);
    if (!call->malformed && call->status == CUDA_SUCCESS &&
        !take_result(call, &taken, !ids.lacking)) {
        tows_session_end(call->session, -EIO);
    }
    free(ids.ids);
}

int tows_take_begin(struct tows_session *session, uint64_t check_every)
{
    struct tows_take *take = calloc(1, sizeof *take);
    const struct tows_record_room room = {take_claim, take_unclaim, take};
    if (take == NULL) {
        return -ENOMEM;
    }
    take->session = session;
    take->record = tows_record_create(&room);
    if (take->record == NULL) {
        free(take);
        return -ENOMEM;
    }
    tow_mutex_init(&take->lock, SERVER_TAKE);
    tow_cond_init(&take->never);
    take->check_every = check_every;
    for (unsigned fn = 0; fn < TOW_FN_LIMIT; fn++) {
        if (tows_record_rules[fn].what != TOW_RECORD_NOTHING && session->table[fn] != NULL) {
            take->behind[fn] = session->table[fn];
            session->table[fn] = take_serve;
        }
    }
    session->take = take;
    return 0;
}

void tows_take_end(struct tows_session *session)
{
    struct tows_take *take = session->take;
    if (take == NULL) {
        return;
    }
    tows_record_destroy(take->record);
    tow_mutex_fini(&take->lock);
    pthread_cond_destroy(&take->never);
    free(take);
    session->take = NULL;
}
