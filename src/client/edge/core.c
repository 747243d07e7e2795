/* SPDX-License-Identifier: Apache-2.0 */
/* cuInit and what belongs to no other family: connecting, forking, the end of the program. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "client/link/call.h"
#include "client/link/device.h"
#include "client/stream/capture.h"
#include "client/code/code.h"
#include "client/code/launch.h"
#include "client/link/lasting.h"
#include "client/link/link.h"
#include "client/edge/logs.h"
#include "transport/lanes.h"
#include "client/callback/hostfn.h"
#include "client/completion/completion.h"
#include "client/copy/stage.h"
#include "client/hostmem/mirror.h"
#include "client/hostmem/region.h"
#include "client/edge/observe.h"
#include "client/session/state.h"
#include "client/session/thread.h"
#include "client/timeline/timeline.h"
#include "gen/core_client.h"
#include "transport/address.h"
#include "transport/choose.h"
#include "wire/frame.h"
#include "wire/result.h"

/* Process-wide: all servers of the program; the environment names them. */
static struct {
    struct tow_mutex lock; /* guards all below, and changes of the list in session/state.c */
    pid_t owner;           /* who connected */
    bool initialised;      /* cuInit succeeded, in this process or the one it was forked from */
    CUresult last_failure; /* of the last attempt to connect */
    int64_t failed_ns;     /* when it was */
    bool said;             /* the user was told why there is no server */
    char why[TOW_WHY_MAX + 256];
} connecting = {.lock = TOW_MUTEX(CLIENT_CONNECT)};

/* How long a failed attempt counts: a program that asks for the version and then initialises should
 * not wait for the same timeout twice. */
static const int64_t failure_lasts_ns = 2 * TOW_TIME_S;

/* ---- what the rooms do for a link ---- */

static void link_opened(struct towc_link *link)
{
    link->completions = towc_completions_make();
    link->stage = towc_stage_make(link);
}

static void link_closes(struct towc_link *link)
{
    towc_stage_destroy(link->stage);
    towc_completions_destroy(link->completions);
}

static int callback_came(struct towc_link *link, uint64_t id, CUresult status)
{
    towc_completion_hear(link);
    return towc_hostfn_call(link, id, status);
}

static void call_failed(uint32_t context, CUresult status)
{
    towc_capture_doubt();
    if (tow_result_is_sticky(status)) {
        towc_context_take_error_of(context, status);
    }
}

static const struct towc_link_handlers link_handlers = {
    .opened = link_opened,
    .closes = link_closes,
    .callback = callback_came,
    .mirror = towc_mirror_apply,
    .done = towc_completion_take,
    .text = towc_logs_text,
    .before_shown = towc_mirror_push_shown,
    .after_shown = towc_mirror_stale_all,
    .failed = call_failed,
    .hold_changes = towc_mirror_pause,
    .release_changes = towc_mirror_resume,
};

/* ---- what ends with a context ---- */

static void end_code(struct towc_context *context)
{
    towc_code_drop_context(context->number);
}

static void register_ends(void)
{
    towc_context_at_end(TOW_TURN_LOCALS, towc_context_end_locals);
    towc_context_at_end(TOW_TURN_CAPTURES, towc_capture_drop_context);
    towc_context_at_end(TOW_TURN_CODE, end_code);
    towc_context_at_end(TOW_TURN_MEMORY, towc_mirror_end_context);
    towc_context_at_end(TOW_TURN_ENDED, towc_hostfn_drop_context);
}

/* ---- which server ---- */

/* Fills `servers` with what the user named. A mistake there is not taken for a machine without a
 * GPU: frameworks go on with the CPU then, and say nothing. */
static CUresult which_server(char *servers)
{
    int choice = tow_choose_servers(servers, connecting.why, sizeof connecting.why);
    if (choice != TOW_CHOICE_NONE) {
        return choice < 0 ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_SUCCESS;
    }
    snprintf(
        connecting.why, sizeof connecting.why,
        "no GPU server was named and none listens on this machine; set TOWLINE_SERVER (for example "
        "tcp://HOST:%d), or start the program with: towline run -- PROGRAM",
        TOW_DEFAULT_PORT);
    return CUDA_ERROR_NO_DEVICE;
}

/* ---- connecting ---- */

