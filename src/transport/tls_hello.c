/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the pre-shared key's identity in a ClientHello (RFC 8446, 4.1.2 and 4.2.11). Every length
 * in it is a stranger's. */
#include "transport/tls_hello.h"

#include <errno.h>
#include <string.h>

#include "transport/tls_record.h"

enum {
    HEADER = 5,
    CLIENT_HELLO = 1,
    VERSION_AND_RANDOM = 2 + 32,
    PRE_SHARED_KEY = 41,
};

/* What is left of a message; `at` is NULL once something was too short. */
struct rest {
    const uint8_t *at;
    size_t n;
};

static const uint8_t *rest_take(struct rest *rest, size_t n)
{
    const uint8_t *at = rest->at;
    if (at == NULL || rest->n < n) {
        *rest = (struct rest){NULL, 0};
        return NULL;
    }
    rest->at += n;
    rest->n -= n;
    return at;
}

static size_t rest_number(struct rest *rest, unsigned bytes)
{
    const uint8_t *at = rest_take(rest, bytes);
    size_t number = 0;
    for (unsigned i = 0; at != NULL && i < bytes; i++) {
        number = number << 8 | at[i];
    }
    return number;
}

/* What stands behind a length of so many bytes. */
static struct rest rest_part(struct rest *rest, unsigned bytes)
{
    size_t n = rest_number(rest, bytes);
    const uint8_t *at = rest_take(rest, n);
    return (struct rest){at, at == NULL ? 0 : n};
}

/* The first identity that is offered. */
static bool find_identity(struct rest extensions, struct rest *ret_identity)
{
    while (extensions.n > 0) {
        size_t type = rest_number(&extensions, 2);
        struct rest body = rest_part(&extensions, 2);
        if (type == PRE_SHARED_KEY && body.at != NULL) {
            struct rest identities = rest_part(&body, 2);
            *ret_identity = rest_part(&identities, 2);
            return ret_identity->at != NULL;
        }
    }
    return false;
}

int tow_tls_hello_read(const uint8_t *bytes, size_t n, bool *ret_names,
                       uint8_t ret_id[TOW_GRANT_ID])
{
    if (n > 0 && (bytes[0] != TOW_TLS_HANDSHAKE || (n > 1 && bytes[1] != 3))) {
        return -EPROTO;
    }
    if (n < HEADER) {
        return -EAGAIN;
    }
    size_t size = (size_t)bytes[3] << 8 | bytes[4];
    if (size < 4 || size > TOW_TLS_HELLO_MAX - HEADER ||
        (n > HEADER && bytes[HEADER] != CLIENT_HELLO)) {
        return -EPROTO;
    }
    if (n < HEADER + size) {
        return -EAGAIN;
    }
    struct rest record = {bytes + HEADER, size}, identity;
    rest_take(&record, 1);
    struct rest hello = rest_part(&record, 3);
    rest_take(&hello, VERSION_AND_RANDOM);
    rest_part(&hello, 1); /* the session's number */
    rest_part(&hello, 2); /* ciphers */
    rest_part(&hello, 1); /* compression */
    *ret_names = find_identity(rest_part(&hello, 2), &identity) && identity.n == TOW_GRANT_ID;
    if (*ret_names) {
        memcpy(ret_id, identity.at, TOW_GRANT_ID);
    }
    return 0;
}
