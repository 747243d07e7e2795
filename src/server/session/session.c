/* SPDX-License-Identifier: Apache-2.0 */
/* The ground of a session: the context that a server thread is in, what families keep, frames of
 * the server's own. Knows no family. */
#include "server/session/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "gen/context.h"
#include "transport/data.h"
#include "transport/lanes.h"
#include "wire/frame.h"
#include "wire/limits.h"

/* The context that this server thread made current last, so that most commands need not. */
static _Thread_local struct {
    const struct tows_session *session;
    uint32_t context;
    unsigned ended; /* the session's contexts_ended then */
} current;

#define FAREWELL_NS TOW_TIME_S /* so long a client may take to read why */

bool tows_session_claim(struct tows_session *session, uint64_t size)
{
    uint64_t most = session->options->memory_max;
    /* What the worker holds that nobody claimed leaves less; it was looked at a moment ago. */
    if (most != 0 && (size > most || session->stats->host > most - size)) {
        return false;
    }
    uint64_t claimed = session->claimed;
    do {
        if (most != 0 && claimed > most - size) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(&session->claimed, &claimed, claimed + size));
    return true;
}

void tows_session_unclaim(struct tows_session *session, uint64_t size)
{
    atomic_fetch_sub(&session->claimed, size);
}

bool tows_session_may_place(struct tows_session *session)
{
    if (atomic_load(&session->place_taken)) {
        return false;
    }
    if (atomic_load(&session->places) <= TOW_SESSION_PLACES_MAX) {
        atomic_fetch_add(&session->places, 1);
    }
    return true;
}

void tows_session_place_is_taken(struct tows_session *session, uint64_t address)
{
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "the client's address 0x%llx is in use in the worker",
            (unsigned long long)address);
#if !defined(__SANITIZE_ADDRESS__) /* which has all programs' heaps at the same addresses */
    atomic_store(&session->place_taken, true);
#endif
    if (atomic_load(&session->places) > TOW_SESSION_PLACES_MAX) {
        char sentence[160];
        snprintf(sentence, sizeof sentence,
                 "memory of the program lies where its worker has its own, after %d places where "
                 "it did not; start the program again",
                 TOW_SESSION_PLACES_MAX);
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "the session ends: %s", sentence);
        tows_session_dismiss(session, sentence, FAREWELL_NS);
    }
}

/* The session's own limit, or what the server has left for it. */
static unsigned session_threads(struct tows_session *session, bool *ret_own)
{
    unsigned own = session->options->threads_max, left = session->stats->threads_max;
    own = own == 0 ? TOW_SESSION_THREADS_MAX : own;
    *ret_own = left == 0 || own <= left;
    own = *ret_own ? own : left;
    return own < TOW_SESSION_THREADS_MIN ? TOW_SESSION_THREADS_MIN : own;
}

bool tows_session_claim_thread(struct tows_session *session, bool for_link)
{
    bool own;
    unsigned most = session_threads(session, &own);
    most = for_link ? most - most / 4 : most;
    if (atomic_fetch_add(&session->stats->threads, 1) < most) {
        return true;
    }
    atomic_fetch_sub(&session->stats->threads, 1);
    return false;
}

void tows_session_unclaim_thread(struct tows_session *session)
{
    atomic_fetch_sub(&session->stats->threads, 1);
}

const char *tows_session_thread_limit(struct tows_session *session, char *ret_text, size_t size)
{
    bool own;
    unsigned most = session_threads(session, &own);
    snprintf(ret_text, size, "the program needs more than %u threads there at once (%s)", most,
             own ? "session-threads" : "threads");
    return ret_text;
}

bool tows_session_claim_command(struct tows_session *session)
{
    unsigned most = session->options->commands_max;
    if (atomic_fetch_add(&session->stats->queued, 1) < most || most == 0) {
        return true;
    }
    atomic_fetch_sub(&session->stats->queued, 1);
    if (!atomic_exchange(&session->commands_told, true)) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                "%u commands of the program wait in its streams, and it may have no more "
                "(session-commands): further ones fail with CUDA_ERROR_OUT_OF_MEMORY",
                most);
    }
    return false;
}

