/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, checks and maps the memory files that software GPUs pass on as descriptors. */
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/memory/shareable.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "towlmem1"
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

int tow_soft_file_make(enum tow_soft_file_kind kind, int device, uint64_t size,
                       struct tow_soft_file *ret_file)
{
    struct tow_soft_file file = {
        .magic = MAGIC, .kind = (uint32_t)kind, .device = device, .size = size};
    int fd = memfd_create("towline-shareable", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -1;
    }
    if (getrandom(file.key, sizeof file.key, 0) != (ssize_t)sizeof file.key ||
        pwrite(fd, &file, sizeof file, (off_t)size) != (ssize_t)sizeof file ||
        fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) != 0) {
        close(fd);
        return -1;
    }
    *ret_file = file;
    return fd;
}

CUresult tow_soft_file_read(int fd, enum tow_soft_file_kind kind, struct tow_soft_file *ret_file)
{
    struct tow_soft_file file;
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &status) != 0 ||
        status.st_size <= (off_t)sizeof file ||
        pread(fd, &file, sizeof file, status.st_size - (off_t)sizeof file) !=
            (ssize_t)sizeof file ||
        memcmp(file.magic, MAGIC, sizeof file.magic) != 0 ||
        file.size != (uint64_t)status.st_size - sizeof file || file.size % TOW_SOFT_BLOCK != 0 ||
        tow_soft_device_of(file.device) == NULL ||
        file.size > tow_soft.devices[file.device].total) {
        return CUDA_ERROR_UNKNOWN;
    }
    *ret_file = file;
    return file.kind == (uint32_t)kind ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult tow_soft_file_export_ok(const void *ret, CUmemAllocationHandleType type,
                                 unsigned long long flags)
{
    if (type == CU_MEM_HANDLE_TYPE_WIN32 || type == CU_MEM_HANDLE_TYPE_WIN32_KMT ||
        type == CU_MEM_HANDLE_TYPE_FABRIC) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return ret != NULL && flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult tow_soft_file_give(int fd, void *ret)
{
    int given = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (given < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *(int *)ret = given;
    return CUDA_SUCCESS;
}
