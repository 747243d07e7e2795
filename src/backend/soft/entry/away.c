/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the software GPU's memory out into a file, and in again at the same addresses.
 *
 * Nothing changes meanwhile: whoever calls waits, no work is queued. So what is put in again is
 * found as it was put out, area by area in the same order.
 */
#include "backend/soft/code/module.h"
#include "backend/soft/engine/engine.h"
#include "backend/soft/entry/entry.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/arena.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/memory/ipc.h"
#include "backend/soft/memory/pool.h"
#include "backend/soft/memory/vmm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"

enum { CHUNK = 1 << 20, LOOK = 64 << 10 };

static struct {
    struct tow_soft_area *areas; /* owned: while memory is put out */
    size_t count, room;
    bool lacking; /* there was no memory for the list */
    uint64_t used[TOW_SOFT_DEVICES_MAX];
    uint8_t *bytes; /* owned: a chunk of a file */
} away;             /* of who has locked */

/* ---- standing still ---- */

/* What keeps it from standing still; of several, what runs. */
static void away_explain(char *why, size_t size)
{
    const struct tow_soft_op *op = tow_soft.running;
    for (const struct tow_soft_stream *s = tow_soft.streams; op == NULL && s != NULL; s = s->next) {
        op = s->head;
    }
    switch (op != NULL ? op->work.kind : TOW_SOFT_WORK_EMPTY) {
    case TOW_SOFT_WORK_KERNEL:
        snprintf(why, size, "kernel %.120s runs", op->work.kernel.function->info.name);
        break;
    case TOW_SOFT_WORK_HOST:
        snprintf(why, size, "a host function in a stream has not ended");
        break;
    case TOW_SOFT_WORK_GRAPH:
        snprintf(why, size, "a graph runs");
        break;
    case TOW_SOFT_WORK_COPY:
    case TOW_SOFT_WORK_SET:
        snprintf(why, size, "a copy runs");
        break;
    case TOW_SOFT_WORK_WAIT:
        snprintf(why, size, "a stream waits for an event");
        break;
    case TOW_SOFT_WORK_MEMOPS:
        snprintf(why, size, "a stream waits for a value in memory");
        break;
    default:
        snprintf(why, size,
                 op != NULL ? "a stream has work" : "a call waits for another program's event");
    }
}

static bool is_still(void)
{
    if (tow_soft.inside != 0 || tow_soft.running != NULL || tow_soft.held) {
        return false;
    }
    for (const struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = s->next) {
        if (s->head != NULL) {
            return false;
        }
    }
    return true;
}

static bool is_shared(void)
{
    return tow_soft_ipc_shared() || tow_soft_memories_shared() || tow_soft_pools_shared();
}

static int away_lock(int64_t deadline_ns, char *why, size_t size)
{
    bool over = false;
    int error = 0;
    tow_mutex_lock(&tow_soft.lock);
    tow_soft.awaited = true;
    while (!is_shared() && !is_still() && !over) {
        over = tow_mutex_wait_until(&tow_soft.lock, &tow_soft.changed, deadline_ns) == -ETIMEDOUT;
    }
    tow_soft.awaited = false;
    if (is_shared()) {
        snprintf(why, size, "it shares GPU memory with other programs");
        error = -EOPNOTSUPP;
    } else if (!is_still()) {
        away_explain(why, size);
        error = -ETIMEDOUT;
    } else {
        tow_soft.away = true;
    }
    tow_mutex_unlock(&tow_soft.lock);
    return error;
}

static int away_unlock(char *why, size_t size)
{
    (void)why;
    (void)size;
    tow_mutex_lock(&tow_soft.lock);
    tow_soft.away = false;
    pthread_cond_broadcast(&tow_soft.changed);
    tow_mutex_unlock(&tow_soft.lock);
    return 0;
}

/* ---- what there is ---- */

static void take_area(void *user, const struct tow_soft_area *area)
{
    (void)user;
    if (away.count == away.room) {
        size_t room = away.room * 2 + 64;
        struct tow_soft_area *grown = realloc(away.areas, room * sizeof *grown);
        if (grown == NULL) {
            away.lacking = true;
            return;
        }
        away.areas = grown;
        away.room = room;
    }
    away.areas[away.count++] = *area;
}

static void away_forget(void)
{
    free(away.areas);
    free(away.bytes);
    memset(&away, 0, sizeof away);
}

/* All that counts, and no more: else something would be lost, or taken twice. */
static int away_list(char *why, size_t size)
{
    uint64_t found[TOW_SOFT_DEVICES_MAX] = {0};
    away.bytes = malloc(CHUNK);
    tow_mutex_lock(&tow_soft.lock);
    tow_soft_pages_each(take_area, NULL);
    tow_soft_pool_files_each(take_area, NULL);
    tow_soft_memories_each(take_area, NULL);
    tow_mutex_unlock(&tow_soft.lock);
    for (size_t i = 0; i < away.count; i++) {
        found[away.areas[i].device] += away.areas[i].size;
    }
    if (away.bytes == NULL || away.lacking) {
        snprintf(why, size, "there is no host memory for it");
        return -ENOMEM;
    }
    for (unsigned i = 0; i < tow_soft.device_count; i++) {
        away.used[i] = *tow_soft.devices[i].used;
        if (found[i] != away.used[i]) {
            tow_log(TOW_AREA_SOFT, TOW_LOG_ERROR,
                    "GPU %u: %llu bytes are in use, and %llu were found", i,
                    (unsigned long long)away.used[i], (unsigned long long)found[i]);
            snprintf(why, size, "not all of its memory was found (the server's log has more)");
            return -EIO;
        }
    }
    return 0;
}

/* ---- bytes ---- */

