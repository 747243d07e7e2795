/* SPDX-License-Identifier: Apache-2.0 */
/* PTX text to tokens. The text is borrowed; tokens point into it. */
#ifndef TOW_PTX_LEXER_H
#define TOW_PTX_LEXER_H

#include <stddef.h>
#include <stdint.h>

enum tow_ptx_token_kind {
    TOK_END,
    TOK_WORD,    /* add, %r1, $L__BB0_1 */
    TOK_DOT,     /* .global, .shared::cta, .x (text includes the dot) */
    TOK_INT,     /* value in bits */
    TOK_FLOAT,   /* value in bits, as a double; decimal or 0d... */
    TOK_FLOAT32, /* 0f...: value in bits, as 32 bits */
    TOK_STRING,  /* text without the quotes */
    TOK_PUNCT,   /* one character, in `punct` */
    TOK_BAD,
};

struct tow_ptx_token {
    enum tow_ptx_token_kind kind;
    char punct;
    unsigned line;
    const char *text; /* borrowed from the source */
    uint32_t length;
    uint64_t bits;
};

struct tow_ptx_lexer {
    const char *at, *end; /* borrowed from the source */
    unsigned line;
};

void tow_ptx_lexer_init(struct tow_ptx_lexer *lexer, const char *text, size_t length);
/* Never fails: what is no token comes back as TOK_BAD, the end as TOK_END (again and again). */
void tow_ptx_lexer_next(struct tow_ptx_lexer *lexer, struct tow_ptx_token *ret_token);
/* Skips to the first character after the current line. */
void tow_ptx_lexer_skip_line(struct tow_ptx_lexer *lexer);

#endif
