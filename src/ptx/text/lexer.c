/* SPDX-License-Identifier: Apache-2.0 */
/* Splits PTX text into tokens. */
#include "ptx/text/lexer.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

#define NUMBER_MAX 64

static bool is_word_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_word_start(c) || is_digit(c);
}

void tow_ptx_lexer_init(struct tow_ptx_lexer *lexer, const char *text, size_t length)
{
    lexer->at = text;
    /* Texts out of images often carry their terminating NUL. */
    const char *nul = memchr(text, 0, length);
    lexer->end = nul ? nul : text + length;
    lexer->line = 1;
}

void tow_ptx_lexer_skip_line(struct tow_ptx_lexer *lexer)
{
    while (lexer->at < lexer->end && *lexer->at != '\n') {
        lexer->at++;
    }
}

static void skip_blank(struct tow_ptx_lexer *lexer)
{
    const char *at = lexer->at, *end = lexer->end;
    while (at < end) {
        if (*at == '\n') {
            lexer->line++;
            at++;
        } else if (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\f' || *at == '\v') {
            at++;
        } else if (*at == '/' && end - at >= 2 && at[1] == '/') {
            while (at < end && *at != '\n') {
                at++;
            }
        } else if (*at == '/' && end - at >= 2 && at[1] == '*') {
            at += 2;
            while (at < end && !(*at == '*' && end - at >= 2 && at[1] == '/')) {
                lexer->line += *at == '\n';
                at++;
            }
            at = end - at >= 2 ? at + 2 : end;
        } else {
            break;
        }
    }
    lexer->at = at;
}

/* Up to 64 bits in the given base; false on overflow or when there is no digit. */
static bool read_integer(const char *at, const char *end, unsigned base, uint64_t *ret_value)
{
    uint64_t value = 0;
    if (at == end) {
        return false;
    }
    for (; at < end; at++) {
        int digit = tow_hex_digit(*at);
        if (digit < 0 || (unsigned)digit >= base || value > (UINT64_MAX - (unsigned)digit) / base) {
            return false;
        }
        value = value * base + (unsigned)digit;
    }
    *ret_value = value;
    return true;
}

static bool read_decimal_float(const char *at, size_t length, uint64_t *ret_bits)
{
    char copy[NUMBER_MAX + 1], *stop;
    if (length > NUMBER_MAX) {
        return false;
    }
    memcpy(copy, at, length);
    copy[length] = 0;
    double value = strtod(copy, &stop);
    memcpy(ret_bits, &value, sizeof value);
    return *stop == 0;
}

static void read_number(struct tow_ptx_lexer *lexer, struct tow_ptx_token *token)
{
    const char *start = lexer->at, *at = start, *end = lexer->end;
    token->kind = TOK_INT;
    char second = end - at >= 2 ? at[1] : 0;
    bool ok;
    if (*at == '0' && (second == 'f' || second == 'F' || second == 'd' || second == 'D')) {
        const char *digits = at += 2;
        while (at < end && tow_hex_digit(*at) >= 0) {
            at++;
        }
        bool is_double = second == 'd' || second == 'D';
        token->kind = is_double ? TOK_FLOAT : TOK_FLOAT32;
        ok = at - digits == (is_double ? 16 : 8) && read_integer(digits, at, 16, &token->bits);
    } else if (*at == '0' && (second == 'x' || second == 'X')) {
        const char *digits = at += 2;
        while (at < end && tow_hex_digit(*at) >= 0) {
            at++;
        }
        ok = read_integer(digits, at, 16, &token->bits);
    } else if (*at == '0' && (second == 'b' || second == 'B')) {
        const char *digits = at += 2;
        while (at < end && is_digit(*at)) {
            at++;
        }
        ok = read_integer(digits, at, 2, &token->bits);
    } else {
        while (at < end && is_digit(*at)) {
            at++;
        }
        bool fraction = end - at >= 2 && *at == '.' && is_digit(at[1]);
        bool bare_dot = !fraction && at < end && *at == '.' && !(end - at >= 2 && is_word(at[1]));
        const char *digits_end = at;
        if (fraction || bare_dot) {
            at++;
            while (at < end && is_digit(*at)) {
                at++;
            }
        }
        if (at < end && (*at == 'e' || *at == 'E')) {
            const char *exponent = at + 1;
            if (exponent < end && (*exponent == '+' || *exponent == '-')) {
                exponent++;
            }
            if (exponent < end && is_digit(*exponent)) {
                fraction = true;
                at = exponent;
                while (at < end && is_digit(*at)) {
                    at++;
                }
            }
        }
        if (fraction || bare_dot) {
            token->kind = TOK_FLOAT;
            ok = read_decimal_float(start, (size_t)(at - start), &token->bits);
        } else if (digits_end - start > 1 && *start == '0') {
            ok = read_integer(start + 1, digits_end, 8, &token->bits);
        } else {
            ok = read_integer(start, digits_end, 10, &token->bits);
        }
    }
    token->text = start;
    token->length = (uint32_t)(at - start);
    if (ok && token->kind == TOK_INT && at < end && *at == 'U') {
        at++;
    }
    if (!ok || (at < end && is_word(*at))) {
        token->kind = TOK_BAD;
    }
    lexer->at = at;
}

void tow_ptx_lexer_next(struct tow_ptx_lexer *lexer, struct tow_ptx_token *ret_token)
{
    skip_blank(lexer);
    struct tow_ptx_token *token = ret_token;
    const char *at = lexer->at, *end = lexer->end;
    token->line = lexer->line;
    token->text = at;
    token->length = 0;
    token->punct = 0;
    token->bits = 0;
    if (at == end) {
        token->kind = TOK_END;
        return;
    }
    if (is_word_start(*at)) {
        do {
            at++;
        } while (at < end && is_word(*at));
        token->kind = TOK_WORD;
    } else if (*at == '.' && end - at >= 2 && is_word(at[1])) {
        at++;
        while (at < end &&
               (is_word(*at) || (*at == ':' && end - at >= 3 && at[1] == ':' && is_word(at[2])))) {
            at += *at == ':' ? 2 : 1;
        }
        token->kind = TOK_DOT;
    } else if (is_digit(*at)) {
        read_number(lexer, token);
        return;
    } else if (*at == '"') {
        at++;
        token->text = at;
        while (at < end && *at != '"' && *at != '\n') {
            at += *at == '\\' && end - at >= 2 && at[1] != '\n' ? 2 : 1;
        }
        if (at >= end || *at != '"') {
            token->kind = TOK_BAD;
            token->length = 1;
            lexer->at = at < end ? at : end;
            return;
        }
        token->kind = TOK_STRING;
        token->length = (uint32_t)(at - token->text);
        lexer->at = at + 1;
        return;
    } else {
        token->kind = TOK_PUNCT;
        token->punct = *at;
        at++;
    }
    token->length = (uint32_t)(at - token->text);
    lexer->at = at;
}
