/* SPDX-License-Identifier: Apache-2.0 */
/* The stream for copies of managed memory, and who may not use it when. */
#include "server/copy/carry.h"

#include "base/mutex.h"
#include "base/thread.h"
#include "gen/copy.h"
#include "gen/stream.h"
#include "server/copy/pinned.h"
#include "server/session/session.h"

struct carry_state {
    struct tow_mutex lock;  /* guards the rest but `pinned` */
    pthread_cond_t changed; /* no copy is under way any more */
    unsigned functions;     /* host functions that are outstanding */
    bool copies;            /* a copy is under way */
    uint32_t context;       /* that has the stream; 0: there is none */
    CUstream stream;        /* the driver's: ends with its context */
    struct tows_pinned pinned;
};

static void carry_init(struct tows_session *session, void *opaque)
{
    struct carry_state *state = opaque;
    tow_mutex_init(&state->lock, SERVER_CARRY);
    tow_cond_init(&state->changed);
    tows_pinned_init(&state->pinned, session);
}

static void carry_fini(struct tows_session *session, void *opaque)
{
    struct carry_state *state = opaque;
    (void)session;
    tows_pinned_fini(&state->pinned);
    tow_mutex_fini(&state->lock);
    pthread_cond_destroy(&state->changed);
}

static struct carry_state *state_of(struct tows_session *session)
{
    static const struct tows_family_ops ops = {TOW_SESSION_CARRY, sizeof(struct carry_state),
                                               carry_init, carry_fini};
    return tows_session_make_state(session, &ops);
}

bool tows_carry_forbid(struct tows_session *session)
{
    struct carry_state *state = state_of(session);
    if (state == NULL) {
        return false;
    }
    tow_mutex_lock(&state->lock);
    state->functions++;
    while (state->copies) {
        tow_mutex_wait(&state->lock, &state->changed);
    }
    tow_mutex_unlock(&state->lock);
    return true;
}

void tows_carry_allow(struct tows_session *session)
{
    struct carry_state *state = state_of(session);
    tow_mutex_lock(&state->lock);
    state->functions--;
    tow_mutex_unlock(&state->lock);
}

/* Whether it may begin. The stream is one context's until that ends: a client has no use for two,
 * and to end one needs its context. */
static bool carry_enter(struct carry_state *state, uint32_t context)
{
    tow_mutex_lock(&state->lock);
    bool enters = state->functions == 0 && !state->copies &&
                  (state->context == 0 || state->context == context);
    state->copies |= enters;
    tow_mutex_unlock(&state->lock);
    return enters;
}

static void carry_leave(struct carry_state *state)
{
    tow_mutex_lock(&state->lock);
    state->copies = false;
    pthread_cond_broadcast(&state->changed);
    tow_mutex_unlock(&state->lock);
}

/* With a buffer of the context taken: it does not end meanwhile. */
static CUresult find_stream(struct carry_state *state, const struct tow_driver *driver,
                            uint32_t context, CUstream *ret_stream)
{
    tow_mutex_lock(&state->lock);
    CUstream stream = state->context == context ? state->stream : NULL;
    tow_mutex_unlock(&state->lock);
    CUresult status = CUDA_SUCCESS;
    if (stream == NULL) {
        status = tow_drive(driver, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING);
    }
    if (status == CUDA_SUCCESS) {
        tow_mutex_lock(&state->lock);
        state->stream = stream;
        state->context = context;
        tow_mutex_unlock(&state->lock);
        *ret_stream = stream;
    }
    return status;
}

bool tows_carry_begin(struct tows_carry *carry, struct tows_session *session, uint32_t context,
                      size_t size)
{
    struct carry_state *state = state_of(session);
    if (state == NULL || context == 0 || !carry_enter(state, context)) {
        return false;
    }
    *carry = (struct tows_carry){.session = session};
    CUresult status = tows_session_enter(session, context);
    if (status == CUDA_SUCCESS) {
        status = tows_pinned_take(&state->pinned, session, context, size, &carry->buffer);
    }
    if (status == CUDA_SUCCESS) {
        carry->bytes = carry->buffer->bytes;
        status = find_stream(state, session->driver, context, &carry->stream);
        if (status != CUDA_SUCCESS) {
            tows_pinned_give(&state->pinned, carry->buffer);
        }
    }
    if (status != CUDA_SUCCESS) {
        carry_leave(state);
    }
    return status == CUDA_SUCCESS;
}

CUresult tows_carry_up(struct tows_carry *carry, size_t from, uint64_t to, size_t size)
{
    carry->under_way = true;
    return tow_drive(carry->session->driver, cuMemcpyHtoDAsync_v2)(to, carry->bytes + from, size,
                                                                   carry->stream);
}

CUresult tows_carry_down(struct tows_carry *carry, uint64_t from, size_t size)
{
    carry->under_way = true;
    return tow_drive(carry->session->driver, cuMemcpyDtoHAsync_v2)(carry->bytes, from, size,
                                                                   carry->stream);
}

CUresult tows_carry_wait(struct tows_carry *carry)
{
    CUresult status = carry->under_way
                          ? tow_drive(carry->session->driver, cuStreamSynchronize)(carry->stream)
                          : CUDA_SUCCESS;
    carry->under_way = status != CUDA_SUCCESS;
    carry_leave(state_of(carry->session));
    return status;
}

void tows_carry_end(struct tows_carry *carry)
{
    struct carry_state *state = state_of(carry->session);
    if (carry->under_way) {
        tows_pinned_lose(&state->pinned, carry->buffer); /* who knows what the device still does */
    } else {
        tows_pinned_give(&state->pinned, carry->buffer);
    }
}

bool tows_carry_drop_context(struct tows_session *session, uint32_t context, uint32_t heir)
{
    struct carry_state *state = tows_session_state(session, TOW_SESSION_CARRY);
    if (state == NULL) {
        return true;
    }
    if (!tows_pinned_drop_context(&state->pinned, session, context, heir)) {
        return false;
    }
    tow_mutex_lock(&state->lock);
    if (state->context == context) {
        state->context = 0;
        state->stream = NULL;
    }
    tow_mutex_unlock(&state->lock);
    return true;
}
