/* SPDX-License-Identifier: Apache-2.0 */
/* The line of a link: who reads it, calls over it, bytes behind them, and its loss. */
#include "client/link/link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "client/link/further.h"
#include "client/link/hello.h"
#include "client/link/lasting.h"
#include "client/link/side.h"
#include "client/session/thread.h"
#include "gen/context.h"
#include "gen/event.h"
#include "gen/memory.h"
#include "gen/stream.h"
#include "transport/data.h"
#include "wire/control.h"

/* ---- what the rooms above do ---- */

static void nothing_for_link(struct towc_link *link)
{
    (void)link;
}

static int no_callback(struct towc_link *link, uint64_t id, CUresult status)
{
    (void)link, (void)id, (void)status;
    return -EPROTO;
}

static int no_mirror(struct towc_link *link, const uint8_t *records, size_t size)
{
    (void)link, (void)records, (void)size;
    return -EPROTO;
}

static int no_done(struct towc_link *link, const struct tow_done *done)
{
    (void)link, (void)done;
    return -EPROTO;
}

static CUresult nothing_to_send(struct towc_link *link, bool works)
{
    (void)link;
    return CUDA_SUCCESS;
}

static void nothing_failed(uint32_t context, CUresult status)
{
    (void)context, (void)status;
}

static void no_text(const char *text)
{
    (void)text;
}

static void nothing_to_hold(void)
{
}

static const struct towc_link_handlers no_handlers = {
    .opened = nothing_for_link,
    .closes = nothing_for_link,
    .callback = no_callback,
    .mirror = no_mirror,
    .done = no_done,
    .text = no_text,
    .before_shown = nothing_to_send,
    .after_shown = nothing_for_link,
    .failed = nothing_failed,
    .hold_changes = nothing_to_hold,
    .release_changes = nothing_to_hold,
};

/* Process-wide: the library's own rooms, the same for every server. Set before the first link. */
const struct towc_link_handlers *towc_link_handler = &no_handlers;

void towc_link_handle(const struct towc_link_handlers *handlers)
{
    towc_link_handler = handlers;
}

/* ---- losing the server ---- */

/* How long a thread that finds the server gone looks for what it said last, which another may be
 * about to read. */
#define LAST_WORDS_NS (300 * TOW_TIME_MS)

static int keep_farewell(struct towc_link *link, const uint8_t *at, const struct tow_frame *frame)
{
    struct tow_bye bye;
    int error = tow_bye_decode(at, frame, &bye);
    if (error == 0 && bye.sentence != NULL) {
        snprintf(link->farewell, sizeof link->farewell, "%s", bye.sentence);
    }
    return error;
}

/* By the reader, when all is lost: passes over everything up to the server's BYE, if one comes. */
static void find_farewell(struct towc_link *link)
{
    int64_t until = tow_time_deadline(LAST_WORDS_NS);
    const uint8_t *at = NULL;
    size_t available = 0;
    struct tow_frame frame;
    while (!tow_time_passed(until) &&
           tow_line_peek(link->line, TOW_FRAME_HEADER, until, &at, &available) == 0 &&
           tow_frame_read(at, &frame) == 0 && frame.length <= TOW_LINE_FRAME_MAX &&
           tow_line_peek(link->line, frame.length, until, &at, &available) == 0) {
        if (frame.kind == TOW_CONTROL_BYE) {
            keep_farewell(link, at, &frame);
            return;
        }
        tow_line_consume(link->line, frame.length);
    }
}

/* True: this thread reads the line from now on. Else another does, and has found the end itself, or
 * takes its time. */
static bool take_reading(struct towc_link *link)
{
    int64_t until = tow_time_deadline(LAST_WORDS_NS);
    int error = 0;
    tow_mutex_lock(&link->wait.lock);
    while (link->wait.reading && atomic_load(&link->lost) == 0 && error == 0) {
        error = tow_mutex_wait_until(&link->wait.lock, &link->wait.transfer_done, until);
    }
    bool taken = !link->wait.reading && atomic_load(&link->lost) == 0;
    link->wait.reading |= taken;
    tow_mutex_unlock(&link->wait.lock);
    return taken;
}

