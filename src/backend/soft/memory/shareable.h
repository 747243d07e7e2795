/* SPDX-License-Identifier: Apache-2.0 */
/* Memory files that go from worker to worker as descriptors: physical memory and pools made to be
 * exported. What a file is stands behind its memory. It may come from a worker that its client has
 * taken over, so nothing in it is believed, and a file that could still shrink is not mapped. */
#ifndef TOW_BACKEND_SOFT_SHAREABLE_H
#define TOW_BACKEND_SOFT_SHAREABLE_H

#include <stdint.h>

#include "gen/cuda_types.h"

enum tow_soft_file_kind {
    TOW_SOFT_FILE_MEMORY = 1,
    TOW_SOFT_FILE_POOL = 2,
};

struct tow_soft_file {
    char magic[8];
    uint32_t kind;   /* enum tow_soft_file_kind */
    int32_t device;  /* ordinal */
    uint64_t size;   /* of the memory in front */
    uint64_t key[2]; /* of a pool: pointers of it carry the same */
};

/* A new file of so many bytes for a device; its descriptor, or -1. */
int tow_soft_file_make(enum tow_soft_file_kind kind, int device, uint64_t size,
                       struct tow_soft_file *ret_file);
/* What a descriptor is that another worker may have made: CUDA_ERROR_UNKNOWN if it is no file of a
 * device that is there, CUDA_ERROR_NOT_SUPPORTED if it is of another kind. */
CUresult tow_soft_file_read(int fd, enum tow_soft_file_kind kind, struct tow_soft_file *ret_file);
/* What every export of a descriptor checks, but for the object. */
CUresult tow_soft_file_export_ok(const void *ret, CUmemAllocationHandleType type,
                                 unsigned long long flags);
/* A descriptor of the file for the program, which is an int there. */
CUresult tow_soft_file_give(int fd, void *ret);

#endif
