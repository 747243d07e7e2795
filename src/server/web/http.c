/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar is that of RFC 9112 without what it allows for old senders. */
#include "server/web/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* A part of the request; not ended by a NUL. */
struct http_part {
    const char *at;
    size_t size;
};

/* What fields have been seen that may come once only. */
struct http_seen {
    bool host, length, authorization, origin, accept;
};

static bool is_token_byte(char byte)
{
    return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
           (byte >= 'A' && byte <= 'Z') ||
           (byte != '\0' && strchr("!#$%&'*+-.^_`|~", byte) != NULL);
}

static bool part_is(struct http_part part, const char *word)
{
    return part.size == strlen(word) && memcmp(part.at, word, part.size) == 0;
}

/* Names of fields mean the same in small and large letters. */
static bool part_names(struct http_part part, const char *word)
{
    return part.size == strlen(word) && strncasecmp(part.at, word, part.size) == 0;
}

/* False: it is too long. */
static bool part_copy(struct http_part part, char *ret_text, size_t size)
{
    if (part.size >= size) {
        return false;
    }
    memcpy(ret_text, part.at, part.size);
    ret_text[part.size] = '\0';
    return true;
}

static struct http_part part_trim(struct http_part part)
{
    while (part.size > 0 && (*part.at == ' ' || *part.at == '\t')) {
        part.at++;
        part.size--;
    }
    while (part.size > 0 && (part.at[part.size - 1] == ' ' || part.at[part.size - 1] == '\t')) {
        part.size--;
    }
    return part;
}

/* ---- the first line ---- */

static int read_version(struct http_part version)
{
    if (part_is(version, "HTTP/1.1") || part_is(version, "HTTP/1.0")) {
        return 0;
    }
    bool other = version.size == 8 && memcmp(version.at, "HTTP/", 5) == 0 && version.at[6] == '.' &&
                 version.at[5] >= '0' && version.at[5] <= '9' && version.at[7] >= '0' &&
                 version.at[7] <= '9';
    return other ? 505 : 400;
}

/* A path of this server, and a query: visible bytes, no fragment. */
static int read_target(struct http_part target, struct tows_http_request *request)
{
    if (target.size > TOW_HTTP_TARGET_MAX) {
        return 414;
    }
    if (target.size == 0 || *target.at != '/') {
        return 400;
    }
    for (size_t i = 0; i < target.size; i++) {
        if (target.at[i] <= ' ' || target.at[i] >= 0x7f || strchr("#\"<>\\^`{|}", target.at[i])) {
            return 400;
        }
    }
    const char *mark = memchr(target.at, '?', target.size);
    struct http_part path = {target.at, mark == NULL ? target.size : (size_t)(mark - target.at)};
    struct http_part query = {mark, 0};
    if (mark != NULL) {
        query = (struct http_part){mark + 1, target.size - path.size - 1};
    }
    part_copy(path, request->path, sizeof request->path);
    if (query.size > 0) {
        part_copy(query, request->query, sizeof request->query);
    }
    return 0;
}

static int read_first(struct http_part line, struct tows_http_request *request)
{
    const char *blank = memchr(line.at, ' ', line.size);
    if (blank == NULL) {
        return 400;
    }
    struct http_part method = {line.at, (size_t)(blank - line.at)};
    struct http_part rest = {blank + 1, line.size - method.size - 1};
    const char *last = memchr(rest.at, ' ', rest.size);
    if (method.size == 0 || last == NULL) {
        return rest.size > TOW_HTTP_TARGET_MAX + 16 ? 414 : 400;
    }
    for (size_t i = 0; i < method.size; i++) {
        if (!is_token_byte(method.at[i])) {
            return 400;
        }
    }
    struct http_part target = {rest.at, (size_t)(last - rest.at)};
    struct http_part version = {last + 1, rest.size - target.size - 1};
    request->method = part_is(method, "GET")    ? TOW_HTTP_GET
                      : part_is(method, "HEAD") ? TOW_HTTP_HEAD
                      : part_is(method, "POST") ? TOW_HTTP_POST
                                                : TOW_HTTP_OTHER;
    int status = read_version(version);
    return status != 0 ? status : read_target(target, request);
}

/* ---- fields ---- */

/* A name or a number, and a port, which is of no interest here. */
static bool read_host(struct http_part value, struct tows_http_request *request)
{
    struct http_part host = value, port = {value.at, 0};
    if (value.size > 0 && *value.at == '[') {
        const char *end = memchr(value.at, ']', value.size);
        if (end == NULL) {
            return false;
        }
        host = (struct http_part){value.at + 1, (size_t)(end - value.at) - 1};
        port = (struct http_part){end + 1, value.size - host.size - 2};
    } else {
        const char *colon = memchr(value.at, ':', value.size);
        if (colon != NULL) {
            host.size = (size_t)(colon - value.at);
            port = (struct http_part){colon, value.size - host.size};
        }
    }
    if (port.size > 6 || (port.size > 0 && *port.at != ':')) {
        return false;
    }
    for (size_t i = 1; i < port.size; i++) {
        if (port.at[i] < '0' || port.at[i] > '9') {
            return false;
        }
    }
    for (size_t i = 0; i < host.size; i++) {
        if (!is_token_byte(host.at[i]) && host.at[i] != ':') {
            return false;
        }
    }
    return host.size > 0 && part_copy(host, request->host, sizeof request->host) &&
           part_copy(value, request->authority, sizeof request->authority);
}

/* No request here has a body. */
static int read_length(struct http_part value)
{
    bool zero = value.size > 0;
    for (size_t i = 0; i < value.size; i++) {
        if (value.at[i] < '0' || value.at[i] > '9') {
            return 400;
        }
        zero &= value.at[i] == '0';
    }
    return value.size == 0 ? 400 : zero ? 0 : 413;
}

