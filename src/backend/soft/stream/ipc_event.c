/* SPDX-License-Identifier: Apache-2.0 */
/* Events shared with other workers of the same server. Such an event has a board: a memfd in which
 * every record has a slot, and a word that says which record is the last. Who looks at a record of
 * another process watches its slot. Each process holds a lock on the byte of the board's file that
 * its number names; the kernel takes it away when the process dies, and what that had not finished
 * counts as done. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/soft/engine/capture.h"
#include "backend/soft/engine/mark.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/memory/ipc.h"
#include "backend/soft/stream/event.h"
#include "gen/interop.h"

#define MAGIC "towlevt1"
#define SLOTS 4095 /* records of one event that may be pending; a full stream holds 1024 */

/* What the 64 bytes of a CUipcEventHandle are. */
struct wire_handle {
    char magic[8];
    uint32_t pid, none;
    struct tow_backend_token token;
    uint8_t zero[32];
};
_Static_assert(sizeof(struct wire_handle) == sizeof(CUipcEventHandle), "a handle has 64 bytes");

struct pages {
    _Atomic uint64_t last;        /* turn << 32 | slot + 1; 0: never recorded */
    _Atomic uint64_t slot[SLOTS]; /* turn << 32 | pid << 1 | pending */
};

struct spare {
    struct spare *next;
    int fd;
};

struct tow_soft_board {
    struct tow_soft_board *next;
    unsigned refs;
    /* Closing any descriptor of the file here gives our lock up: those that nobody needs are kept
     * as long as the one that we use. */
    int fd;
    struct spare *spares; /* owned */
    bool own;             /* this process has offered it */
    struct wire_handle handle;
    struct pages *pages; /* shared with other processes */
    uint32_t hint;       /* where to look for a slot */
};

/* Guarded by tow_soft.lock. */
static struct tow_soft_board *boards;

/* ---- boards ---- */

static struct tow_soft_board *board_open(const struct wire_handle *handle, int fd)
{
    struct flock alive = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)getpid(), .l_len = 1};
    struct tow_soft_board *board = calloc(1, sizeof *board);
    void *pages = MAP_FAILED;
    if (board != NULL && fcntl(fd, F_SETLK, &alive) == 0) {
        pages = mmap(NULL, sizeof *board->pages, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (pages == MAP_FAILED) {
        free(board);
        close(fd);
        return NULL;
    }
    board->refs = 1;
    board->fd = fd;
    board->handle = *handle;
    board->pages = pages;
    board->next = boards;
    boards = board;
    return board;
}

struct tow_soft_board *tow_soft_board_ref(struct tow_soft_board *board)
{
    board->refs++;
    return board;
}

void tow_soft_board_unref(struct tow_soft_board *board)
{
    if (board == NULL || --board->refs != 0) {
        return;
    }
    struct tow_soft_board **at = &boards;
    while (*at != board) {
        at = &(*at)->next;
    }
    *at = board->next;
    if (board->own) {
        tow_soft_ipc_withdraw(&board->handle.token);
    }
    munmap(board->pages, sizeof *board->pages);
    close(board->fd);
    while (board->spares != NULL) {
        struct spare *spare = board->spares;
        board->spares = spare->next;
        close(spare->fd);
        free(spare);
    }
    free(board);
}

static bool is_alive(const struct tow_soft_board *board, uint32_t pid)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)pid, .l_len = 1};
    return pid == (uint32_t)getpid() || fcntl(board->fd, F_GETLK, &lock) != 0 ||
           lock.l_type != F_UNLCK;
}

static bool is_pending(const struct tow_soft_board *board, uint64_t word)
{
    return (word & 1) != 0 && is_alive(board, (uint32_t)word >> 1);
}

static void board_finish(const struct tow_soft_mark *mark)
{
    atomic_fetch_and(&mark->board->pages->slot[mark->slot], ~(uint64_t)1);
}

static bool board_done(const struct tow_soft_mark *mark)
{
    uint64_t word = atomic_load(&mark->board->pages->slot[mark->slot]);
    return (uint32_t)(word >> 32) != mark->turn || !is_pending(mark->board, word);
}

static const struct tow_soft_board_ops ops = {
    .finish = board_finish,
    .done = board_done,
    .unref = tow_soft_board_unref,
};

