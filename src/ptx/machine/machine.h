/* SPDX-License-Identifier: Apache-2.0 */
/* The running machine: decoded code, warps, blocks. Internal to src/ptx.
 *
 * A register is a row of 32 lanes: uint32_t[32] for types up to 32 bits, uint64_t[32] for 64 bits,
 * two such rows for 128 bits; a predicate is one uint32_t, a bit a lane. A row is named by a
 * reference: the low two bits say which base it is relative to, the rest is the byte offset.
 */
#ifndef TOW_PTX_MACHINE_H
#define TOW_PTX_MACHINE_H

#include <pthread.h>

#include "ptx/text/ir.h"
#include "ptx/text/sreg.h"

#define LANES 32u
#define FULL 0xffffffffu

enum tow_ptx_base {
    BASE_FRAME, /* the function's registers */
    BASE_CONST, /* immediates, broadcast; the module's */
    BASE_WARP,  /* %tid, %warpid */
    BASE_BLOCK, /* other special registers */
};

/* Generic addresses: no host pointer looks like these (user space ends below 2^48). */
#define WINDOW_SHARED 0x0001000000000000ull
#define WINDOW_SHARED_BYTES (1ull << 32)
#define WINDOW_LOCAL 0x0001100000000000ull
#define WINDOW_LOCAL_BYTES (1ull << 32)
#define WINDOW_FUNCTION 0x0001200000000000ull
#define FUNCTION_STRIDE 16u
/* Shared addresses: bits 31..24 are 0 for the block's own memory, else cluster rank + 1. */
#define SHARED_RANK_SHIFT 24u

#define WORKSPACE_BYTES 4096u
#define LOCAL_MAX (512u << 10)    /* local memory of a thread */
#define STACK_DEFAULT (64u << 10) /* for calls, when the launch does not say */
#define CALL_DEPTH_MAX 4096u
#define FRAMES_BYTES_MAX (2ull << 30)   /* registers of all calls of one host thread */
#define FRAMES_BYTES_KEPT (64ull << 20) /* of these, kept for the next launch */
#define BARRIERS 16u
#define CLUSTER_MAX 64u

/* Shared memory and registers are kept from launch to launch and may be larger than what this one
 * has: AddressSanitizer is told how much of it counts. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define PTX_ONLY_FIRST(memory, bytes, all)                                                         \
    (__asan_unpoison_memory_region(memory, all),                                                   \
     __asan_poison_memory_region((memory) + (bytes), (all) - (bytes)))
#else
#define PTX_ONLY_FIRST(memory, bytes, all) (void)0
#endif

struct tow_ptx_warp;
struct tow_ptx_op;
/* Runs one operation; returns the next, or HALT when the scheduler has to decide. */
typedef const struct tow_ptx_op *tow_ptx_fn(struct tow_ptx_warp *w, const struct tow_ptx_op *o);

struct tow_ptx_op {
    tow_ptx_fn *run;
    tow_ptx_fn *body;          /* behind a guard; else as run */
    uint32_t d, a, b, c, e, f; /* row references, or what the operation makes of them */
    int64_t imm;
    union {
        const struct tow_ptx_op *target;
        const void *ext; /* borrowed from the module */
    };
    uint32_t guard; /* predicate row | 1 when negated | 2 when there is one */
    uint32_t line;
};
#define HALT ((const struct tow_ptx_op *)UINTPTR_MAX)

struct tow_ptx_module {
    struct tow_ptx_arena arena; /* everything named below unless it says otherwise */
    struct tow_ptx_variable *variables;
    struct tow_ptx_var **vars;
    size_t variable_count;
    struct tow_ptx_func **funcs; /* by handle */
    uint32_t func_count;
    struct tow_ptx_kernel *kernels;
    size_t kernel_count;
    struct tow_ptx_undefined *undefined;
    size_t undefined_count;
    bool refuses;    /* some function has an instruction that we do not run */
    uint8_t *consts; /* owned, aligned */
    uint32_t const_bytes;
    struct tow_ptx_op *code; /* owned */
};

struct tow_ptx_kernel {
    const struct tow_ptx_module *module;
    const struct tow_ptx_func *func;
    struct tow_ptx_kernel_info info;
    uint32_t own_local; /* bytes of local memory of the kernel's own frame */
    bool uses_stack;    /* and it makes calls or uses alloca */
};

struct tow_ptx_instance {
    const struct tow_ptx_module *module;
    uint64_t *addresses; /* owned, one per variable */
};

/* ---- running ---- */

