/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's copies of host memory that the GPU reaches; see src/client/hostmem/mirror.h. */
#ifndef TOW_SERVER_MIRROR_H
#define TOW_SERVER_MIRROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gen/cuda_types.h"

struct tow_copy_3d;
struct tow_copy_operand;
struct tow_frame;
struct tows_serve;
struct tows_session;

/* Sends what the GPU changed, before the reply to a synchronising call. */
void tows_mirror_pull(struct tows_session *session);
/* A FETCH frame came on the side line: answers it there. */
int tows_mirror_fetch(struct tows_session *session, const uint8_t *at,
                      const struct tow_frame *frame);
/* A MIRROR frame's body came: what the program changed. `context` is the frame's: one of the
 * client's, in which the driver may write it (carry.h); 0: the CPU is to. */
int tows_mirror_take(struct tows_session *session, uint32_t context, const uint8_t *records,
                     size_t size);

/* Managed memory came to be: allocated, or a variable of a module or library. */
CUresult tows_mirror_add_managed(struct tows_session *session, uint64_t base, uint64_t size,
                                 uint64_t owner, uint32_t context);
/* Whether there is some. */
bool tows_mirror_has_managed(struct tows_session *session);
/* Which managed memory is about to go: that of a module or library, one allocation, or all of a
 * context (and what was made for no context of the program's, with device 0's primary one). With an
 * heir nothing goes: that context has the memory from now on. */
struct tows_mirror_gone {
    uint64_t owner, address;
    uint32_t context, heir;
    bool and_none;
};
/* Before the driver frees it: it is not mirrored any more, whatever the client says. */
void tows_mirror_forget_managed(struct tows_session *session, const struct tows_mirror_gone *gone);
void tows_mirror_freed(struct tows_session *session, CUdeviceptr address);

/* Host memory of the client that this worker has too, mirrored or shared: all of [address, address
 * + size). At any other address is what belongs to the worker, and no command may name that. It
 * stays until the call was carried out (hold.h). */
bool tows_mirror_reaches(struct tows_serve *call, uint64_t address, uint64_t size);
/* The same for an operand of a copy that is TOW_AT_ADDRESS. */
bool tows_mirror_reaches_operand(struct tows_serve *call, const struct tow_copy_operand *operand,
                                 const struct tow_copy_3d *copy_3d);

#endif
