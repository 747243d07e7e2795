/* SPDX-License-Identifier: Apache-2.0 */
/* A driver library for `towlined --device PATH` that puts its memory out by itself, as NVIDIA's
 * does: cuCheckpointProcess*, for its own process. It is the software GPU, behind the functions
 * that a driver library exports (checkpoint_thunks.s, which the test makes).
 *
 * What NVIDIA's driver 580 was seen to do, this does too:
 * - it reaches its own process by pipes of /proc/self/fd that it made in cuInit
 * - what it puts out is anonymous memory of the process
 * - while memory is put out questions are answered with CUDA_ERROR_OPERATING_SYSTEM
 * - it tries to make a link in /dev/char when it comes back, and does without
 *
 * The file "faults" beside it, if it was there at cuInit, says what is to fail, a line for each
 * step: "lock N", "checkpoint N", "restore N" or "unlock N", with the error that is returned;
 * "checkpoint -N" loses the process as well; "slow N" has a checkpoint take N ms, and with
 * "late N" a question is looked at N ms after it was asked. Each time the file is read anew. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "gen/core.h"
#include "gen/event.h"
#include "gen/interop.h"
#include "gen/memory.h"
#include "gen/stream.h"

tow_driver_fn *checkpoint_table[TOW_FN_LIMIT]; /* what the thunks jump through */

static struct tow_backend backend;
static int pipes[2] = {-1, -1}, faults = -1;
static _Atomic CUprocessState state = CU_PROCESS_STATE_RUNNING;
static uint8_t *saved; /* owned */
static uint64_t saved_size;

/* ---- faults ---- */

static int fault(const char *step)
{
    char text[256] = "", format[32];
    int value = 0;
    if (faults < 0 || pread(faults, text, sizeof text - 1, 0) <= 0) {
        return 0;
    }
    snprintf(format, sizeof format, "%s %%d", step);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (sscanf(line, format, &value) == 1) {
            return value;
        }
    }
    return 0;
}

static void open_faults(void)
{
    Dl_info info;
    char path[512];
    if (dladdr((void *)open_faults, &info) != 0) {
        snprintf(path, sizeof path, "%.*s/faults",
                 (int)(strrchr(info.dli_fname, '/') - info.dli_fname), info.dli_fname);
        faults = open(path, O_RDONLY | O_CLOEXEC);
    }
}

/* ---- the driver ---- */

CUresult cuInit(unsigned int flags)
{
    static const struct tow_soft_options options = {
        .memory = UINT64_C(1) << 30, .threads = 2, .address_base = UINT64_C(0x308000000)};
    char why[256];
    if (backend.state == NULL) {
        if (tow_backend_soft_open(&options, &backend, why, sizeof why) < 0) {
            fprintf(stderr, "checkpoint_driver: %s\n", why);
            return CUDA_ERROR_NO_DEVICE;
        }
        memcpy(checkpoint_table, backend.driver.fn, sizeof checkpoint_table);
        open_faults();
        if (pipe2(pipes, O_CLOEXEC) != 0) {
            return CUDA_ERROR_OPERATING_SYSTEM;
        }
    }
    return tow_drive(&backend.driver, cuInit)(flags);
}

/* Asked before cuInit. */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    (void)table;
    (void)id;
    return CUDA_ERROR_NOT_FOUND;
}

/* Here nobody keeps what is shared; the handle is not to be opened. */
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    memset(handle, address != 0, sizeof *handle);
    return CUDA_SUCCESS;
}

static int is_out(void)
{
    tow_time_sleep(fault("late") * TOW_TIME_MS);
    return atomic_load(&state) == CU_PROCESS_STATE_CHECKPOINTED;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    return is_out() ? CUDA_ERROR_OPERATING_SYSTEM
                    : tow_drive(&backend.driver, cuMemGetInfo_v2)(free, total);
}

CUresult cuEventQuery(CUevent event)
{
    return is_out() ? CUDA_ERROR_OPERATING_SYSTEM : tow_drive(&backend.driver, cuEventQuery)(event);
}

CUresult cuStreamQuery(CUstream stream)
{
    return is_out() ? CUDA_ERROR_OPERATING_SYSTEM
                    : tow_drive(&backend.driver, cuStreamQuery)(stream);
}

