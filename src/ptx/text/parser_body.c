/* SPDX-License-Identifier: Apache-2.0 */
/* Function bodies: blocks, labels, instructions and their operands. */
#include "ptx/text/parser.h"
#include "ptx/text/sreg.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOCS_FIRST 16u
#define OPERAND_DEPTH_MAX 4u

static int parse_operand(struct tow_ptx_parser *parser, struct tow_ptx_operand *operand,
                         unsigned depth);

/* A comma-separated list up to `close`; an element may be missing only in "()" and "[]". */
static int parse_children(struct tow_ptx_parser *parser, struct tow_ptx_operand *operand,
                          char close, unsigned depth)
{
    struct tow_ptx_operand list[PTX_OPERANDS_MAX];
    uint32_t count = 0, recorded = parser->pending_count;
    if (depth >= OPERAND_DEPTH_MAX) {
        return tow_ptx_unexpected(parser, "a simpler operand");
    }
    while (!tow_ptx_is_punct(parser, close)) {
        if (count == PTX_OPERANDS_MAX) {
            return tow_ptx_unexpected(parser, "fewer operands");
        }
        memset(&list[count], 0, sizeof list[count]);
        int error = parse_operand(parser, &list[count], depth + 1);
        if (error) {
            return error;
        }
        count++;
        if (!tow_ptx_accept(parser, ',') && !tow_ptx_is_punct(parser, close)) {
            char wanted[4] = {'\'', close, '\'', 0};
            return tow_ptx_unexpected(parser, wanted);
        }
    }
    tow_ptx_advance(parser);
    operand->count = count;
    operand->children =
        tow_ptx_arena_alloc(&parser->program->arena, (count + 1) * sizeof *operand->children);
    if (!operand->children) {
        return tow_ptx_no_memory(parser);
    }
    memcpy(operand->children, list, count * sizeof *list);
    /* Labels wait by address: move those that were noted on the stack copy. */
    for (; recorded < parser->pending_count; recorded++) {
        struct tow_ptx_pending *entry = &parser->pending[recorded];
        if (entry->operand >= list && entry->operand < list + count) {
            entry->operand = operand->children + (entry->operand - list);
        }
    }
    return 0;
}

static int vector_element(char c)
{
    switch (c) {
    case 'x':
    case 'r':
        return 0;
    case 'y':
    case 'g':
        return 1;
    case 'z':
    case 'b':
        return 2;
    case 'w':
    case 'a':
        return 3;
    default:
        return -1;
    }
}

/* A whole vector: the same as {v.x, v.y}. */
static int whole_vector(struct tow_ptx_parser *parser, uint32_t index, uint32_t lanes,
                        struct tow_ptx_operand *operand)
{
    operand->kind = OPD_VECTOR;
    operand->count = lanes;
    operand->children = tow_ptx_arena_alloc(&parser->program->arena, lanes * sizeof *operand);
    if (!operand->children) {
        return tow_ptx_no_memory(parser);
    }
    for (uint32_t i = 0; i < lanes; i++) {
        operand->children[i].kind = OPD_REG;
        operand->children[i].index = index + i;
    }
    return 0;
}

/* A register, an element of a vector (v.x), a part of a register (r.b0, r.h1), or a vector. */
static int register_operand(struct tow_ptx_parser *parser, uint32_t index,
                            struct tow_ptx_operand *operand)
{
    operand->kind = OPD_REG;
    operand->index = index;
    const struct tow_ptx_reg *reg = &parser->func->regs[index];
    const struct tow_ptx_token *token = &parser->token;
    if (token->kind == TOK_DOT && token->length == 2) {
        int element = vector_element(token->text[1]);
        if (element < 0 || element >= reg->lanes) {
            return tow_ptx_unexpected(parser, "a vector element");
        }
        operand->index += (uint32_t)element;
        tow_ptx_advance(parser);
    } else if (token->kind == TOK_DOT && token->length == 3 && reg->lanes == 1 &&
               (token->text[1] == 'b' || token->text[1] == 'h')) {
        unsigned part = (unsigned)(token->text[2] - '0');
        bool byte = token->text[1] == 'b';
        if (part > (byte ? 3u : 1u)) {
            return tow_ptx_unexpected(parser, "a part of a register");
        }
        operand->selector = (uint8_t)(byte ? 1 + part : 5 + part);
        tow_ptx_advance(parser);
    } else if (reg->lanes > 1) {
        return whole_vector(parser, index, reg->lanes, operand);
    }
    return 0;
}