/* By the reader, with what it has kept of the server's farewell; or by another, without. */
static void link_end(struct towc_link *link, const char *what, const char *farewell)
{
    int expected = 0;
    if (atomic_compare_exchange_strong(&link->lost, &expected, CUDA_ERROR_DEVICE_UNAVAILABLE)) {
        atomic_store(&link->room, 0);
        if (farewell[0] != '\0') {
            tow_log(TOW_AREA_CLIENT, TOW_LOG_ERROR,
                    "the server %s has ended this session: %s; all GPU calls fail from now on.",
                    link->address, farewell);
        } else {
            char why[TOW_WHY_MAX];
            what = towc_lasting_why(link, what);
            if (tow_transport_explain(link->address, tow_time_now_ns() - LAST_WORDS_NS, why,
                                      sizeof why)) {
                what = why;
            }
            tow_log(TOW_AREA_CLIENT, TOW_LOG_ERROR,
                    "the server %s is lost (%s); all GPU calls fail from now on. Start the program "
                    "again.",
                    link->address, what);
        }
        tow_line_shutdown(link->line);
    }
    tow_mutex_lock(&link->wait.lock);
    for (int i = 0; i < TOW_LINK_BUCKETS; i++) {
        for (struct towc_waiter *w = link->wait.waiters[i], *next; w != NULL; w = next) {
            next = w->next; /* it lives on a stack that may be gone once it is told */
            w->status = (CUresult)atomic_load(&link->lost);
            w->size = 0;
            __atomic_store_n(&w->state, TOW_WAIT_DONE, __ATOMIC_RELEASE);
            tow_futex_wake((_Atomic uint32_t *)&w->state, 1, false);
        }
        link->wait.waiters[i] = NULL;
    }
    link->wait.count = 0;
    link->wait.reading = false;
    pthread_cond_broadcast(&link->wait.transfer_done);
    pthread_cond_broadcast(&link->wait.unread);
    tow_mutex_unlock(&link->wait.lock);
    towc_further_lost(link);
}

void towc_link_lose(struct towc_link *link, const char *what)
{
    bool reads = take_reading(link);
    if (reads) {
        find_farewell(link);
    }
    link_end(link, what, reads ? link->farewell : "");
}

/* ---- reading ---- */

static struct towc_waiter **link_bucket(struct towc_link *link, uint32_t seq)
{
    return &link->wait.waiters[seq % TOW_LINK_BUCKETS];
}

/* With the wait lock held: takes the waiter of a number out of the table. */
static struct towc_waiter *take_waiter(struct towc_link *link, uint32_t seq)
{
    struct towc_waiter **at = link_bucket(link, seq);
    while (*at != NULL && (*at)->seq != seq) {
        at = &(*at)->next;
    }
    struct towc_waiter *found = *at;
    if (found != NULL) {
        *at = found->next;
        link->wait.count--;
    }
    return found;
}

static int take_reply(struct towc_link *link, const struct tow_frame *frame)
{
    const uint8_t *at = NULL;
    size_t available = 0;
    int error = tow_line_peek(link->line, frame->length, TOW_TIME_FOREVER, &at, &available);
    if (error < 0) {
        return error;
    }
    tow_mutex_lock(&link->wait.lock);
    struct towc_waiter *waiter = take_waiter(link, frame->seq);
    tow_mutex_unlock(&link->wait.lock);
    if (waiter == NULL) {
        return -EPROTO;
    }
    waiter->status = (CUresult)frame->context;
    waiter->size = frame->length - TOW_FRAME_HEADER;
    waiter->body = (uint8_t *)waiter->small;
    if (waiter->size > sizeof waiter->small) {
        waiter->body = malloc(waiter->size);
        if (waiter->body == NULL) {
            waiter->status = CUDA_ERROR_OUT_OF_MEMORY;
            waiter->size = 0;
        }
    }
    if (waiter->size > 0) {
        memcpy(waiter->body, at + TOW_FRAME_HEADER, waiter->size);
    }
    tow_line_consume(link->line, frame->length);
    /* One that leads is the thread that reads here. Another one may sleep, and be gone after this
     * store; a wake to its old word only costs a system call. */
    if (__atomic_exchange_n(&waiter->state, TOW_WAIT_DONE, __ATOMIC_ACQ_REL) == TOW_WAIT_PENDING) {
        tow_futex_wake((_Atomic uint32_t *)&waiter->state, 1, false);
    }
    return 0;
}

