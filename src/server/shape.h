/* Copies of two and three dimensions as the driver takes them. */
#ifndef TOW_SERVER_SHAPE_H
#define TOW_SERVER_SHAPE_H

#include <stdbool.h>

#include "backend/backend.h"

/* Which side's bytes travel, packed. */
enum tow_packed { TOW_PACKED_NEITHER, TOW_PACKED_SOURCE, TOW_PACKED_TARGET };

struct tow_shaped {
    CUDA_MEMCPY3D_PEER copy; /* without the address of the packed side */
    bool peer;
    enum tow_packed packed;
};

/* The packed bytes are at `host`. The context is current. */
CUresult tow_shaped_run(const struct tow_shaped *shaped, const struct tow_driver *driver,
                        void *host, CUstream stream);

#endif
