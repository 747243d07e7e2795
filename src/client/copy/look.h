/* SPDX-License-Identifier: Apache-2.0 */
/* A copy that the program asked for, and what is known of it: the facts of client/copy/plan.h. */
#ifndef TOW_CLIENT_LOOK_H
#define TOW_CLIENT_LOOK_H

#include <stdbool.h>
#include <stddef.h>

#include "client/copy/plan.h"
#include "client/link/host_rect.h"
#include "client/link/link.h"
#include "wire/copy.h"

/* Of a copy of two or three dimensions, or of an array. */
struct towc_copy_rows {
    const CUDA_MEMCPY3D_PEER *asked; /* borrowed: as the program describes it */
    /* As it travels: host memory as bytes, whose number is 0 if it is none; */
    struct tow_copy_3d packed;
    struct tow_copy_3d named;       /* or as addresses (TOW_AT_ADDRESS) */
    struct towc_host_rect from, to; /* operands that are host memory */
};

struct towc_copy {
    struct towc_link *link; /* borrowed: the current context's server */
    CUstream stream;
    unsigned facts;       /* enum towc_copy_fact; whoever makes it sets UP, DOWN, WAIT and FLAT */
    unsigned tried;       /* ways: see towc_copy_plan */
    bool unified;         /* of one dimension: UP and DOWN are found by the addresses */
    CUdeviceptr to, from; /* of one dimension */
    size_t size;          /* of the bytes, packed; of one dimension what is left */
    struct towc_host_rect host;        /* its host operand, if it has one of them: what is left */
    const struct towc_copy_rows *rows; /* borrowed; NULL: of one dimension */
};

/* True: it is done, `ret_status` says how. False: this was a step, or it was not this copy's way:
 * the next one is to be found. */
typedef bool towc_copy_executor(struct towc_copy *copy, CUresult *ret_status);

/* Looks up both operands. Not CUDA_SUCCESS: the driver would refuse it. Page-locked memory in the
 * place of device memory becomes reachable. */
CUresult towc_copy_look(struct towc_copy *copy);
/* The same for a copy that has rows, whose operands were checked. */
CUresult towc_copy_look_rows(struct towc_copy *copy);

/* Something was waited for: what that changes is looked up again. */
void towc_copy_look_again(struct towc_copy *copy);
/* So many bytes of a copy of one dimension are dealt with. */
void towc_copy_advance(struct towc_copy *copy, size_t bytes);

/* Of a copy of one dimension with a host operand. */
static inline CUdeviceptr towc_copy_device(const struct towc_copy *copy)
{
    return copy->facts & TOW_FACT_UP ? copy->to : copy->from;
}

/* True if so many bytes more may come without being waited for: the server keeps only so much for a
 * client. */
bool towc_copy_has_room(struct towc_link *link, size_t size);
/* True if the driver will take the source. What an array has is not known here, nor a variable's
 * size. */
bool towc_copy_is_sure(const struct tow_copy_3d *copy_3d);

/* Which side an address is on. While its stream captures it may be no address at all; then it is
 * taken for the device's, since the host's would have to be looked at. */
bool towc_copy_is_device(CUdeviceptr address, CUstream stream);

#endif
