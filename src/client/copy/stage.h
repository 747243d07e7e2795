/* SPDX-License-Identifier: Apache-2.0 */
/* Over shared memory: the staging, through which bytes go between the device and memory that the
 * worker does not have. A few threads pack them into it (client/hostmem/copy_pool.h) while the
 * device's engine takes them out, or the other way about.
 */
#ifndef TOW_CLIENT_STAGE_H
#define TOW_CLIENT_STAGE_H

#include <stdbool.h>

#include "client/copy/look.h"
#include "client/link/host_rect.h"
#include "client/completion/completion.h"
#include "wire/copy.h"

struct towc_stage;

/* Of a link that was just opened; NULL if its line cannot pass memory. */
struct towc_stage *towc_stage_make(const struct towc_link *link);
void towc_stage_destroy(struct towc_stage *stage);

/* A copy between the device and the program's memory. */
struct towc_staged {
    struct towc_host_rect host;
    bool up; /* to the device */
    CUstream stream;
    CUdeviceptr device;                /* of one dimension */
    const struct tow_copy_3d *copy_3d; /* of all others, as it would travel; else NULL */
};

static inline struct towc_staged towc_staged_of(const struct towc_copy *copy)
{
    return (struct towc_staged){.host = copy->host,
                                .up = (copy->facts & TOW_FACT_UP) != 0,
                                .stream = copy->stream,
                                .device = towc_copy_device(copy),
                                .copy_3d = copy->rows != NULL ? &copy->rows->packed : NULL};
}

/* The source has been read, or the target written, when they return. `synchronous`: the call is a
 * synchronous one, after which programs take the bytes to be on the device, in streams that wait
 * for nobody, too: it is waited for. False: not this way; the copy is still to be made.
 * Else `ret_status` says what became of it. */
bool towc_stage_up(struct towc_link *link, const struct towc_staged *what, bool synchronous,
                   CUresult *ret_status);
bool towc_stage_down(struct towc_link *link, const struct towc_staged *what, CUresult *ret_status);
/* The same for a download that fits beside the fence word by which the thread waits. */
enum { TOW_STAGE_FETCH_MAX = TOW_WAIT_SLOT_ROOM };
bool towc_stage_fetch(struct towc_link *link, const struct towc_staged *what, CUresult *ret_status);

/* Sends a part of it without a reply; its bytes are packed, in shared memory. */
CUresult towc_staged_send(const struct towc_staged *what, const struct towc_part *part,
                          uint8_t *packed, const struct tow_fence_word *word, uint32_t value,
                          uint64_t *ret_number);

#endif
