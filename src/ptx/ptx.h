/* SPDX-License-Identifier: Apache-2.0 */
/* The PTX machine: turns PTX text into checked, pre-decoded code and runs grids of it.
 *
 * It knows nothing of the driver API. Device memory is plain memory of this process: a device
 * address is a pointer. Which addresses a kernel may touch, what a texture is, where printf goes:
 * all that is asked of the `struct tow_ptx_env` of a launch.
 */
#ifndef TOW_PTX_PTX_H
#define TOW_PTX_PTX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bits.h"

struct tow_ptx_module; /* immutable after load; shared by all threads */
struct tow_ptx_kernel; /* borrowed from its module */

struct tow_ptx_diag {
    unsigned line;     /* 1-based line in the PTX text; 0 when no line is to blame */
    char message[480]; /* one sentence */
};

/* Loads one PTX text (need not end in NUL). Several texts of one program (separate compilation) are
 * given together and linked by name. On failure: -EINVAL (syntax, types), -ENOTSUP (no kernel
 * can run without an instruction that we lack; the message names it and its line), -ENOENT
 * (unresolved variable), -EEXIST (defined in two texts), -ENOMEM. Functions that no text defines
 * are told by tow_ptx_undefined_at. */
struct tow_ptx_text {
    const char *text;
    size_t length;
    const char *name; /* for messages; may be NULL */
};
int tow_ptx_load(const struct tow_ptx_text *texts, size_t count, struct tow_ptx_diag *ret_diag,
                 struct tow_ptx_module **ret_module);
void tow_ptx_unload(struct tow_ptx_module *module); /* accepts NULL */

/* ---- what a module holds ---- */

struct tow_ptx_param {
    uint32_t offset, size, align;
};
struct tow_ptx_kernel_info {
    const char *name;
    const struct tow_ptx_param *params;
    uint32_t param_count, param_bytes;
    uint32_t static_shared; /* bytes of .shared variables, without the extern one */
    uint32_t local_bytes;   /* per thread: .local variables and the ABI stack it declares */
    uint32_t registers;     /* an estimate for attribute and occupancy queries, at most .maxnreg */
    uint32_t const_bytes;   /* .const variables of its texts */
    uint32_t max_threads;   /* from .maxntid/.reqntid, else 1024 */
    uint32_t reqntid[3], reqcluster[3]; /* 0 when not given */
    uint32_t min_ctas;                  /* .minnctapersm, else 0 */
    bool explicit_cluster;
    /* What it can reach and what cannot run; both NULL: it can run. */
    const char *undefined; /* a function that no text defines */
    const char *refused;   /* an instruction that we do not run */
    unsigned refused_line;
};
size_t tow_ptx_kernel_count(const struct tow_ptx_module *module);
const struct tow_ptx_kernel *tow_ptx_kernel_at(const struct tow_ptx_module *module, size_t index);
const struct tow_ptx_kernel *tow_ptx_kernel_find(const struct tow_ptx_module *module,
                                                 const char *name);
void tow_ptx_kernel_describe(const struct tow_ptx_kernel *kernel,
                             struct tow_ptx_kernel_info *ret_info);

/* A function that code or a table names and no text defines. Kernels that can reach one say so; if
 * one is run nevertheless, or comes there through a table, the call is a fault. */
struct tow_ptx_undefined {
    const char *name;
    unsigned line; /* where it is first named */
};
size_t tow_ptx_undefined_count(const struct tow_ptx_module *module);
/* Whether some function has an instruction that we do not run: who comes there faults. */
bool tow_ptx_refuses(const struct tow_ptx_module *module);
const struct tow_ptx_undefined *tow_ptx_undefined_at(const struct tow_ptx_module *module,
                                                     size_t index);

enum tow_ptx_space {
    TOW_PTX_GLOBAL,
    TOW_PTX_CONST,
};
/* A module variable in .global or .const. Its address is given by whoever instantiates the module.
 */
struct tow_ptx_variable {
    const char *name;
    enum tow_ptx_space space;
    uint64_t size, align;
    bool visible;    /* .visible/.weak/.common: may be asked for by name */
    bool managed;    /* .attribute(.managed) */
    uint8_t texture; /* .texref = 1, .surfref = 2, .samplerref = 3, else 0 */
};
size_t tow_ptx_variable_count(const struct tow_ptx_module *module);
const struct tow_ptx_variable *tow_ptx_variable_at(const struct tow_ptx_module *module,
                                                   size_t index);

