/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of the driver's between managed memory and page-locked memory, for the side line's thread.
 *
 * The CPU's page faults move managed memory slowly, and away from the GPU, whose next kernel moves
 * it back the same way. A copy of the driver's is many times as fast, and leaves it where it is.
 * But the driver may stand still until a host function has ended, and the side line brings that
 * end. So nothing is copied here while a host function is outstanding, and none comes to be while
 * something is; and nothing unless the client says that the device has nothing to do.
 */
#ifndef TOW_SERVER_CARRY_H
#define TOW_SERVER_CARRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gen/cuda_types.h"

struct tows_pinned_buffer;
struct tows_session;

/* Before a host function is given to the driver: waits for a copy that is under way. False if
 * memory is used up. tows_carry_allow when it has ended, or was not taken. */
bool tows_carry_forbid(struct tows_session *session);
void tows_carry_allow(struct tows_session *session);

/* A turn of the side line's thread. */
struct tows_carry {
    struct tows_session *session;      /* borrowed */
    struct tows_pinned_buffer *buffer; /* at least as many bytes as were asked for */
    uint8_t *bytes;                    /* its */
    CUstream stream;                   /* the driver's: has nothing but these copies */
    bool under_way;                    /* something was given to it */
};

/* Begins one in a context of the client's, with room for `size` bytes. False: the CPU is to do
 * it. */
bool tows_carry_begin(struct tows_carry *carry, struct tows_session *session, uint32_t context,
                      size_t size);
/* Copies between the room and managed memory, which stays until tows_carry_wait. */
CUresult tows_carry_up(struct tows_carry *carry, size_t from, uint64_t to, size_t size);
CUresult tows_carry_down(struct tows_carry *carry, uint64_t from, size_t size);
/* Waits for the copies. Host functions may come from then on; the bytes stay until
 * tows_carry_end. */
CUresult tows_carry_wait(struct tows_carry *carry);
void tows_carry_end(struct tows_carry *carry);

/* A context ends, see tows_pinned_drop_context. */
bool tows_carry_drop_context(struct tows_session *session, uint32_t context, uint32_t heir);

#endif