static bool is_zero(const uint8_t *bytes, size_t size)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0;
}

static int write_at(int fd, const uint8_t *bytes, size_t size, uint64_t at)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = pwrite(fd, bytes + done, size - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? -errno : -EIO;
        }
        done += (size_t)n;
    }
    return 0;
}

static int read_at(int fd, uint8_t *bytes, size_t size, uint64_t at)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(fd, bytes + done, size - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? -errno : -EIO;
        }
        done += (size_t)n;
    }
    return 0;
}

/* What is zero stays a hole. */
static int put_out(int fd, uint64_t at, const uint8_t *bytes, size_t size)
{
    int error = 0;
    for (size_t done = 0; done < size && error == 0;) {
        size_t n = size - done < LOOK ? size - done : LOOK;
        if (!is_zero(bytes + done, n)) {
            error = write_at(fd, bytes + done, n, at + done);
        }
        done += n;
    }
    return error;
}

/* A part of a area, which is free then. */
static int save_part(int fd, uint64_t at, const struct tow_soft_area *area, uint64_t offset,
                     size_t size)
{
    if (area->fd < 0) {
        uint8_t *bytes = (uint8_t *)(uintptr_t)(area->base + offset);
        int error = put_out(fd, at, bytes, size);
        return error < 0 || madvise(bytes, size, MADV_DONTNEED) == 0 ? error : -errno;
    }
    off_t from = (off_t)(area->base + offset);
    off_t data = lseek(area->fd, from, SEEK_DATA);
    if (data < 0 || data >= from + (off_t)size) {
        return data >= 0 || errno == ENXIO ? 0 : -errno; /* nothing was ever written there */
    }
    int error = read_at(area->fd, away.bytes, size, (uint64_t)from);
    if (error == 0) {
        error = put_out(fd, at, away.bytes, size);
    }
    return error < 0 || fallocate(area->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from,
                                  (off_t)size) == 0
               ? error
               : -errno;
}

static int load_part(int fd, uint64_t at, const struct tow_soft_area *area, uint64_t offset,
                     size_t size)
{
    uint64_t base = area->base + offset;
    off_t data = lseek(fd, (off_t)at, SEEK_DATA);
    if (data < 0 || data >= (off_t)(at + size)) {
        return data >= 0 || errno == ENXIO ? 0 : -errno;
    }
    int error;
    if (area->fd < 0) {
        error = read_at(fd, (uint8_t *)(uintptr_t)base, size, at);
    } else {
        error = read_at(fd, away.bytes, size, at);
        error = error < 0 ? error : write_at(area->fd, away.bytes, size, base);
    }
    if (error == 0) {
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)size);
    }
    return error;
}

/* The first areas, of `bytes` bytes in all. How far it came is there also when it fails. */
static int away_move(int fd, bool out, uint64_t bytes, uint64_t *ret_moved)
{
    uint64_t at = 0;
    int error = 0;
    for (size_t i = 0; i < away.count && at < bytes && error == 0; i++) {
        const struct tow_soft_area *area = &away.areas[i];
        for (uint64_t offset = 0; offset < area->size && at < bytes && error == 0;) {
            size_t n = area->size - offset < CHUNK ? (size_t)(area->size - offset) : CHUNK;
            error = (out ? save_part : load_part)(fd, at, area, offset, n);
            if (error == 0) {
                offset += n;
                at += n;
            }
        }
    }
    *ret_moved = at;
    return error;
}

/* Whoever reached for it now would read zeros: it ends with a signal instead. */
static void away_protect(int protection)
{
    for (size_t i = 0; i < away.count; i++) {
        if (away.areas[i].fd < 0) {
            mprotect((void *)(uintptr_t)away.areas[i].base, away.areas[i].size, protection);
        }
    }
}

static uint64_t away_bytes(void)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < away.count; i++) {
        sum += away.areas[i].size;
    }
    return sum;
}

static int away_save(int fd, uint64_t *ret_bytes, char *why, size_t size)
{
    uint64_t moved = 0, back;
    int error = away_list(why, size);
    if (error == 0 && ftruncate(fd, (off_t)away_bytes()) != 0) {
        error = -errno;
        snprintf(why, size, "its memory cannot be kept: %s", strerror(-error));
    }
    if (error < 0) {
        away_forget();
        return error;
    }
    error = away_move(fd, true, UINT64_MAX, &moved);
    if (error < 0) {
        snprintf(why, size, "its memory cannot be kept: %s", strerror(-error));
        error = away_move(fd, false, moved, &back) < 0 ? -EIO : error;
        away_forget();
        return error;
    }
    away_protect(PROT_NONE);
    for (unsigned i = 0; i < tow_soft.device_count; i++) {
        *tow_soft.devices[i].used = 0;
    }
    *ret_bytes = away_bytes();
    return 0;
}

static int away_load(int fd, char *why, size_t size)
{
    uint64_t moved = 0;
    away_protect(PROT_READ | PROT_WRITE);
    int error = away_move(fd, false, UINT64_MAX, &moved);
    if (error < 0) {
        snprintf(why, size, "its memory cannot be read again: %s", strerror(-error));
        return error;
    }
    for (unsigned i = 0; i < tow_soft.device_count; i++) {
        *tow_soft.devices[i].used = away.used[i];
    }
    away_forget();
    return 0;
}

static void away_watch(void (*called)(void))
{
    tow_mutex_lock(&tow_soft.lock);
    tow_soft.called = called;
    tow_mutex_unlock(&tow_soft.lock);
}

const struct tow_backend_away_ops tow_soft_away_ops = {.lock = away_lock,
                                                       .save = away_save,
                                                       .load = away_load,
                                                       .unlock = away_unlock,
                                                       .watch = away_watch};