/* An instance: a module with an address for each variable (one per context). */
struct tow_ptx_instance;
/* `addresses[i]` is device memory of at least the variable's size; this writes the initial values
 * (zeroes where none) including addresses of other variables and functions. */
int tow_ptx_instantiate(const struct tow_ptx_module *module, const uint64_t *addresses,
                        struct tow_ptx_instance **ret_instance);
void tow_ptx_instance_free(struct tow_ptx_instance *instance);

/* ---- running ---- */

/* One live piece of device memory, as the machine's inline cache keeps it. */
struct tow_ptx_range {
    uint64_t low, high; /* [low, high) */
    bool writable;
};

enum tow_ptx_fault_kind {
    TOW_PTX_FAULT_NONE,
    TOW_PTX_FAULT_ADDRESS, /* outside every live allocation, or written though read-only */
    TOW_PTX_FAULT_MISALIGNED,
    TOW_PTX_FAULT_ASSERT,
    TOW_PTX_FAULT_TRAP,        /* trap, brkpt, unreachable */
    TOW_PTX_FAULT_INSTRUCTION, /* illegal at run time: bad indirect call target, ... */
    TOW_PTX_FAULT_SPACE,       /* an address of the wrong state space */
    TOW_PTX_FAULT_STACK,       /* call depth or local memory exhausted */
    TOW_PTX_FAULT_DEADLOCK,    /* every thread of a block waits and none can go on */
    TOW_PTX_FAULT_STOPPED,     /* `stop` was set */
    TOW_PTX_FAULT_UNDEFINED,   /* a call of a function that no text defines */
    TOW_PTX_FAULT_MEMORY,      /* the host ran out of memory for the launch itself */
    TOW_PTX_FAULT_OVERDUE,     /* a checked launch did not end after a fault */
    /* Only told, of a launch that is checked so; nothing ends: */
    TOW_PTX_FAULT_DIVERGED,    /* threads of a warp do not come to a barrier together */
    TOW_PTX_FAULT_MASK_CALLER, /* a mask does not name its own thread */
    TOW_PTX_FAULT_MASK_OTHER,  /* whom a mask names has another one, or cannot come */
    TOW_PTX_FAULT_UNWRITTEN,   /* memory is read that nobody wrote */
    TOW_PTX_FAULT_RACE,        /* two threads access shared memory with nothing between them */
    /* No mistake: a block is not looked at for want of memory, for races, for what nobody wrote. */
    TOW_PTX_FAULT_UNSEEN,
    TOW_PTX_FAULT_UNSEEN_READS,
};
/* What a thread was about, as far as a fault has to do with it. */
enum tow_ptx_deed {
    TOW_PTX_DEED_OTHER,
    TOW_PTX_DEED_READ,
    TOW_PTX_DEED_WRITE,
};
enum tow_ptx_place {
    TOW_PTX_PLACE_OTHER,
    TOW_PTX_PLACE_GLOBAL, /* or by a generic address */
    TOW_PTX_PLACE_SHARED,
    TOW_PTX_PLACE_LOCAL,
};
/* The other thread of a race, of the same block. */
struct tow_ptx_other {
    const char *function, *file;
    unsigned file_line, line;
    enum tow_ptx_deed deed;
    uint32_t thread[3];
};
struct tow_ptx_fault {
    enum tow_ptx_fault_kind kind;
    const char *kernel;   /* borrowed from the module, as the two names below */
    const char *function; /* whose instruction it is; NULL: not known */
    const char *file;     /* source file that .loc names; NULL: none */
    unsigned file_line;
    enum tow_ptx_deed deed;
    enum tow_ptx_place place;
    uint64_t bytes, room; /* of the access; of the block's shared, the thread's local memory */
    uint32_t block[3], thread[3];
    uint32_t more; /* threads behind this one that do the same */
    unsigned line; /* line in the PTX text */
    uint64_t address;
    struct tow_ptx_other other; /* RACE: its line in the PTX is the larger one */
    char message[256];          /* one sentence, for the log */
};

