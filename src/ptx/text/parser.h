/* SPDX-License-Identifier: Apache-2.0 */
/* The parser's state, shared by its files (module level, function bodies, variables). */
#ifndef TOW_PTX_PARSER_H
#define TOW_PTX_PARSER_H

#include "ptx/text/ir.h"
#include "ptx/text/lexer.h"

/* A label used before it is known; tied when the block that may define it ends. */
struct tow_ptx_pending {
    struct tow_ptx_operand *operand; /* NULL for an entry of a .branchtargets list */
    struct tow_ptx_symbol **slot;
    const char *name; /* borrowed from the text */
    uint32_t length;
    unsigned line, depth;
};

struct tow_ptx_parser {
    struct tow_ptx_program *program; /* borrowed */
    struct tow_ptx_diag *diag;       /* borrowed */
    struct tow_ptx_lexer lexer;
    struct tow_ptx_token token;                   /* the current one */
    struct tow_ptx_symbol **buckets;              /* owned: names of this text */
    struct tow_ptx_symbol *scopes[PTX_SCOPE_MAX]; /* newest symbol of each open block */
    unsigned depth;
    struct tow_ptx_func *func;       /* whose body is being parsed */
    struct tow_ptx_pending *pending; /* owned array */
    uint32_t pending_count, pending_capacity;
    uint64_t local_used; /* of the function's frame, in the innermost block */
    bool deep;           /* 32-bit addresses are not supported: set by .address_size 64 */
};

/* parser.c: tokens */
void tow_ptx_advance(struct tow_ptx_parser *parser);
bool tow_ptx_is_punct(const struct tow_ptx_parser *parser, char punct);
bool tow_ptx_is_text(const struct tow_ptx_parser *parser, const char *text);
bool tow_ptx_accept(struct tow_ptx_parser *parser, char punct);
int tow_ptx_expect(struct tow_ptx_parser *parser, char punct);
int tow_ptx_unexpected(struct tow_ptx_parser *parser, const char *wanted);
/* Consumes up to and including the next ';'. */
int tow_ptx_skip_statement(struct tow_ptx_parser *parser);
const char *tow_ptx_copy_name(struct tow_ptx_arena *arena, const char *text, uint32_t length);
int tow_ptx_no_memory(struct tow_ptx_parser *parser);

/* parser_scope.c: names */
struct tow_ptx_symbol *tow_ptx_find(struct tow_ptx_parser *parser, const char *name,
                                    uint32_t length);
int tow_ptx_define(struct tow_ptx_parser *parser, const char *name, uint32_t length,
                   enum tow_ptx_symbol_kind kind, struct tow_ptx_symbol **ret_symbol);
/* A register by name, also "%r12" of "%r<20>". */
bool tow_ptx_find_register(struct tow_ptx_parser *parser, const char *name, uint32_t length,
                           uint32_t *ret_register);
int tow_ptx_add_registers(struct tow_ptx_parser *parser, enum tow_ptx_type type, unsigned lanes,
                          uint32_t count, uint32_t *ret_first);
int tow_ptx_scope_open(struct tow_ptx_parser *parser);
int tow_ptx_scope_close(struct tow_ptx_parser *parser);
int tow_ptx_want_label(struct tow_ptx_parser *parser, const struct tow_ptx_pending *entry);

/* parser_var.c: declarations */
struct tow_ptx_linkage {
    bool external, visible, weak, common;
};
int tow_ptx_parse_variable(struct tow_ptx_parser *parser, const struct tow_ptx_linkage *linkage);
int tow_ptx_parse_registers(struct tow_ptx_parser *parser);
/* "(.param .b32 a, .reg .b32 b)" with the '(' current. */
int tow_ptx_parse_formals(struct tow_ptx_parser *parser, bool kernel,
                          struct tow_ptx_var ***ret_vars, uint32_t *ret_count);
int tow_ptx_parse_constant(struct tow_ptx_parser *parser, int64_t *ret_value);

/* parser_body.c */
int tow_ptx_parse_body(struct tow_ptx_parser *parser);
/* A line for debuggers is current; takes it. */
bool tow_ptx_is_debugging(const struct tow_ptx_parser *parser);
int tow_ptx_parse_debugging(struct tow_ptx_parser *parser);
/* At the end of a function. */
int tow_ptx_keep_locs(struct tow_ptx_parser *parser);

#endif
