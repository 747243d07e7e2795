/* SPDX-License-Identifier: Apache-2.0 */
/* What the generated vectors (gen/FAMILY_golden.c), the control frames and the calls by hand are
 * made of. test_golden.c says how they are run. */
#ifndef TOW_TESTS_GOLDEN_H
#define TOW_TESTS_GOLDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gen/cuda_types.h"
#include "backend/driver.h"
#include "gen/functions.h"

struct golden_vector {
    const char *name;
    uint16_t fn;
    bool optional; /* has parameters that may be NULL: runs once more without them */
    void (*send)(void);
};
struct golden_family {
    const struct golden_vector *vectors; /* the last has no `send` */
    const uint16_t *by_hand;             /* functions with an encoding of their own; 0 ends them */
    void (*fill)(struct tow_driver *driver);
};
extern const struct golden_family *const golden_families[]; /* NULL ends them */

/* The program's number of the only device, and the server's. */
enum { GOLDEN_DEVICE = 1, GOLDEN_ORDINAL = 5 };

/* Every parameter that may be NULL is NULL. */
extern bool golden_bare;

/* ---- keeping the lines ---- */

/* One line of the golden file: NAME WAY BYTES. */
void golden_line(const char *name, const char *way, const void *bytes, size_t size);
/* Says what is wrong and counts it. */
void golden_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- made-up values ---- */

/* An id that the server knows, and the driver's handle behind it. */
uintptr_t golden_id(enum tow_handle_kind kind, unsigned index);
uintptr_t golden_made(enum tow_handle_kind kind, unsigned index);
/* An id that the client has just minted. */
uintptr_t golden_new(enum tow_handle_kind kind);
void golden_fill(void *into, size_t size, unsigned seed);

/* Who looks at a record that changes on its way: the fields that change, as that one sees them. */
enum golden_side {
    GOLDEN_PROGRAM,
    GOLDEN_DRIVER,
    GOLDEN_DRIVER_ANSWER,
    GOLDEN_PROGRAM_ANSWER,
};
void golden_shape_CUmemLocation(CUmemLocation *record, enum golden_side side);
void golden_shape_CUmemAllocationProp(CUmemAllocationProp *record, enum golden_side side);
void golden_shape_CUmemAccessDesc(CUmemAccessDesc *record, enum golden_side side);
void golden_shape_CUmemPoolProps(CUmemPoolProps *record, enum golden_side side);
void golden_shape_CUDA_RESOURCE_DESC(CUDA_RESOURCE_DESC *record, enum golden_side side);
void golden_shape_CUarrayMapInfo(CUarrayMapInfo *record, enum golden_side side);

/* ---- the driver's looks ---- */

void golden_driven(unsigned fn);
void golden_see(const char *what, const void *got, const void *want, size_t size);
void golden_see_u64(const char *what, uint64_t got, uint64_t want);
void golden_see_text(const char *what, const char *got, const char *want);
void golden_see_handle(const char *what, enum tow_handle_kind kind, unsigned index, void *handle);

/* ---- the program's looks ---- */

void golden_sent(CUresult status);
void golden_bound(const char *what, enum tow_handle_kind kind, unsigned index);
void golden_took(const char *what, const void *got, const void *want, size_t size);
void golden_took_handle(const char *what, enum tow_handle_kind kind, unsigned index, void *handle);

/* ---- the parts ---- */

void golden_run_control(void);
void golden_run_by_hand(void);
/* False where the kernel has no memory at the addresses that the lines name. */
bool golden_has_addresses(void);

#endif
