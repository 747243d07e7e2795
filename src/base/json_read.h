/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one JSON text into a flat list of values; what comes from a server is not trusted. */
#ifndef TOW_BASE_JSON_READ_H
#define TOW_BASE_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOW_JSON_VALUES_MAX = 1 << 17, TOW_JSON_NESTING_MAX = 32 };

enum tow_json_type {
    TOW_JSON_NULL,
    TOW_JSON_BOOL,
    TOW_JSON_NUMBER,
    TOW_JSON_STRING,
    TOW_JSON_ARRAY,
    TOW_JSON_OBJECT
};

struct tow_json_value {
    enum tow_json_type type;
    const char *key;  /* in an object; owned by the document, else NULL */
    const char *text; /* STRING: its content, without escapes and control characters; owned by the
                         document */
    double number;    /* NUMBER, and BOOL as 0 or 1 */
    uint32_t end;     /* index of the first value behind this one and everything inside it */
};

struct tow_json_doc {
    struct tow_json_value *values; /* owned; values[0] is the whole */
    uint32_t count;
    char *strings; /* owned */
};

/* -EPROTO if it is not JSON, -E2BIG, -ENOMEM. */
int tow_json_doc_parse(const char *text, size_t size, struct tow_json_doc *ret_doc);
void tow_json_doc_fini(struct tow_json_doc *doc);

/* The member of an object, or NULL. `object` NULL gives NULL. */
const struct tow_json_value *tow_json_member(const struct tow_json_doc *doc,
                                             const struct tow_json_value *object, const char *key);
/* Walks an array or object: NULL starts and ends. */
const struct tow_json_value *tow_json_next(const struct tow_json_doc *doc,
                                           const struct tow_json_value *container,
                                           const struct tow_json_value *previous);
/* A number without its fraction; for what no int64_t has the nearest one that it has. NULL gives 0.
 */
int64_t tow_json_whole(const struct tow_json_value *value);
/* Members with a default for what is missing or of another type. */
double tow_json_number(const struct tow_json_doc *doc, const struct tow_json_value *object,
                       const char *key);
const char *tow_json_text(const struct tow_json_doc *doc, const struct tow_json_value *object,
                          const char *key);

#endif
