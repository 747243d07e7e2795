/* SPDX-License-Identifier: Apache-2.0 */
/* Module level: directives, functions, linking of several texts. */
#include "ptx/text/parser.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void tow_ptx_advance(struct tow_ptx_parser *parser)
{
    tow_ptx_lexer_next(&parser->lexer, &parser->token);
}

bool tow_ptx_is_punct(const struct tow_ptx_parser *parser, char punct)
{
    return parser->token.kind == TOK_PUNCT && parser->token.punct == punct;
}

bool tow_ptx_is_text(const struct tow_ptx_parser *parser, const char *text)
{
    return (parser->token.kind == TOK_DOT || parser->token.kind == TOK_WORD) &&
           strlen(text) == parser->token.length &&
           memcmp(text, parser->token.text, parser->token.length) == 0;
}

bool tow_ptx_accept(struct tow_ptx_parser *parser, char punct)
{
    if (!tow_ptx_is_punct(parser, punct)) {
        return false;
    }
    tow_ptx_advance(parser);
    return true;
}

int tow_ptx_unexpected(struct tow_ptx_parser *parser, const char *wanted)
{
    const struct tow_ptx_token *token = &parser->token;
    if (token->kind == TOK_END) {
        return tow_ptx_fail(parser->diag, -EINVAL, token->line,
                            "the text ends where %s is expected", wanted);
    }
    return tow_ptx_fail(parser->diag, -EINVAL, token->line, "expected %s before '%.*s'", wanted,
                        (int)(token->length < 100 ? token->length : 100), token->text);
}

int tow_ptx_expect(struct tow_ptx_parser *parser, char punct)
{
    if (tow_ptx_accept(parser, punct)) {
        return 0;
    }
    char wanted[4] = {'\'', punct, '\'', 0};
    return tow_ptx_unexpected(parser, wanted);
}

int tow_ptx_no_memory(struct tow_ptx_parser *parser)
{
    return tow_ptx_fail(parser->diag, -ENOMEM, parser->token.line,
                        "out of memory while reading the program");
}

const char *tow_ptx_copy_name(struct tow_ptx_arena *arena, const char *text, uint32_t length)
{
    char *copy = tow_ptx_arena_alloc(arena, (size_t)length + 1);
    if (copy) {
        memcpy(copy, text, length);
    }
    return copy;
}

int tow_ptx_skip_statement(struct tow_ptx_parser *parser)
{
    while (!tow_ptx_is_punct(parser, ';')) {
        if (parser->token.kind == TOK_END) {
            return tow_ptx_unexpected(parser, "';'");
        }
        tow_ptx_advance(parser);
    }
    tow_ptx_advance(parser);
    return 0;
}

/* .section .debug_info { ... } */
static int skip_section(struct tow_ptx_parser *parser)
{
    while (!tow_ptx_is_punct(parser, '{')) {
        if (parser->token.kind == TOK_END) {
            return tow_ptx_unexpected(parser, "'{'");
        }
        tow_ptx_advance(parser);
    }
    while (!tow_ptx_is_punct(parser, '}')) {
        if (parser->token.kind == TOK_END) {
            return tow_ptx_unexpected(parser, "'}'");
        }
        tow_ptx_advance(parser);
    }
    tow_ptx_advance(parser);
    return 0;
}

static int parse_up_to_three(struct tow_ptx_parser *parser, uint32_t *values)
{
    unsigned count = 0;
    values[0] = values[1] = values[2] = 1;
    do {
        int64_t value;
        int error = tow_ptx_parse_constant(parser, &value);
        if (error) {
            return error;
        }
        if (count == 3 || value < 0 || value > INT32_MAX) {
            return tow_ptx_unexpected(parser, "a smaller number");
        }
        values[count++] = (uint32_t)value;
    } while (tow_ptx_accept(parser, ','));
    return 0;
}

