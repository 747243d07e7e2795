/* SPDX-License-Identifier: Apache-2.0 */
/* A session's life: it begins, is served, ends. */
#include "server/run/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "gen/context.h"
#include "gen/server_api.h"
#include "server/code/code.h"
#include "server/remake/take.h"
#include "server/run/dispatch.h"
#include "server/run/hello.h"
#include "server/run/suspend.h"
#include "server/session/reasons.h"
#include "server/session/session.h"
#include "server/session/transfer.h"
#include "transport/lanes.h"
#include "wire/id.h"
#include "wire/limits.h"

static void print_to_client(void *user, const char *text, size_t length)
{
    tows_session_print(user, text, length, false);
}

static void print_error_to_client(void *user, const char *text, size_t length)
{
    tows_session_print(user, text, length, true);
}

static void finish_context(void *user, uint64_t id, const struct tows_handle_entry *entry)
{
    (void)id;
    const struct tows_session *session = user;
    if (entry->handle != NULL &&
        tow_drive(session->driver, cuCtxSetCurrent)(entry->handle) == CUDA_SUCCESS) {
        tow_drive(session->driver, cuCtxSynchronize)();
    }
}

static void end_context(void *user, uint64_t id, const struct tows_handle_entry *entry)
{
    (void)id;
    struct tows_session *session = user;
    CUdevice device = 0;
    if (entry->handle == NULL ||
        tow_drive(session->driver, cuCtxDestroy_v2)(entry->handle) == CUDA_SUCCESS) {
        return;
    }
    /* A primary context is not destroyed but reset. */
    if (tow_drive(session->driver, cuCtxSetCurrent)(entry->handle) == CUDA_SUCCESS &&
        tow_drive(session->driver, cuCtxGetDevice)(&device) == CUDA_SUCCESS) {
        tow_drive(session->driver, cuDevicePrimaryCtxReset_v2)(device);
    }
}

/* ---- beginning and ending ---- */

/* What kernels print goes to the client, or nowhere. */
static void print_to(struct tow_backend *backend, struct tows_session *session)
{
    if (backend->print == NULL) {
        return;
    }
    if (backend->hold_print != NULL) {
        backend->hold_print(true);
    }
    if (session != NULL) {
        *backend->print_user = session;
    }
    *backend->print = session != NULL ? print_to_client : NULL;
    if (backend->print_error != NULL) {
        *backend->print_error = session != NULL ? print_error_to_client : NULL;
    }
    if (backend->hold_print != NULL) {
        backend->hold_print(false);
    }
}

/* Also if it is half made. */
static void session_destroy(struct tows_session *session)
{
    tow_lanes_destroy(session->lanes);
    tows_transfer_end_all(session);
    tows_link_state_end(session); /* before the images that links hold */
    tows_take_end(session);
    tows_session_fini(session);
    tows_suspend_fini(session);
    free(session);
}

static int session_create(struct tow_line *line, struct tow_backend *backend,
                          const struct tows_session_options *options,
                          struct tows_session **ret_session)
{
    struct tows_session *session = calloc(1, sizeof *session);
    if (session == NULL) {
        return -ENOMEM;
    }
    session->line = line;
    session->backend = backend;
    session->driver = &backend->driver;
    session->options = options;
    session->stats = options->stats != NULL ? options->stats : &session->own_stats;
    session->on_end = tows_session_release;
    tows_serve_add_all(session->table);
    tows_suspend_init(session);
    int error = tows_session_init(session);
    if (error == 0 && options->record_every != 0) {
        error = tows_take_begin(session, options->record_every);
    }
    if (error < 0) {
        session_destroy(session);
        return error;
    }
    *ret_session = session;
    return 0;
}

static int session_serve(struct tows_session *session)
{
    int error = tows_session_hello(session);
    if (error != 0) {
        return error;
    }
    print_to(session->backend, session);
    if (session->options->on_begin != NULL) {
        session->options->on_begin(session);
    }
    int result = tows_session_serve(session);
    result = result == -ESHUTDOWN ? 0 : result;
    tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "the session of %s ends: %s", session->stats->client,
            result == 0            ? "the client left"
            : result == -ECANCELED ? "the server ended it"
                                   : strerror(-result));
    return result;
}

int tows_session_run(struct tow_line *line, struct tow_backend *backend,
                     const struct tows_session_options *options)
{
    struct tows_session *session = NULL;
    int error = session_create(line, backend, options, &session);
    if (error < 0) {
        return error;
    }
    if (strcmp(backend->name, "soft") == 0) {
        tows_reasons_begin(); /* of NVIDIA's driver the log has only what we ask it ourselves */
    }
    int result = session_serve(session);
    if (!options->in_process) {
        /* A record that is not reached any more would keep another session waiting for ever. The
         * client's host functions hold nothing up any more, and a worker whose work never ends is
         * ended by its watcher. */
        if (atomic_load(&session->shares_events)) {
            tows_handles_each(&session->handles, TOW_H_CONTEXT, finish_context, session);
        }
        /* The worker process ends now; other threads may be inside the driver, which frees all. */
        return result;
    }
    tows_handles_each(&session->handles, TOW_H_CONTEXT, end_context, session);
    tows_session_await_threads(session);
    print_to(backend, NULL);
    session_destroy(session);
    return result;
}
