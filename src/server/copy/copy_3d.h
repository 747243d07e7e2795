/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of two and three dimensions as the driver takes them. */
#ifndef TOW_SERVER_COPY_3D_H
#define TOW_SERVER_COPY_3D_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

struct tow_copy_3d;
struct tows_serve;

/* Which operand's bytes travel, packed. */
enum tows_packed { TOW_PACKED_NEITHER, TOW_PACKED_SOURCE, TOW_PACKED_TARGET };

struct tows_driver_copy {
    CUDA_MEMCPY3D_PEER copy; /* without the address of the packed operand */
    bool peer;
    enum tows_packed packed;
};

/* As the driver takes it. Says with the call's status if the operands are not the client's. */
struct tows_driver_copy tows_driver_copy_describe(struct tows_serve *call,
                                                  const struct tow_copy_3d *copy_3d);

/* The next box of a source's packed bytes of which `size` from `offset` on have come: part of a
 * row, rows or planes, so that they are at most five. Says how many bytes it takes. */
size_t tows_driver_copy_part(const struct tows_driver_copy *whole, uint64_t offset, size_t size,
                             struct tows_driver_copy *ret_part);

/* The packed bytes are at `host`. The context is current. */
CUresult tows_driver_copy_run(const struct tows_driver_copy *driver_copy,
                              const struct tow_driver *driver, void *host, CUstream stream);

#endif
