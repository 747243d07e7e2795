/* SPDX-License-Identifier: Apache-2.0 */
/* A parsed program: what the parser makes and the decoder reads. Internal to src/ptx. */
#ifndef TOW_PTX_IR_H
#define TOW_PTX_IR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ptx/ptx.h"

/* ---- limits: PTX text is hostile ---- */

#define PTX_TEXT_MAX (512u << 20)
#define PTX_REGS_MAX (1u << 20)       /* registers a function */
#define PTX_REGS_TOTAL_MAX (1u << 25) /* registers a program */
#define PTX_INSNS_MAX (1u << 24)      /* instructions a program */
#define PTX_OPERANDS_MAX 64u          /* of one instruction, vector elements included */
#define PTX_MODS_MAX 16u              /* .suffixes of one instruction */
#define PTX_PARAMS_MAX 4096u          /* of one function */
#define PTX_PARAM_BYTES_MAX 32764u
#define PTX_SHARED_MAX (1u << 24) /* stride of a block in the cluster's shared window */
#define PTX_VAR_BYTES_MAX (1ull << 36)
#define PTX_INIT_BYTES_MAX (1ull << 28)
#define PTX_SCOPE_MAX 256u
#define PTX_NAME_MAX 16384u
#define PTX_ARENA_MAX (4ull << 30)

/* ---- arena ---- */

struct tow_ptx_arena {
    struct tow_ptx_chunk *chunks; /* owned */
    size_t used, size;            /* of the newest chunk */
    uint64_t total;
};
/* Zeroed, 16-byte aligned; NULL when out of memory or past PTX_ARENA_MAX. */
void *tow_ptx_arena_alloc(struct tow_ptx_arena *arena, size_t bytes);
void tow_ptx_arena_fini(struct tow_ptx_arena *arena);

/* ---- types ---- */

enum tow_ptx_type {
    PT_NONE,
    PT_B8,
    PT_B16,
    PT_B32,
    PT_B64,
    PT_B128,
    PT_U8,
    PT_U16,
    PT_U32,
    PT_U64,
    PT_S8,
    PT_S16,
    PT_S32,
    PT_S64,
    PT_U16X2,
    PT_S16X2,
    PT_F16,
    PT_F16X2,
    PT_BF16,
    PT_BF16X2,
    PT_TF32,
    PT_F32,
    PT_F32X2,
    PT_F64,
    PT_PRED,
    PT_TEXREF,
    PT_SAMPLERREF,
    PT_SURFREF,
    PT_COUNT,
};
/* ".u32" to PT_U32; PT_NONE when it is no type. */
enum tow_ptx_type tow_ptx_type_parse(const char *text, size_t length);
unsigned tow_ptx_type_bytes(enum tow_ptx_type type); /* 0 for predicates */

/* ---- what a program is made of ---- */

enum tow_ptx_statespace {
    SP_NONE, /* generic */
    SP_REG,
    SP_CONST,
    SP_GLOBAL,
    SP_LOCAL,
    SP_PARAM,  /* of a kernel */
    SP_FPARAM, /* of a device function or a call: lives in the local frame */
    SP_SHARED,
    SP_SHARED_CLUSTER,
};

#define PTX_NO_SLOT UINT32_MAX

struct tow_ptx_reg {
    uint8_t type;  /* enum tow_ptx_type */
    uint8_t lanes; /* 1, or 2/4 of a vector register: this one and the next ones */
    uint32_t slot; /* byte offset in the frame, PTX_NO_SLOT until used */
};

/* A place in a variable's initial value that holds an address. */
struct tow_ptx_reloc {
    struct tow_ptx_reloc *next;
    uint64_t offset;
    struct tow_ptx_symbol *symbol; /* while parsing; then one of the next two */
    const struct tow_ptx_func *func;
    const struct tow_ptx_var *var;
    int64_t addend;
    uint64_t mask; /* 0, or the byte that the mask() operator picks: value & mask, shifted down */
    uint8_t bytes;
    bool generic;
    unsigned line;
};

