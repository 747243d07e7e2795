/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON into a buffer: commas, nesting and escapes are right by construction.
 *
 *     struct tow_json json;
 *     tow_json_init(&json, &buf);
 *     tow_json_object(&json, NULL);
 *     tow_json_u64(&json, "sessions", 3);
 *     tow_json_end(&json);
 *     error = tow_json_finish(&json);
 *
 * Every writer takes a key, NULL inside an array and at the top. The first failure sticks.
 */
#ifndef TOW_BASE_JSON_WRITE_H
#define TOW_BASE_JSON_WRITE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

#define TOW_JSON_DEPTH_MAX 32

struct tow_json {
    struct tow_buf *out; /* borrowed */
    int error;
    unsigned depth;
    bool filled[TOW_JSON_DEPTH_MAX + 1]; /* this level already has an element */
    char closer[TOW_JSON_DEPTH_MAX + 1];
};

void tow_json_init(struct tow_json *json, struct tow_buf *out);
void tow_json_object(struct tow_json *json, const char *key);
void tow_json_array(struct tow_json *json, const char *key);
void tow_json_end(struct tow_json *json); /* closes the innermost object or array */
void tow_json_str(struct tow_json *json, const char *key, const char *text);
void tow_json_u64(struct tow_json *json, const char *key, uint64_t value);
void tow_json_i64(struct tow_json *json, const char *key, int64_t value);
void tow_json_f64(struct tow_json *json, const char *key, double value); /* null if not finite */
void tow_json_bool(struct tow_json *json, const char *key, bool value);
/* `text` is one whole JSON value already. */
void tow_json_raw(struct tow_json *json, const char *key, const char *text);

/* The first failure, or 0. Everything opened must have been ended. */
int tow_json_finish(struct tow_json *json);

#endif
