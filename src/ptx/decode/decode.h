/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder: parsed instructions to operations. Internal to src/ptx.
 *
 * Every function here that returns int returns 0 or the negative error that it has already put into
 * the diagnostic. */
#ifndef TOW_PTX_DECODE_H
#define TOW_PTX_DECODE_H

#include "ptx/machine/control.h"

struct tow_ptx_decoder {
    struct tow_ptx_program *program; /* borrowed */
    struct tow_ptx_module *module;   /* borrowed */
    struct tow_ptx_diag *diag;       /* borrowed */
    struct tow_ptx_func *func;
    const struct tow_ptx_insn *insn;
    struct tow_ptx_op *ops; /* owned: of the current function */
    uint32_t op_count, op_capacity;
    uint32_t *starts;             /* owned: first operation of each instruction */
    struct tow_ptx_fixup *fixups; /* owned: tables of branch targets */
    uint32_t fixup_count, fixup_capacity;
    uint8_t *consts; /* owned */
    uint32_t const_bytes, const_capacity;
    struct tow_ptx_const *const_table; /* owned: hash table of known constants */
    uint32_t const_count, const_slots;
    uint32_t pred_next; /* free place for a predicate in the frame, 0 when the row is full */
    uint32_t temps[4], wide_temps[4], temp_next, wide_next, sinks[4];
    uint32_t carry;      /* predicate row of the condition code */
    uint32_t guard_kept; /* predicate row: the instruction's guard, for what looks behind it */
    bool control;        /* the current operation moves threads about */
    unsigned checks;     /* TOW_PTX_CHECK_...: what the code can be checked for */
};

struct tow_ptx_fixup {
    uint32_t op;                     /* operation of the current function */
    const struct tow_ptx_op **table; /* to fill, in the module's arena */
    struct tow_ptx_symbol **labels;
    uint32_t count;
};

/* emit.c. Row kinds are the letters of a signature (lanes.h); 'q' is 128 bits. */
int tow_ptx_bad(struct tow_ptx_decoder *dec, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int tow_ptx_unsupported(struct tow_ptx_decoder *dec);
int tow_ptx_refuse(struct tow_ptx_diag *diag, const char *instruction, unsigned line);
int tow_ptx_dec_no_memory(struct tow_ptx_decoder *dec);
int tow_ptx_emit(struct tow_ptx_decoder *dec, const struct tow_ptx_op *op);
void *tow_ptx_keep(struct tow_ptx_decoder *dec, size_t bytes);
int tow_ptx_const32(struct tow_ptx_decoder *dec, uint32_t value, uint32_t *ret_ref);
int tow_ptx_const64(struct tow_ptx_decoder *dec, uint64_t value, uint32_t *ret_ref);
/* Whether a 32-bit row is a constant, the same in all lanes. */
bool tow_ptx_const_known(const struct tow_ptx_decoder *dec, uint32_t ref, uint32_t *ret_value);
/* The rows that %laneid and its masks read: the first constants. */
int tow_ptx_fixed_rows(struct tow_ptx_decoder *dec);
/* A new place in the function's frame, for good. */
uint32_t tow_ptx_frame_place(struct tow_ptx_decoder *dec, char kind);
uint32_t tow_ptx_temp(struct tow_ptx_decoder *dec, char kind);
uint32_t tow_ptx_register_ref(struct tow_ptx_decoder *dec, uint32_t reg);
char tow_ptx_register_kind(const struct tow_ptx_decoder *dec, uint32_t reg); /* w l q p */
/* "u32" to PT_U32 */
enum tow_ptx_type tow_ptx_mod_type(const char *mod);
char tow_ptx_type_kind(enum tow_ptx_type type); /* w l q p, h for 16 bits, f, d */

/* operands.c: a source or destination of the given row kind. */
int tow_ptx_source(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *operand, char kind,
                   uint32_t *ret_ref);
int tow_ptx_dest(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *operand, char kind,
                 uint32_t *ret_ref);
/* Whatever row the operand is: kind 'w' or 'l' (immediates take `wanted`). */
int tow_ptx_any_source(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *operand,
                       char wanted, uint32_t *ret_ref, char *ret_kind);
/* Puts a symbol's address into `d`, of kind 'w' or 'l'. */
int tow_ptx_symbol_row(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *operand,
                       char kind, uint32_t d);
int tow_ptx_want_operands(struct tow_ptx_decoder *dec, unsigned low, unsigned high);
bool tow_ptx_has_mod(const struct tow_ptx_decoder *dec, const char *mod);
/* An operation with its sources and destinations by signature. */
int tow_ptx_by_signature(struct tow_ptx_decoder *dec, const char *sig, tow_ptx_fn *fn,
                         const void *ext);

typedef int tow_ptx_decode_fn(struct tow_ptx_decoder *dec);
struct tow_ptx_special {
    const char *name;
    tow_ptx_decode_fn *decode;
};
extern const struct tow_ptx_special tow_ptx_specials_int[], tow_ptx_specials_core[],
    tow_ptx_specials_memory[], tow_ptx_specials_num[], tow_ptx_specials_warp[],
    tow_ptx_specials_async[], tow_ptx_specials_mma[], tow_ptx_specials_texture[],
    tow_ptx_specials_video[];

/* alias.c: registers that are another name for a special register or a parameter. */
void tow_ptx_alias_registers(struct tow_ptx_decoder *dec);
/* The row of a special register that stays as it is while a block runs; else PTX_NO_SLOT. */
uint32_t tow_ptx_sreg_row(uint32_t number);

/* regalloc.c: whether an instruction writes its first operand, and no other. */
bool tow_ptx_writes_first(const char *name);
/* gives the current function's registers their places. */
void tow_ptx_share_registers(struct tow_ptx_decoder *dec);

/* reach.c: a function is named that no text defines; after decoding, who can reach such ones. */
void tow_ptx_want(struct tow_ptx_program *program, struct tow_ptx_func *func, unsigned line);
int tow_ptx_reach(struct tow_ptx_program *program, struct tow_ptx_module *module);

int tow_ptx_decode(struct tow_ptx_program *program, struct tow_ptx_module *module,
                   struct tow_ptx_diag *diag);

#endif