struct tow_ptx_var {
    const char *name;
    enum tow_ptx_statespace space;
    enum tow_ptx_type type;
    uint64_t size; /* 0: extern array of unknown size */
    uint32_t align;
    bool visible, external, weak, common, managed, unsized;
    uint8_t texture;
    uint8_t *init; /* init_bytes; NULL: zeroes */
    uint64_t init_bytes;
    struct tow_ptx_reloc *relocs;
    struct tow_ptx_reg *reg_formal; /* .reg parameters of device functions */
    uint32_t reg;                   /* SP_REG formals: the register */
    uint64_t offset;                /* in its frame, parameter block or the shared window */
    uint32_t index;                 /* in the module's variable list */
    unsigned line;
};

enum tow_ptx_symbol_kind {
    SYM_NONE,
    SYM_REG,
    SYM_REGS, /* %r<10> */
    SYM_VAR,
    SYM_FUNC,
    SYM_LABEL,
    SYM_TARGETS, /* .branchtargets */
    SYM_PROTO,
};

struct tow_ptx_symbol {
    const char *name; /* borrowed from the text, `length` bytes */
    uint32_t length;
    uint32_t hash;
    struct tow_ptx_symbol *chain; /* older entry of the same bucket */
    struct tow_ptx_symbol *scope_next;
    struct tow_ptx_symbol *resolved; /* an extern's definition, set by the linker */
    enum tow_ptx_symbol_kind kind;
    unsigned line, depth;
    uint32_t index, count; /* register; or label: instruction index */
    struct tow_ptx_var *var;
    struct tow_ptx_func *func;
    uint32_t *targets; /* of .branchtargets: operand-like list of label symbols, see parser */
    struct tow_ptx_symbol **labels;
};

enum tow_ptx_operand_kind {
    OPD_NONE,
    OPD_REG,
    OPD_INT,
    OPD_FLOAT,   /* bits: a double */
    OPD_FLOAT32, /* bits: a float */
    OPD_SYMBOL,  /* variable, function, label: plus `bits` */
    OPD_SREG,    /* special register number in `index` */
    OPD_SINK,    /* _ */
    OPD_VECTOR,  /* {a, b}: children */
    OPD_ADDRESS, /* [base + bits]: first child is the base; more children for textures */
    OPD_LIST,    /* (a, b): children */
};

struct tow_ptx_operand {
    uint8_t kind;
    bool negated;     /* !p */
    bool minus;       /* -%r, of vmad */
    uint8_t selector; /* %r.b0 to .b3 are 1 to 4, .h0 and .h1 are 5 and 6: video instructions */
    bool has_second;  /* d|p: the second is the next child-less operand `second` */
    uint32_t index;   /* register or special register */
    uint64_t bits;
    struct tow_ptx_symbol *symbol;
    struct tow_ptx_operand *second; /* d|p */
    struct tow_ptx_operand *children;
    uint32_t count;
    const char *name; /* a label not yet known: borrowed from the text */
    uint32_t name_length;
};

struct tow_ptx_insn {
    unsigned line;
    uint16_t mod_count, operand_count;
    bool guard_negated;
    bool dropped;      /* its destination is another name for its source */
    uint32_t guard;    /* register, PTX_NO_SLOT without */
    const char *key;   /* "add.s32": mnemonic and all suffixes, NUL-terminated, in the arena */
    const char **mods; /* each NUL-terminated without its dot */
    const char *name;  /* mnemonic alone */
    struct tow_ptx_operand *operands;
};

/* .file N "NAME" of a text. */
struct tow_ptx_file {
    const struct tow_ptx_file *next;
    const char *name;
    uint32_t number;
};
struct tow_ptx_source {
    const struct tow_ptx_file *files; /* often behind the functions that name them */
};
/* .loc FILE LINE: from this line of the text on. */
struct tow_ptx_loc {
    uint32_t ptx_line, file, line;
};