/* A texture or surface as kernels read it: filled by the driver face, see src/ptx/num/texture.h. */
struct tow_ptx_texture;

/* What a running kernel asks of its surroundings. Called from many threads at once. */
struct tow_ptx_env_ops {
    /* Finds the live range that holds `address`; false if there is none. */
    bool (*find)(void *user, uint64_t address, struct tow_ptx_range *ret_range);
    /* Texture or surface object by handle; NULL if there is none. Borrowed for the launch. */
    const struct tow_ptx_texture *(*texture)(void *user, uint64_t handle);
    /* Device malloc/free; 0 when the heap is used up. Freed memory is no longer found, but must
     * stay mapped until the launch ends: other threads may have looked it up before. */
    uint64_t (*heap_alloc)(void *user, uint64_t bytes);
    int (*heap_free)(void *user, uint64_t address);
    /* Device printf: one formatted piece of output. */
    void (*print)(void *user, const char *text, size_t length);
    /* assert(): called once per failing thread before the fault is reported. */
    void (*assert_failed)(void *user, const char *message, const char *file, unsigned line,
                          const char *function, const uint32_t block[3], const uint32_t thread[3]);
    /* Nanoseconds for %globaltimer. */
    uint64_t (*time)(void *user);
    /* cudaGraphSetConditional(): -1 if there is no such handle. */
    int (*set_condition)(void *user, uint64_t handle, uint32_t value);
};

enum {
    TOW_PTX_CHECK_MEMORY = 1,
    TOW_PTX_CHECK_SYNC = 2,
    TOW_PTX_CHECK_INIT = 4,
    TOW_PTX_CHECK_RACE = 8
};
/* What modules that are loaded from now on can be checked for, beside MEMORY. */
void tow_ptx_check_loads(unsigned checks);
/* How many bytes looking for races may take, in all launches together; 4 GiB unless told. */
void tow_ptx_race_limit(uint64_t bytes);

/* Which bytes of memory somebody has written: a bit each, from `low` on. Kernels set more. */
struct tow_ptx_written {
    uint64_t low, bytes;
    tow_bits *bits;
    /* Whether the bits of the memory at an address mean anything; asked where one is missing.
     * Called from many threads at once. NULL: they do. */
    bool (*means)(uint64_t address);
};

struct tow_ptx_launch {
    const struct tow_ptx_instance *instance;
    const struct tow_ptx_kernel *kernel;
    uint32_t grid[3], block[3], cluster[3]; /* cluster 1,1,1 when there is none */
    uint32_t dynamic_shared;
    bool cooperative;   /* all blocks are resident at once, grid barriers work */
    const void *params; /* param_bytes, laid out as tow_ptx_param says; copied before run returns */
    const struct tow_ptx_env_ops *env;
    void *env_user;
    const atomic_bool *stop; /* may be NULL; polled, so a kernel that never ends can be ended */
    uint32_t grid_id;
    uint32_t stack_bytes; /* of a thread, for calls and alloca; 0: the default of the machine */
    uint32_t sm_count;    /* for %nsmid and for spreading blocks over %smid */
    /* Not NULL: the launch is checked. It is told of every fault of every thread, one at a time.
     * With TOW_PTX_CHECK_MEMORY a load or store that is a fault ends its thread only, and the
     * others go on for 10 s more at most; shared memory ends with its last byte; the launch ends
     * well but for other faults. With TOW_PTX_CHECK_SYNC it is told how threads fail to meet, too,
     * with TOW_PTX_CHECK_INIT of reads of what nobody wrote, with TOW_PTX_CHECK_RACE of races
     * in shared memory, if modules were loaded so. */
    void (*found)(void *user, const struct tow_ptx_fault *fault);
    unsigned checks;
    void *found_user;
    const struct tow_ptx_written *written; /* TOW_PTX_CHECK_INIT: of global memory; or NULL */
};

/* Runs a grid to its end on up to `threads` host threads, the caller one of them. 0, or -EIO with
 * the first fault in *ret_fault. May be called from several threads at once for different launches.
 */
int tow_ptx_run(const struct tow_ptx_launch *launch, unsigned threads,
                struct tow_ptx_fault *ret_fault);

/* Processor time that host threads other than the callers have used for that, in ns. */
uint64_t tow_ptx_helpers_ns(void);

#endif