static int take_data(struct towc_link *link, const struct tow_frame *frame)
{
    const uint8_t *at = NULL;
    size_t available = 0;
    struct tow_data data;
    uint32_t pad = 0;
    int error = tow_line_peek(link->line, TOW_DATA_HEAD, TOW_TIME_FOREVER, &at, &available);
    if (error < 0) {
        return error;
    }
    error = tow_data_head_decode(at, frame, &data, &pad);
    if (error < 0) {
        return error;
    }
    tow_line_consume(link->line, TOW_DATA_HEAD);
    error = towc_link_take_payload(link, link->line, &data, false);
    if (error == 0 && pad > 0) {
        error = tow_line_peek(link->line, pad, TOW_TIME_FOREVER, &at, &available);
        if (error == 0) {
            tow_line_consume(link->line, pad);
        }
    }
    return error;
}

/* How long the server's machine may be silent. Comes before the keys of further connections. */
static void take_silence(struct towc_link *link, uint64_t ms)
{
    enum { MOST_MS = 3600 * 1000 };
    if (ms <= MOST_MS) {
        atomic_store(&link->silence_ns, (int64_t)ms * TOW_TIME_MS);
        tow_line_set_silence(link->line, (int64_t)ms * TOW_TIME_MS);
        towc_lasting_silence(link);
    }
}

static int take_other(struct towc_link *link, const struct tow_frame *frame)
{
    const uint8_t *at = NULL;
    size_t available = 0;
    int error = tow_line_peek(link->line, frame->length, TOW_TIME_FOREVER, &at, &available);
    if (error < 0) {
        return error;
    }
    if (frame->kind == TOW_CONTROL_PRINT) {
        struct tow_print print;
        error = tow_print_decode(at, frame, &print);
        if (error == 0) {
            /* The program's own stdio, so that its output and the kernel's keep their order. */
            fwrite(print.text, 1, print.size, print.to_stderr ? stderr : stdout);
        }
    } else if (frame->kind == TOW_CONTROL_CALLBACK) {
        struct tow_callback callback;
        error = tow_callback_decode(at, frame, &callback);
        if (error == 0) {
            error = towc_link_handler->callback(link, callback.id, (CUresult)callback.status);
        }
    } else if (frame->kind == TOW_CONTROL_NOTICE) {
        struct tow_notice notice;
        error = tow_notice_decode(at, frame, &notice);
        if (error == 0 && notice.text != NULL &&
            (notice.topic == TOW_NOTICE_TEXT || notice.topic == TOW_NOTICE_LOGGED)) {
            if (notice.topic == TOW_NOTICE_TEXT) {
                tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN, "%s", notice.text);
            }
            towc_link_handler->text(notice.text);
        } else if (error == 0 && notice.topic == TOW_NOTICE_LANES) {
            towc_further_set_lane_key(link, notice.values);
        } else if (error == 0 && notice.topic == TOW_NOTICE_SIDE) {
            towc_further_set_side_key(link, notice.values);
        } else if (error == 0 && notice.topic == TOW_NOTICE_SILENCE) {
            take_silence(link, notice.values[0]);
        }
    } else if (frame->kind == TOW_CONTROL_MIRROR) {
        error = towc_link_handler->mirror(link, at + TOW_FRAME_HEADER,
                                          frame->length - TOW_FRAME_HEADER);
    } else if (frame->kind == TOW_CONTROL_DONE) {
        struct tow_done done;
        error = tow_done_decode(at, frame, &done);
        if (error == 0) {
            error = towc_link_handler->done(link, &done);
        }
    } else if (frame->kind == TOW_CONTROL_BYE) {
        error = keep_farewell(link, at, frame);
        error = error < 0 ? error : -ESHUTDOWN;
    } else {
        error = -EPROTO;
    }
    if (error == 0) {
        tow_line_consume(link->line, frame->length);
    }
    return error;
}

