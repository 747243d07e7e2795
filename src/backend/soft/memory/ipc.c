/* SPDX-License-Identifier: Apache-2.0 */
/* Memory shared with other workers of the same server. Ordinary memory becomes shareable when its
 * handle is first asked for: its pages move into a memfd, at the same addresses. The listener keeps
 * the memfd, and the handle names a token that only it carries, so that nobody opens what he was
 * not given. No worker needs to see into another. */
#include "backend/soft/engine/engine.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/arena.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/index.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/ground/written.h"
#include "backend/soft/memory/ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gen/interop.h"

#define MAGIC "towlipc1"

/* What the 64 bytes of a CUipcMemHandle are. */
struct wire_handle {
    char magic[8];
    uint32_t pid, none;
    uint64_t pages;        /* size of the memfd */
    uint64_t offset, size; /* of the allocation in it */
    struct tow_backend_token token;
    uint32_t device, zero;
};
_Static_assert(sizeof(struct wire_handle) == sizeof(CUipcMemHandle), "a handle has 64 bytes");

/* Pages of ours that live in a memfd. */
struct exported {
    struct exported *next;
    uint64_t base, size;
    uint64_t serial; /* no other has it */
    int fd;          /* owned */
    bool offered;    /* the token is there */
    struct tow_backend_token token;
};

struct opened {
    struct opened *next;
    struct wire_handle handle;
    uint64_t pages_base;
    struct tow_soft_alloc *alloc; /* owned by the context */
    unsigned count;
};

/* Guarded by tow_soft.lock. */
static struct exported *exports;
static uint64_t next_serial;
static struct opened *openings;

int tow_soft_ipc_offer(int fd, struct tow_backend_token *ret_token)
{
    int other = tow_soft.exchange != NULL ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (other < 0) {
        return tow_soft.exchange != NULL ? -errno : -EOPNOTSUPP;
    }
    return tow_soft.exchange->keep(other, ret_token);
}

void tow_soft_ipc_withdraw(const struct tow_backend_token *token)
{
    tow_soft.exchange->forget(token);
}