void tows_session_unclaim_command(struct tows_session *session)
{
    atomic_fetch_sub(&session->stats->queued, 1);
}

int tows_session_init(struct tows_session *session)
{
    tows_completion_init(&session->completion);
    tows_hold_init(&session->hold);
    tows_ending_init(&session->ending);
    tow_mutex_init(&session->lead.lock, SERVER_LEAD);
    pthread_cond_init(&session->lead.free, NULL);
    tow_mutex_init(&session->reply_lock, SERVER_REPLY);
    tow_cond_init(&session->parted);
    tow_mutex_init(&session->client_threads.lock, SERVER_THREADS);
    tow_mutex_init(&session->transfers.lock, SERVER_TRANSFERS);
    tow_cond_init(&session->transfers.changed);
    tow_mutex_init(&session->side.lock, SERVER_SIDE);
    tow_cond_init(&session->side.changed);
    tow_mutex_init(&session->families.lock, SERVER_FAMILIES);
    session->client_threads.table = calloc(TOW_THREADS_MAX + 1, sizeof(void *));
    return session->client_threads.table == NULL ? -ENOMEM : tows_handles_init(&session->handles);
}

void tows_session_fini(struct tows_session *session)
{
    tows_session_end_states(session);
    tows_session_end_threads(session);
    tows_handles_fini(&session->handles);
    tows_hold_fini(&session->hold);
    tows_ending_fini(&session->ending);
    tows_completion_fini(&session->completion);
    tow_mutex_fini(&session->lead.lock);
    pthread_cond_destroy(&session->lead.free);
    tow_mutex_fini(&session->reply_lock);
    pthread_cond_destroy(&session->parted);
    tow_mutex_fini(&session->client_threads.lock);
    tow_mutex_fini(&session->transfers.lock);
    pthread_cond_destroy(&session->transfers.changed);
    tow_mutex_fini(&session->side.lock);
    pthread_cond_destroy(&session->side.changed);
    tow_mutex_fini(&session->families.lock);
}

void *tows_session_make_state(struct tows_session *session, const struct tows_family_ops *ops)
{
    void *state = tows_session_state(session, ops->family);
    if (state != NULL) {
        return state;
    }
    tow_mutex_lock(&session->families.lock);
    state = tows_session_state(session, ops->family);
    if (state == NULL && (state = calloc(1, ops->size)) != NULL) {
        ops->init(session, state);
        session->families.at[ops->family].ops = ops;
        atomic_store_explicit(&session->families.at[ops->family].state, state,
                              memory_order_release);
    }
    tow_mutex_unlock(&session->families.lock);
    return state;
}

void tows_session_end_states(struct tows_session *session)
{
    for (unsigned i = 0; i < TOW_SESSION_FAMILIES; i++) {
        void *state = tows_session_state(session, i);
        if (state != NULL) {
            session->families.at[i].ops->fini(session, state);
            free(state);
        }
    }
}

void tows_session_end(struct tows_session *session, int result)
{
    tow_mutex_lock(&session->lead.lock);
    if (tows_session_goes_on(session)) {
        session->lead.result = result;
        session->lead.phase = TOW_SESSION_ENDS;
    }
    pthread_cond_broadcast(&session->lead.free);
    tow_mutex_unlock(&session->lead.lock);
    tows_ending_tell(session);
    /* A client that has said goodbye may wait for the end of this process (TOW_CAN_OUTLAST). */
    if (result != -ESHUTDOWN || session->options->in_process) {
        tow_line_shutdown(session->line);
    } else if (session->options->on_bye != NULL) {
        session->options->on_bye();
    }
    tow_lanes_shutdown(session->lanes);
    if (session->on_end != NULL) {
        session->on_end(session);
    }
}