static int take_frame(struct towc_link *link)
{
    const uint8_t *at = NULL;
    size_t available = 0;
    struct tow_frame frame;
    int error = tow_line_peek(link->line, TOW_FRAME_HEADER, TOW_TIME_FOREVER, &at, &available);
    if (error < 0) {
        return error;
    }
    error = tow_frame_read(at, &frame);
    if (error < 0) {
        return error;
    }
    towc_link_add(&link->counters.bytes_in, frame.length);
    switch (frame.kind) {
    case TOW_CONTROL_REPLY:
        return take_reply(link, &frame);
    case TOW_CONTROL_DATA:
        return take_data(link, &frame);
    default:
        return take_other(link, &frame);
    }
}

static const char *loss_reason(int error)
{
    switch (error) {
    case -EPROTO:
        return "it sent something that cannot be understood";
    case -EIDRM:
        return "it broke the protocol: it called a host function that is not outstanding";
    case -ESHUTDOWN:
        return "it is shutting down";
    case -EPIPE:
    case -ECONNRESET:
        return "the connection was closed";
    case -EHOSTDOWN:
        return "its machine has said nothing for too long: it is down, or the network is";
    default:
        return strerror(-error);
    }
}

/* The reader has come to the end, of what the server had to say, too. */
static void end_reading(struct towc_link *link, int error)
{
    link_end(link, loss_reason(error), link->farewell);
}

/* With the wait lock held: the reader leaves; one of the others is to read. */
static void pass_reading(struct towc_link *link)
{
    for (int i = 0; link->wait.count > 0 && i < TOW_LINK_BUCKETS; i++) {
        struct towc_waiter *w = link->wait.waiters[i];
        if (w != NULL) {
            __atomic_store_n(&w->state, TOW_WAIT_LEAD, __ATOMIC_RELEASE);
            tow_futex_wake((_Atomic uint32_t *)&w->state, 1, false);
            return;
        }
    }
    link->wait.reading = false;
    if (link->wait.listening && atomic_load(&link->hostfns.turns) > 0) {
        pthread_cond_signal(&link->wait.unread); /* a function's turn is told to nobody else */
    }
}

static void read_until_done(struct towc_link *link, struct towc_waiter *waiter)
{
    while (__atomic_load_n(&waiter->state, __ATOMIC_ACQUIRE) != TOW_WAIT_DONE) {
        int error = take_frame(link);
        if (error < 0) {
            end_reading(link, error);
            return;
        }
    }
    tow_mutex_lock(&link->wait.lock);
    pass_reading(link);
    tow_mutex_unlock(&link->wait.lock);
}

/* Called with the send lock held, before the command is committed: its reply finds the waiter. */
static bool link_enlist(struct towc_link *link, struct towc_waiter *waiter)
{
    tow_mutex_lock(&link->wait.lock);
    bool leads = !link->wait.reading;
    link->wait.reading = true;
    __atomic_store_n(&waiter->state, leads ? TOW_WAIT_LEAD : TOW_WAIT_PENDING, __ATOMIC_RELAXED);
    waiter->body = NULL;
    waiter->size = 0;
    waiter->next = *link_bucket(link, waiter->seq);
    *link_bucket(link, waiter->seq) = waiter;
    link->wait.count++;
    tow_mutex_unlock(&link->wait.lock);
    return leads;
}

