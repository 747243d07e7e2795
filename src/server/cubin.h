/* What machine code says of its kernels, without a driver: of a cubin, an ELF file whose sections
 * .nv.info.NAME have a record for each parameter. It came from outside: all of it is checked, and
 * the time is linear in its size. A kernel that looks unusual is left out.
 */
#ifndef TOW_SERVER_CUBIN_H
#define TOW_SERVER_CUBIN_H

#include <stddef.h>
#include <stdint.h>

#include "wire/code.h"

struct tow_cubin_kernel {
    const char *name; /* borrowed from the cubin */
    /* Its parameters, in order, without overlaps; borrowed until the next kernel. */
    const struct tow_layout_param *params;
    unsigned param_count;
    unsigned registers; /* of a thread, at most */
    unsigned threads;   /* of a block, as its author said; 0: nothing was said */
    uint64_t shared;    /* bytes that each block has, with those that are not the program's */
};

/* Calls `each` for every kernel until it returns false. -EINVAL if it is no whole program's machine
 * code, -ENOMEM. */
int tow_cubin_kernels(const uint8_t *bytes, size_t size,
                      bool (*each)(void *user, const struct tow_cubin_kernel *kernel), void *user);

#endif