void tows_session_dismiss(struct tows_session *session, const char *sentence, int64_t grace_ns)
{
    struct tow_bye bye = {.sentence = sentence};
    uint8_t *at = NULL;
    uint32_t length = 0;
    int64_t until = tow_time_deadline(grace_ns);
    atomic_fetch_add(&session->parting, 1);
    /* Who holds it may stand in a send, to a client that is stopped or whose line is cut. */
    if (tow_mutex_lock_until(&session->reply_lock, until)) {
        if (tow_line_reserve_until(session->line, TOW_SENTENCE_MAX + 64, until, &at) >= 0 &&
            tow_bye_encode(&bye, at, TOW_SENTENCE_MAX + 64, &length) == 0) {
            tow_line_commit_now(session->line, length);
            tow_line_drain(session->line, tow_time_deadline(grace_ns));
        }
        tow_mutex_unlock(&session->reply_lock);
    }
    atomic_fetch_sub(&session->parting, 1);
    pthread_cond_broadcast(&session->parted);
    tows_session_end(session, -ECANCELED);
}

/* ---- sending ---- */

int tows_session_send(struct tows_session *session, uint16_t kind, uint16_t thread,
                      uint32_t context, uint32_t seq, const void *body, size_t size)
{
    uint32_t length = tow_frame_length(size);
    if (length > TOW_FRAME_MAX) {
        return -EMSGSIZE;
    }
    struct tow_frame frame = {
        .length = length, .kind = kind, .thread = thread, .context = context, .seq = seq};
    tow_mutex_lock(&session->reply_lock);
    uint8_t *at = NULL;
    int error = tow_line_reserve(session->line, length, &at);
    if (error >= 0) {
        tow_frame_write(at, &frame);
        if (size > 0) {
            memcpy(at + TOW_FRAME_HEADER, body, size);
        }
        memset(at + TOW_FRAME_HEADER + size, 0, length - TOW_FRAME_HEADER - size);
        /* Someone waits for it: sent from here if the line's sender sleeps. */
        tow_line_commit_now(session->line, length);
    }
    tow_mutex_unlock(&session->reply_lock);
    atomic_fetch_add_explicit(&session->stats->bytes_out, length, memory_order_relaxed);
    return error;
}

/* With the line's lock held: a mutex is had again at once by who gives it back, and who waits for
 * it does not get it as long as much is sent. */
static void let_part(struct tows_session *session)
{
    int64_t until = atomic_load(&session->parting) > 0 ? tow_time_deadline(FAREWELL_NS) : 0;
    while (atomic_load(&session->parting) > 0 && !tow_time_passed(until)) {
        tow_mutex_wait_until(&session->reply_lock, &session->parted, until);
    }
}

int tows_session_lend_data(struct tows_session *session, uint32_t transfer, uint64_t offset,
                           const void *bytes, size_t size, uint32_t flags, uint64_t *ret_place)
{
    struct tow_data data = {
        .transfer = transfer, .flags = flags, .offset = offset, .size = TOW_DATA_MAX};
    int error;
    do {
        uint64_t sent = 0;
        tow_mutex_lock(&session->reply_lock);
        let_part(session);
        error = tow_data_send(session->line, &data, offset + size,
                              (const uint8_t *)bytes + (data.offset - offset), &sent);
        tow_mutex_unlock(&session->reply_lock);
        atomic_fetch_add_explicit(&session->stats->bytes_out, sent, memory_order_relaxed);
    } while (error == 0 && data.offset < offset + size);
    *ret_place = tow_line_place(session->line);
    return error;
}

int tows_session_send_data(struct tows_session *session, uint32_t transfer, uint64_t offset,
                           const void *bytes, size_t size, uint32_t flags)
{
    uint64_t place;
    int error = tows_session_lend_data(session, transfer, offset, bytes, size, flags, &place);
    /* Nothing of it is lent if it is small; what others have lent is left alone. */
    bool lent = size >= TOW_LINE_LENT_MIN || size % 8 != 0;
    int given = lent ? tow_line_take_back_until(session->line, place) : 0;
    return error < 0 ? error : given;
}