static void link_await(struct towc_link *link, struct towc_waiter *waiter)
{
    uint32_t state = __atomic_load_n(&waiter->state, __ATOMIC_ACQUIRE);
    while (state == TOW_WAIT_PENDING) {
        tow_futex_wait((_Atomic uint32_t *)&waiter->state, TOW_WAIT_PENDING, TOW_TIME_FOREVER,
                       false);
        state = __atomic_load_n(&waiter->state, __ATOMIC_ACQUIRE);
    }
    if (state == TOW_WAIT_LEAD) {
        read_until_done(link, waiter);
    }
}

/* ---- reading when nobody waits ---- */

void towc_link_catch_up(struct towc_link *link)
{
    for (;;) {
        if (!tow_mutex_try(&link->wait.lock)) {
            return; /* whoever has it reads, or this thread does the next time */
        }
        bool leads = !link->wait.reading && atomic_load(&link->lost) == 0;
        if (leads) {
            link->wait.reading = true;
        }
        tow_mutex_unlock(&link->wait.lock);
        if (!leads) {
            return;
        }
        int error = tow_line_wait_readable(link->line, 0);
        bool none = error == -ETIMEDOUT;
        if (error == 0) {
            error = take_frame(link);
        }
        if (error < 0 && !none) {
            end_reading(link, error);
            return;
        }
        tow_mutex_lock(&link->wait.lock);
        pass_reading(link);
        tow_mutex_unlock(&link->wait.lock);
        if (none) {
            return;
        }
    }
}

/* While others read, the background reader looks only so often, unless a host function's turn may
 * come: woken after each of their replies it would take processor time from them. */
#define LISTEN_AGAIN_NS (200 * TOW_TIME_US)

static void *listen_thread(void *arg)
{
    struct towc_link *link = arg;
    while (atomic_load(&link->lost) == 0) {
        int error = tow_line_wait_readable(link->line, TOW_TIME_FOREVER);
        if (error < 0) {
            towc_link_lose(link, loss_reason(error));
            break;
        }
        tow_mutex_lock(&link->wait.lock);
        bool leads = !link->wait.reading;
        link->wait.reading = true;
        if (!leads) {
            /* A waiter reads; what came is for it or will be handed on. */
            tow_mutex_wait_until(&link->wait.lock, &link->wait.unread,
                                 tow_time_deadline(LISTEN_AGAIN_NS));
        }
        tow_mutex_unlock(&link->wait.lock);
        if (!leads) {
            continue;
        }
        error = take_frame(link);
        if (error < 0) {
            end_reading(link, error);
            break;
        }
        tow_mutex_lock(&link->wait.lock);
        pass_reading(link);
        tow_mutex_unlock(&link->wait.lock);
    }
    return NULL;
}

int towc_link_listen(struct towc_link *link)
{
    tow_mutex_lock(&link->wait.lock);
    int error = 0;
    if (!link->wait.listening) {
        pthread_t thread;
        error = tow_thread_start("towline-listen", listen_thread, link, &thread);
        if (error == 0) {
            pthread_detach(thread);
            link->wait.listening = true;
        }
    }
    tow_mutex_unlock(&link->wait.lock);
    return error;
}

/* ---- calls ---- */

/* NVIDIA's driver takes about 1,000 launches into a stream before it makes the caller wait. */
enum { BEHIND_MAX = 400 };

/* With the send lock held: whether a call that needs no reply waits for one all the same. A call in
 * which the driver waits for the device, which waits for a host function, must not keep the server
 * from hearing of the function's end. */
static bool is_cautious(struct towc_link *link, unsigned fn)
{
    struct towc_link_hostfns *hostfns = &link->hostfns;
    if (!TOW_UNLIKELY((atomic_load_explicit(&hostfns->turns, memory_order_relaxed) |
                       atomic_load_explicit(&hostfns->graphs, memory_order_relaxed)) != 0)) {
        return false;
    }
    return atomic_fetch_add_explicit(&hostfns->behind, 1, memory_order_relaxed) >= BEHIND_MAX ||
           (tow_fn_info(fn)->flags & TOW_FN_BLOCKS);
}