static int read_token(struct http_part value, struct tows_http_request *request)
{
    static const char scheme[] = "Bearer ";
    const size_t length = sizeof scheme - 1;
    if (value.size <= length || strncasecmp(value.at, scheme, length) != 0) {
        return 400;
    }
    struct http_part token = part_trim((struct http_part){value.at + length, value.size - length});
    return part_copy(token, request->token, sizeof request->token) ? 0 : 431;
}

static bool part_has(struct http_part part, const char *word)
{
    return memmem(part.at, part.size, word, strlen(word)) != NULL;
}

/* The second of its kind. */
static bool comes_again(bool *seen)
{
    bool again = *seen;
    *seen = true;
    return again;
}

static int take_field(struct http_part name, struct http_part value, struct http_seen *seen,
                      struct tows_http_request *request)
{
    if (part_names(name, "Host")) {
        return comes_again(&seen->host) || !read_host(value, request) ? 400 : 0;
    }
    if (part_names(name, "Content-Length")) {
        return comes_again(&seen->length) ? 400 : read_length(value);
    }
    if (part_names(name, "Transfer-Encoding")) {
        return 501;
    }
    if (part_names(name, "Expect")) {
        return 417;
    }
    if (part_names(name, "Authorization")) {
        return comes_again(&seen->authorization) ? 400 : read_token(value, request);
    }
    if (part_names(name, "Origin")) {
        return comes_again(&seen->origin)                                  ? 400
               : part_copy(value, request->origin, sizeof request->origin) ? 0
                                                                           : 431;
    }
    if (part_names(name, "Accept") && !comes_again(&seen->accept)) {
        request->open_metrics =
            part_has(value, "application/openmetrics-text") || !part_has(value, "text/plain");
    }
    return 0;
}

static int read_field(struct http_part line, struct http_seen *seen,
                      struct tows_http_request *request)
{
    const char *colon = memchr(line.at, ':', line.size);
    if (colon == NULL || colon == line.at) {
        return 400;
    }
    struct http_part name = {line.at, (size_t)(colon - line.at)};
    for (size_t i = 0; i < name.size; i++) {
        if (!is_token_byte(name.at[i])) {
            return 400; /* a line that goes on with a blank among them */
        }
    }
    struct http_part value = part_trim((struct http_part){colon + 1, line.size - name.size - 1});
    return take_field(name, value, seen, request);
}

/* ---- the whole ---- */

/* The next line, without its end: 1. 0: it is not whole. -1: it has what no line has. */
static int next_line(const char *bytes, size_t n, size_t *at, struct http_part *ret_line)
{
    for (size_t i = *at; i < n; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (byte == '\r' && i + 1 == n) {
            return 0;
        }
        if (byte == '\r' && bytes[i + 1] == '\n') {
            *ret_line = (struct http_part){bytes + *at, i - *at};
            *at = i + 2;
            return 1;
        }
        if ((byte < ' ' && byte != '\t') || byte == 0x7f) {
            return -1;
        }
    }
    return 0;
}

int tows_http_read(const char *bytes, size_t n, struct tows_http_request *ret_request)
{
    struct tows_http_request request;
    struct http_seen seen = {false};
    struct http_part line = {bytes, 0};
    memset(&request, 0, sizeof request);
    request.open_metrics = true;
    size_t at = 0, seen_bytes = n < TOW_HTTP_HEAD_MAX ? n : TOW_HTTP_HEAD_MAX;
    int status = 0;
    for (unsigned count = 0; status == 0; count++) {
        int whole = next_line(bytes, seen_bytes, &at, &line);
        if (whole < 0) {
            return 400;
        }
        if (whole == 0) {
            return seen_bytes < TOW_HTTP_HEAD_MAX ? -EAGAIN : count == 0 ? 414 : 431;
        }
        if (line.size == 0 && count > 0) {
            break;
        }
        if (count > TOW_HTTP_FIELDS_MAX) {
            return 431;
        }
        status = count == 0 ? read_first(line, &request) : read_field(line, &seen, &request);
    }
    if (status == 0 && !seen.host) {
        status = 400;
    }
    if (status == 0) {
        *ret_request = request;
    }
    explicit_bzero(request.token, sizeof request.token);
    return status;
}

bool tows_http_knows_host(const char *host, const char *names)
{
    struct in_addr four;
    struct in6_addr six;
    if (inet_pton(AF_INET, host, &four) == 1 || inet_pton(AF_INET6, host, &six) == 1 ||
        strcasecmp(host, "localhost") == 0) {
        return true;
    }
    while (*names != '\0') {
        size_t length = strcspn(names, ",");
        if (length > 0 && strlen(host) == length && strncasecmp(host, names, length) == 0) {
            return true;
        }
        names += length + (names[length] == ',');
    }
    return false;
}

const char *tows_http_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        if (reasons[i].status == status) {
            return reasons[i].reason;
        }
    }
    return NULL;
}

int tows_http_answer(struct tow_buf *out, int status, const char *type, const char *more,
                     size_t size)
{
    char date[64] = "";
    struct tm parts;
    time_t now = time(NULL);
    if (gmtime_r(&now, &parts) == NULL ||
        strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &parts) == 0) {
        return -EIO;
    }
    return tow_buf_printf(
        out,
        "HTTP/1.1 %d %s\r\n"
        "Date: %s\r\n"
        "Content-Type: %s\r\n"
        "Content-Length: %zu\r\n"
        "Connection: close\r\n"
        "Cache-Control: no-store\r\n"
        "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
        "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Referrer-Policy: no-referrer\r\n"
        "Cross-Origin-Resource-Policy: same-origin\r\n"
        "%s\r\n",
        status, tows_http_reason(status), date, type, size, more);
}