/* ---- checkpoints ---- */

/* Its own thread is told by a pipe. */
static CUresult reach(int pid)
{
    for (int i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, pipes[i]);
        int fd = open(path, (i == 0 ? O_RDONLY : O_WRONLY) | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0) {
            fprintf(stderr, "checkpoint_driver: %s: %s\n", path, strerror(errno));
            return CUDA_ERROR_OPERATING_SYSTEM;
        }
        close(fd);
    }
    return pid == getpid() ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

static CUresult begin(int pid, CUprocessState wanted, const char *step)
{
    CUresult result = reach(pid);
    if (result == CUDA_SUCCESS && atomic_load(&state) != wanted) {
        result = CUDA_ERROR_ILLEGAL_STATE;
    }
    return result == CUDA_SUCCESS ? (CUresult)fault(step) : result;
}

CUresult cuCheckpointProcessGetState(int pid, CUprocessState *ret)
{
    CUresult result = reach(pid);
    *ret = atomic_load(&state);
    return result;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    char why[256];
    CUresult result = begin(pid, CU_PROCESS_STATE_RUNNING, "lock");
    if (result != CUDA_SUCCESS) {
        return result;
    }
    int error =
        backend.away->lock(tow_time_deadline(args->timeoutMs * TOW_TIME_MS), why, sizeof why);
    if (error < 0) {
        return error == -ETIMEDOUT ? CUDA_ERROR_NOT_READY : CUDA_ERROR_NOT_SUPPORTED;
    }
    atomic_store(&state, CU_PROCESS_STATE_LOCKED);
    return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    char why[256];
    (void)args;
    CUresult result = begin(pid, CU_PROCESS_STATE_LOCKED, "checkpoint");
    if (result != CUDA_SUCCESS) {
        if ((int)result < 0) {
            atomic_store(&state, CU_PROCESS_STATE_FAILED);
        }
        return (int)result < 0 ? (CUresult) - (int)result : result;
    }
    tow_time_sleep(fault("slow") * TOW_TIME_MS);
    int file = memfd_create("checkpoint", MFD_CLOEXEC);
    if (backend.away->save(file, &saved_size, why, sizeof why) < 0) {
        fprintf(stderr, "checkpoint_driver: %s\n", why);
        return CUDA_ERROR_UNKNOWN;
    }
    saved = mmap(NULL, saved_size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (uint64_t at = 0; at < saved_size;) {
        ssize_t n = pread(file, saved + at, saved_size - at, (off_t)at);
        if (n <= 0) {
            abort();
        }
        at += (uint64_t)n;
    }
    close(file);
    atomic_store(&state, CU_PROCESS_STATE_CHECKPOINTED);
    return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
    char why[256];
    (void)args;
    CUresult result = begin(pid, CU_PROCESS_STATE_CHECKPOINTED, "restore");
    if (result != CUDA_SUCCESS) {
        return result;
    }
#ifndef __SANITIZE_THREAD__ /* whose workers refuse no system call */
    if (symlink("../nvidia0", "/dev/char/195:0") == 0 || errno != EPERM) {
        fprintf(stderr, "checkpoint_driver: a link in /dev/char: %s\n", strerror(errno));
    }
#endif
    int file = memfd_create("checkpoint", MFD_CLOEXEC);
    if (ftruncate(file, (off_t)saved_size) != 0) {
        abort();
    }
    for (uint64_t at = 0; at < saved_size;) {
        ssize_t n = pwrite(file, saved + at, saved_size - at, (off_t)at);
        if (n <= 0) {
            abort();
        }
        at += (uint64_t)n;
    }
    munmap(saved, saved_size + 1);
    if (backend.away->load(file, why, sizeof why) < 0) {
        fprintf(stderr, "checkpoint_driver: %s\n", why);
        return CUDA_ERROR_UNKNOWN;
    }
    close(file);
    atomic_store(&state, CU_PROCESS_STATE_LOCKED);
    return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
    char why[256];
    (void)args;
    CUresult result = begin(pid, CU_PROCESS_STATE_LOCKED, "unlock");
    if (result != CUDA_SUCCESS) {
        return result;
    }
    atomic_store(&state, CU_PROCESS_STATE_RUNNING);
    return backend.away->unlock(why, sizeof why) < 0 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}
