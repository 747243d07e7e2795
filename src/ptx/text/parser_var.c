/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations: variables with their initial values, registers, formal parameters. */
#include "ptx/text/parser.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DIMS_MAX 8u

static bool is_power_of_two(uint64_t value)
{
    return value && !(value & (value - 1));
}

int tow_ptx_parse_constant(struct tow_ptx_parser *parser, int64_t *ret_value)
{
    uint64_t total = 0;
    bool first = true;
    for (;;) {
        bool minus = false;
        unsigned signs = 0;
        while (tow_ptx_is_punct(parser, '-') || tow_ptx_is_punct(parser, '+')) {
            minus ^= parser->token.punct == '-';
            signs++;
            tow_ptx_advance(parser);
        }
        if (!signs && !first) {
            break;
        }
        bool invert = tow_ptx_accept(parser, '~');
        if (parser->token.kind != TOK_INT) {
            return tow_ptx_unexpected(parser, "an integer");
        }
        uint64_t value = invert ? ~parser->token.bits : parser->token.bits;
        total += minus ? 0 - value : value;
        tow_ptx_advance(parser);
        first = false;
    }
    *ret_value = (int64_t)total;
    return 0;
}

static enum tow_ptx_statespace parse_space(struct tow_ptx_parser *parser)
{
    static const struct {
        const char *name;
        enum tow_ptx_statespace space;
    } spaces[] = {{".global", SP_GLOBAL}, {".const", SP_CONST},        {".shared", SP_SHARED},
                  {".local", SP_LOCAL},   {".param", SP_PARAM},        {".reg", SP_REG},
                  {".tex", SP_GLOBAL},    {".shared::cta", SP_SHARED}, {NULL, SP_NONE}};
    for (unsigned i = 0; spaces[i].name; i++) {
        if (tow_ptx_is_text(parser, spaces[i].name)) {
            tow_ptx_advance(parser);
            return spaces[i].space;
        }
    }
    return SP_NONE;
}

/* .attribute(.managed), .attribute(.unified(1, 2)) */
static int parse_attribute(struct tow_ptx_parser *parser, struct tow_ptx_var *var)
{
    tow_ptx_advance(parser);
    int error = tow_ptx_expect(parser, '(');
    unsigned open = 1;
    while (error == 0 && open > 0) {
        if (parser->token.kind == TOK_END) {
            return tow_ptx_unexpected(parser, "')'");
        }
        if (tow_ptx_is_text(parser, ".managed")) {
            var->managed = true;
        }
        open += tow_ptx_is_punct(parser, '(');
        open -= tow_ptx_is_punct(parser, ')');
        tow_ptx_advance(parser);
    }
    return error;
}

/* Everything between the state space and the name. */
static int parse_kind(struct tow_ptx_parser *parser, struct tow_ptx_var *var, unsigned *ret_lanes)
{
    unsigned lanes = 1;
    for (;;) {
        int64_t value;
        int error;
        if (tow_ptx_is_text(parser, ".align")) {
            tow_ptx_advance(parser);
            if ((error = tow_ptx_parse_constant(parser, &value))) {
                return error;
            }
            if (!is_power_of_two((uint64_t)value) || value > 65536) {
                return tow_ptx_fail(parser->diag, -EINVAL, parser->token.line,
                                    "an alignment must be a power of two up to 65536");
            }
            if (!(var->type && var->space == SP_PARAM)) {
                var->align = (uint32_t)value; /* after .ptr it speaks of what is pointed at */
            }
        } else if (tow_ptx_is_text(parser, ".attribute")) {
            if ((error = parse_attribute(parser, var))) {
                return error;
            }
        } else if (tow_ptx_is_text(parser, ".v2") || tow_ptx_is_text(parser, ".v4")) {
            lanes = tow_ptx_is_text(parser, ".v2") ? 2 : 4;
            tow_ptx_advance(parser);
        } else if (parser->token.kind == TOK_DOT) {
            enum tow_ptx_type type = tow_ptx_type_parse(parser->token.text, parser->token.length);
            if (type && !var->type) {
                var->type = type;
            } else if (!(var->space == SP_PARAM && var->type)) {
                return tow_ptx_unexpected(parser, "a type");
            } /* else .ptr and the state space it points into */
            tow_ptx_advance(parser);
        } else {
            break;
        }
    }
    if (!var->type) {
        return tow_ptx_unexpected(parser, "a type");
    }
    *ret_lanes = lanes;
    return 0;
}

