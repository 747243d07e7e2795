/* SPDX-License-Identifier: Apache-2.0 */
/* Type names, the arena, definitions of symbols, the failure sentence: small things that parser and
 * decoder share. */
#include "ptx/text/ir.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESOLVE_MAX 64u

static const struct {
    char name[12];
    uint8_t bytes;
} types[PT_COUNT] = {
    [PT_NONE] = {"", 0},
    [PT_B8] = {".b8", 1},
    [PT_B16] = {".b16", 2},
    [PT_B32] = {".b32", 4},
    [PT_B64] = {".b64", 8},
    [PT_B128] = {".b128", 16},
    [PT_U8] = {".u8", 1},
    [PT_U16] = {".u16", 2},
    [PT_U32] = {".u32", 4},
    [PT_U64] = {".u64", 8},
    [PT_S8] = {".s8", 1},
    [PT_S16] = {".s16", 2},
    [PT_S32] = {".s32", 4},
    [PT_S64] = {".s64", 8},
    [PT_U16X2] = {".u16x2", 4},
    [PT_S16X2] = {".s16x2", 4},
    [PT_F16] = {".f16", 2},
    [PT_F16X2] = {".f16x2", 4},
    [PT_BF16] = {".bf16", 2},
    [PT_BF16X2] = {".bf16x2", 4},
    [PT_TF32] = {".tf32", 4},
    [PT_F32] = {".f32", 4},
    [PT_F32X2] = {".f32x2", 8},
    [PT_F64] = {".f64", 8},
    [PT_PRED] = {".pred", 0},
    [PT_TEXREF] = {".texref", 8},
    [PT_SAMPLERREF] = {".samplerref", 8},
    [PT_SURFREF] = {".surfref", 8},
};

enum tow_ptx_type tow_ptx_type_parse(const char *text, size_t length)
{
    for (unsigned i = 1; i < PT_COUNT; i++) {
        if (strlen(types[i].name) == length && memcmp(types[i].name, text, length) == 0) {
            return (enum tow_ptx_type)i;
        }
    }
    return PT_NONE;
}

unsigned tow_ptx_type_bytes(enum tow_ptx_type type)
{
    return types[type].bytes;
}

struct tow_ptx_chunk {
    struct tow_ptx_chunk *next;
    max_align_t data[];
};

#define CHUNK_BYTES (256u << 10)

void *tow_ptx_arena_alloc(struct tow_ptx_arena *arena, size_t bytes)
{
    if (bytes > PTX_ARENA_MAX) {
        return NULL;
    }
    bytes = (bytes + 15) & ~(size_t)15;
    if (!arena->chunks || arena->size - arena->used < bytes) {
        size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        if (arena->total + size > PTX_ARENA_MAX) {
            return NULL;
        }
        struct tow_ptx_chunk *chunk = calloc(1, sizeof *chunk + size);
        if (!chunk) {
            return NULL;
        }
        chunk->next = arena->chunks;
        arena->chunks = chunk;
        arena->used = 0;
        arena->size = size;
        arena->total += size;
    }
    void *at = (char *)arena->chunks->data + arena->used;
    arena->used += bytes;
    return at;
}

void tow_ptx_arena_fini(struct tow_ptx_arena *arena)
{
    while (arena->chunks) {
        struct tow_ptx_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        free(chunk);
    }
    memset(arena, 0, sizeof *arena);
}

int tow_ptx_fail(struct tow_ptx_diag *diag, int error, unsigned line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    diag->line = line;
    vsnprintf(diag->message, sizeof diag->message, format, args);
    va_end(args);
    return error;
}

struct tow_ptx_symbol *tow_ptx_resolve(struct tow_ptx_symbol *symbol)
{
    for (unsigned i = 0; symbol && symbol->resolved && i < RESOLVE_MAX; i++) {
        symbol = symbol->resolved;
    }
    return symbol;
}
