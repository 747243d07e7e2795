/* SPDX-License-Identifier: Apache-2.0 */
/* Shareable handles: descriptors by which programs of one server give each other memory and pools.
 *
 * The program gets a small sealed file with a token in it (wire/token.h), which it may pass on and
 * close like NVIDIA's descriptors. Natively memory lives as long as a descriptor of it is open
 * anywhere. To know how long that is we lock the file through the program's descriptor (a lock of
 * the open file, which copies in other processes share, and which ends with the last of them), and
 * look from time to time, through a descriptor of our own, whether the lock is still there.
 */
#include "client/hostmem/shareable.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mutex.h"
#include "client/stream/context.h"
#include "client/hostmem/region.h"
#include "gen/memory_client.h"
#include "gen/pool_client.h"
#include "gen/vmm_client.h"
#include "wire/control.h"
#include "wire/token.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

struct exported {
    struct exported *next;
    struct towc_link *link; /* borrowed: links stay */
    struct tow_token token;
    int probe; /* owned: the file, opened once more */
};

/* Process-wide: descriptors are the process's; each names its link. */
static struct {
    struct tow_mutex lock; /* guards the list */
    struct exported *list; /* owned */
    atomic_bool any;       /* it is not empty; looked at without the lock */
} exports = {.lock = TOW_MUTEX(CLIENT_SHAREABLE)};

static void shareable_forget(struct towc_link *link, const struct tow_token *token)
{
    struct towc_call call;
    if (towc_call_begin_on(&call, link, 0, TOW_CONTROL_FORGET, sizeof *token, 0) == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, token->word[0]);
        tow_enc_u64(&call.enc, token->word[1]);
        towc_call_send(&call);
    }
}

/* Nobody has the program's descriptor any more. */
static bool is_closed(int probe)
{
    struct flock whole = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    return fcntl(probe, F_OFD_GETLK, &whole) == 0 && whole.l_type == F_UNLCK;
}

void towc_shareable_sweep(void)
{
    /* A forked child has the list and must not touch it. */
    if (!atomic_load_explicit(&exports.any, memory_order_relaxed) ||
        towc_client_state() != CUDA_SUCCESS || towc_thread_in_hostfn()) {
        return;
    }
    struct exported *closed = NULL;
    tow_mutex_lock(&exports.lock);
    for (struct exported **at = &exports.list; *at != NULL;) {
        struct exported *e = *at;
        if (is_closed(e->probe)) {
            *at = e->next;
            e->next = closed;
            closed = e;
        } else {
            at = &e->next;
        }
    }
    atomic_store_explicit(&exports.any, exports.list != NULL, memory_order_relaxed);
    tow_mutex_unlock(&exports.lock);
    while (closed != NULL) {
        struct exported *e = closed;
        closed = e->next;
        shareable_forget(e->link, &e->token);
        close(e->probe);
        free(e);
    }
}

/* Opens the file once more, if there are descriptors to spare: one costs the program nothing then.
 */
static int open_probe(int fd)
{
    char path[40];
    struct rlimit limit;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int probe = open(path, O_RDONLY | O_CLOEXEC);
    if (probe >= 0 &&
        (getrlimit(RLIMIT_NOFILE, &limit) != 0 || (rlim_t)probe >= limit.rlim_cur / 2 ||
         fcntl(fd, F_OFD_SETLK, &whole) != 0)) {
        close(probe);
        probe = -1;
    }
    return probe;
}

/* Without a probe the server keeps the export to the session's end. */
static void probe_export(struct towc_link *link, const struct tow_token *token, int fd)
{
    int probe = open_probe(fd);
    struct exported *e = probe >= 0 ? malloc(sizeof *e) : NULL;
    if (e == NULL) {
        if (probe >= 0) {
            close(probe);
        }
        return;
    }
    tow_mutex_lock(&exports.lock);
    *e = (struct exported){exports.list, link, *token, probe};
    exports.list = e;
    atomic_store_explicit(&exports.any, true, memory_order_relaxed);
    tow_mutex_unlock(&exports.lock);
}

static int make_file(const struct tow_token *token)
{
    struct tow_token_file file = {.magic = TOW_TOKEN_MAGIC, .token = *token};
    int fd = memfd_create("towline-handle", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && (write(fd, &file, sizeof file) != (ssize_t)sizeof file ||
                    fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) != 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* The token in a descriptor that may be anything: nothing is read that could keep us waiting. */
static bool read_file(int fd, struct tow_token *ret_token)
{
    struct tow_token_file file;
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &status) != 0 ||
        status.st_size != (off_t)sizeof file ||
        pread(fd, &file, sizeof file, 0) != (ssize_t)sizeof file ||
        memcmp(file.magic, TOW_TOKEN_MAGIC, sizeof file.magic) != 0) {
        return false;
    }
    *ret_token = file.token;
    return true;
}

