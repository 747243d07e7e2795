/* SPDX-License-Identifier: Apache-2.0 */
/* Makes connected pairs of lines of any kind, for the conformance suite. */
#ifndef TOW_TESTS_TRANSPORT_LINES_H
#define TOW_TESTS_TRANSPORT_LINES_H

#include "../unit/cmocka_all.h"
#include "transport/transport.h"

/* "self", "unix", "tcp", "tls", "shm", or "hook-" and one of them; before "tcp" and "tls" also
 * "keep-", for lasting ones. Set by main from its argument. */
extern const char *lines_kind;
/* Without the words before it. */
const char *lines_inner_kind(void);

/* A folder of this test's own, removed by lines_cleanup. */
const char *lines_folder(void);
void lines_cleanup(void);

/* Whether this machine has not what lines of this kind need; then it says what: exit LINES_SKIP. */
#define LINES_SKIP 77
bool lines_missing(void);

/* The address to listen on and the one to connect to, for kinds that have one. */
struct tow_listener *lines_listen(char ret_connect[TOW_ADDRESS_MAX]);

/* Connects to what lines_listen gave and sends the 8 bytes that lines_adopt takes. */
struct tow_line *lines_connect(const char *address);
struct tow_line *lines_adopt(struct tow_listener *listener);

void lines_pair(struct tow_line **ret_client, struct tow_line **ret_server);

/* Deterministic bytes: byte `at` of stream `seed`. */
static inline uint8_t lines_byte(uint64_t seed, uint64_t at)
{
    uint64_t x = (at / 8 + seed * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
    x ^= x >> 29;
    return (uint8_t)(x >> (at % 8 * 8));
}
void lines_bytes(uint64_t seed, uint64_t at, uint8_t *ret_bytes, size_t n);

int lines_open_fds(void);

/* OpenSSL; the test fails without it. */
struct tow_tls_lib;
const struct tow_tls_lib *lines_tls_lib(void);

#endif