static int parse_name(struct tow_ptx_parser *parser, struct tow_ptx_operand *operand)
{
    const char *name = parser->token.text;
    uint32_t length = parser->token.length;
    unsigned line = parser->token.line;
    uint32_t index;
    tow_ptx_advance(parser);
    if (length == 1 && *name == '_') {
        operand->kind = OPD_SINK;
        return 0;
    }
    if (tow_ptx_find_register(parser, name, length, &index)) {
        return register_operand(parser, index, operand);
    }
    struct tow_ptx_symbol *symbol = tow_ptx_find(parser, name, length);
    if (symbol) {
        operand->kind = OPD_SYMBOL;
        operand->symbol = symbol;
        return 0;
    }
    if (*name == '%') {
        char component = 0;
        if (parser->token.kind == TOK_DOT && parser->token.length == 2) {
            component = parser->token.text[1];
        }
        int sreg = tow_ptx_sreg_find(name, length, component);
        if (sreg < 0) {
            return tow_ptx_fail(parser->diag, -EINVAL, line,
                                "'%.*s' is neither declared nor a special register",
                                (int)(length < 100 ? length : 100), name);
        }
        if (component) {
            tow_ptx_advance(parser);
        }
        operand->kind = OPD_SREG;
        operand->index = (uint32_t)sreg;
        return 0;
    }
    if (length == 7 && memcmp(name, "WARP_SZ", 7) == 0) {
        operand->kind = OPD_INT;
        operand->bits = 32;
        return 0;
    }
    operand->kind = OPD_SYMBOL;
    operand->name = name;
    operand->name_length = length;
    struct tow_ptx_pending entry = {
        .operand = operand, .name = name, .length = length, .line = line, .depth = parser->depth};
    return tow_ptx_want_label(parser, &entry);
}

/* d|p: the predicate beside a destination, if there is one. */
static int parse_second(struct tow_ptx_parser *parser, struct tow_ptx_operand *operand)
{
    if (!tow_ptx_accept(parser, '|')) {
        return 0;
    }
    operand->second = tow_ptx_arena_alloc(&parser->program->arena, sizeof *operand->second);
    if (!operand->second) {
        return tow_ptx_no_memory(parser);
    }
    if (parser->token.kind != TOK_WORD) {
        return tow_ptx_unexpected(parser, "a register");
    }
    operand->has_second = true;
    return parse_name(parser, operand->second);
}

static int parse_operand(struct tow_ptx_parser *parser, struct tow_ptx_operand *operand,
                         unsigned depth)
{
    int error = 0;
    struct tow_ptx_token *token = &parser->token;
    if (tow_ptx_accept(parser, '{')) {
        operand->kind = OPD_VECTOR;
        error = parse_children(parser, operand, '}', depth);
        return error ? error : parse_second(parser, operand);
    }
    if (tow_ptx_accept(parser, '[')) {
        operand->kind = OPD_ADDRESS;
        return parse_children(parser, operand, ']', depth);
    }
    if (tow_ptx_accept(parser, '(')) {
        operand->kind = OPD_LIST;
        return parse_children(parser, operand, ')', depth);
    }
    if (tow_ptx_accept(parser, '!')) {
        operand->negated = true;
    }
    if (token->kind == TOK_WORD) {
        error = parse_name(parser, operand);
    } else if (token->kind == TOK_FLOAT || token->kind == TOK_FLOAT32) {
        operand->kind = token->kind == TOK_FLOAT ? OPD_FLOAT : OPD_FLOAT32;
        operand->bits = token->bits;
        tow_ptx_advance(parser);
    } else if (tow_ptx_is_punct(parser, '-')) {
        tow_ptx_advance(parser);
        if (token->kind == TOK_FLOAT || token->kind == TOK_FLOAT32) {
            operand->kind = token->kind == TOK_FLOAT ? OPD_FLOAT : OPD_FLOAT32;
            operand->bits =
                token->bits ^ (token->kind == TOK_FLOAT ? 1ull << 63 : (uint64_t)1 << 31);
        } else if (token->kind == TOK_INT) {
            operand->kind = OPD_INT;
            operand->bits = 0 - token->bits;
        } else if (token->kind == TOK_WORD) {
            operand->minus = true;
            return parse_name(parser, operand);
        } else {
            return tow_ptx_unexpected(parser, "a number");
        }
        tow_ptx_advance(parser);
    } else if (token->kind == TOK_INT || tow_ptx_is_punct(parser, '~')) {
        int64_t value;
        operand->kind = OPD_INT;
        error = tow_ptx_parse_constant(parser, &value);
        operand->bits = (uint64_t)value;
    } else {
        return tow_ptx_unexpected(parser, "an operand");
    }
    if (error == 0 && (operand->kind == OPD_SYMBOL || operand->kind == OPD_REG) &&
        (tow_ptx_is_punct(parser, '+') || tow_ptx_is_punct(parser, '-'))) {
        int64_t offset;
        error = tow_ptx_parse_constant(parser, &offset);
        operand->bits = (uint64_t)offset;
    }
    return error ? error : parse_second(parser, operand);
}