/* [4][2], [] */
static int parse_dims(struct tow_ptx_parser *parser, uint64_t element, struct tow_ptx_var *var)
{
    uint64_t size = element;
    unsigned dims = 0;
    var->unsized = false;
    while (tow_ptx_accept(parser, '[')) {
        if (++dims > DIMS_MAX) {
            return tow_ptx_unexpected(parser, "at most 8 dimensions");
        }
        if (tow_ptx_accept(parser, ']')) {
            if (dims > 1) {
                return tow_ptx_unexpected(parser, "a size");
            }
            var->unsized = true;
            continue;
        }
        int64_t count;
        int error = tow_ptx_parse_constant(parser, &count);
        if (error || (error = tow_ptx_expect(parser, ']'))) {
            return error;
        }
        if (count < 0 || (count > 0 && size > PTX_VAR_BYTES_MAX / (uint64_t)count)) {
            return tow_ptx_fail(parser->diag, -EINVAL, parser->token.line,
                                "an array is larger than 64 GiB");
        }
        size *= (uint64_t)count;
    }
    var->size = size;
    return 0;
}

static int put_reloc(struct tow_ptx_parser *parser, struct tow_ptx_var *var, uint64_t offset,
                     unsigned bytes, uint64_t mask)
{
    struct tow_ptx_symbol *symbol = tow_ptx_find(parser, parser->token.text, parser->token.length);
    if (!symbol || (symbol->kind != SYM_VAR && symbol->kind != SYM_FUNC)) {
        return tow_ptx_fail(parser->diag, -EINVAL, parser->token.line, "'%.*s' is not declared",
                            (int)parser->token.length, parser->token.text);
    }
    struct tow_ptx_reloc *reloc = tow_ptx_arena_alloc(parser->program->keep, sizeof *reloc);
    if (!reloc) {
        return tow_ptx_no_memory(parser);
    }
    *reloc = (struct tow_ptx_reloc){.next = var->relocs,
                                    .offset = offset,
                                    .symbol = symbol,
                                    .bytes = (uint8_t)bytes,
                                    .mask = mask,
                                    .line = parser->token.line};
    var->relocs = reloc;
    tow_ptx_advance(parser);
    if (tow_ptx_is_punct(parser, '+') || tow_ptx_is_punct(parser, '-')) {
        return tow_ptx_parse_constant(parser, &reloc->addend);
    }
    return 0;
}

/* generic(symbol), generic(symbol)+n: the address in the generic space. */
static int put_generic(struct tow_ptx_parser *parser, struct tow_ptx_var *var, uint64_t offset,
                       unsigned bytes, uint64_t mask)
{
    tow_ptx_advance(parser);
    int error = tow_ptx_expect(parser, '(');
    if (error == 0) {
        error = put_reloc(parser, var, offset, bytes, mask);
    }
    return error != 0 ? error : tow_ptx_expect(parser, ')');
}

/* The bits of the number that is the next token, as a variable of this type has them; false: it is
 * none. `ret_mask`: those of an integer as it was written. */
static bool scalar_bits(const struct tow_ptx_token *token, bool minus, enum tow_ptx_type type,
                        unsigned bytes, uint64_t *ret_bits, uint64_t *ret_mask)
{
    uint64_t bits;
    float narrow;
    double value;
    *ret_mask = 0;
    if (token->kind == TOK_INT) {
        bits = minus ? 0 - token->bits : token->bits;
        *ret_mask = bits;
        if (type == PT_F32 || type == PT_F64) {
            value = (double)(int64_t)bits;
            narrow = (float)value;
            memcpy(&bits, type == PT_F64 ? (void *)&value : (void *)&narrow,
                   type == PT_F64 ? 8 : 4);
        }
    } else if (token->kind == TOK_FLOAT32) {
        bits = token->bits ^ (minus ? 0x80000000u : 0);
        if (type == PT_F64) {
            memcpy(&narrow, &bits, 4);
            value = narrow;
            memcpy(&bits, &value, 8);
        }
    } else if (token->kind == TOK_FLOAT) {
        bits = token->bits ^ (minus ? 1ull << 63 : 0);
        if (bytes == 4) {
            memcpy(&value, &bits, 8);
            narrow = (float)value;
            bits = 0;
            memcpy(&bits, &narrow, 4);
        }
    } else {
        return false;
    }
    *ret_bits = bits;
    return true;
}

