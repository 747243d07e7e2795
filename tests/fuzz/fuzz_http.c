/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of HTTP requests: what has been decided stays so, whatever comes behind it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "server/web/http.h"

static void ends(const char *text, size_t size)
{
    if (memchr(text, '\0', size) == NULL) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct tows_http_request request;
    int decided = -EAGAIN;
    size_t step = n < 512 ? 1 : n / 64; /* few are long */
    for (size_t size = 0;; size = size + step < n ? size + step : n) {
        char *copy = malloc(size + 1); /* of that size: a sanitizer sees what is read behind it */
        if (copy == NULL) {
            return 0;
        }
        char *exact = realloc(copy, size > 0 ? size : 1);
        copy = exact != NULL ? exact : copy;
        memcpy(copy, bytes, size);
        int status = tows_http_read(copy, size, &request);
        free(copy);
        if ((decided != -EAGAIN && status != decided) ||
            (status != -EAGAIN && status != 0 && tows_http_reason(status) == NULL)) {
            abort();
        }
        decided = status;
        if (size == n) {
            break;
        }
    }
    if (decided == 0) {
        ends(request.path, sizeof request.path);
        ends(request.query, sizeof request.query);
        ends(request.host, sizeof request.host);
        ends(request.origin, sizeof request.origin);
        ends(request.authority, sizeof request.authority);
        ends(request.token, sizeof request.token);
        if (request.path[0] != '/' || request.host[0] == '\0') {
            abort();
        }
        tows_http_knows_host(request.host, "gpuhost,gpuhost.example,");
    }
    return decided == -EAGAIN && n >= TOW_HTTP_HEAD_MAX ? (abort(), 0) : 0;
}

size_t fuzz_seed(unsigned number, uint8_t *ret_bytes, size_t size)
{
    static const char *const seeds[] = {
        "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9837\r\nAccept: "
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain\r\nUser-Agent: "
        "Prometheus/2.42\r\n\r\n",
        "POST /sessions/17/end HTTP/1.1\r\nHost: [::1]:9837\r\nOrigin: http://[::1]:9837\r\n"
        "Authorization: Bearer towl-0123456789abcdef-00\r\nContent-Length: 0\r\n\r\n",
        "HEAD /history.json?after=1795051399 HTTP/1.0\r\nhost:gpuhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
    };
    if (number < sizeof seeds / sizeof *seeds) {
        memcpy(ret_bytes, seeds[number], strlen(seeds[number]));
        return strlen(seeds[number]);
    }
    if (number == sizeof seeds / sizeof *seeds && size >= TOW_HTTP_HEAD_MAX + 16) {
        memset(ret_bytes, 'a', TOW_HTTP_HEAD_MAX + 16);
        memcpy(ret_bytes, "GET / HTTP/1.1\r\nHost: a\r\nX: ", 28);
        return TOW_HTTP_HEAD_MAX + 16;
    }
    return 0;
}
