/* SPDX-License-Identifier: Apache-2.0 */
/* Names: blocks nest, labels may be used before they are known, "%r<10>" declares ten registers. */
#include "ptx/text/parser.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t hash_name(const char *name, uint32_t length)
{
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < length; i++) {
        hash = (hash ^ (uint8_t)name[i]) * 16777619u;
    }
    return hash ^ hash >> 16;
}

struct tow_ptx_symbol *tow_ptx_find(struct tow_ptx_parser *parser, const char *name,
                                    uint32_t length)
{
    uint32_t hash = hash_name(name, length);
    struct tow_ptx_symbol *symbol = parser->buckets[hash % PTX_BUCKETS];
    while (symbol && !(symbol->hash == hash && symbol->length == length &&
                       memcmp(symbol->name, name, length) == 0)) {
        symbol = symbol->chain;
    }
    return symbol;
}

int tow_ptx_define(struct tow_ptx_parser *parser, const char *name, uint32_t length,
                   enum tow_ptx_symbol_kind kind, struct tow_ptx_symbol **ret_symbol)
{
    struct tow_ptx_symbol *old = tow_ptx_find(parser, name, length);
    if (old && old->depth == parser->depth) {
        return tow_ptx_fail(parser->diag, -EINVAL, parser->token.line,
                            "'%.*s' is declared twice (first on line %u)", (int)length, name,
                            old->line);
    }
    struct tow_ptx_symbol *symbol = tow_ptx_arena_alloc(&parser->program->arena, sizeof *symbol);
    if (!symbol) {
        return tow_ptx_no_memory(parser);
    }
    symbol->name = name;
    symbol->length = length;
    symbol->hash = hash_name(name, length);
    symbol->kind = kind;
    symbol->line = parser->token.line;
    symbol->depth = parser->depth;
    symbol->chain = parser->buckets[symbol->hash % PTX_BUCKETS];
    parser->buckets[symbol->hash % PTX_BUCKETS] = symbol;
    symbol->scope_next = parser->scopes[parser->depth];
    parser->scopes[parser->depth] = symbol;
    *ret_symbol = symbol;
    return 0;
}

bool tow_ptx_find_register(struct tow_ptx_parser *parser, const char *name, uint32_t length,
                           uint32_t *ret_register)
{
    struct tow_ptx_symbol *symbol = tow_ptx_find(parser, name, length);
    if (symbol && symbol->kind == SYM_REG) {
        *ret_register = symbol->index;
        return true;
    }
    if (symbol) {
        return false;
    }
    uint32_t prefix = length, number = 0;
    while (prefix > 0 && name[prefix - 1] >= '0' && name[prefix - 1] <= '9') {
        prefix--;
    }
    /* The prefix itself may end in digits ("%v1<4>"), so longer prefixes are tried too. */
    for (; prefix < length; prefix++) {
        symbol = tow_ptx_find(parser, name, prefix);
        if (!symbol || symbol->kind != SYM_REGS || (name[prefix] == '0' && length - prefix > 1) ||
            length - prefix > 7) {
            continue;
        }
        number = 0;
        for (uint32_t i = prefix; i < length; i++) {
            number = number * 10 + (uint32_t)(name[i] - '0');
        }
        if (number < symbol->count) {
            *ret_register = symbol->index + number;
            return true;
        }
    }
    return false;
}

int tow_ptx_add_registers(struct tow_ptx_parser *parser, enum tow_ptx_type type, unsigned lanes,
                          uint32_t count, uint32_t *ret_first)
{
    struct tow_ptx_func *func = parser->func;
    uint64_t want = (uint64_t)func->reg_count + (uint64_t)count * lanes;
    parser->program->reg_total += (uint64_t)count * lanes;
    if (want > PTX_REGS_MAX || parser->program->reg_total > PTX_REGS_TOTAL_MAX) {
        return tow_ptx_fail(parser->diag, -EINVAL, parser->token.line,
                            "too many registers are declared in function '%s'", func->name);
    }
    if (want > func->reg_capacity) {
        uint32_t capacity = (uint32_t)want + (uint32_t)want / 4 + 16;
        struct tow_ptx_reg *regs = realloc(func->regs, capacity * sizeof *regs);
        if (!regs) {
            return tow_ptx_no_memory(parser);
        }
        func->regs = regs;
        func->reg_capacity = capacity;
    }
    *ret_first = func->reg_count;
    for (uint32_t i = func->reg_count; i < want; i++) {
        func->regs[i] = (struct tow_ptx_reg){
            .type = (uint8_t)type, .lanes = (uint8_t)lanes, .slot = PTX_NO_SLOT};
    }
    func->reg_count = (uint32_t)want;
    return 0;
}

int tow_ptx_scope_open(struct tow_ptx_parser *parser)
{
    if (parser->depth + 1 >= PTX_SCOPE_MAX) {
        return tow_ptx_fail(parser->diag, -EINVAL, parser->token.line,
                            "blocks are nested deeper than %u", PTX_SCOPE_MAX);
    }
    parser->scopes[++parser->depth] = NULL;
    return 0;
}

int tow_ptx_want_label(struct tow_ptx_parser *parser, const struct tow_ptx_pending *entry)
{
    if (parser->pending_count == parser->pending_capacity) {
        uint32_t capacity = parser->pending_capacity * 2 + 64;
        struct tow_ptx_pending *more = realloc(parser->pending, capacity * sizeof *more);
        if (!more) {
            return tow_ptx_no_memory(parser);
        }
        parser->pending = more;
        parser->pending_capacity = capacity;
    }
    parser->pending[parser->pending_count++] = *entry;
    return 0;
}

int tow_ptx_scope_close(struct tow_ptx_parser *parser)
{
    uint32_t kept = parser->pending_count;
    while (kept > 0 && parser->pending[kept - 1].depth >= parser->depth) {
        kept--;
    }
    for (uint32_t i = kept; i < parser->pending_count; i++) {
        struct tow_ptx_pending *entry = &parser->pending[i];
        struct tow_ptx_symbol *symbol = tow_ptx_find(parser, entry->name, entry->length);
        bool here = symbol && (symbol->kind == SYM_LABEL || symbol->kind == SYM_TARGETS ||
                               symbol->kind == SYM_PROTO);
        if (here && entry->operand) {
            entry->operand->symbol = symbol;
        } else if (here) {
            *entry->slot = symbol;
        } else if (parser->depth > 1) {
            entry->depth = parser->depth - 1;
            parser->pending[kept++] = *entry;
        } else {
            return tow_ptx_fail(parser->diag, -EINVAL, entry->line, "'%.*s' is not declared",
                                (int)(entry->length < 200 ? entry->length : 200), entry->name);
        }
    }
    parser->pending_count = kept;
    for (struct tow_ptx_symbol *symbol = parser->scopes[parser->depth]; symbol;
         symbol = symbol->scope_next) {
        /* Usually the head; a function's own name may have been put in front of its formals. */
        struct tow_ptx_symbol **link = &parser->buckets[symbol->hash % PTX_BUCKETS];
        while (*link != symbol) {
            link = &(*link)->chain;
        }
        *link = symbol->chain;
    }
    parser->scopes[parser->depth] = NULL;
    parser->depth--;
    return 0;
}