/* What stands between a function's parameters and its body. */
static int parse_performance(struct tow_ptx_parser *parser, struct tow_ptx_func *func)
{
    int error = 0;
    while (error == 0 && parser->token.kind == TOK_DOT) {
        uint32_t three[3];
        int64_t value;
        if (tow_ptx_is_text(parser, ".maxntid") || tow_ptx_is_text(parser, ".reqntid")) {
            bool required = tow_ptx_is_text(parser, ".reqntid");
            tow_ptx_advance(parser);
            if ((error = parse_up_to_three(parser, three)) == 0) {
                uint64_t product = (uint64_t)three[0] * three[1];
                product = product > 1024 ? 1024 : product * three[2];
                func->max_threads = product > 1024 || product == 0 ? 1024 : (uint32_t)product;
                if (required) {
                    memcpy(func->reqntid, three, sizeof three);
                }
            }
        } else if (tow_ptx_is_text(parser, ".reqnctapercluster")) {
            tow_ptx_advance(parser);
            error = parse_up_to_three(parser, func->reqcluster);
        } else if (tow_ptx_is_text(parser, ".explicitcluster")) {
            func->explicit_cluster = true;
            tow_ptx_advance(parser);
        } else if (tow_ptx_is_text(parser, ".noreturn")) {
            func->noreturn = true;
            tow_ptx_advance(parser);
        } else if (tow_ptx_is_text(parser, ".minnctapersm") ||
                   tow_ptx_is_text(parser, ".maxnctapersm") ||
                   tow_ptx_is_text(parser, ".maxnreg") ||
                   tow_ptx_is_text(parser, ".maxclusterrank") ||
                   tow_ptx_is_text(parser, ".abi_preserve") ||
                   tow_ptx_is_text(parser, ".abi_preserve_control")) {
            bool minimum = tow_ptx_is_text(parser, ".minnctapersm");
            bool registers = tow_ptx_is_text(parser, ".maxnreg");
            tow_ptx_advance(parser);
            error = tow_ptx_parse_constant(parser, &value);
            if (error == 0 && minimum && value >= 0 && value < 4096) {
                func->min_ctas = (uint32_t)value;
            } else if (error == 0 && registers && value > 0 && value < 4096) {
                func->max_registers = (uint32_t)value;
            }
        } else if (tow_ptx_is_text(parser, ".blocksareclusters")) {
            tow_ptx_advance(parser);
        } else if (tow_ptx_is_text(parser, ".pragma")) {
            error = tow_ptx_skip_statement(parser);
        } else if (tow_ptx_is_text(parser, ".attribute")) {
            tow_ptx_advance(parser);
            unsigned open = 0;
            do {
                if (parser->token.kind == TOK_END) {
                    return tow_ptx_unexpected(parser, "')'");
                }
                open += tow_ptx_is_punct(parser, '(');
                open -= tow_ptx_is_punct(parser, ')');
                tow_ptx_advance(parser);
            } while (open > 0);
        } else {
            error = tow_ptx_unexpected(parser, "a function's body");
        }
    }
    return error;
}

static int add_function(struct tow_ptx_parser *parser, struct tow_ptx_func *func)
{
    struct tow_ptx_program *program = parser->program;
    if (program->func_count == program->func_capacity) {
        uint32_t capacity = program->func_capacity * 2 + 64;
        struct tow_ptx_func **more = realloc(program->funcs, capacity * sizeof *more);
        if (!more) {
            return tow_ptx_no_memory(parser);
        }
        program->funcs = more;
        program->func_capacity = capacity;
    }
    func->index = program->func_count;
    program->funcs[program->func_count++] = func;
    return 0;
}

/* A new function in its own open scope. */
static int function_begin(struct tow_ptx_parser *parser, const struct tow_ptx_linkage *linkage,
                          bool entry, struct tow_ptx_func **ret_func)
{
    struct tow_ptx_func *func = tow_ptx_arena_alloc(parser->program->keep, sizeof *func);
    if (!func) {
        return tow_ptx_no_memory(parser);
    }
    func->entry = entry;
    func->name = "?";
    func->text = parser->program->text;
    func->source = parser->program->source;
    func->max_threads = 1024;
    func->external = linkage->external;
    func->visible = linkage->visible || linkage->weak;
    func->weak = linkage->weak;
    int error = add_function(parser, func); /* so that it is freed whatever happens */
    if (error) {
        return error;
    }
    parser->func = func;
    parser->local_used = 0;
    *ret_func = func;
    return tow_ptx_scope_open(parser);
}

/* Its name, and the symbol that stands for all declarations of it. */
static int function_name(struct tow_ptx_parser *parser, struct tow_ptx_func *func,
                         struct tow_ptx_symbol **ret_symbol)
{
    if (parser->token.kind != TOK_WORD || parser->token.length > PTX_NAME_MAX) {
        return tow_ptx_unexpected(parser, "a function's name");
    }
    const char *name = parser->token.text;
    uint32_t length = parser->token.length;
    if (!(func->name = tow_ptx_copy_name(parser->program->keep, name, length))) {
        return tow_ptx_no_memory(parser);
    }
    func->line = parser->token.line;
    tow_ptx_advance(parser);