/* One scalar of an initial value. */
static int put_scalar(struct tow_ptx_parser *parser, struct tow_ptx_var *var, uint64_t offset,
                      unsigned bytes)
{
    uint64_t bits, mask;
    if (tow_ptx_is_text(parser, "generic")) {
        int error = put_generic(parser, var, offset, bytes, 0);
        if (error == 0 && (tow_ptx_is_punct(parser, '+') || tow_ptx_is_punct(parser, '-'))) {
            error = tow_ptx_parse_constant(parser, &var->relocs->addend);
        }
        return error;
    }
    if (parser->token.kind == TOK_WORD) {
        return put_reloc(parser, var, offset, bytes, 0);
    }
    bool minus = tow_ptx_accept(parser, '-');
    if (!scalar_bits(&parser->token, minus, var->type, bytes, &bits, &mask)) {
        return tow_ptx_unexpected(parser, "a value");
    }
    tow_ptx_advance(parser);
    if (tow_ptx_accept(parser, '(')) { /* 0xff00(symbol): one byte of an address */
        int error = tow_ptx_is_text(parser, "generic")
                        ? put_generic(parser, var, offset, bytes, mask)
                        : put_reloc(parser, var, offset, bytes, mask);
        return error != 0 ? error : tow_ptx_expect(parser, ')');
    }
    memcpy(var->init + offset, &bits, bytes < 8 ? bytes : 8);
    return 0;
}

/* Braces only group: the scalars fill the variable in order. */
static int parse_initial(struct tow_ptx_parser *parser, struct tow_ptx_var *var, unsigned bytes)
{
    /* The buffer grows with the values given: a large array with few of them costs little. */
    uint64_t at = 0, capacity = 0, limit = var->unsized ? PTX_INIT_BYTES_MAX : var->size;
    unsigned open = 0;
    if (limit > PTX_INIT_BYTES_MAX) {
        limit = PTX_INIT_BYTES_MAX;
    }
    do {
        while (tow_ptx_accept(parser, '{')) {
            open++;
        }
        if (!tow_ptx_is_punct(parser, '}')) {
            if (at + bytes > limit) {
                return tow_ptx_fail(parser->diag, -EINVAL, parser->token.line,
                                    "'%s' has more initial values than elements", var->name);
            }
            if (at + bytes > capacity) {
                uint64_t more = capacity * 2 + 256;
                uint8_t *grown = tow_ptx_arena_alloc(parser->program->keep, more + 16);
                if (!grown) {
                    return tow_ptx_no_memory(parser);
                }
                if (at) {
                    memcpy(grown, var->init, at);
                }
                var->init = grown;
                capacity = more;
            }
            int error = put_scalar(parser, var, at, bytes);
            if (error) {
                return error;
            }
            at += bytes;
        }
        while (open > 0 && tow_ptx_accept(parser, '}')) {
            open--;
        }
    } while (open > 0 && tow_ptx_accept(parser, ','));
    if (open > 0) {
        return tow_ptx_unexpected(parser, "'}'");
    }
    if (var->unsized) {
        var->size = at;
        var->unsized = false;
    }
    var->init_bytes = at;
    return 0;
}