/* An address must mean one thing: true if no earlier server uses the ranges of `link`. */
static bool addresses_differ(const struct towc_link *link)
{
    for (unsigned other = 0; other < link->index; other++) {
        const struct towc_link *earlier = towc_client_link_at(other);
        const struct tow_welcome *a = &earlier->welcome, *b = &link->welcome;
        for (uint32_t i = 0; i < a->range_count; i++) {
            for (uint32_t j = 0; j < b->range_count; j++) {
                const struct tow_range *x = &a->ranges[i], *y = &b->ranges[j];
                if (x->size > 0 && y->size > 0 && x->base < y->base + y->size &&
                    y->base < x->base + x->size) {
                    snprintf(connecting.why, sizeof connecting.why,
                             "the GPUs of %s and %s use the same addresses, so they cannot be used "
                             "together; "
                             "name one of the two servers",
                             earlier->address, link->address);
                    return false;
                }
            }
        }
    }
    return true;
}

static CUresult open_links(char *servers)
{
    char *rest = servers, *address;
    while ((address = tow_address_next(&rest)) != NULL) {
        struct towc_link *link = NULL;
        unsigned index = towc_client_link_count();
        if (index == TOW_SERVERS_MAX) {
            snprintf(connecting.why, sizeof connecting.why,
                     "TOWLINE_SERVER names more than %d servers.", TOW_SERVERS_MAX);
            return CUDA_ERROR_NO_DEVICE;
        }
        if (towc_link_open(address, index, &link, connecting.why, sizeof connecting.why) < 0) {
            return CUDA_ERROR_NO_DEVICE;
        }
        towc_region_attach(link);
        towc_client_link_add(link);
        if (!addresses_differ(link)) {
            return CUDA_ERROR_NO_DEVICE;
        }
    }
    return CUDA_SUCCESS;
}

/* In a forked child: the connection is the parent's, which goes on with it. */
static void core_abandon(struct towc_link *link)
{
    tow_line_abandon(link->line);
    towc_lasting_abandon(link);
    tow_lanes_abandon(link->lane.lanes);
    struct tow_line *side = atomic_load(&link->side);
    if (side != NULL) {
        tow_line_abandon(side);
    }
}

/* With the lock held. Connects unless that is done; a forked child connects anew, if its parent
 * only asked. */
static CUresult ensure_connected(void)
{
    pid_t self = getpid();
    unsigned count = towc_client_link_count();
    if (count > 0 && connecting.owner == self) {
        return CUDA_SUCCESS;
    }
    if (connecting.initialised) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (count > 0) {
        for (unsigned i = 0; i < count; i++) {
            core_abandon(towc_client_link_at(i));
        }
        towc_client_links_clear();
        towc_devices_forget();
    }
    if (connecting.last_failure != CUDA_SUCCESS &&
        tow_time_now_ns() - connecting.failed_ns < failure_lasts_ns) {
        return connecting.last_failure;
    }
    towc_link_handle(&link_handlers);
    char servers[TOW_SERVERS_TEXT_MAX];
    connecting.why[0] = '\0';
    CUresult status = which_server(servers);
    if (status == CUDA_SUCCESS) {
        status = open_links(servers);
    }
    if (status == CUDA_SUCCESS) {
        status = towc_devices_take(getenv("CUDA_VISIBLE_DEVICES"), getenv("CUDA_DEVICE_ORDER"));
    }
    if (status != CUDA_SUCCESS) {
        for (unsigned i = 0; i < towc_client_link_count(); i++) {
            towc_link_close(towc_client_link_at(i));
        }
        towc_client_links_clear();
        connecting.failed_ns = tow_time_now_ns();
    }
    connecting.last_failure = status;
    connecting.owner = self;
    if (status == CUDA_SUCCESS) {
        towc_timeline_begin();
    }
    return status;
}

static void forked_child(void)
{
    /* Another thread of the parent may have held it. */
    tow_mutex_init(&connecting.lock, CLIENT_CONNECT);
    tow_locks_forget();
}

/* A thread that has sent something ends: its number may be used again by another. */
static void thread_ends(unsigned number)
{
    if (towc_client_state() != CUDA_SUCCESS) {
        return;
    }
    towc_capture_drop(CU_STREAM_PER_THREAD, number); /* the server ends that stream */
    for (unsigned i = 0; i < towc_client_link_count(); i++) {
        struct towc_call call;
        if (towc_call_begin_on(&call, towc_client_link_at(i), 0, TOW_CONTROL_THREAD_EXIT, 0, 0) ==
            CUDA_SUCCESS) {
            towc_call_send(&call);
        }
    }
}