int tow_soft_ipc_fetch(const struct tow_backend_token *token, uint64_t size)
{
    struct stat status;
    int fd = tow_soft.exchange != NULL ? tow_soft.exchange->get(token) : -1;
    if (fd >= 0 && (fstat(fd, &status) != 0 || (uint64_t)status.st_size != size)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* ---- giving ---- */

static int move_pages(uint64_t base, uint64_t size, int fd)
{
    if (ftruncate(fd, (off_t)size) != 0) {
        return -errno;
    }
    for (uint64_t done = 0; done < size;) {
        ssize_t n = pwrite(fd, (const void *)(uintptr_t)(base + done), size - done, (off_t)done);
        if (n <= 0) {
            return n < 0 ? -errno : -EIO;
        }
        done += (uint64_t)n;
    }
    return tow_soft_arena_commit(base, size, fd, 0);
}

/* No work may run: it could write to pages while they move. */
static struct exported *export_pages(uint64_t base, uint64_t size)
{
    for (struct exported *e = exports; e != NULL; e = e->next) {
        if (e->base == base) {
            return e;
        }
    }
    struct exported *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return NULL;
    }
    made->fd = memfd_create("towline-ipc", MFD_CLOEXEC);
    if (made->fd < 0 || move_pages(base, size, made->fd) != 0) {
        if (made->fd >= 0) {
            close(made->fd);
        }
        free(made);
        return NULL;
    }
    made->base = base;
    made->size = size;
    made->serial = ++next_serial;
    made->next = exports;
    exports = made;
    return made;
}

void tow_soft_ipc_forget(uint64_t base)
{
    for (struct exported **at = &exports; *at != NULL; at = &(*at)->next) {
        struct exported *e = *at;
        if (e->base == base) {
            *at = e->next;
            if (e->offered) {
                tow_soft_ipc_withdraw(&e->token);
            }
            close(e->fd);
            free(e);
            return;
        }
    }
}

/* With the lock held, which is given up meanwhile, since somebody else is asked: whoever looked at
 * memory before looks again. */
static CUresult export_offer(struct exported *e)
{
    struct tow_backend_token token;
    uint64_t serial = e->serial;
    int fd = fcntl(e->fd, F_DUPFD_CLOEXEC, 0);
    int error = fd >= 0 ? 0 : -errno;
    tow_mutex_unlock(&tow_soft.lock);
    error = fd >= 0 ? tow_soft_ipc_offer(fd, &token) : error;
    if (fd >= 0) {
        close(fd);
    }
    tow_mutex_lock(&tow_soft.lock);
    if (error < 0) {
        return error == -EOPNOTSUPP ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_OPERATING_SYSTEM;
    }
    for (e = exports; e != NULL && e->serial != serial;) {
        e = e->next;
    }
    if (e == NULL || e->offered) {
        tow_soft_ipc_withdraw(&token); /* freed meanwhile, or another thread was faster */
        return CUDA_SUCCESS;
    }
    e->token = token;
    e->offered = true;
    return CUDA_SUCCESS;
}

/* With the lock held. */
static CUresult handle_make(CUdeviceptr dptr, struct wire_handle *ret_handle)
{
    for (;;) {
        while (tow_soft.running != NULL) {
            tow_soft_quiesce();
        }
        struct tow_soft_alloc *alloc = tow_soft_alloc_at(dptr);
        if (alloc == NULL || alloc->kind != TOW_SOFT_MEM_DEVICE) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        uint64_t base = alloc->block != NULL ? alloc->base & ~(TOW_SOFT_BLOCK - 1) : alloc->base;
        uint64_t size = alloc->block != NULL ? TOW_SOFT_BLOCK : alloc->reserved;
        struct exported *e = export_pages(base, size);
        if (e == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        tow_soft_written_all(alloc->base, alloc->size); /* others write it from now on */
        alloc->followed = false;
        if (e->offered) {
            *ret_handle = (struct wire_handle){.magic = MAGIC,
                                               .pid = (uint32_t)getpid(),
                                               .pages = size,
                                               .offset = alloc->base - base,
                                               .size = alloc->size,
                                               .token = e->token,
                                               .device = (uint32_t)alloc->device};
            return CUDA_SUCCESS;
        }
        CUresult result = export_offer(e);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
}

static CUresult soft_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct wire_handle handle;
    result = pHandle != NULL ? handle_make(dptr, &handle) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        memcpy(pHandle, &handle, sizeof handle);
    }
    return tow_soft_leave(result);
}

/* ---- taking ---- */

static struct opened *find_opened(const struct wire_handle *handle)
{
    struct opened *o = openings;
    while (o != NULL && memcmp(&o->handle, handle, sizeof *handle) != 0) {
        o = o->next;
    }
    return o;
}

static void ipc_release(void *object, uint64_t base, uint64_t size)
{
    (void)object;
    tow_soft_arena_decommit(base, size);
    tow_soft_arena_give(base, size);
}

/* An opened allocation left the index: its pages go. */
static void opened_gone(struct tow_soft_alloc *alloc)
{
    for (struct opened **at = &openings; *at != NULL; at = &(*at)->next) {
        struct opened *o = *at;
        if (o->alloc == alloc) {
            *at = o->next;
            tow_soft_retire(ipc_release, NULL, o->pages_base, o->handle.pages);
            free(o);
            return;
        }
    }
}

/* Puts the pages behind addresses of ours and enters the allocation. */
static CUresult map_opened(struct tow_soft_ctx *ctx, struct opened *o, int fd)
{
    const struct wire_handle *handle = &o->handle;
    o->alloc = calloc(1, sizeof *o->alloc);
    if (o->alloc == NULL ||
        tow_soft_arena_take(handle->pages, TOW_SOFT_BLOCK, 0, &o->pages_base) != 0) {
        free(o->alloc);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *o->alloc = (struct tow_soft_alloc){.base = o->pages_base + handle->offset,
                                        .size = handle->size,
                                        .reserved = handle->size,
                                        .kind = TOW_SOFT_MEM_IPC,
                                        .ctx = ctx,
                                        .device = ctx->device->ordinal,
                                        .gone = opened_gone};
    if (tow_soft_arena_commit(o->pages_base, handle->pages, fd, 0) != 0 ||
        tow_soft_alloc_enter(o->alloc) != 0) {
        tow_soft_arena_decommit(o->pages_base, handle->pages);
        tow_soft_arena_give(o->pages_base, handle->pages);
        free(o->alloc);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* Takes the descriptor. Another thread may have opened the same meanwhile. */
static CUresult open_fetched(struct tow_soft_ctx *ctx, const struct wire_handle *wire, int fd,
                             struct opened **ret_opened)
{
    struct opened *o = find_opened(wire);
    CUresult result = CUDA_SUCCESS;
    if (o == NULL) {
        o = calloc(1, sizeof *o);
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (o != NULL) {
            o->handle = *wire;
            result = map_opened(ctx, o, fd);
        }
        if (result != CUDA_SUCCESS) {
            free(o);
        } else {
            o->next = openings;
            openings = o;
        }
    }
    close(fd);
    *ret_opened = o;
    return result;
}

static CUresult soft_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle,
                                           unsigned int Flags)
{
    struct wire_handle wire;
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    memcpy(&wire, &handle, sizeof wire);
    if (pdptr == NULL || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
        memcmp(wire.magic, MAGIC, sizeof wire.magic) != 0 || wire.pages == 0 ||
        wire.pages > tow_soft.arena_size || wire.pages % TOW_SOFT_BLOCK != 0 || wire.size == 0 ||
        wire.size > wire.pages || wire.offset > wire.pages - wire.size) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (wire.pid == (uint32_t)getpid()) {
        return tow_soft_leave(
            CUDA_ERROR_INVALID_CONTEXT); /* as the driver: not in its own process */
    }
    struct opened *o = find_opened(&wire);
    if (o == NULL) {
        /* Somebody else is asked, so without the lock. */
        tow_soft_leave(CUDA_SUCCESS);
        int fd = tow_soft_ipc_fetch(&wire.token, wire.pages);
        result = tow_soft_enter(&ctx);
        if (result != CUDA_SUCCESS) {
            if (fd >= 0) {
                close(fd);
            }
            return result;
        }
        result = fd >= 0 ? open_fetched(ctx, &wire, fd, &o) : CUDA_ERROR_MAP_FAILED;
        if (result != CUDA_SUCCESS) {
            return tow_soft_leave(result);
        }
    }
    o->count++;
    *pdptr = o->alloc->base;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_alloc *alloc = tow_soft_alloc_at(dptr);
    struct opened *o = openings;
    while (o != NULL && (o->alloc != alloc || alloc == NULL)) {
        o = o->next;
    }
    if (o == NULL || alloc->base != dptr) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (--o->count == 0) {
        tow_soft_alloc_drop(alloc);
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

bool tow_soft_ipc_shared(void)
{
    return exports != NULL || openings != NULL;
}

void tow_soft_ipc_fini(void)
{
    while (exports != NULL) {
        tow_soft_ipc_forget(exports->base);
    }
}

void tow_soft_fill_ipc(struct tow_driver *driver)
{
    tow_driver_set(driver, cuIpcGetMemHandle, soft_cuIpcGetMemHandle);
    tow_driver_set(driver, cuIpcOpenMemHandle, soft_cuIpcOpenMemHandle_v2);
    tow_driver_set(driver, cuIpcOpenMemHandle_v2, soft_cuIpcOpenMemHandle_v2);
    tow_driver_set(driver, cuIpcCloseMemHandle, soft_cuIpcCloseMemHandle);
}
