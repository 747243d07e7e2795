/* SPDX-License-Identifier: Apache-2.0 */
/* A small world for kernels: memory, output, launches. What the tests of the PTX machine stand on.
 */
#ifndef TESTS_PTX_MACHINE_H
#define TESTS_PTX_MACHINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ptx/ptx.h"

#define MACHINE_ALLOCS 512
#define MACHINE_CONDITION 0x1122334455667788u /* the handle of its one condition */

struct machine {
    struct tow_ptx_module *module;     /* owned */
    struct tow_ptx_instance *instance; /* owned */
    struct tow_ptx_range ranges[MACHINE_ALLOCS];
    void *blocks[MACHINE_ALLOCS]; /* owned */
    unsigned count;
    pthread_mutex_t lock; /* guards output, ranges and count */
    char output[65536];
    size_t output_length;
    unsigned asserts;
    uint32_t condition; /* what MACHINE_CONDITION was set to */
    struct tow_ptx_fault fault;
    struct tow_ptx_diag diag;
    const struct tow_ptx_texture *texture; /* what any handle stands for; may be NULL */
    atomic_bool stop;
    unsigned threads;
    uint32_t dynamic_shared, cluster[3];
    bool cooperative;
    /* How launches are checked, as struct tow_ptx_launch has it. */
    void (*found)(void *user, const struct tow_ptx_fault *fault);
    unsigned checks;
    const struct tow_ptx_written *written;
};

/* Loads and instantiates; ends the process with the diagnostic when `must` and it fails. */
int machine_load(struct machine *m, const char *text, bool must);
void machine_unload(struct machine *m);
/* Zeroed device memory. */
void *machine_alloc(struct machine *m, size_t bytes);
void *machine_variable(struct machine *m, const char *name);
/* Arguments: `count` values of 8 bytes each, cut to the parameters' sizes. */
int machine_run(struct machine *m, const char *kernel, const uint32_t grid[3],
                const uint32_t block[3], const uint64_t *args, unsigned count);
int machine_run1(struct machine *m, const char *kernel, uint32_t grid, uint32_t block,
                 const uint64_t *args, unsigned count);
#define ARG(p) ((uint64_t)(uintptr_t)(p))

/* Text of a whole module around one kernel body: version, target, a kernel `k` with u64 parameters
 * p0 .. p7. */
const char *machine_wrap(const char *declarations, const char *body);
#define PTX_HEAD ".version 8.8\n.target sm_120\n.address_size 64\n"

#endif