/* Not every call may go: the server is lost, or lacks functions, or this one is too large. */
static CUresult look_closely(const struct towc_link *link, unsigned fn, size_t bytes)
{
    int lost = atomic_load_explicit(&link->lost, memory_order_relaxed);
    if (lost != 0) {
        return (CUresult)lost;
    }
    if (bytes >= TOW_LINK_ROOM) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return towc_hello_may_call(link, fn) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

/* Calls that give the device nothing that could write managed memory, or stand still. All others
 * may. */
static bool gives_work(unsigned fn)
{
    switch (fn) {
    case TOW_FN_cuCtxSynchronize:
    case TOW_FN_cuStreamSynchronize:
    case TOW_FN_cuStreamQuery:
    case TOW_FN_cuEventCreate:
    case TOW_FN_cuEventRecord:
    case TOW_FN_cuEventSynchronize:
    case TOW_FN_cuEventQuery:
    case TOW_FN_cuEventElapsedTime_v2:
    case TOW_FN_cuEventDestroy_v2:
    case TOW_FN_cuMemAlloc_v2:
    case TOW_FN_cuMemAllocManaged:
    case TOW_FN_cuMemFree_v2:
    case TOW_FN_cuMemGetInfo_v2:
    case TOW_FN_cuMemHostGetDevicePointer_v2:
    case TOW_FN_cuMemHostUnregister:
    case TOW_FN_cuPointerGetAttribute:
    case TOW_FN_cuPointerGetAttributes:
        return false;
    default:
        return true;
    }
}

/* Before a call while memory is mirrored. */
static CUresult link_precede(struct towc_link *link, unsigned fn, unsigned flags)
{
    bool works = gives_work(fn);
    if ((flags & TOW_CALL_REPLY) && (tow_fn_info(fn)->flags & TOW_FN_SHOWS)) {
        /* What is waited for may itself wait for a word that the program has just written. */
        return towc_link_handler->before_shown(link, works);
    }
    if (!works || atomic_load_explicit(&towc_fault_count, memory_order_relaxed) == 0) {
        return CUDA_SUCCESS;
    }
    towc_link_gives(link);
    return towc_side_fence(link);
}

CUresult towc_call_begin_on(struct towc_call *call, struct towc_link *link, uint32_t context,
                            unsigned fn, size_t bytes, unsigned flags)
{
    if (TOW_UNLIKELY(bytes >= atomic_load_explicit(&link->room, memory_order_relaxed))) {
        CUresult status = look_closely(link, fn, bytes);
        if (status != CUDA_SUCCESS) {
            return status;
        }
    }
    if (TOW_UNLIKELY(towc_thread_here == NULL) && towc_thread_make() == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (TOW_UNLIKELY(atomic_load_explicit(&towc_mirror_count, memory_order_relaxed) != 0) &&
        fn < TOW_CONTROL_FIRST) {
        CUresult status = link_precede(link, fn, flags);
        if (status != CUDA_SUCCESS) {
            return status;
        }
    }
    tow_lock_take(&link->send.lock);
    call->waits = (flags & TOW_CALL_REPLY) != 0 ||
                  (fn < TOW_CONTROL_FIRST &&
                   ((atomic_load_explicit(&towc_wait_always, memory_order_relaxed) != 0 &&
                     (flags & TOW_CALL_CAPTURED) == 0) ||
                    is_cautious(link, fn)));
    size_t room = tow_frame_length(bytes);
    int error = tow_line_reserve(link->line, room, &call->frame);
    if (error < 0) {
        tow_lock_give(&link->send.lock);
        towc_link_lose(link, loss_reason(error));
        return (CUresult)atomic_load(&link->lost);
    }
    call->link = link;
    call->fn = (uint16_t)fn;
    call->context = context;
    call->enc = tow_frame_begin(call->frame, room);
    return CUDA_SUCCESS;
}

/* Finishes the frame, hands it to the line and releases the send lock. */
static CUresult link_dispatch(struct towc_call *call, bool *ret_leads)
{
    struct towc_link *link = call->link;
    struct towc_thread *self = towc_thread_here; /* there since the call began */
    struct tow_frame frame = {.kind = call->fn, .thread = self->number, .context = call->context};
    uint32_t length = 0;
    if (call->waits) {
        frame.seq = link->send.next_seq;
        link->send.next_seq = link->send.next_seq == UINT32_MAX ? 1 : link->send.next_seq + 1;
    }
    if (tow_frame_end(&call->enc, call->frame, frame, &length) < 0) {
        tow_lock_give(&link->send.lock);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (call->waits) {
        call->waiter.seq = frame.seq;
        *ret_leads = link_enlist(link, &call->waiter);
        link->counters.replies_waited++;
    }
    uint64_t commands = atomic_load_explicit(&link->counters.commands, memory_order_relaxed);
    atomic_store_explicit(&link->counters.commands, commands + 1, memory_order_relaxed);
    if (call->fn < TOW_CONTROL_FIRST) {
        self->command = towc_link_command(link->index, ++link->send.commands);
    }
    self->sent++;
    self->waited += call->waits;
    towc_link_add(&link->counters.bytes_out, length);
    if (call->waits) {
        tow_line_commit_now(link->line, length);
    } else {
        tow_line_commit(link->line, length);
    }
    tow_lock_give(&link->send.lock);
    return CUDA_SUCCESS;
}

CUresult towc_call_send(struct towc_call *call)
{
    bool leads = false;
    if (call->waits) {
        CUresult status = towc_call_end(call, towc_call_wait(call));
        atomic_fetch_add_explicit(&call->link->beside, 1, memory_order_relaxed);
        return status;
    }
    return link_dispatch(call, &leads);
}

void towc_link_gives(struct towc_link *link)
{
    const struct towc_thread *self = towc_thread_self();
    uint64_t giver = self != NULL ? self->unique : GIVEN_BY_SEVERAL, before = 0;
    if (!atomic_compare_exchange_strong(&link->work.giver, &before, giver) && before != giver) {
        atomic_store(&link->work.giver, GIVEN_BY_SEVERAL);
    }
    atomic_fetch_add(&link->work.given, 1); /* behind it: who sees this sees the giver, too */
}

void towc_link_synchronised(struct towc_link *link, uint32_t context, uint64_t given)
{
    /* Work that another thread is about to send may not have been there. What this one gave was. */
    const struct towc_thread *self = towc_thread_self();
    uint64_t giver = atomic_load(&link->work.giver);
    if (giver == 0 || (self != NULL && giver == self->unique)) {
        atomic_store(&link->work.context, context);
        atomic_store(&link->work.synchronised, given + 1);
    }
}

CUresult towc_call_wait(struct towc_call *call)
{
    bool leads = false;
    call->waiter.body = NULL;
    int64_t began_ns = towc_wait_begins();
    CUresult status = link_dispatch(call, &leads);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    link_await(call->link, &call->waiter);
    towc_wait_ends(began_ns);
    if (TOW_UNLIKELY(atomic_load_explicit(&towc_fault_count, memory_order_relaxed) != 0) &&
        call->fn < TOW_CONTROL_FIRST && (tow_fn_info(call->fn)->flags & TOW_FN_SHOWS)) {
        towc_link_handler->after_shown(call->link);
    }
    struct towc_link_hostfns *hostfns = &call->link->hostfns;
    if (TOW_UNLIKELY(atomic_load_explicit(&hostfns->graphs, memory_order_relaxed) != 0) &&
        atomic_load_explicit(&hostfns->turns, memory_order_relaxed) == 0 &&
        call->waiter.status == CUDA_SUCCESS && (tow_fn_info(call->fn)->flags & TOW_FN_SYNCS)) {
        atomic_store_explicit(&hostfns->behind, 0, memory_order_relaxed); /* graphs are done */
    }
    if (TOW_UNLIKELY(call->waiter.status != CUDA_SUCCESS &&
                     call->waiter.status != CUDA_ERROR_NOT_READY)) {
        towc_link_handler->failed(call->context, call->waiter.status);
    }
    call->dec =
        tow_dec_init(call->waiter.body != NULL ? call->waiter.body : (uint8_t *)call->waiter.small,
                     call->waiter.size);
    return call->waiter.status;
}

CUresult towc_call_end(struct towc_call *call, CUresult status)
{
    if (call->waiter.body != NULL && call->waiter.body != (uint8_t *)call->waiter.small) {
        free(call->waiter.body);
    }
    call->waiter.body = NULL;
    if (status == CUDA_SUCCESS && call->dec.bad) {
        const struct tow_fn_info *info = tow_fn_info(call->fn);
        tow_log(TOW_AREA_CLIENT, TOW_LOG_ERROR, "the server's reply to %s is too short",
                info->name);
        return CUDA_ERROR_UNKNOWN;
    }
    return status;
}

void towc_call_cancel(struct towc_call *call)
{
    tow_lock_give(&call->link->send.lock);
}

void towc_call_get_bytes(struct towc_call *call, void *into, size_t size)
{
    if (into != NULL) {
        tow_dec_copy(&call->dec, into, size);
    } else {
        tow_dec_bytes(&call->dec, size);
    }
    tow_dec_align(&call->dec, 8);
}

void towc_call_get_array(struct towc_call *call, void *into, size_t element, size_t room)
{
    uint64_t count = tow_dec_u64(&call->dec);
    if (count > room || count > tow_dec_left(&call->dec) / element) {
        tow_dec_fail(&call->dec);
        return;
    }
    towc_call_get_bytes(call, into, (size_t)count * element);
}

/* ---- bulk ---- */

/* The next frames of a transfer, from data->offset on: those that lie side by side at once. */
static int send_packed(struct towc_link *link, const struct towc_packer *packer,
                       struct tow_data *data)
{
    uint64_t end = packer->size;
    const uint8_t *bytes = packer->rect.first + data->offset;
    if (!packer->flat) {
        end = end - data->offset < packer->each ? end : data->offset + packer->each;
        bytes = towc_packer_bytes(packer, data->offset, (size_t)(end - data->offset));
        data->flags = end == packer->size ? TOW_DATA_LAST : 0;
    }
    uint64_t sent = 0;
    tow_lock_take(&link->send.lock);
    int error = tow_data_send(link->line, data, end, bytes, &sent);
    towc_link_add(&link->counters.bytes_out, sent);
    tow_lock_give(&link->send.lock);
    if (!packer->flat && error == 0) {
        error = tow_line_take_back(link->line); /* the next are packed where these are */
    }
    return error;
}

CUresult towc_link_upload_packed(struct towc_link *link, uint32_t transfer,
                                 const struct towc_packer *packer, uint64_t offset)
{
    struct tow_data data = {.transfer = transfer,
                            .flags = TOW_DATA_LAST,
                            .offset = offset,
                            .size = (uint32_t)packer->each};
    int error;
    do {
        error = send_packed(link, packer, &data);
    } while (error == 0 && data.offset < packer->size);
    int given = tow_line_take_back(link->line);
    if (error < 0 || given < 0) {
        towc_link_lose(link, loss_reason(error < 0 ? error : given));
        return (CUresult)atomic_load(&link->lost);
    }
    /* Other threads' commands went between, and came before the device had all of it. */
    atomic_fetch_add_explicit(&link->beside, 1, memory_order_relaxed);
    return CUDA_SUCCESS;
}

CUresult towc_link_upload(struct towc_link *link, uint32_t transfer, const void *from, size_t size)
{
    if (size == 0) {
        return CUDA_SUCCESS;
    }
    struct towc_host_rect rect = towc_host_rect_flat((void *)(uintptr_t)from, size);
    struct towc_packer packer = towc_packer_of(&rect, TOW_DATA_MAX);
    return towc_link_upload_packed(link, transfer, &packer, 0);
}