CUresult tow_soft_board_post(struct tow_soft_board *board, struct tow_soft_mark *mark)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint32_t slot = (board->hint + i) % SLOTS;
        uint64_t word = atomic_load(&board->pages->slot[slot]);
        uint32_t turn = (uint32_t)(word >> 32) + 1;
        uint64_t ours = (uint64_t)turn << 32 | (uint64_t)(uint32_t)getpid() << 1 | 1;
        if (!is_pending(board, word) &&
            atomic_compare_exchange_strong(&board->pages->slot[slot], &word, ours)) {
            mark->board = tow_soft_board_ref(board);
            mark->board_ops = &ops;
            mark->slot = slot;
            mark->turn = turn;
            board->hint = slot + 1;
            atomic_store(&board->pages->last, (uint64_t)turn << 32 | (slot + 1));
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult tow_soft_event_refresh(struct tow_soft_event *event)
{
    uint64_t last = event->board != NULL ? atomic_load(&event->board->pages->last) : 0;
    uint32_t slot = (uint32_t)last - 1, turn = (uint32_t)(last >> 32);
    if (last == 0 || slot >= SLOTS ||
        (event->mark != NULL && event->mark->slot == slot && event->mark->turn == turn)) {
        return CUDA_SUCCESS;
    }
    struct tow_soft_mark *mark = tow_soft_mark_create(event->object.ctx, false);
    if (mark == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    mark->board = tow_soft_board_ref(event->board);
    mark->board_ops = &ops;
    mark->slot = slot;
    mark->turn = turn;
    mark->foreign = true;
    tow_soft_mark_unref(event->mark);
    event->mark = mark;
    return CUDA_SUCCESS;
}

/* ---- handles ---- */

/* A new board's file, which others may ask for; without the lock. */
static int board_make(struct wire_handle *ret_handle)
{
    struct wire_handle handle = {.magic = MAGIC, .pid = (uint32_t)getpid()};
    int fd = memfd_create("towline-ipc-event", MFD_CLOEXEC);
    if (fd >= 0 && (ftruncate(fd, (off_t)sizeof(struct pages)) != 0 ||
                    tow_soft_ipc_offer(fd, &handle.token) < 0)) {
        close(fd);
        return -1;
    }
    *ret_handle = handle;
    return fd;
}

static CUresult shared_event(CUevent handle, struct tow_soft_event **ret_event)
{
    struct tow_soft_event *event = tow_soft_lookup(TOW_SOFT_EVENT, TOW_SOFT_HANDLE(handle));
    if (event == NULL || (event->flags & CU_EVENT_INTERPROCESS) == 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *ret_event = event;
    return CUDA_SUCCESS;
}

/* With the lock held. Gives the event the board, unless another thread has been faster. */
static CUresult event_put_board(struct tow_soft_event *event, const struct wire_handle *handle,
                                int fd)
{
    if (event->board != NULL) {
        tow_soft_ipc_withdraw(&handle->token);
        close(fd);
        return CUDA_SUCCESS;
    }
    struct tow_soft_board *board = board_open(handle, fd);
    if (board == NULL) {
        tow_soft_ipc_withdraw(&handle->token);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    board->own = true;
    event->board = board;
    return event->mark != NULL && !event->mark->done
               ? tow_soft_board_post(board, event->mark) /* recorded before */
               : CUDA_SUCCESS;
}

/* With the lock held, which is given up meanwhile. */
static CUresult event_make_board(CUevent handle, struct tow_soft_event **ret_event)
{
    struct wire_handle wire;
    tow_mutex_unlock(&tow_soft.lock);
    int fd = board_make(&wire);
    tow_mutex_lock(&tow_soft.lock);
    if (fd < 0) {
        return tow_soft.exchange != NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = shared_event(handle, ret_event);
    if (result != CUDA_SUCCESS) {
        tow_soft_ipc_withdraw(&wire.token); /* destroyed meanwhile */
        close(fd);
        return result;
    }
    return event_put_board(*ret_event, &wire, fd);
}

static CUresult soft_cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent hEvent)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_event *event;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = shared_event(hEvent, &event);
    if (result == CUDA_SUCCESS && pHandle == NULL) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS && event->board == NULL) {
        result = event_make_board(hEvent, &event);
    }
    if (result == CUDA_SUCCESS) {
        memcpy(pHandle, &event->board->handle, sizeof *pHandle);
    }
    return tow_soft_leave(result);
}

static struct tow_soft_board *board_find(const struct wire_handle *handle)
{
    struct tow_soft_board *board = boards;
    while (board != NULL && memcmp(&board->handle, handle, sizeof *handle) != 0) {
        board = board->next;
    }
    return board != NULL ? tow_soft_board_ref(board) : NULL;
}

/* Takes the descriptor. Another thread may have opened the same board meanwhile. */
static struct tow_soft_board *board_take(const struct wire_handle *handle, int fd)
{
    struct tow_soft_board *board = board_find(handle);
    if (board == NULL) {
        return board_open(handle, fd);
    }
    struct spare *spare = malloc(sizeof *spare);
    if (spare != NULL) { /* else it stays open for ever: better than the lock gone */
        *spare = (struct spare){board->spares, fd};
        board->spares = spare;
    }
    return board;
}

static CUresult soft_cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
    struct wire_handle wire;
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    memcpy(&wire, &handle, sizeof wire);
    if (phEvent == NULL || memcmp(wire.magic, MAGIC, sizeof wire.magic) != 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (wire.pid == (uint32_t)getpid()) {
        return tow_soft_leave(CUDA_ERROR_INVALID_CONTEXT); /* as with memory */
    }
    struct tow_soft_board *board = board_find(&wire);
    if (board == NULL) {
        /* Somebody else is asked, so without the lock. */
        tow_soft_leave(CUDA_SUCCESS);
        int fd = tow_soft_ipc_fetch(&wire.token, sizeof(struct pages));
        result = tow_soft_enter(&ctx);
        if (result != CUDA_SUCCESS) {
            if (fd >= 0) {
                close(fd);
            }
            return result;
        }
        board = fd >= 0 ? board_take(&wire, fd) : NULL;
        if (board == NULL) {
            return tow_soft_leave(fd < 0 ? CUDA_ERROR_MAP_FAILED : CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    struct tow_soft_event *event = calloc(1, sizeof *event);
    if (event == NULL || tow_soft_object_add(&event->object, TOW_SOFT_EVENT, ctx) != 0) {
        free(event);
        tow_soft_board_unref(board);
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    event->flags = CU_EVENT_DISABLE_TIMING;
    event->board = board;
    *phEvent = TOW_SOFT_POINTER(event->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

void tow_soft_fill_ipc_event(struct tow_driver *driver)
{
    tow_driver_set(driver, cuIpcGetEventHandle, soft_cuIpcGetEventHandle);
    tow_driver_set(driver, cuIpcOpenEventHandle, soft_cuIpcOpenEventHandle);
}