struct tow_ptx_frame {
    struct tow_ptx_frame *up;           /* the caller's; in the free list the next */
    const struct tow_ptx_op *return_to; /* in the caller */
    const struct tow_ptx_func *func;
    const struct tow_ptx_call *call; /* how it was called: where results go */
    uint8_t *regs;                   /* behind this struct, aligned */
    uint32_t capacity;               /* bytes of regs */
    uint32_t lanes;                  /* that have not returned yet */
    uint32_t depth;
    uint32_t local_base, local_top; /* its part of each lane's local memory */
};

enum tow_ptx_group_state {
    GROUP_RUN,
    GROUP_SYNC,    /* at a .sync instruction, waits for more lanes to come to the same place */
    GROUP_WARPBAR, /* at bar.warp.sync */
    GROUP_BARRIER, /* at a barrier of the block */
    GROUP_CLUSTER, /* at the cluster barrier */
};

/* Threads of a warp that are at the same place. */
struct tow_ptx_group {
    const struct tow_ptx_op *pc;
    struct tow_ptx_frame *frame;
    uint32_t mask;
    uint32_t members; /* GROUP_SYNC, GROUP_WARPBAR: who has to come */
    uint8_t state;
    uint8_t barrier;
};

struct tow_ptx_warp {
    uintptr_t base[4]; /* each less its number: a reference has that in its low bits */
    uint32_t exec;     /* lanes that the current operation is for */
    uint32_t mask;     /* lanes of the current group */
    uint32_t dead;     /* lanes that exited or never were */
    bool whole;        /* exec | dead is everything: rows may be written without looking */
    bool yielded;
    bool ran;     /* did anything in this slice */
    bool release; /* a group that waits for partners may go on without them */
    int favour;   /* a lane whose group runs first in this slice, or -1 */
    uint32_t turn;
    const struct tow_ptx_op *limit; /* where other groups wait */
    int32_t budget;                 /* backward branches left in this slice */
    uint32_t groups_used, current;
    struct tow_ptx_group groups[LANES];
    struct tow_ptx_block *block;
    struct tow_ptx_runner *runner;
    const struct tow_ptx_launch *launch;
    uint8_t *local; /* of lane 0 */
    uint32_t local_stride;
    uint32_t index;
    uint8_t *ptr[LANES];      /* scratch: host addresses of the current access */
    uint32_t cluster_arrived; /* lanes that wait for the current phase of the cluster barrier */
    uint32_t wrong;           /* lanes of a checked launch that end here, see tow_ptx_end_wrong */
    uint8_t sregs[WROW_COUNT * 128] __attribute__((aligned(128)));
};

struct tow_ptx_barrier {
    uint32_t expected;                  /* 0: all threads of the block */
    uint32_t arrived;                   /* threads counted, exited ones not included */
    uint32_t warps[32];                 /* lanes of each warp that have arrived */
    uint32_t waiting;                   /* of these, how many wait */
    uint32_t red_and, red_or, red_popc; /* bar.red */
};

struct tow_ptx_block {
    uint32_t id[3];
    uint32_t warp_count, live_warps, threads, exited;
    struct tow_ptx_warp *warps; /* owned */
    uint32_t warp_capacity;
    uint8_t *shared; /* owned */
    uint32_t shared_bytes, shared_capacity;
    struct tow_ptx_barrier barriers[BARRIERS]; /* zero, unless used */
    uint32_t barriers_used;                    /* a bit each */
    struct tow_ptx_cluster *cluster;           /* NULL without */
    uint32_t rank;
    bool done;
    tow_bits *written; /* owned: of shared memory, where that is checked; see check_init.c */
    uint32_t written_words;
    struct tow_ptx_races *races; /* owned: the same; see check_race.c */
    uint8_t sregs[(BROW_COUNT + PARAM_ROWS_MAX) * 128] __attribute__((aligned(128)));
};

struct tow_ptx_cluster {
    struct tow_ptx_block *blocks[CLUSTER_MAX];
    uint32_t count;
    uint32_t threads, arrived, waiting;
    uint32_t phase;
};

#define SITES 64u

/* What an access of global memory remembers of the last time. */
struct tow_ptx_site {
    struct tow_ptx_range range; /* which it hit */
    uint64_t first;             /* where lane 0 was, if 32 lanes read one behind the other */
};

/* What one host thread needs to run blocks; reused from launch to launch. */
struct tow_ptx_runner {
    struct tow_ptx_runner *next; /* in the free list */
    struct tow_ptx_job *job;
    const struct tow_ptx_launch *launch;
    struct tow_ptx_site sites[SITES];      /* by instruction */
    struct tow_ptx_frame *free_frames[16]; /* by size class */
    uint64_t frame_bytes;                  /* of all frames, used and free */
    struct tow_ptx_slot **slots;           /* resident blocks, owned */
    uint32_t slot_count, slot_capacity, prepared;
    const uint8_t *params;
    uint32_t param_bytes;
    uint8_t *workspace; /* of the grid barrier of a cooperative launch, else NULL */
    bool failed;
};