void tows_session_print(struct tows_session *session, const char *text, size_t length,
                        bool to_stderr)
{
    while (length > 0) {
        uint32_t n = (uint32_t)(length < TOW_PRINT_MAX ? length : TOW_PRINT_MAX);
        uint8_t *at = NULL;
        uint32_t frame_length = 0;
        struct tow_print print = {.size = n, .text = text, .to_stderr = to_stderr};
        tow_mutex_lock(&session->reply_lock);
        if (tow_line_reserve(session->line, n + 64, &at) >= 0 &&
            tow_print_encode(&print, at, n + 64, &frame_length) == 0) {
            tow_line_commit(session->line, frame_length);
        }
        tow_mutex_unlock(&session->reply_lock);
        text += n;
        length -= n;
    }
}

static void session_notify(struct tows_session *session, enum tow_notice_topic topic,
                           const char *sentence)
{
    const struct tow_notice notice = {.topic = topic, .text = sentence};
    size_t room = strlen(sentence) + 64;
    uint8_t *at = NULL;
    uint32_t length = 0;
    tow_mutex_lock(&session->reply_lock);
    if (tow_line_reserve(session->line, room, &at) >= 0 &&
        tow_notice_encode(&notice, at, room, &length) == 0) {
        tow_line_commit(session->line, length);
    }
    tow_mutex_unlock(&session->reply_lock);
}

void tows_session_tell(struct tows_session *session, const char *sentence)
{
    session_notify(session, TOW_NOTICE_TEXT, sentence);
}

void tows_session_tell_reason(struct tows_session *session, const char *text)
{
    bool here = session->options != NULL && session->options->in_process;
    session_notify(session, here ? TOW_NOTICE_LOGGED : TOW_NOTICE_TEXT, text);
}

/* ---- contexts ---- */

void tows_session_forget_current(void)
{
    current.session = NULL;
}

CUresult tows_session_enter(struct tows_session *session, uint32_t context)
{
    unsigned ended = atomic_load_explicit(&session->contexts_ended, memory_order_acquire);
    if (current.session == session && current.context == context && current.ended == ended) {
        return CUDA_SUCCESS;
    }
    CUcontext handle = NULL;
    if (context != 0) {
        const struct tows_handle_entry *entry =
            tows_handles_at(&session->handles, TOW_H_CONTEXT, context);
        if (entry == NULL) {
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        }
        if (entry->error != CUDA_SUCCESS) {
            return entry->error;
        }
        handle = entry->handle;
    }
    CUresult status = tow_drive(session->driver, cuCtxSetCurrent)(handle);
    if (status == CUDA_SUCCESS) {
        current.session = session;
        current.context = context;
        current.ended = ended;
    }
    return status;
}

void tows_session_leave_all(struct tows_session *session)
{
    current.ended = atomic_fetch_add(&session->contexts_ended, 1) + 1;
}

CUresult tows_session_enter_primary(struct tows_session *session)
{
    const struct tow_driver *driver = session->driver;
    CUcontext known = atomic_load(&session->primary), primary = known;
    unsigned flags = 0;
    int active = 0;
    if (known != NULL) { /* the program may have reset it meanwhile */
        tow_drive(driver, cuDevicePrimaryCtxGetState)(0, &flags, &active);
    }
    if (!active) {
        CUresult status = tow_drive(driver, cuDevicePrimaryCtxRetain)(&primary, 0);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        if (!atomic_compare_exchange_strong(&session->primary, &known, primary)) {
            tow_drive(driver,
                      cuDevicePrimaryCtxRelease_v2)(0); /* another thread has retained it, too */
        }
    }
    tows_session_forget_current();
    return tow_drive(driver, cuCtxSetCurrent)(primary);
}
