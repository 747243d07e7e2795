/* Of copies, what other parts of the client use. */
#ifndef TOW_CLIENT_COPY_H
#define TOW_CLIENT_COPY_H

#include <stdbool.h>
#include <stddef.h>

#include "gen/cuda_abi.h"

/* Sends bytes of the program's to the device, through the line and its lanes only; they have been
 * read when it returns. `settle`: the program's call is synchronous. */
CUresult tow_copy_upload(CUdeviceptr to, const void *from, size_t size, CUstream stream,
                         bool settle);

#endif
