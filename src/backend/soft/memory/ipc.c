/* SPDX-License-Identifier: Apache-2.0 */
/* Memory shared with other workers of the same machine. Ordinary memory becomes shareable when its
 * handle is first asked for: its pages move into a memfd, at the same addresses. The handle says
 * where the memfd is and names a token that only it carries, so that nobody opens what he was not
 * given. */
#include "backend/soft/engine/engine.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/arena.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/index.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/memory/ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gen/interop.h"

#define MAGIC "towlipc1"

/* What the 64 bytes of a CUipcMemHandle are. */
struct wire_handle {
    char magic[8];
    uint32_t pid;
    int32_t fd;
    uint64_t pages;        /* size of the memfd */
    uint64_t offset, size; /* of the allocation in it */
    struct tow_soft_token token;
    uint32_t device, zero;
};
_Static_assert(sizeof(struct wire_handle) == sizeof(CUipcMemHandle), "a handle has 64 bytes");

/* Pages of ours that live in a memfd. */
struct exported {
    struct exported *next;
    uint64_t base, size;
    int fd; /* owned */
    struct tow_soft_token token;
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
static struct opened *openings;

static void name_of(const struct tow_soft_token *token, char *ret_name, size_t size)
{
    int used = snprintf(ret_name, size, "towline-ipc-");
    for (size_t i = 0; i < sizeof token->bytes; i++) {
        used += snprintf(ret_name + used, size - (size_t)used, "%02x", token->bytes[i]);
    }
}

int tow_soft_ipc_make(struct tow_soft_token *ret_token)
{
    char name[64];
    if (getrandom(ret_token, sizeof *ret_token, 0) != (ssize_t)sizeof *ret_token) {
        return -1;
    }
    name_of(ret_token, name, sizeof name);
    return memfd_create(name, MFD_CLOEXEC);
}

int tow_soft_ipc_fetch(uint32_t pid, int32_t number, const struct tow_soft_token *token,
                       uint64_t size)
{
    char path[64], target[128] = "", name[64], wanted[96];
    struct stat status;
    snprintf(path, sizeof path, "/proc/%u/fd/%d", pid, number);
    name_of(token, name, sizeof name);
    snprintf(wanted, sizeof wanted, "/memfd:%s (deleted)", name);
    if (readlink(path, target, sizeof target - 1) < 0 || strcmp(target, wanted) != 0) {
        return -1;
    }
    int fd = open(path, O_RDWR | O_CLOEXEC);
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
    made->fd = tow_soft_ipc_make(&made->token);
    if (made->fd < 0 || move_pages(base, size, made->fd) != 0) {
        if (made->fd >= 0) {
            close(made->fd);
        }
        free(made);
        return NULL;
    }
    made->base = base;
    made->size = size;
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
            close(e->fd);
            free(e);
            return;
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
    while (tow_soft.running != NULL) {
        tow_soft_quiesce();
    }
    struct tow_soft_alloc *alloc = tow_soft_alloc_at(dptr);
    if (pHandle == NULL || alloc == NULL || alloc->kind != TOW_SOFT_MEM_DEVICE) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    uint64_t base = alloc->block != NULL ? alloc->base & ~(TOW_SOFT_BLOCK - 1) : alloc->base;
    uint64_t size = alloc->block != NULL ? TOW_SOFT_BLOCK : alloc->reserved;
    const struct exported *e = export_pages(base, size);
    if (e == NULL) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    struct wire_handle handle = {.magic = MAGIC,
                                 .pid = (uint32_t)getpid(),
                                 .fd = e->fd,
                                 .pages = size,
                                 .offset = alloc->base - base,
                                 .size = alloc->size,
                                 .token = e->token,
                                 .device = (uint32_t)alloc->device};
    memcpy(pHandle, &handle, sizeof handle);
    return tow_soft_leave(CUDA_SUCCESS);
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
        int fd = tow_soft_ipc_fetch(wire.pid, wire.fd, &wire.token, wire.pages);
        o = fd >= 0 ? calloc(1, sizeof *o) : NULL;
        if (o == NULL) {
            if (fd >= 0) {
                close(fd);
            }
            return tow_soft_leave(fd < 0 ? CUDA_ERROR_MAP_FAILED : CUDA_ERROR_OUT_OF_MEMORY);
        }
        o->handle = wire;
        result = map_opened(ctx, o, fd);
        close(fd);
        if (result != CUDA_SUCCESS) {
            free(o);
            return tow_soft_leave(result);
        }
        o->next = openings;
        openings = o;
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
