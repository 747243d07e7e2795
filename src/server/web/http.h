/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the head of one HTTP request, and writes an answer's. Small and strict: what a browser,
 * curl or Prometheus would not say is refused, and nothing is guessed. Requests here have no
 * bodies. */
#ifndef TOW_SERVER_WEB_HTTP_H
#define TOW_SERVER_WEB_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum {
    TOW_HTTP_HEAD_MAX = 8192,
    TOW_HTTP_FIELDS_MAX = 64,
    TOW_HTTP_TARGET_MAX = 512,
    TOW_HTTP_TEXT_MAX = 512,
};

enum tows_http_method { TOW_HTTP_GET, TOW_HTTP_HEAD, TOW_HTTP_POST, TOW_HTTP_OTHER };

struct tows_http_request {
    enum tows_http_method method;
    char path[TOW_HTTP_TARGET_MAX + 1];    /* as it was sent: nothing is decoded */
    char query[TOW_HTTP_TARGET_MAX + 1];   /* behind the ?; "": none */
    char host[TOW_HTTP_TEXT_MAX + 1];      /* without the port */
    char origin[TOW_HTTP_TEXT_MAX + 1];    /* "": it says none */
    char authority[TOW_HTTP_TEXT_MAX + 1]; /* the Host field as it is */
    char token[TOW_HTTP_TEXT_MAX + 1];     /* of Authorization: Bearer; "": none */
    bool open_metrics;                     /* Accept does not rule OpenMetrics out */
};

/* Looks at what has come. 0: the head is whole. -EAGAIN: not yet. Else the status of the answer
 * that refuses it (400, 408 is the caller's, 413, 414, 417, 431, 501, 505). */
int tows_http_read(const char *bytes, size_t n, struct tows_http_request *ret_request);

/* A host that a request may name: a number, "localhost", or one of `names` (words with commas). A
 * page elsewhere whose name was made to lead here has another. */
bool tows_http_knows_host(const char *host, const char *names);

/* The words of a status; NULL: none that is used here. */
const char *tows_http_reason(int status);

/* The head of an answer with that many bytes behind it. `more`: further whole fields. */
int tows_http_answer(struct tow_buf *out, int status, const char *type, const char *more,
                     size_t size);

#endif