struct tow_ptx_func {
    const char *name;
    const struct tow_ptx_source *source; /* of its text; for `locs` */
    struct tow_ptx_loc *locs;            /* in order; malloc'ed while loc_capacity is not 0 */
    uint32_t loc_count, loc_capacity;
    const char *text; /* name of the text it is in, or NULL; borrowed while loading */
    bool entry, defined, external, weak, visible, noreturn;
    bool wanted;         /* not defined, but code or a table names it */
    const char *refused; /* its first instruction that we do not run; or NULL */
    unsigned refused_line;
    const struct tow_ptx_func
        *lacks; /* one of both kinds that it can reach; NULL if there is none */
    unsigned line;
    uint32_t index; /* in the module's function list: the function handle */
    struct tow_ptx_var **params;
    uint32_t param_count;
    struct tow_ptx_var **returns;
    uint32_t return_count;
    struct tow_ptx_reg *regs; /* malloc'ed while parsing, freed with the program */
    uint32_t reg_count, reg_capacity;
    struct tow_ptx_insn **insns; /* malloc'ed array */
    uint32_t insn_count, insn_capacity;
    uint32_t local_bytes; /* frame of .local and .param variables */
    uint32_t param_bytes; /* kernels */
    uint32_t max_threads, reqntid[3], reqcluster[3], min_ctas;
    uint32_t max_registers; /* .maxnreg; 0 without */
    bool explicit_cluster;
    uint32_t *calls; /* functions called, for shared memory and stack sums; see decoder */
    /* decoded: */
    const struct tow_ptx_op *code;
    uint32_t op_count;
    uint32_t frame_bytes; /* registers of a warp */
    struct tow_ptx_param *param_layout;
    /* Parameters that are rows of each block, behind the special registers. */
    struct tow_ptx_param_row {
        uint32_t offset, row;
        bool wide;
    } * param_rows;
    uint32_t param_row_count;
    uint64_t shared_bytes; /* own static .shared */
    const struct tow_ptx_func *alias;
};

struct tow_ptx_program {
    struct tow_ptx_arena arena; /* symbols, instructions; freed after decoding */
    struct tow_ptx_arena *keep; /* variables, functions; the module's */
    struct tow_ptx_var **vars;  /* malloc'ed: .global and .const, all texts */
    uint32_t var_count, var_capacity;
    struct tow_ptx_func **funcs; /* malloc'ed */
    uint32_t func_count, func_capacity;
    uint32_t insn_total;
    uint64_t reg_total;
    struct tow_ptx_symbol **globals;  /* hash table of linkable names, PTX_BUCKETS */
    struct tow_ptx_symbol *undefined; /* scope_next list of extern declarations */
    uint64_t shared_bytes;            /* module-level and function-level .shared, laid out once */
    bool has_dynamic_shared;
    const char *text;              /* name of the text being parsed; borrowed */
    struct tow_ptx_source *source; /* of the text being parsed */
    unsigned target;               /* sm number of the newest text */
    uint32_t wanted;               /* functions that are named but not defined */
    uint32_t refused;              /* functions with an instruction that we do not run */
};

#define PTX_BUCKETS 65536u

int tow_ptx_fail(struct tow_ptx_diag *diag, int error, unsigned line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int tow_ptx_parse(struct tow_ptx_program *program, const struct tow_ptx_text *text,
                  struct tow_ptx_diag *diag);
/* What a text defines under the name of an extern declaration; NULL if none does. */
struct tow_ptx_symbol *tow_ptx_defined(const struct tow_ptx_program *program,
                                       const struct tow_ptx_symbol *symbol);
/* Ties extern declarations to definitions after all texts are parsed. */
int tow_ptx_link(struct tow_ptx_program *program, struct tow_ptx_diag *diag);
void tow_ptx_program_fini(struct tow_ptx_program *program);

/* What a symbol stands for in the end: an extern's definition, else itself; NULL stays NULL. */
struct tow_ptx_symbol *tow_ptx_resolve(struct tow_ptx_symbol *symbol);

#endif