static int place_variable(struct tow_ptx_parser *parser, struct tow_ptx_var *var)
{
    struct tow_ptx_program *program = parser->program;
    switch (var->space) {
    case SP_GLOBAL:
    case SP_CONST:
        if (var->external) {
            return 0;
        }
        if (program->var_count == program->var_capacity) {
            uint32_t capacity = program->var_capacity * 2 + 64;
            struct tow_ptx_var **more = realloc(program->vars, capacity * sizeof *more);
            if (!more) {
                return tow_ptx_no_memory(parser);
            }
            program->vars = more;
            program->var_capacity = capacity;
        }
        var->index = program->var_count;
        program->vars[program->var_count++] = var;
        return 0;
    case SP_SHARED:
        if (var->unsized || (var->external && var->size == 0)) {
            var->unsized = true;
        } else if (var->size > PTX_SHARED_MAX) {
            return tow_ptx_fail(parser->diag, -EINVAL, var->line,
                                "'%s' is larger than shared memory can be", var->name);
        }
        return 0;
    case SP_LOCAL:
    case SP_FPARAM: {
        uint64_t align = var->align < 16 ? 16 : var->align;
        uint64_t at = (parser->local_used + align - 1) & ~(align - 1);
        if (var->size > (1u << 26) || at + var->size > (1u << 26)) {
            return tow_ptx_fail(parser->diag, -EINVAL, var->line,
                                "'%s' is larger than local memory can be", var->name);
        }
        var->offset = at;
        parser->local_used = at + var->size;
        if (parser->func && parser->local_used > parser->func->local_bytes) {
            parser->func->local_bytes = (uint32_t)parser->local_used;
        }
        return 0;
    }
    default:
        return 0;
    }
}

static int define_variable(struct tow_ptx_parser *parser, struct tow_ptx_var *var, const char *name,
                           uint32_t length)
{
    struct tow_ptx_symbol *symbol = tow_ptx_find(parser, name, length);
    if (symbol && symbol->kind == SYM_VAR && symbol->depth == parser->depth && parser->depth == 0 &&
        (symbol->var->external || var->external || symbol->var->weak)) {
        /* A declaration again, or the definition of what was declared before. */
        if (!var->external && symbol->var->external) {
            symbol->var = var;
        }
        return 0;
    }
    int error = tow_ptx_define(parser, name, length, SYM_VAR, &symbol);
    if (error == 0) {
        symbol->var = var;
    }
    return error;
}

int tow_ptx_parse_variable(struct tow_ptx_parser *parser, const struct tow_ptx_linkage *linkage)
{
    enum tow_ptx_statespace space = parse_space(parser);
    if (space == SP_NONE || space == SP_REG) {
        return tow_ptx_unexpected(parser, "a state space");
    }
    struct tow_ptx_var kind = {.space = space, .line = parser->token.line};
    unsigned lanes;
    int error = parse_kind(parser, &kind, &lanes);
    if (error) {
        return error;
    }
    do {
        struct tow_ptx_var *var = tow_ptx_arena_alloc(parser->program->keep, sizeof *var);
        if (!var) {
            return tow_ptx_no_memory(parser);
        }
        *var = kind;
        var->external = linkage->external;
        var->visible = linkage->visible || linkage->weak || linkage->common;
        var->weak = linkage->weak;
        var->common = linkage->common;
        var->line = parser->token.line;
        if (space == SP_PARAM) {
            var->space = SP_FPARAM;
        }
        if (var->type >= PT_TEXREF && var->type <= PT_SURFREF) {
            var->texture = var->type == PT_TEXREF ? 1 : var->type == PT_SURFREF ? 2 : 3;
        }
        if (parser->token.kind != TOK_WORD || parser->token.length > PTX_NAME_MAX) {
            return tow_ptx_unexpected(parser, "a variable's name");
        }
        const char *name = parser->token.text;
        uint32_t length = parser->token.length;
        if (!(var->name = tow_ptx_copy_name(parser->program->keep, name, length))) {
            return tow_ptx_no_memory(parser);
        }
        tow_ptx_advance(parser);
        unsigned bytes = tow_ptx_type_bytes(var->type);
        if (bytes == 0) {
            return tow_ptx_fail(parser->diag, -EINVAL, var->line, "'%s' may not be a predicate",
                                var->name);
        }
        if (tow_ptx_is_punct(parser, '<')) { /* .param .b32 p<4>: not emitted by any compiler */
            return tow_ptx_fail(parser->diag, -ENOTSUP, var->line,
                                "parameterised variable names are not supported");
        }
        if (!var->align) {
            var->align = bytes * lanes;
        }
        if ((error = parse_dims(parser, (uint64_t)bytes * lanes, var))) {
            return error;
        }
        if (tow_ptx_accept(parser, '=')) {
            if (var->texture) { /* sampler settings of a .samplerref: the driver face sets them */
                while (!tow_ptx_is_punct(parser, ';') && parser->token.kind != TOK_END) {
                    tow_ptx_advance(parser);
                }
            } else if (space != SP_GLOBAL && space != SP_CONST) {
                return tow_ptx_fail(parser->diag, -EINVAL, var->line,
                                    "'%s' may not have an initial value", var->name);
            } else if ((error = parse_initial(parser, var, bytes))) {
                return error;
            }
        }
        if (!var->external && var->unsized && space != SP_SHARED) {
            return tow_ptx_fail(parser->diag, -EINVAL, var->line, "'%s' has no size", var->name);
        }
        if ((error = define_variable(parser, var, name, length)) ||
            (error = place_variable(parser, var))) {
            return error;
        }
    } while (tow_ptx_accept(parser, ','));
    return tow_ptx_expect(parser, ';');
}

