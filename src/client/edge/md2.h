/* SPDX-License-Identifier: Apache-2.0 */
/* MD2 (RFC 1319) and HMAC (RFC 2104) with it. Not for secrets: the CUDA runtime wants to see that
 * whoever answers knows how to, and this is how. */
#ifndef TOW_CLIENT_MD2_H
#define TOW_CLIENT_MD2_H

#include <stddef.h>
#include <stdint.h>

enum { TOW_MD2_SIZE = 16 };

struct towc_md2 {
    uint8_t state[48];
    uint8_t checksum[16];
    uint8_t block[16];
    size_t used; /* bytes in block */
};

void towc_md2_init(struct towc_md2 *md2);
void towc_md2_update(struct towc_md2 *md2, const void *bytes, size_t n);
void towc_md2_final(struct towc_md2 *md2, uint8_t ret_digest[TOW_MD2_SIZE]);

void towc_md2_hmac(const uint8_t key[16], const void *bytes, size_t n,
                   uint8_t ret_mac[TOW_MD2_SIZE]);

#endif
