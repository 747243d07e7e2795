/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON reader: one pass over hostile text, bounded in depth and in values. */
#include "base/json_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

struct reader {
    const char *at, *end;
    struct tow_json_doc *doc;
    uint32_t capacity;
    size_t string_used;
    unsigned depth;
};

static int read_value(struct reader *r, const char *key);

static void skip_space(struct reader *r)
{
    while (r->at < r->end && strchr(" \t\r\n", *r->at) != NULL && *r->at != '\0') {
        r->at++;
    }
}

static bool json_read_take(struct reader *r, char c)
{
    skip_space(r);
    if (r->at < r->end && *r->at == c) {
        r->at++;
        return true;
    }
    return false;
}

static int add_value(struct reader *r, enum tow_json_type type, const char *key,
                     uint32_t *ret_index)
{
    struct tow_json_doc *doc = r->doc;
    if (doc->count == TOW_JSON_VALUES_MAX) {
        return -E2BIG;
    }
    if (doc->count == r->capacity) {
        uint32_t capacity = r->capacity == 0 ? 64 : 2 * r->capacity;
        struct tow_json_value *values = realloc(doc->values, capacity * sizeof *values);
        if (values == NULL) {
            return -ENOMEM;
        }
        doc->values = values;
        r->capacity = capacity;
    }
    *ret_index = doc->count++;
    doc->values[*ret_index] =
        (struct tow_json_value){.type = type, .key = key, .text = "", .end = doc->count};
    return 0;
}

static int read_hex4(struct reader *r, unsigned *ret_code)
{
    unsigned code = 0;
    if (r->end - r->at < 4) {
        return -EPROTO;
    }
    for (int i = 0; i < 4; i++) {
        int digit = tow_hex_digit(*r->at++);
        if (digit < 0) {
            return -EPROTO;
        }
        code = code * 16 + (unsigned)digit;
    }
    *ret_code = code;
    return 0;
}

/* The strings together are never longer than the text they come from. */
static int read_string(struct reader *r, const char **ret_text)
{
    if (!json_read_take(r, '"')) {
        return -EPROTO;
    }
    char *out = r->doc->strings + r->string_used;
    char *to = out;
    while (r->at < r->end && *r->at != '"') {
        unsigned char c = (unsigned char)*r->at++;
        if (c == '\\') {
            if (r->at == r->end) {
                return -EPROTO;
            }
            c = (unsigned char)*r->at++;
            unsigned code;
            if (c == 'u') {
                int error = read_hex4(r, &code);
                if (error < 0) {
                    return error;
                }
                c = code < 0x80 ? (unsigned char)code : '?';
            } else if (c == 'n' || c == 't' || c == 'r' || c == 'b' || c == 'f') {
                c = ' ';
            }
        }
        /* Nothing a server says may move the cursor of the user's terminal. */
        *to++ = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    if (r->at == r->end) {
        return -EPROTO;
    }
    r->at++;
    *to++ = '\0';
    r->string_used += (size_t)(to - out);
    *ret_text = out;
    return 0;
}

static int read_container(struct reader *r, uint32_t index, bool object)
{
    char closer = object ? '}' : ']';
    r->at++;
    if (++r->depth > TOW_JSON_NESTING_MAX) {
        return -E2BIG;
    }
    if (!json_read_take(r, closer)) {
        do {
            const char *key = NULL;
            int error = object ? read_string(r, &key) : 0;
            if (error == 0 && object && !json_read_take(r, ':')) {
                error = -EPROTO;
            }
            if (error == 0) {
                error = read_value(r, key);
            }
            if (error < 0) {
                return error;
            }
        } while (json_read_take(r, ','));
        if (!json_read_take(r, closer)) {
            return -EPROTO;
        }
    }
    r->depth--;
    r->doc->values[index].end = r->doc->count;
    return 0;
}

static int read_word(struct reader *r, uint32_t index)
{
    static const struct {
        const char *word;
        enum tow_json_type type;
        double number;
    } words[] = {
        {"null", TOW_JSON_NULL, 0}, {"true", TOW_JSON_BOOL, 1}, {"false", TOW_JSON_BOOL, 0}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i].word);
        if ((size_t)(r->end - r->at) >= length && memcmp(r->at, words[i].word, length) == 0) {
            r->at += length;
            r->doc->values[index].type = words[i].type;
            r->doc->values[index].number = words[i].number;
            return 0;
        }
    }
    char digits[64];
    size_t n = 0;
    while (r->at < r->end && n < sizeof digits - 1 && *r->at != '\0' &&
           strchr("+-0123456789.eE", *r->at) != NULL) {
        digits[n++] = *r->at++;
    }
    digits[n] = '\0';
    char *end;
    r->doc->values[index].number = strtod(digits, &end);
    return n == 0 || *end != '\0' ? -EPROTO : 0;
}