int tow_ptx_parse_registers(struct tow_ptx_parser *parser)
{
    unsigned lanes = 1;
    tow_ptx_advance(parser); /* .reg */
    if (tow_ptx_is_text(parser, ".v2") || tow_ptx_is_text(parser, ".v4")) {
        lanes = tow_ptx_is_text(parser, ".v2") ? 2 : 4;
        tow_ptx_advance(parser);
    }
    enum tow_ptx_type type = parser->token.kind == TOK_DOT
                                 ? tow_ptx_type_parse(parser->token.text, parser->token.length)
                                 : PT_NONE;
    if (!type || type >= PT_TEXREF) {
        return tow_ptx_unexpected(parser, "a register type");
    }
    tow_ptx_advance(parser);
    if (lanes == 1 && (tow_ptx_is_text(parser, ".v2") || tow_ptx_is_text(parser, ".v4"))) {
        lanes = tow_ptx_is_text(parser, ".v2") ? 2 : 4;
        tow_ptx_advance(parser);
    }
    do {
        if (parser->token.kind != TOK_WORD) {
            return tow_ptx_unexpected(parser, "a register's name");
        }
        const char *name = parser->token.text;
        uint32_t length = parser->token.length;
        int64_t count = 1;
        int error;
        tow_ptx_advance(parser);
        bool many = tow_ptx_accept(parser, '<');
        if (many && ((error = tow_ptx_parse_constant(parser, &count)) ||
                     (error = tow_ptx_expect(parser, '>')))) {
            return error;
        }
        if (count < 0 || count > (int64_t)PTX_REGS_MAX || (many && lanes > 1)) {
            return tow_ptx_unexpected(parser, "a smaller number of registers");
        }
        uint32_t first;
        struct tow_ptx_symbol *symbol;
        if ((error = tow_ptx_add_registers(parser, type, lanes, (uint32_t)count, &first)) ||
            (error = tow_ptx_define(parser, name, length, many ? SYM_REGS : SYM_REG, &symbol))) {
            return error;
        }
        symbol->index = first;
        symbol->count = (uint32_t)count;
    } while (tow_ptx_accept(parser, ','));
    return tow_ptx_expect(parser, ';');
}

/* Type, name and dimensions of one. */
static int formal_read(struct tow_ptx_parser *parser, bool kernel, struct tow_ptx_var *var,
                       struct tow_ptx_token *ret_name)
{
    unsigned lanes;
    var->line = parser->token.line;
    var->space = parse_space(parser);
    if (var->space != SP_PARAM && (var->space != SP_REG || kernel)) {
        return tow_ptx_unexpected(parser, "a parameter");
    }
    int error = parse_kind(parser, var, &lanes);
    if (error) {
        return error;
    }
    if (parser->token.kind != TOK_WORD || parser->token.length > PTX_NAME_MAX) {
        return tow_ptx_unexpected(parser, "a parameter's name");
    }
    *ret_name = parser->token;
    if (!(var->name = tow_ptx_copy_name(parser->program->keep, ret_name->text, ret_name->length))) {
        return tow_ptx_no_memory(parser);
    }
    tow_ptx_advance(parser);
    unsigned bytes = tow_ptx_type_bytes(var->type) * lanes;
    if (!var->align) {
        var->align = bytes ? bytes : 1;
    }
    return parse_dims(parser, bytes, var);
}