/* ---- rows ---- */

#define REF(base, offset) ((uint32_t)(offset) | (uint32_t)(base))

static inline void tow_ptx_set_base(struct tow_ptx_warp *w, enum tow_ptx_base base,
                                    const uint8_t *rows)
{
    w->base[base] = (uintptr_t)rows - base;
}

static inline void *tow_ptx_row(const struct tow_ptx_warp *w, uint32_t ref)
{
    return (void *)(w->base[ref & 3u] + ref);
}

static inline uint32_t tow_ptx_pred(const struct tow_ptx_warp *w, uint32_t ref)
{
    return *(const uint32_t *)tow_ptx_row(w, ref);
}

static inline void tow_ptx_set_pred(struct tow_ptx_warp *w, uint32_t ref, uint32_t value)
{
    uint32_t *p = tow_ptx_row(w, ref);
    *p = (*p & ~w->exec) | (value & w->exec);
}

static inline void tow_ptx_set_exec(struct tow_ptx_warp *w, uint32_t exec)
{
    w->exec = exec;
    w->whole = (exec | w->dead) == FULL;
}

/* For loops that make a mask: so they vectorise. */
static const uint32_t tow_ptx_lane_bit[LANES] = {
    1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
    1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
    1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
    1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31};

/* How many lanes a mask has: mostly all or none. */
static inline uint32_t tow_ptx_lanes_in(uint32_t mask)
{
    return mask == FULL ? LANES : mask ? (uint32_t)__builtin_popcount(mask) : 0;
}