/* "add", ".s32" -> the key "add.s32" and each suffix by itself. */
static int parse_mnemonic(struct tow_ptx_parser *parser, struct tow_ptx_insn *insn)
{
    const char *texts[PTX_MODS_MAX + 1];
    uint32_t lengths[PTX_MODS_MAX + 1], total = 0, count = 0;
    do {
        if (count == PTX_MODS_MAX + 1 || parser->token.length > 64) {
            return tow_ptx_unexpected(parser, "a shorter instruction name");
        }
        texts[count] = parser->token.text;
        lengths[count] = parser->token.length;
        total += parser->token.length;
        count++;
        tow_ptx_advance(parser);
    } while (parser->token.kind == TOK_DOT);
    char *key = tow_ptx_arena_alloc(&parser->program->arena, (size_t)total * 2 + count + 2);
    if (!key) {
        return tow_ptx_no_memory(parser);
    }
    insn->key = key;
    insn->mods = tow_ptx_arena_alloc(&parser->program->arena, count * sizeof *insn->mods);
    if (!insn->mods) {
        return tow_ptx_no_memory(parser);
    }
    for (uint32_t i = 0; i < count; i++) {
        memcpy(key, texts[i], lengths[i]);
        key += lengths[i];
    }
    *key++ = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t skip = i ? 1 : 0;
        memcpy(key, texts[i] + skip, lengths[i] - skip);
        if (i == 0) {
            insn->name = key;
        } else {
            insn->mods[i - 1] = key;
        }
        key += lengths[i] - skip;
        *key++ = 0;
    }
    insn->mod_count = (uint16_t)(count - 1);
    return 0;
}

static int add_instruction(struct tow_ptx_parser *parser, struct tow_ptx_insn *insn)
{
    struct tow_ptx_func *func = parser->func;
    if (++parser->program->insn_total > PTX_INSNS_MAX) {
        return tow_ptx_fail(parser->diag, -EINVAL, insn->line, "more than %u instructions",
                            PTX_INSNS_MAX);
    }
    if (func->insn_count == func->insn_capacity) {
        uint32_t capacity = func->insn_capacity * 2 + 64;
        struct tow_ptx_insn **more = realloc(func->insns, capacity * sizeof *more);
        if (!more) {
            return tow_ptx_no_memory(parser);
        }
        func->insns = more;
        func->insn_capacity = capacity;
    }
    func->insns[func->insn_count++] = insn;
    return 0;
}

static int parse_instruction(struct tow_ptx_parser *parser)
{
    struct tow_ptx_insn *insn = tow_ptx_arena_alloc(&parser->program->arena, sizeof *insn);
    if (!insn) {
        return tow_ptx_no_memory(parser);
    }
    insn->guard = PTX_NO_SLOT;
    if (tow_ptx_accept(parser, '@')) {
        insn->guard_negated = tow_ptx_accept(parser, '!');
        if (parser->token.kind != TOK_WORD ||
            !tow_ptx_find_register(parser, parser->token.text, parser->token.length,
                                   &insn->guard) ||
            parser->func->regs[insn->guard].type != PT_PRED) {
            return tow_ptx_unexpected(parser, "a predicate register");
        }
        tow_ptx_advance(parser);
    }
    if (parser->token.kind != TOK_WORD) {
        return tow_ptx_unexpected(parser, "an instruction");
    }
    insn->line = parser->token.line;
    int error = parse_mnemonic(parser, insn);
    if (error) {
        return error;
    }
    struct tow_ptx_operand all = {0};
    if (tow_ptx_is_punct(parser, ';')) {
        tow_ptx_advance(parser);
    } else if ((error = parse_children(parser, &all, ';', 0))) {
        return error;
    }
    insn->operands = all.children;
    insn->operand_count = (uint16_t)all.count;
    return add_instruction(parser, insn);
}

