/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON writer: places commas and escapes what needs it. */
#include "base/json_write.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void json_put(struct tow_json *json, const void *bytes, size_t n)
{
    if (json->error == 0) {
        json->error = tow_buf_append(json->out, bytes, n);
    }
}

static void put_text(struct tow_json *json, const char *text)
{
    json_put(json, text, strlen(text));
}

/* Bytes of the UTF-8 character at `at`, which is not ASCII; 0 if it is none. */
static size_t character_size(const unsigned char *at)
{
    size_t size = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    uint32_t code = at[0] & (0xff >> (size + 1));
    if (at[0] < 0xc2 || at[0] > 0xf4) {
        return 0;
    }
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80) { /* also the end of the text */
            return 0;
        }
        code = code << 6 | (at[i] & 0x3f);
    }
    bool surrogate = code >= 0xd800 && code < 0xe000;
    bool too_long = code < (size == 2 ? 0x80u : size == 3 ? 0x800u : 0x10000u);
    return surrogate || too_long || code > 0x10ffff ? 0 : size;
}

/* Texts come from anybody: what is not UTF-8 is replaced, since JSON must be. */
static void put_string(struct tow_json *json, const char *text)
{
    json_put(json, "\"", 1);
    for (const char *at = text; *at != '\0'; at++) {
        unsigned char c = (unsigned char)*at;
        char escape[8];
        if (c == '"' || c == '\\') {
            escape[0] = '\\';
            escape[1] = (char)c;
            json_put(json, escape, 2);
        } else if (c == '\n') {
            json_put(json, "\\n", 2);
        } else if (c == '\t') {
            json_put(json, "\\t", 2);
        } else if (c < 0x20 || c == 0x7f) {
            snprintf(escape, sizeof escape, "\\u%04x", c);
            json_put(json, escape, 6);
        } else if (c < 0x80) {
            json_put(json, at, 1);
        } else {
            size_t size = character_size((const unsigned char *)at);
            json_put(json, size > 0 ? at : "\xef\xbf\xbd", size > 0 ? size : 3);
            at += size > 0 ? size - 1 : 0;
        }
    }
    json_put(json, "\"", 1);
}

static void start_element(struct tow_json *json, const char *key)
{
    if (json->filled[json->depth]) {
        json_put(json, ",", 1);
    }
    json->filled[json->depth] = true;
    if (key != NULL) {
        put_string(json, key);
        json_put(json, ":", 1);
    }
}

static void open_level(struct tow_json *json, const char *key, char opener, char closer)
{
    start_element(json, key);
    assert(json->depth < TOW_JSON_DEPTH_MAX);
    json_put(json, &opener, 1);
    json->depth++;
    json->filled[json->depth] = false;
    json->closer[json->depth] = closer;
}

void tow_json_init(struct tow_json *json, struct tow_buf *out)
{
    memset(json, 0, sizeof *json);
    json->out = out;
}

void tow_json_object(struct tow_json *json, const char *key)
{
    open_level(json, key, '{', '}');
}

void tow_json_array(struct tow_json *json, const char *key)
{
    open_level(json, key, '[', ']');
}

void tow_json_end(struct tow_json *json)
{
    assert(json->depth > 0);
    json_put(json, &json->closer[json->depth], 1);
    json->depth--;
}

void tow_json_str(struct tow_json *json, const char *key, const char *text)
{
    start_element(json, key);
    if (text == NULL) {
        put_text(json, "null");
    } else {
        put_string(json, text);
    }
}

void tow_json_u64(struct tow_json *json, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    start_element(json, key);
    put_text(json, text);
}

void tow_json_i64(struct tow_json *json, const char *key, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    start_element(json, key);
    put_text(json, text);
}

void tow_json_f64(struct tow_json *json, const char *key, double value)
{
    char text[40];
    start_element(json, key);
    if (!isfinite(value)) {
        put_text(json, "null");
        return;
    }
    snprintf(text, sizeof text, "%.9g", value);
    /* The program may have set a locale whose decimal point is a comma. */
    for (char *at = text; *at != '\0'; at++) {
        if (strchr("0123456789+-eE.", *at) == NULL) {
            *at = '.';
        }
    }
    put_text(json, text);
}

void tow_json_bool(struct tow_json *json, const char *key, bool value)
{
    start_element(json, key);
    put_text(json, value ? "true" : "false");
}

void tow_json_raw(struct tow_json *json, const char *key, const char *text)
{
    start_element(json, key);
    put_text(json, text);
}

int tow_json_finish(struct tow_json *json)
{
    assert(json->depth == 0);
    return json->error;
}