/* Iterates over the set bits of a mask. */
#define FOR_LANES(l, m)                                                                            \
    for (uint32_t left_##l = (m), l; left_##l && (l = (uint32_t)__builtin_ctz(left_##l), 1);       \
         left_##l &= left_##l - 1)

/* Blends a computed row into d. */
static inline void tow_ptx_blend32(const struct tow_ptx_warp *w, uint32_t *d, const uint32_t *r)
{
    uint32_t m = w->exec;
    _Pragma("GCC ivdep") for (unsigned l = 0; l < LANES; l++)
    {
        d[l] = m & tow_ptx_lane_bit[l] ? r[l] : d[l];
    }
}

static inline void tow_ptx_blend64(const struct tow_ptx_warp *w, uint64_t *d, const uint64_t *r)
{
    uint32_t m = w->exec;
    _Pragma("GCC ivdep") for (unsigned l = 0; l < LANES; l++)
    {
        d[l] = m & tow_ptx_lane_bit[l] ? r[l] : d[l];
    }
}

/* ---- faults ---- */

/* Records the fault for one lane and ends the launch; returns HALT. */
const struct tow_ptx_op *tow_ptx_fault(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                       enum tow_ptx_fault_kind kind, unsigned lane,
                                       uint64_t address, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* The same for an access. `again`: nothing was done yet, so that the instruction may be begun again
 * without this lane, if the launch is checked. */
struct tow_ptx_deed_of {
    enum tow_ptx_deed deed;
    enum tow_ptx_place place;
    uint64_t bytes;
    bool again;
};
void tow_ptx_fault_at(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                      enum tow_ptx_fault_kind kind, unsigned lane, uint64_t address,
                      const struct tow_ptx_deed_of *deed, const char *format, ...)
    __attribute__((format(printf, 7, 8)));
/* Tells a checked launch, and nothing else; of an access of several lanes, the first with the
 * address. */
void tow_ptx_tell_access(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                         enum tow_ptx_fault_kind kind, uint32_t lanes, uint64_t address,
                         const struct tow_ptx_deed_of *deed);
void tow_ptx_tell(struct tow_ptx_warp *w, const struct tow_ptx_op *o, enum tow_ptx_fault_kind kind,
                  unsigned lane, const char *format, ...) __attribute__((format(printf, 5, 6)));
/* The same of a race, with what thread `other` of the block did at `at`. */
void tow_ptx_tell_race(struct tow_ptx_warp *w, const struct tow_ptx_op *o, unsigned lane,
                       uint64_t address, const struct tow_ptx_deed_of *deed,
                       const struct tow_ptx_op *at, uint32_t other, enum tow_ptx_deed other_deed);
/* Ends the lanes of `wrong`; their group begins the instruction again. */
void tow_ptx_end_wrong(struct tow_ptx_warp *w);
/* Whether a checked launch with a fault has had the time that it is given. */
bool tow_ptx_overdue(struct tow_ptx_warp *w);

/* ---- memory (memory.c) ---- */

enum tow_ptx_access {
    ACCESS_READ = 0,
    ACCESS_WRITE = 1,
};
/* Fill w->ptr for the active lanes, from the address row `o->a` plus o->imm; false after a fault.
 * `bytes` is a power of two: the size and alignment of the access. */
bool tow_ptx_at_global(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t bytes,
                       enum tow_ptx_access access);
bool tow_ptx_at_generic(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t bytes,
                        enum tow_ptx_access access);
bool tow_ptx_at_shared32(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t bytes,
                         enum tow_ptx_access access);
bool tow_ptx_at_shared64(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t bytes,
                         enum tow_ptx_access access);
bool tow_ptx_at_local32(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t bytes,
                        enum tow_ptx_access access);
bool tow_ptx_at_local64(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t bytes,
                        enum tow_ptx_access access);
typedef bool tow_ptx_at_fn(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t bytes,
                           enum tow_ptx_access access);
/* Where 32 lanes that all take part find their data when lanes 0 to 15 and 16 to 31 are each at
 * even steps: rows, columns, one address for all. Nothing is looked up and no fault reported:
 * false, and `at` above has to. */
struct tow_ptx_line {
    uint8_t *half[2]; /* lanes 0 and 16 */
    uint64_t step;
};
typedef bool tow_ptx_line_fn(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t bytes,
                             enum tow_ptx_access access, struct tow_ptx_line *ret_line);
tow_ptx_line_fn tow_ptx_line_global, tow_ptx_line_generic, tow_ptx_line_shared32,
    tow_ptx_line_shared64;
/* One lane's generic address range [address, address + bytes); NULL after a fault. */
typedef uint8_t *tow_ptx_lane_fn(struct tow_ptx_warp *w, const struct tow_ptx_op *o, unsigned lane,
                                 uint64_t address, uint64_t bytes, enum tow_ptx_access access);
tow_ptx_lane_fn tow_ptx_at_lane;
/* How many bytes can be read from a generic address on; NULL, no fault, when there are none. */
uint8_t *tow_ptx_probe(struct tow_ptx_warp *w, unsigned lane, uint64_t address,
                       uint64_t *ret_bytes);
uint8_t *tow_ptx_shared_at(struct tow_ptx_warp *w, uint32_t address, uint64_t bytes);

/* ---- scheduling (warp.c) ---- */

/* Splits `mask` off the current group into a new one at pc. */
void tow_ptx_split(struct tow_ptx_warp *w, uint32_t mask, const struct tow_ptx_op *pc);
/* A branch that only `taken` of the current group take: who is lower in the code runs on at once,
 * the others wait. Returns what comes next. */
const struct tow_ptx_op *tow_ptx_fork(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                      uint32_t taken);
/* Ends the slice; the group goes on at pc later. */
const struct tow_ptx_op *tow_ptx_yield(struct tow_ptx_warp *w, const struct tow_ptx_op *pc);
/* For .sync instructions: true when all members are here; else the group was parked: return HALT.
 */
bool tow_ptx_gather(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t members);
/* The same when the group runs on as it is. */
const struct tow_ptx_op *tow_ptx_park(struct tow_ptx_warp *w, const struct tow_ptx_op *pc,
                                      enum tow_ptx_group_state state);
/* Threads of the current group end. */
const struct tow_ptx_op *tow_ptx_exit(struct tow_ptx_warp *w, uint32_t mask);
void tow_ptx_warp_run(struct tow_ptx_warp *w);
void tow_ptx_warp_start(struct tow_ptx_warp *w, const struct tow_ptx_func *func, uint32_t lanes);
struct tow_ptx_frame *tow_ptx_frame_take(struct tow_ptx_runner *runner,
                                         const struct tow_ptx_func *func);
void tow_ptx_frame_give(struct tow_ptx_runner *runner, struct tow_ptx_frame *frame);
/* barrier.c: whether a barrier is complete now; releases its waiters. */
void tow_ptx_barrier_check(struct tow_ptx_block *block, unsigned number);
void tow_ptx_cluster_check(struct tow_ptx_cluster *cluster);

/* Calls (call.c) */
struct tow_ptx_arg {
    uint32_t ref;    /* register argument: its row; else PTX_NO_SLOT */
    uint32_t offset; /* in the caller's local frame */
    uint32_t bytes;
    uint64_t bits; /* immediate argument, when is_imm */
    bool is_imm, wide;
};
struct tow_ptx_call {
    const struct tow_ptx_func *func; /* NULL: indirect through row `target` */
    uint32_t target;
    uint32_t arg_count, return_count;
    struct tow_ptx_arg *args, *returns;
    int (*syscall)(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                   const struct tow_ptx_call *call);
};

#endif