static int read_value(struct reader *r, const char *key)
{
    skip_space(r);
    if (r->at == r->end) {
        return -EPROTO;
    }
    uint32_t index;
    enum tow_json_type type = *r->at == '{'   ? TOW_JSON_OBJECT
                              : *r->at == '[' ? TOW_JSON_ARRAY
                              : *r->at == '"' ? TOW_JSON_STRING
                                              : TOW_JSON_NUMBER;
    int error = add_value(r, type, key, &index);
    if (error < 0) {
        return error;
    }
    if (type == TOW_JSON_STRING) {
        const char *text;
        error = read_string(r, &text);
        if (error == 0) {
            r->doc->values[index].text = text;
        }
        return error;
    }
    return type == TOW_JSON_NUMBER ? read_word(r, index)
                                   : read_container(r, index, type == TOW_JSON_OBJECT);
}

int tow_json_doc_parse(const char *text, size_t size, struct tow_json_doc *ret_doc)
{
    struct tow_json_doc doc = {.strings = malloc(size + 1)};
    if (doc.strings == NULL) {
        return -ENOMEM;
    }
    struct reader r = {.at = text, .end = text + size, .doc = &doc};
    int error = read_value(&r, NULL);
    skip_space(&r);
    if (error == 0 && r.at != r.end) {
        error = -EPROTO;
    }
    if (error < 0) {
        tow_json_doc_fini(&doc);
        return error;
    }
    *ret_doc = doc;
    return 0;
}

void tow_json_doc_fini(struct tow_json_doc *doc)
{
    free(doc->values);
    free(doc->strings);
    memset(doc, 0, sizeof *doc);
}

const struct tow_json_value *tow_json_next(const struct tow_json_doc *doc,
                                           const struct tow_json_value *container,
                                           const struct tow_json_value *previous)
{
    if (container == NULL ||
        (container->type != TOW_JSON_ARRAY && container->type != TOW_JSON_OBJECT)) {
        return NULL;
    }
    uint32_t index = previous == NULL ? (uint32_t)(container - doc->values) + 1 : previous->end;
    return index < container->end ? &doc->values[index] : NULL;
}

const struct tow_json_value *tow_json_member(const struct tow_json_doc *doc,
                                             const struct tow_json_value *object, const char *key)
{
    if (object == NULL || object->type != TOW_JSON_OBJECT) {
        return NULL;
    }
    const struct tow_json_value *value = NULL;
    while ((value = tow_json_next(doc, object, value)) != NULL) {
        if (strcmp(value->key, key) == 0) {
            return value;
        }
    }
    return NULL;
}

int64_t tow_json_whole(const struct tow_json_value *value)
{
    const double end = 9223372036854775808.0; /* the first that is too large */
    double number = value == NULL ? 0 : value->number;
    return number >= end ? INT64_MAX : number < -end ? INT64_MIN : (int64_t)number;
}

double tow_json_number(const struct tow_json_doc *doc, const struct tow_json_value *object,
                       const char *key)
{
    const struct tow_json_value *value = tow_json_member(doc, object, key);
    return value == NULL ? 0 : value->number;
}

const char *tow_json_text(const struct tow_json_doc *doc, const struct tow_json_value *object,
                          const char *key)
{
    const struct tow_json_value *value = tow_json_member(doc, object, key);
    return value == NULL ? "" : value->text;
}