/* name: .branchtargets L1, L2;   name: .callprototype ...;   name: .calltargets f, g; */
static int parse_labelled_directive(struct tow_ptx_parser *parser, const char *name,
                                    uint32_t length)
{
    struct tow_ptx_symbol *symbol;
    bool branches = tow_ptx_is_text(parser, ".branchtargets");
    int error = tow_ptx_define(parser, name, length, branches ? SYM_TARGETS : SYM_PROTO, &symbol);
    if (error) {
        return error;
    }
    if (!branches) {
        return tow_ptx_skip_statement(parser);
    }
    uint32_t capacity = 0;
    do {
        tow_ptx_advance(parser);
        if (parser->token.kind != TOK_WORD) {
            return tow_ptx_unexpected(parser, "a label");
        }
        if (symbol->count == capacity) {
            /* Slots are noted by address, so the list is counted before it is stored. */
            struct tow_ptx_lexer ahead = parser->lexer;
            struct tow_ptx_token token = parser->token;
            capacity = 1;
            while (token.kind != TOK_END && !(token.kind == TOK_PUNCT && token.punct == ';')) {
                capacity += token.kind == TOK_PUNCT && token.punct == ',';
                tow_ptx_lexer_next(&ahead, &token);
            }
            if (capacity > PTX_INSNS_MAX ||
                !(symbol->labels = tow_ptx_arena_alloc(&parser->program->arena,
                                                       capacity * sizeof *symbol->labels))) {
                return tow_ptx_no_memory(parser);
            }
        }
        struct tow_ptx_pending entry = {.slot = &symbol->labels[symbol->count++],
                                        .name = parser->token.text,
                                        .length = parser->token.length,
                                        .line = parser->token.line,
                                        .depth = parser->depth};
        if ((error = tow_ptx_want_label(parser, &entry))) {
            return error;
        }
        tow_ptx_advance(parser);
    } while (tow_ptx_is_punct(parser, ',') && symbol->count < capacity);
    return tow_ptx_expect(parser, ';');
}

static int parse_label(struct tow_ptx_parser *parser, const char *name, uint32_t length)
{
    if (tow_ptx_is_text(parser, ".branchtargets") || tow_ptx_is_text(parser, ".callprototype") ||
        tow_ptx_is_text(parser, ".calltargets")) {
        return parse_labelled_directive(parser, name, length);
    }
    struct tow_ptx_symbol *symbol;
    int error = tow_ptx_define(parser, name, length, SYM_LABEL, &symbol);
    if (error == 0) {
        symbol->index = parser->func->insn_count;
    }
    return error;
}

/* ---- lines that only debuggers read ----
 *
 * Of these .file and .loc, so that a fault can name the source. What is wrong with them is no
 * reason to refuse a text. */

/* .file 1 "a.cu"[, time, size] */
static int parse_file(struct tow_ptx_parser *parser, const struct tow_ptx_token *number,
                      const struct tow_ptx_token *name)
{
    struct tow_ptx_source *source = parser->program->source;
    struct tow_ptx_file *file = tow_ptx_arena_alloc(parser->program->keep, sizeof *file);
    if (!file ||
        !(file->name = tow_ptx_copy_name(parser->program->keep, name->text, name->length))) {
        return tow_ptx_no_memory(parser);
    }
    file->number = (uint32_t)number->bits;
    file->next = source->files;
    source->files = file;
    return 0;
}

/* .loc 1 12 5[, function_name ...] */
static int parse_loc(struct tow_ptx_parser *parser, const struct tow_ptx_token *file,
                     const struct tow_ptx_token *line)
{
    struct tow_ptx_func *func = parser->func;
    if (func->loc_count == func->loc_capacity) {
        uint32_t capacity = func->loc_capacity ? func->loc_capacity * 2 : LOCS_FIRST;
        struct tow_ptx_loc *more =
            capacity > PTX_INSNS_MAX ? NULL : realloc(func->locs, capacity * sizeof *more);
        if (!more) {
            return tow_ptx_no_memory(parser);
        }
        func->locs = more;
        func->loc_capacity = capacity;
    }
    func->locs[func->loc_count++] = (struct tow_ptx_loc){
        .ptx_line = parser->token.line, .file = (uint32_t)file->bits, .line = (uint32_t)line->bits};
    return 0;
}

