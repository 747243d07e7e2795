/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the line passes to the worker. */
#include "client/link/share.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mutex.h"
#include "client/link/current.h"
#include "gen/memory.h"

enum area_state { UNTRIED, READY, ABSENT };

struct towc_share {
    struct tow_line *line; /* borrowed */
    atomic_uint_fast64_t next_number;
    struct tow_mutex make_lock; /* guards making areas */
};

struct towc_share *towc_share_make(struct tow_line *line)
{
    struct towc_share *share = tow_line_can_share(line) ? calloc(1, sizeof *share) : NULL;
    if (share != NULL) {
        share->line = line;
        atomic_store(&share->next_number, 1);
        tow_mutex_init(&share->make_lock, CLIENT_SHARE);
    }
    return share;
}

void towc_share_destroy(struct towc_share *share)
{
    if (share != NULL) {
        tow_mutex_fini(&share->make_lock);
        free(share);
    }
}

static size_t whole_pages(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) & ~(page - 1);
}

int towc_share_make_memory(size_t size, int *ret_fd)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && size > limit.rlim_cur) {
        return -EFBIG; /* the system would say so by a signal that ends the program */
    }
    int fd = memfd_create("towline-host", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -errno;
    }
    if (ftruncate(fd, (off_t)size) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int error = -errno;
        close(fd);
        return error;
    }
    *ret_fd = fd;
    return 0;
}

/* The worker says by this that it cannot map the memory where it is, or what it is. */
static bool share_is_declined(CUresult status)
{
    return status == CUDA_ERROR_NOT_SUPPORTED;
}

bool towc_share_lend(struct towc_link *link, int fd, uint64_t at, uint64_t size,
                     const uint64_t *offset, CUresult *ret_status)
{
    struct towc_share *share = link->share;
    const struct towc_context *context = towc_context_current();
    struct towc_call call;
    if (context == NULL || context->link != link) {
        return false; /* the call would go to another worker than the memory */
    }
    uint64_t number = atomic_fetch_add(&share->next_number, 1);
    if (tow_line_send_fd(share->line, fd, number) < 0) {
        return false;
    }
    CUresult status =
        towc_call_begin(&call, TOW_FN_cuMemHostAlloc, 32, TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, at);
        tow_enc_u64(&call.enc, size);
        tow_enc_u64(&call.enc, number);
        if (offset != NULL) {
            tow_enc_u64(&call.enc, *offset);
        }
        status = towc_call_end(&call, towc_call_wait(&call));
    }
    *ret_status = status;
    return !share_is_declined(status);
}

CUresult towc_share_take_back(struct towc_link *link, uint64_t at)
{
    struct towc_context *context = towc_context_current();
    struct towc_call call;
    bool here = context != NULL && context->link == link && atomic_load(&context->alive);
    CUresult status = towc_call_begin_on(&call, link, here ? context->number : 0,
                                         TOW_FN_cuMemFreeHost, 8, TOW_CALL_REPLY);
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, at);
        status = towc_call_end(&call, towc_call_wait(&call));
    }
    return status;
}

bool towc_share_alloc(struct towc_link *link, size_t size, CUresult *ret_status, void **ret_at)
{
    int fd = -1;
    if (link->share == NULL || size > SIZE_MAX / 2) {
        return false;
    }
    size = whole_pages(size);
    if (towc_share_make_memory(size, &fd) < 0) {
        return false;
    }
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    bool lent = false;
    if (at != MAP_FAILED) {
        /* A forked child must not write into what the GPU reads for its parent. */
        madvise(at, size, MADV_DONTFORK);
        lent = towc_share_lend(link, fd, (uint64_t)(uintptr_t)at, size, NULL, ret_status);
    }
    close(fd);
    if (lent && *ret_status == CUDA_SUCCESS) {
        *ret_at = at;
    } else if (at != MAP_FAILED) {
        munmap(at, size);
    }
    return lent;
}

CUresult towc_share_free(struct towc_link *link, void *at, size_t size)
{
    CUresult status = towc_share_take_back(link, (uint64_t)(uintptr_t)at);
    munmap(at, whole_pages(size));
    return status;
}

bool towc_share_area_ready(struct towc_link *link, struct towc_share_area *area, size_t size)
{
    struct towc_share *share = link->share;
    if (share == NULL || atomic_load_explicit(&area->state, memory_order_acquire) != UNTRIED) {
        return share != NULL && atomic_load_explicit(&area->state, memory_order_relaxed) == READY;
    }
    tow_mutex_lock(&share->make_lock);
    if (atomic_load(&area->state) == UNTRIED) {
        void *at = NULL;
        CUresult status = CUDA_SUCCESS;
        if (!towc_share_alloc(link, size, &status, &at)) {
            status = CUDA_ERROR_NOT_SUPPORTED; /* to the log */
        }
        area->base = at;
        area->size = size;
        if (status != CUDA_SUCCESS) {
            tow_log(TOW_AREA_CLIENT, TOW_LOG_INFO,
                    "%s: memory cannot be shared (error %d); bytes are sent instead", link->address,
                    (int)status);
        }
        atomic_store_explicit(&area->state, status == CUDA_SUCCESS ? READY : ABSENT,
                              memory_order_release);
    }
    tow_mutex_unlock(&share->make_lock);
    return atomic_load(&area->state) == READY;
}

void towc_share_area_fini(struct towc_share_area *area)
{
    if (area->base != NULL) {
        munmap(area->base, area->size);
    }
}
