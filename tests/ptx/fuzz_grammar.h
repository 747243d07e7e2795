/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels made by a grammar: instructions that load, with operands that are mostly sound and
 * sometimes hostile. */
#ifndef TESTS_PTX_FUZZ_GRAMMAR_H
#define TESTS_PTX_FUZZ_GRAMMAR_H

#include <stddef.h>
#include <stdint.h>

typedef uint32_t fuzz_next(uint32_t below);

/* Writes a module of one to three kernels (k0, k1 ...), each with parameters p0 to p3: two pieces
 * of memory, a texture, a number. Returns its length, below `size`. */
size_t fuzz_grammar(fuzz_next *next, char *text, size_t size);

#endif
