/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the program and its worker both have, at the same address: lines within one machine.
 *
 * The client makes it, seals its size and passes the descriptor beside the line, or passes a file
 * in memory that the program has mapped; the worker maps it where the program has it and page-locks
 * it with the driver. Copies then name an address instead of carrying bytes, and a fence word tells
 * when the device has come so far: the GPU itself writes `done`. The program looks at a fence word
 * for a while and then asks in the ordinary way, so a fence word can be late or missing, but never
 * early.
 */
#ifndef TOW_WIRE_SHARE_H
#define TOW_WIRE_SHARE_H

#include <stdatomic.h>
#include <stdint.h>

/* How the host operand of a copy of one dimension travels. */
enum tow_copy_form {
    TOW_COPY_BYTES = 0,      /* as bytes: in the command, the reply or DATA frames */
    TOW_COPY_SHARED = 1,     /* it is shared memory: its address follows */
    TOW_COPY_FENCE_WORD = 2, /* the same; the address of a fence word and a value follow */
    TOW_COPY_SPREAD = 3,     /* as DATA frames on several lines, see docs/wire/copies.md */
    TOW_COPY_DEFERRED = 4, /* later, as CALLBACK_BYTES: a host function's id and a number follow */
};

/* Added to the form of an upload as bytes: the program's call is a synchronous one. */
#define TOW_COPY_SYNCHRONOUS 0x100u

/* Numbers of pieces, not bytes: what one session may share. */
#define TOW_SHARE_MAX 65536u

/* One line of the processor's cache: written by the GPU and the worker, read by the program. */
struct tow_fence_word {
    _Alignas(64) _Atomic uint32_t done; /* the value of the newest command that is done */
    _Atomic uint32_t refused; /* of one that was not carried out: ask in the ordinary way */
    /* Of a copy behind which a reply brings more than the news: an error of some thread's, or what
     * kernels printed. Written before `done`. The copy is done, and says nothing of its stream. */
    _Atomic uint32_t owing;
};
_Static_assert(sizeof(struct tow_fence_word) == 64, "a cache line each");

/* Behind the fence word of a cuCtxSynchronize: the program thinks that the context has nothing to
 * do. */
#define TOW_FENCE_WORD_IDLE 1u

/* What a copy takes over a bus as slow as PCIe 4, at most 16 ms: as long it is worth looking for
 * its end, and staying awake for what the program does then. */
static inline int64_t tow_share_copy_ns(uint64_t size)
{
    enum { BYTES_PER_NS = 20, COPY_MAX = 320 << 20 };
    return (int64_t)((size < COPY_MAX ? size : COPY_MAX) / BYTES_PER_NS);
}

#endif