    struct tow_ptx_symbol *symbol = tow_ptx_find(parser, name, length);
    if (symbol && symbol->kind != SYM_FUNC) {
        return tow_ptx_fail(parser->diag, -EINVAL, func->line, "'%s' is declared twice",
                            func->name);
    }
    if (!symbol) {
        /* Functions belong to the module's scope, and a body may call itself. */
        unsigned depth = parser->depth;
        struct tow_ptx_symbol *saved = parser->scopes[depth];
        /* Symbols of the open scope shadow nothing global yet, so inserting below them is safe. */
        parser->depth = 0;
        int error = tow_ptx_define(parser, name, length, SYM_FUNC, &symbol);
        parser->depth = depth;
        parser->scopes[depth] = saved;
        if (error) {
            return error;
        }
        symbol->func = func;
    }
    *ret_symbol = symbol;
    return 0;
}

static int parse_function(struct tow_ptx_parser *parser, const struct tow_ptx_linkage *linkage)
{
    bool entry = tow_ptx_is_text(parser, ".entry");
    tow_ptx_advance(parser);
    struct tow_ptx_func *func = NULL;
    int error = function_begin(parser, linkage, entry, &func);
    while (error == 0 && tow_ptx_is_text(parser, ".attribute")) {
        error = parse_performance(parser, func);
    }
    if (error == 0 && !entry && tow_ptx_is_punct(parser, '(')) {
        error = tow_ptx_parse_formals(parser, false, &func->returns, &func->return_count);
    }
    struct tow_ptx_symbol *symbol = NULL;
    if (error || (error = function_name(parser, func, &symbol))) {
        return error;
    }
    if (tow_ptx_is_punct(parser, '(') &&
        (error = tow_ptx_parse_formals(parser, entry, &func->params, &func->param_count))) {
        return error;
    }
    if ((error = parse_performance(parser, func))) {
        return error;
    }
    if (tow_ptx_accept(parser, ';')) {
        if (symbol->func != func && !symbol->func->defined) {
            symbol->func->visible |= func->visible;
        }
        return tow_ptx_scope_close(parser);
    }
    if (symbol->func->defined) {
        return tow_ptx_fail(parser->diag, -EINVAL, func->line,
                            "function '%s' is defined twice (first on line %u)", func->name,
                            symbol->func->line);
    }
    func->visible |= symbol->func->visible && !symbol->func->external;
    symbol->func = func;
    func->defined = true;
    func->external = false;
    if (!tow_ptx_is_punct(parser, '{')) {
        return tow_ptx_unexpected(parser, "'{' or ';'");
    }
    if ((error = tow_ptx_parse_body(parser)) == 0 && (error = tow_ptx_keep_locs(parser)) == 0) {
        error = tow_ptx_scope_close(parser);
    }
    parser->func = NULL;
    return error;
}

/* .alias name, aliasee; */
static int parse_alias(struct tow_ptx_parser *parser)
{
    struct tow_ptx_symbol *symbols[2];
    tow_ptx_advance(parser);
    for (unsigned i = 0; i < 2; i++) {
        symbols[i] = parser->token.kind == TOK_WORD
                         ? tow_ptx_find(parser, parser->token.text, parser->token.length)
                         : NULL;
        if (!symbols[i] || symbols[i]->kind != SYM_FUNC) {
            return tow_ptx_unexpected(parser, "a declared function");
        }
        tow_ptx_advance(parser);
        int error = tow_ptx_expect(parser, i == 0 ? ',' : ';');
        if (error) {
            return error;
        }
    }
    if (symbols[0]->func->defined || symbols[0] == symbols[1]) {
        return tow_ptx_fail(parser->diag, -EINVAL, parser->token.line,
                            "an alias must not have a body");
    }
    symbols[0]->resolved = symbols[1];
    return 0;
}

static int parse_target(struct tow_ptx_parser *parser)
{
    tow_ptx_advance(parser);
    while (parser->token.kind == TOK_WORD) {
        if (parser->token.length > 3 && memcmp(parser->token.text, "sm_", 3) == 0) {
            unsigned number = 0;
            for (uint32_t i = 3; i < parser->token.length && i < 7; i++) {
                char c = parser->token.text[i];
                number = c >= '0' && c <= '9' ? number * 10 + (unsigned)(c - '0') : number;
            }
            if (number > parser->program->target) {
                parser->program->target = number;
            }
        }
        tow_ptx_advance(parser);
        if (!tow_ptx_accept(parser, ',')) {
            break;
        }
    }
    return 0;
}