/* Where one in memory lies: `offset` is how many bytes a kernel's parameters take so far. */
static int formal_place(struct tow_ptx_parser *parser, bool kernel, struct tow_ptx_var *var,
                        uint64_t *offset)
{
    if (var->size > PTX_PARAM_BYTES_MAX) {
        return tow_ptx_fail(parser->diag, -EINVAL, var->line,
                            "parameter '%s' is larger than %u bytes", var->name,
                            PTX_PARAM_BYTES_MAX);
    }
    if (kernel) {
        *offset = (*offset + var->align - 1) & ~(uint64_t)(var->align - 1);
        var->offset = *offset;
        *offset += var->size;
        return 0;
    }
    var->space = SP_FPARAM;
    if (parser->func) {
        uint64_t align = var->align < 16 ? 16 : var->align;
        parser->local_used = (parser->local_used + align - 1) & ~(align - 1);
        var->offset = parser->local_used;
        parser->local_used += var->size;
        parser->func->local_bytes = (uint32_t)parser->local_used;
    }
    return 0;
}

/* Its register or its place, and its name where the function has a body's scope. */
static int formal_define(struct tow_ptx_parser *parser, bool kernel, struct tow_ptx_var *var,
                         const struct tow_ptx_token *name, uint64_t *offset)
{
    bool in_register = var->space == SP_REG;
    int error = !in_register   ? formal_place(parser, kernel, var, offset)
                : parser->func ? tow_ptx_add_registers(parser, var->type, 1, 1, &var->reg)
                               : 0;
    if (error || !parser->func || (name->length == 1 && name->text[0] == '_')) {
        return error;
    }
    struct tow_ptx_symbol *symbol;
    error =
        tow_ptx_define(parser, name->text, name->length, in_register ? SYM_REG : SYM_VAR, &symbol);
    if (error) {
        return error;
    }
    if (in_register) {
        symbol->index = var->reg;
    } else {
        symbol->var = var;
    }
    return 0;
}

/* A list in the program's arena, which grows. */
struct formals {
    struct tow_ptx_var **list;
    uint32_t count, capacity;
};

static int formals_add(struct tow_ptx_parser *parser, struct formals *formals,
                       struct tow_ptx_var **ret_var)
{
    struct tow_ptx_var *var = tow_ptx_arena_alloc(parser->program->keep, sizeof *var);
    if (!var) {
        return tow_ptx_no_memory(parser);
    }
    if (formals->count == PTX_PARAMS_MAX) {
        return tow_ptx_unexpected(parser, "fewer parameters");
    }
    if (formals->count == formals->capacity) {
        uint32_t capacity = formals->capacity * 2 + 8;
        struct tow_ptx_var **more =
            tow_ptx_arena_alloc(parser->program->keep, capacity * sizeof *more);
        if (!more) {
            return tow_ptx_no_memory(parser);
        }
        if (formals->count) {
            memcpy(more, formals->list, formals->count * sizeof *more);
        }
        formals->list = more;
        formals->capacity = capacity;
    }
    formals->list[formals->count++] = var;
    *ret_var = var;
    return 0;
}

int tow_ptx_parse_formals(struct tow_ptx_parser *parser, bool kernel,
                          struct tow_ptx_var ***ret_vars, uint32_t *ret_count)
{
    struct formals formals = {0};
    uint64_t offset = 0;
    int error = tow_ptx_expect(parser, '(');
    if (error) {
        return error;
    }
    while (!tow_ptx_is_punct(parser, ')')) {
        struct tow_ptx_var *var = NULL;
        struct tow_ptx_token name = {0};
        if ((error = formals_add(parser, &formals, &var)) ||
            (error = formal_read(parser, kernel, var, &name)) ||
            (error = formal_define(parser, kernel, var, &name, &offset))) {
            return error;
        }
        if (!tow_ptx_accept(parser, ',') && !tow_ptx_is_punct(parser, ')')) {
            return tow_ptx_unexpected(parser, "',' or ')'");
        }
    }
    tow_ptx_advance(parser);
    if (kernel) {
        if (offset > PTX_PARAM_BYTES_MAX) {
            return tow_ptx_fail(parser->diag, -EINVAL, parser->token.line,
                                "a kernel's parameters are larger than %u bytes",
                                PTX_PARAM_BYTES_MAX);
        }
        parser->func->param_bytes = (uint32_t)offset;
    }
    *ret_vars = formals.list;
    *ret_count = formals.count;
    return 0;
}