int tow_ptx_keep_locs(struct tow_ptx_parser *parser)
{
    struct tow_ptx_func *func = parser->func;
    if (!func->loc_count) {
        return 0;
    }
    size_t bytes = func->loc_count * sizeof *func->locs;
    struct tow_ptx_loc *kept = tow_ptx_arena_alloc(parser->program->keep, bytes);
    if (!kept) {
        return tow_ptx_no_memory(parser);
    }
    memcpy(kept, func->locs, bytes);
    free(func->locs);
    func->locs = kept;
    func->loc_capacity = 0;
    return 0;
}

bool tow_ptx_is_debugging(const struct tow_ptx_parser *parser)
{
    return tow_ptx_is_text(parser, ".loc") || tow_ptx_is_text(parser, ".file") ||
           (tow_ptx_is_punct(parser, '@') && parser->lexer.at < parser->lexer.end &&
            *parser->lexer.at == '@');
}

int tow_ptx_parse_debugging(struct tow_ptx_parser *parser)
{
    bool loc = tow_ptx_is_text(parser, ".loc"), file = tow_ptx_is_text(parser, ".file");
    struct tow_ptx_lexer ahead = parser->lexer;
    struct tow_ptx_token first = {0}, second = {0};
    int error = 0;
    if (loc || file) {
        tow_ptx_lexer_next(&ahead, &first);
        tow_ptx_lexer_next(&ahead, &second);
    }
    if (file && first.kind == TOK_INT && second.kind == TOK_STRING) {
        error = parse_file(parser, &first, &second);
    } else if (loc && parser->func && first.kind == TOK_INT && second.kind == TOK_INT) {
        error = parse_loc(parser, &first, &second);
    }
    tow_ptx_lexer_skip_line(&parser->lexer);
    tow_ptx_advance(parser);
    return error;
}

int tow_ptx_parse_body(struct tow_ptx_parser *parser)
{
    static const struct tow_ptx_linkage none = {0};
    uint64_t saved_local[PTX_SCOPE_MAX];
    unsigned base = parser->depth;
    int error = 0;
    tow_ptx_advance(parser); /* { */
    while (error == 0) {
        if (parser->token.kind == TOK_END) {
            return tow_ptx_unexpected(parser, "'}'");
        }
        if (tow_ptx_accept(parser, '}')) {
            if (parser->depth == base) {
                return 0;
            }
            parser->local_used = saved_local[parser->depth];
            error = tow_ptx_scope_close(parser);
        } else if (tow_ptx_accept(parser, '{')) {
            error = tow_ptx_scope_open(parser);
            if (error == 0) {
                saved_local[parser->depth] = parser->local_used;
            }
        } else if (tow_ptx_is_text(parser, ".reg")) {
            error = tow_ptx_parse_registers(parser);
        } else if (parser->token.kind != TOK_WORD && tow_ptx_is_debugging(parser)) {
            error = tow_ptx_parse_debugging(parser);
        } else if (tow_ptx_is_text(parser, ".pragma")) {
            error = tow_ptx_skip_statement(parser);
        } else if (tow_ptx_is_text(parser, ".callprototype") ||
                   tow_ptx_is_text(parser, ".calltargets")) {
            error = tow_ptx_skip_statement(parser);
        } else if (parser->token.kind == TOK_DOT) {
            error = tow_ptx_parse_variable(parser, &none);
        } else if (tow_ptx_accept(parser, ';')) {
            continue;
        } else if (parser->token.kind == TOK_WORD) {
            /* A label is a word followed by ':'; look one token ahead without consuming. */
            struct tow_ptx_lexer ahead = parser->lexer;
            struct tow_ptx_token word = parser->token, next;
            tow_ptx_lexer_next(&ahead, &next);
            if (next.kind == TOK_PUNCT && next.punct == ':') {
                parser->lexer = ahead;
                tow_ptx_advance(parser);
                error = parse_label(parser, word.text, word.length);
            } else {
                error = parse_instruction(parser);
            }
        } else if (tow_ptx_is_punct(parser, '@')) {
            error = parse_instruction(parser);
        } else {
            error = tow_ptx_unexpected(parser, "a statement");
        }
    }
    return error;
}