static int parse_module(struct tow_ptx_parser *parser)
{
    int error = 0;
    bool versioned = false;
    struct tow_ptx_linkage linkage = {0};
    while (error == 0 && parser->token.kind != TOK_END) {
        bool keep_linkage = false;
        if (tow_ptx_is_text(parser, ".version")) {
            tow_ptx_advance(parser);
            if (parser->token.kind != TOK_FLOAT && parser->token.kind != TOK_INT) {
                return tow_ptx_unexpected(parser, "a version");
            }
            versioned = true;
            tow_ptx_advance(parser);
        } else if (!versioned) {
            error = tow_ptx_unexpected(parser, "'.version'");
        } else if (tow_ptx_is_text(parser, ".target")) {
            error = parse_target(parser);
        } else if (tow_ptx_is_text(parser, ".address_size")) {
            tow_ptx_advance(parser);
            if (parser->token.kind != TOK_INT || parser->token.bits != 64) {
                return tow_ptx_fail(parser->diag, -ENOTSUP, parser->token.line,
                                    "only .address_size 64 is supported; compile with -m64");
            }
            tow_ptx_advance(parser);
        } else if (tow_ptx_is_text(parser, ".extern")) {
            linkage.external = keep_linkage = true;
            tow_ptx_advance(parser);
        } else if (tow_ptx_is_text(parser, ".visible")) {
            linkage.visible = keep_linkage = true;
            tow_ptx_advance(parser);
        } else if (tow_ptx_is_text(parser, ".weak")) {
            linkage.weak = keep_linkage = true;
            tow_ptx_advance(parser);
        } else if (tow_ptx_is_text(parser, ".common")) {
            linkage.common = keep_linkage = true;
            tow_ptx_advance(parser);
        } else if (tow_ptx_is_text(parser, ".entry") || tow_ptx_is_text(parser, ".func")) {
            error = parse_function(parser, &linkage);
        } else if (tow_ptx_is_text(parser, ".global") || tow_ptx_is_text(parser, ".const") ||
                   tow_ptx_is_text(parser, ".shared") || tow_ptx_is_text(parser, ".tex") ||
                   tow_ptx_is_text(parser, ".shared::cta")) {
            parser->func = NULL;
            error = tow_ptx_parse_variable(parser, &linkage);
        } else if (tow_ptx_is_text(parser, ".alias")) {
            error = parse_alias(parser);
        } else if (tow_ptx_is_text(parser, ".section")) {
            error = skip_section(parser);
        } else if (tow_ptx_is_text(parser, ".pragma")) {
            error = tow_ptx_skip_statement(parser);
        } else if (tow_ptx_is_debugging(parser)) {
            error = tow_ptx_parse_debugging(parser);
        } else if (!tow_ptx_accept(parser, ';')) {
            error = tow_ptx_unexpected(parser, "a directive");
        }
        if (!keep_linkage) {
            memset(&linkage, 0, sizeof linkage);
        }
    }
    return error;
}

static bool is_linkable(const struct tow_ptx_symbol *symbol)
{
    if (symbol->kind == SYM_VAR) {
        return symbol->var->visible || symbol->var->external || symbol->var->common;
    }
    return symbol->kind == SYM_FUNC &&
           (symbol->func->visible || !symbol->func->defined || symbol->func->weak);
}

static bool is_definition(const struct tow_ptx_symbol *symbol)
{
    if (symbol->kind == SYM_VAR) {
        return !symbol->var->external;
    }
    return symbol->func->defined || symbol->resolved;
}