static CUresult shareable_check(const void *out, CUmemAllocationHandleType type,
                                unsigned long long flags)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    if (type == CU_MEM_HANDLE_TYPE_WIN32 || type == CU_MEM_HANDLE_TYPE_WIN32_KMT ||
        type == CU_MEM_HANDLE_TYPE_FABRIC) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return out != NULL && flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult export_handle(unsigned fn, uint64_t handle, void *out,
                              CUmemAllocationHandleType type, unsigned long long flags)
{
    struct towc_call call;
    CUresult status = shareable_check(out, type, flags);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    towc_shareable_sweep();
    status = towc_call_begin(&call, fn, 8, TOW_CALL_REPLY);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct towc_link *link = call.link;
    struct tow_token token = {{0}};
    tow_enc_u64(&call.enc, handle);
    status = towc_call_wait(&call);
    if (status == CUDA_SUCCESS) {
        token.word[0] = tow_dec_u64(&call.dec);
        token.word[1] = tow_dec_u64(&call.dec);
    }
    status = towc_call_end(&call, status);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    int fd = make_file(&token);
    if (fd < 0) {
        shareable_forget(link, &token);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    probe_export(link, &token, fd);
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

static CUresult import_handle(unsigned fn, const void *out, void *os_handle,
                              CUmemAllocationHandleType type, unsigned long long flags,
                              uint64_t *ret_handle)
{
    struct towc_call call;
    struct tow_token token;
    CUresult status = shareable_check(out, type, flags);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (!read_file((int)(intptr_t)os_handle, &token)) {
        return CUDA_ERROR_UNKNOWN;
    }
    status = towc_call_begin(&call, fn, sizeof token, TOW_CALL_REPLY);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, token.word[0]);
    tow_enc_u64(&call.enc, token.word[1]);
    status = towc_call_wait(&call);
    uint64_t handle = status == CUDA_SUCCESS ? tow_dec_u64(&call.dec) : 0;
    status = towc_call_end(&call, status);
    if (status == CUDA_SUCCESS) {
        *ret_handle = handle;
    }
    return status;
}

CUresult towc_cuMemExportToShareableHandle(void *shareableHandle,
                                           CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType handleType,
                                           unsigned long long flags)
{
    return export_handle(TOW_FN_cuMemExportToShareableHandle, handle, shareableHandle, handleType,
                         flags);
}

CUresult towc_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                             CUmemAllocationHandleType shHandleType)
{
    uint64_t got = 0;
    CUresult status = import_handle(TOW_FN_cuMemImportFromShareableHandle, handle, osHandle,
                                    shHandleType, 0, &got);
    if (status == CUDA_SUCCESS) {
        *handle = got;
    }
    return status;
}

CUresult towc_cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
                                               CUmemAllocationHandleType handleType,
                                               unsigned long long flags)
{
    return pool == NULL ? CUDA_ERROR_INVALID_VALUE
                        : export_handle(TOW_FN_cuMemPoolExportToShareableHandle,
                                        (uint64_t)(uintptr_t)pool, handle_out, handleType, flags);
}

CUresult towc_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                                 CUmemAllocationHandleType handleType,
                                                 unsigned long long flags)
{
    uint64_t got = 0;
    CUresult status = import_handle(TOW_FN_cuMemPoolImportFromShareableHandle, pool_out, handle,
                                    handleType, flags, &got);
    if (status == CUDA_SUCCESS) {
        *pool_out = (CUmemoryPool)(uintptr_t)got;
    }
    return status;
}

CUresult towc_cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool,
                                     CUmemPoolPtrExportData *shareData)
{
    struct towc_call call;
    if (ptr_out == NULL || pool == NULL || shareData == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = towc_call_begin(&call, TOW_FN_cuMemPoolImportPointer, 8 + sizeof *shareData,
                                      TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)pool);
    tow_enc_bytes(&call.enc, shareData, sizeof *shareData);
    status = towc_call_wait(&call);
    uint64_t address = 0, size = 0;
    if (status == CUDA_SUCCESS) {
        address = tow_dec_u64(&call.dec);
        size = tow_dec_u64(&call.dec);
    }
    status = towc_call_end(&call, status);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct towc_region region = towc_region_of_pool(address, size, pool);
    if (towc_region_add(&region) < 0) {
        towc_send_cuMemFree_v2(address);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ptr_out = address;
    return CUDA_SUCCESS;
}
