/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that no text defines or that have an instruction that we do not run: who can reach
 * them.
 *
 * Programs are linked with more than they use: relocatable device code brings the whole device
 * runtime along, whose lowest functions only a driver has, and a file of kernels has some for newer
 * hardware. So a call of such a function is code
 * like any other, and a kernel says whether it can come there. A function can reach what it calls
 * and whose address it takes; what comes out of memory (tables of functions) is found out when it
 * is called. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/decode/decode.h"

/* Who names whom, by index. Kept by the function named, so that one walk from the undefined ones
 * marks all that can reach one. */
struct graph {
    uint32_t *first; /* owned, func_count + 1: where the names of each function begin in `from` */
    uint32_t *from;  /* owned: who names it; NULL while they are counted */
    uint32_t *next;  /* owned, func_count: how far `from` is filled; then the queue of the walk */
};

static void reach_visit(const struct tow_ptx_operand *operands, uint32_t count, uint32_t from,
                        struct graph *graph)
{
    for (uint32_t i = 0; i < count; i++) {
        struct tow_ptx_symbol *symbol =
            operands[i].kind == OPD_SYMBOL ? tow_ptx_resolve(operands[i].symbol) : NULL;
        if (symbol && symbol->kind == SYM_FUNC && graph->from) {
            graph->from[graph->next[symbol->func->index]++] = from;
        } else if (symbol && symbol->kind == SYM_FUNC) {
            graph->first[symbol->func->index + 1]++;
        }
        reach_visit(operands[i].children, operands[i].count, from, graph);
    }
}

static void visit_all(const struct tow_ptx_program *program, struct graph *graph)
{
    for (uint32_t i = 0; i < program->func_count; i++) {
        const struct tow_ptx_func *func = program->funcs[i];
        for (uint32_t k = 0; func->defined && k < func->insn_count; k++) {
            reach_visit(func->insns[k]->operands, func->insns[k]->operand_count, i, graph);
        }
    }
}

/* Marks from these functions upwards, the nearest first. */
static void reach_walk(struct tow_ptx_program *program, const struct graph *graph)
{
    uint32_t head = 0, tail = 0, *queue = graph->next;
    for (uint32_t i = 0; i < program->func_count; i++) {
        if (program->funcs[i]->wanted || program->funcs[i]->refused) {
            program->funcs[i]->lacks = program->funcs[i];
            queue[tail++] = i;
        }
    }
    while (head < tail) {
        const struct tow_ptx_func *to = program->funcs[queue[head++]];
        for (uint32_t e = graph->first[to->index]; e < graph->first[to->index + 1]; e++) {
            struct tow_ptx_func *from = program->funcs[graph->from[e]];
            if (!from->lacks) {
                from->lacks = to->lacks;
                queue[tail++] = from->index;
            }
        }
    }
}

static int find_out(struct tow_ptx_program *program, struct graph *graph)
{
    uint32_t count = program->func_count;
    graph->first = calloc((size_t)count + 1, sizeof *graph->first);
    graph->next = calloc((size_t)count + 1, sizeof *graph->next);
    if (!graph->first || !graph->next) {
        return -ENOMEM;
    }
    visit_all(program, graph);
    for (uint32_t i = 0; i < count; i++) {
        graph->first[i + 1] += graph->first[i];
    }
    memcpy(graph->next, graph->first, count * sizeof *graph->next);
    graph->from = calloc((size_t)graph->first[count] + 1, sizeof *graph->from);
    if (!graph->from) {
        return -ENOMEM;
    }
    visit_all(program, graph);
    reach_walk(program, graph);
    return 0;
}

void tow_ptx_want(struct tow_ptx_program *program, struct tow_ptx_func *func, unsigned line)
{
    if (!func->wanted) {
        func->wanted = true;
        func->line = line;
        program->wanted++;
    }
}

int tow_ptx_reach(struct tow_ptx_program *program, struct tow_ptx_module *module)
{
    struct graph graph = {0};
    if (!program->wanted && !program->refused) {
        return 0;
    }
    module->undefined =
        tow_ptx_arena_alloc(&module->arena, (program->wanted + 1) * sizeof *module->undefined);
    int error = module->undefined ? find_out(program, &graph) : -ENOMEM;
    for (uint32_t i = 0; i < program->func_count && error == 0; i++) {
        const struct tow_ptx_func *func = program->funcs[i];
        if (func->wanted) {
            module->undefined[module->undefined_count++] =
                (struct tow_ptx_undefined){.name = func->name, .line = func->line};
        }
    }
    free(graph.first);
    free(graph.from);
    free(graph.next);
    return error;
}