/* Makes this text's linkable names known to the program. */
static int parser_publish(struct tow_ptx_parser *parser)
{
    struct tow_ptx_program *program = parser->program;
    for (struct tow_ptx_symbol *symbol = parser->scopes[0], *next; symbol; symbol = next) {
        next = symbol->scope_next;
        if (!is_linkable(symbol)) {
            continue;
        }
        if (!is_definition(symbol)) {
            symbol->scope_next = program->undefined;
            program->undefined = symbol;
            continue;
        }
        struct tow_ptx_symbol **bucket = &program->globals[symbol->hash % PTX_BUCKETS], *old;
        for (old = *bucket; old; old = old->chain) {
            if (old->hash == symbol->hash && old->length == symbol->length &&
                memcmp(old->name, symbol->name, symbol->length) == 0) {
                break;
            }
        }
        if (!old) {
            symbol->chain = *bucket;
            *bucket = symbol;
            continue;
        }
        bool old_weak = old->kind == SYM_VAR ? old->var->weak || old->var->common : old->func->weak;
        bool new_weak =
            symbol->kind == SYM_VAR ? symbol->var->weak || symbol->var->common : symbol->func->weak;
        if (old->kind != symbol->kind || (!old_weak && !new_weak)) {
            return tow_ptx_fail(parser->diag, -EEXIST, symbol->line,
                                "'%.*s' is defined in two of the linked texts", (int)symbol->length,
                                symbol->name);
        }
        if (old_weak && !new_weak) { /* the strong definition wins */
            symbol->chain = *bucket;
            *bucket = symbol;
            old->resolved = symbol;
        } else {
            symbol->resolved = old;
        }
    }
    return 0;
}

struct tow_ptx_symbol *tow_ptx_defined(const struct tow_ptx_program *program,
                                       const struct tow_ptx_symbol *symbol)
{
    struct tow_ptx_symbol *found =
        program->globals ? program->globals[symbol->hash % PTX_BUCKETS] : NULL;
    while (found && !(found->hash == symbol->hash && found->length == symbol->length &&
                      memcmp(found->name, symbol->name, symbol->length) == 0)) {
        found = found->chain;
    }
    return found;
}

int tow_ptx_link(struct tow_ptx_program *program, struct tow_ptx_diag *diag)
{
    for (struct tow_ptx_symbol *symbol = program->undefined; symbol; symbol = symbol->scope_next) {
        struct tow_ptx_symbol *found = tow_ptx_defined(program, symbol);
        if (found && found->kind == symbol->kind) {
            symbol->resolved = found;
        } else if (symbol->kind == SYM_VAR && symbol->var->space != SP_SHARED) {
            return tow_ptx_fail(diag, -ENOENT, symbol->line,
                                "variable '%.*s' is declared .extern but no text defines it",
                                (int)symbol->length, symbol->name);
        } /* a function may be one that the machine itself provides: the decoder says */
    }
    return 0;
}

int tow_ptx_parse(struct tow_ptx_program *program, const struct tow_ptx_text *text,
                  struct tow_ptx_diag *diag)
{
    program->text = text->name;
    if (text->length > PTX_TEXT_MAX) {
        return tow_ptx_fail(diag, -EINVAL, 0, "the text is larger than 512 MiB");
    }
    struct tow_ptx_parser *parser = calloc(1, sizeof *parser);
    struct tow_ptx_symbol **buckets = calloc(PTX_BUCKETS, sizeof *buckets);
    if (!program->globals) {
        program->globals = calloc(PTX_BUCKETS, sizeof *program->globals);
    }
    program->source = tow_ptx_arena_alloc(program->keep, sizeof *program->source);
    int error = -ENOMEM;
    if (parser && buckets && program->globals && program->source) {
        parser->program = program;
        parser->diag = diag;
        parser->buckets = buckets;
        tow_ptx_lexer_init(&parser->lexer, text->text, text->length);
        tow_ptx_advance(parser);
        error = parse_module(parser);
        if (error == 0) {
            error = parser_publish(parser);
        }
        free(parser->pending);
    } else {
        tow_ptx_fail(diag, -ENOMEM, 0, "out of memory while reading the program");
    }
    free(buckets);
    free(parser);
    return error;
}

void tow_ptx_program_fini(struct tow_ptx_program *program)
{
    for (uint32_t i = 0; i < program->func_count; i++) {
        free(program->funcs[i]->regs);
        free(program->funcs[i]->insns);
        if (program->funcs[i]->loc_capacity) { /* reading ended inside the function */
            free(program->funcs[i]->locs);
            program->funcs[i]->locs = NULL;
            program->funcs[i]->loc_count = program->funcs[i]->loc_capacity = 0;
        }
        program->funcs[i]->regs = NULL;
        program->funcs[i]->insns = NULL;
    }
    free(program->funcs);
    free(program->vars);
    free(program->globals);
    tow_ptx_arena_fini(&program->arena);
    memset(program, 0, sizeof *program);
}