CUresult towc_cuInit(unsigned int Flags)
{
    if (Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult state = towc_client_state();
    if (state == CUDA_SUCCESS || state == CUDA_ERROR_DEINITIALIZED) {
        return state;
    }
    tow_mutex_lock(&connecting.lock);
    CUresult status = ensure_connected();
    if (status == CUDA_SUCCESS && !connecting.initialised) {
        towc_logs_begin();
        towc_launch_wishes();
        pthread_atfork(NULL, NULL, forked_child);
        towc_thread_at_end(thread_ends);
        register_ends();
        towc_client_phase_begin();
        connecting.initialised = true;
    }
    bool say = status != CUDA_SUCCESS && connecting.why[0] != '\0' && !connecting.said;
    if (say) {
        connecting.said = true;
        tow_log(TOW_AREA_CLIENT, TOW_LOG_ERROR, "%s", connecting.why);
    }
    tow_mutex_unlock(&connecting.lock);
    return status;
}

CUresult towc_cuDriverGetVersion(int *driverVersion)
{
    if (driverVersion == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int version = CUDA_VERSION;
    if (towc_client_state() == CUDA_SUCCESS) {
        version = towc_device_driver_version();
    } else {
        /* Runtimes ask before cuInit. The answer is the server's; without one this library's own,
         * and cuInit will say what is wrong. */
        tow_mutex_lock(&connecting.lock);
        if (ensure_connected() == CUDA_SUCCESS) {
            version = towc_device_driver_version();
        }
        tow_mutex_unlock(&connecting.lock);
    }
    *driverVersion = version;
    return CUDA_SUCCESS;
}

/* ---- the end of the program ---- */

/* So long a program that ends waits for its workers' ends, with which its memory is free: natively
 * as long as the driver takes. */
#define END_NS (10 * TOW_TIME_S)
#define END_QUIET_NS (3 * TOW_TIME_S) /* of these nothing is said */

/* Another thread may be inside a call and never come back: it is waited for a little, not for ever.
 */
#define EXIT_NS (200 * TOW_TIME_MS)

/* Whoever looks at a program that seems to hang should know for whom it waits. */
static void await_end(struct towc_link *link, int64_t deadline)
{
    int64_t quiet = tow_time_deadline(END_QUIET_NS);
    if (tow_line_await_end(link->line, quiet < deadline ? quiet : deadline) < 0 &&
        !tow_time_passed(deadline)) {
        int64_t left = tow_time_left(deadline);
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                "the server %s does not say that this program's GPU memory is free; waiting for "
                "it, %d s at most",
                link->address, (int)((left + TOW_TIME_S - 1) / TOW_TIME_S));
        tow_line_await_end(link->line, deadline);
    }
}

__attribute__((destructor)) static void program_ends(void)
{
    bool ready = towc_client_state() == CUDA_SUCCESS;
    if (ready) {
        towc_client_phase_end();
    }
    towc_timeline_finish(); /* also of a program that only asked */
    if (!ready) {
        return;
    }
    towc_observe_finish();
    for (unsigned i = 0; i < towc_client_link_count(); i++) {
        struct towc_link *link = towc_client_link_at(i);
        if (atomic_load(&link->lost) != 0 ||
            !tow_lock_take_until(&link->send.lock, tow_time_deadline(EXIT_NS))) {
            atomic_store(&link->awaits_end, false); /* nobody told the worker to end */
            continue;
        }
        /* The server hangs up when it has read our BYE; that is no loss to speak of. */
        atomic_store(&link->lost, CUDA_ERROR_DEINITIALIZED);
        atomic_store(&link->room, 0);
        uint8_t *at = NULL;
        uint32_t length = 0;
        struct tow_bye bye = {0};
        towc_lasting_leave(link);
        if (tow_line_reserve(link->line, 64, &at) == 0 &&
            tow_bye_encode(&bye, at, 64, &length) == 0) {
            tow_line_commit_now(link->line, length);
        }
        if (tow_line_drain(link->line, tow_time_deadline(2 * TOW_TIME_S)) < 0) {
            atomic_store(&link->awaits_end, false);
        }
        towc_lasting_left(link);
        tow_lock_give(&link->send.lock);
    }
    int64_t deadline = tow_time_deadline(END_NS);
    for (unsigned i = 0; i < towc_client_link_count(); i++) {
        struct towc_link *link = towc_client_link_at(i);
        if (atomic_load(&link->awaits_end)) {
            await_end(link, deadline);
        }
    }
}

/* ---- profiler ---- */

CUresult towc_cuProfilerInitialize(const char *configFile, const char *outputFile,
                                   CUoutput_mode outputMode)
{
    (void)configFile;
    (void)outputFile;
    (void)outputMode;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult towc_cuProfilerStart(void)
{
    return towc_client_state(); /* no profiler is attached: nothing to start */
}

CUresult towc_cuProfilerStop(void)
{
    return towc_client_state();
}
