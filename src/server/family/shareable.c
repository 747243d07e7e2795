/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and pools of other sessions. The driver's descriptors never leave the server's machine:
 * the client gets a token for one, and a client that has the token gets what it stands for. */
#include "server/family/shareable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mutex.h"
#include "gen/pool_server.h"
#include "gen/vmm_server.h"
#include "server/session/session.h"

#define TYPE CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

/* Gives the driver's descriptor away and the client its token. */
static void shareable_keep(struct tows_serve *call, int fd)
{
    struct tow_token token;
    int error = call->session->options->exports->keep(fd, &token);
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "a shareable handle cannot be kept: %s",
                strerror(-error));
        call->status = CUDA_ERROR_OPERATING_SYSTEM;
        return;
    }
    tow_enc_u64(&call->out, token.word[0]);
    tow_enc_u64(&call->out, token.word[1]);
}

static bool can_share(struct tows_serve *call)
{
    if (tows_serve_ready(call) && call->session->options->exports == NULL) {
        call->status = CUDA_ERROR_NOT_SUPPORTED;
    }
    return call->status == CUDA_SUCCESS && !call->malformed;
}

/* The driver's descriptor of the token in the command; -1 with call->status set. */
static int shareable_get(struct tows_serve *call)
{
    struct tow_token token = {.word[0] = tow_dec_u64(&call->in)};
    token.word[1] = tow_dec_u64(&call->in);
    if (!can_share(call)) {
        return -1;
    }
    int fd = call->session->options->exports->get(&token);
    if (fd < 0) {
        call->status = fd == -ENOENT ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OPERATING_SYSTEM;
        return -1;
    }
    return fd;
}

int tows_shareable_forget(struct tows_session *session, const uint8_t *at,
                          const struct tow_frame *frame)
{
    struct tow_forget forget;
    int error = tow_forget_decode(at, frame, &forget);
    if (error == 0 && session->options->exports != NULL) {
        session->options->exports->forget(&forget.token);
    }
    return error;
}

void tows_serve_cuMemExportToShareableHandle(struct tows_serve *call)
{
    CUmemGenericAllocationHandle handle = tow_dec_u64(&call->in);
    int fd = -1;
    if (!can_share(call)) {
        return;
    }
    call->status = tow_drive(call->driver, cuMemExportToShareableHandle)(&fd, handle, TYPE, 0);
    if (call->status == CUDA_SUCCESS) {
        shareable_keep(call, fd);
    }
}

void tows_serve_cuMemImportFromShareableHandle(struct tows_serve *call)
{
    CUmemGenericAllocationHandle handle = 0;
    int fd = shareable_get(call);
    if (fd < 0) {
        return;
    }
    call->status = tow_drive(call->driver,
                             cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)fd, TYPE);
    close(fd);
    if (call->status == CUDA_SUCCESS) {
        tow_enc_u64(&call->out, handle);
    }
}

/* ---- pools ---- */

/* A driver may look at an imported pool's descriptor again when a pointer comes: it stays open as
 * long as the pool is there. */
struct imported {
    struct imported *next;
    CUmemoryPool pool;
    int fd; /* owned */
};

struct imports {
    struct tow_mutex lock;
    struct imported *first; /* owned; guarded by lock */
};

static void imports_init(struct tows_session *session, void *state)
{
    (void)session;
    tow_mutex_init(&((struct imports *)state)->lock, SERVER_IMPORTS);
}

static void imports_fini(struct tows_session *session, void *state)
{
    (void)session;
    struct imports *imports = state;
    while (imports->first != NULL) {
        struct imported *imported = imports->first;
        imports->first = imported->next;
        close(imported->fd);
        free(imported);
    }
    tow_mutex_fini(&imports->lock);
}

static void imports_add(struct tows_session *session, CUmemoryPool pool, int fd)
{
    static const struct tows_family_ops ops = {TOW_SESSION_SHAREABLE, sizeof(struct imports),
                                               imports_init, imports_fini};
    struct imports *imports = tows_session_make_state(session, &ops);
    struct imported *imported = imports != NULL ? malloc(sizeof *imported) : NULL;
    if (imported == NULL) {
        close(fd);
        return;
    }
    tow_mutex_lock(&imports->lock);
    *imported = (struct imported){imports->first, pool, fd};
    imports->first = imported;
    tow_mutex_unlock(&imports->lock);
}

static void imports_drop(struct tows_session *session, CUmemoryPool pool)
{
    struct imports *imports = tows_session_state(session, TOW_SESSION_SHAREABLE);
    if (imports == NULL) {
        return;
    }
    tow_mutex_lock(&imports->lock);
    struct imported **at = &imports->first;
    while (*at != NULL && (*at)->pool != pool) {
        at = &(*at)->next;
    }
    struct imported *imported = *at;
    if (imported != NULL) {
        *at = imported->next;
    }
    tow_mutex_unlock(&imports->lock);
    if (imported != NULL) {
        close(imported->fd);
        free(imported);
    }
}

void tows_serve_cuMemPoolExportToShareableHandle(struct tows_serve *call)
{
    CUmemoryPool pool = tows_serve_handle(call, TOW_H_MEMORYPOOL, tow_dec_u64(&call->in));
    int fd = -1;
    if (!can_share(call)) {
        return;
    }
    call->status = tow_drive(call->driver, cuMemPoolExportToShareableHandle)(&fd, pool, TYPE, 0);
    if (call->status == CUDA_SUCCESS) {
        shareable_keep(call, fd);
    }
}

void tows_serve_cuMemPoolImportFromShareableHandle(struct tows_serve *call)
{
    CUmemoryPool pool = NULL;
    int fd = shareable_get(call);
    if (fd < 0) {
        return;
    }
    call->status = tow_drive(call->driver, cuMemPoolImportFromShareableHandle)(
        &pool, (void *)(intptr_t)fd, TYPE, 0);
    if (call->status != CUDA_SUCCESS) {
        close(fd);
        return;
    }
    imports_add(call->session, pool, fd);
    tow_enc_u64(&call->out, tows_serve_export(call, TOW_H_MEMORYPOOL, pool));
}

void tows_serve_cuMemPoolDestroy(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUmemoryPool pool = tows_serve_handle(call, TOW_H_MEMORYPOOL, id);
    if (!tows_serve_ready(call) || !tows_serve_claim(call, TOW_H_MEMORYPOOL, id)) {
        return;
    }
    /* Before the driver can give its address to another pool. */
    imports_drop(call->session, pool);
    call->status = tow_drive(call->driver, cuMemPoolDestroy)(pool);
    if (call->status != CUDA_SUCCESS) {
        tows_serve_unclaim(call);
    }
}

/* The client is told how large the memory is, for pointer queries. */
void tows_serve_cuMemPoolImportPointer(struct tows_serve *call)
{
    CUmemoryPool pool = tows_serve_handle(call, TOW_H_MEMORYPOOL, tow_dec_u64(&call->in));
    CUmemPoolPtrExportData data;
    tows_serve_record(call, &data, sizeof data);
    if (!tows_serve_ready(call)) {
        return;
    }
    CUdeviceptr address = 0;
    call->status = tow_drive(call->driver, cuMemPoolImportPointer)(&address, pool, &data);
    if (call->status == CUDA_SUCCESS) {
        tows_serve_put_range(call, address);
    }
}
