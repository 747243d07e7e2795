/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256, in C and with the instructions of both processors; which one is chosen at run time. */
#include "base/hash.h"

#include <stdatomic.h>
#include <string.h>

#include "base/number.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t round_words[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t hash_rotate(uint32_t value, int by)
{
    return value >> by | value << (32 - by);
}

static uint32_t load_be32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void store_be32(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 24);
    at[1] = (uint8_t)(value >> 16);
    at[2] = (uint8_t)(value >> 8);
    at[3] = (uint8_t)value;
}

static void blocks_portable(uint32_t state[8], const uint8_t *at, size_t count)
{
    for (; count > 0; count--, at += 64) {
        uint32_t w[64];
        for (int i = 0; i < 16; i++) {
            w[i] = load_be32(at + 4 * i);
        }
        for (int i = 16; i < 64; i++) {
            uint32_t s0 = hash_rotate(w[i - 15], 7) ^ hash_rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
            uint32_t s1 = hash_rotate(w[i - 2], 17) ^ hash_rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
            w[i] = w[i - 16] + s0 + w[i - 7] + s1;
        }
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
        uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
        for (int i = 0; i < 64; i++) {
            uint32_t sum1 = hash_rotate(e, 6) ^ hash_rotate(e, 11) ^ hash_rotate(e, 25);
            uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + round_words[i] + w[i];
            uint32_t sum0 = hash_rotate(a, 2) ^ hash_rotate(a, 13) ^ hash_rotate(a, 22);
            uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
            h = g;
            g = f;
            f = e;
            e = d + t1;
            d = c;
            c = b;
            b = a;
            a = t1 + t2;
        }
        state[0] += a;
        state[1] += b;
        state[2] += c;
        state[3] += d;
        state[4] += e;
        state[5] += f;
        state[6] += g;
        state[7] += h;
    }
}

#if defined(__aarch64__)

/* The two compilers spell the same extension differently. */
#if defined(__clang__)
#define SHA2_TARGET "sha2"
#else
#define SHA2_TARGET "+crypto"
#endif

__attribute__((target(SHA2_TARGET))) static void blocks_native(uint32_t state[8], const uint8_t *at,
                                                               size_t count)
{
    uint32x4_t abcd = vld1q_u32(state);
    uint32x4_t efgh = vld1q_u32(state + 4);
    for (; count > 0; count--, at += 64) {
        uint32x4_t abcd_before = abcd, efgh_before = efgh;
        uint32x4_t w[4];
        for (int i = 0; i < 4; i++) {
            w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(at + 16 * i)));
        }
        for (int i = 0; i < 16; i++) {
            uint32x4_t words = vaddq_u32(w[i & 3], vld1q_u32(round_words + 4 * i));
            if (i < 12) {
                w[i & 3] = vsha256su1q_u32(vsha256su0q_u32(w[i & 3], w[(i + 1) & 3]),
                                           w[(i + 2) & 3], w[(i + 3) & 3]);
            }
            uint32x4_t abcd_kept = abcd;
            abcd = vsha256hq_u32(abcd, efgh, words);
            efgh = vsha256h2q_u32(efgh, abcd_kept, words);
        }
        abcd = vaddq_u32(abcd, abcd_before);
        efgh = vaddq_u32(efgh, efgh_before);
    }
    vst1q_u32(state, abcd);
    vst1q_u32(state + 4, efgh);
}

static int have_native(void)
{
    return (getauxval(AT_HWCAP) & (1UL << 6)) != 0; /* HWCAP_SHA2 */
}

#elif defined(__x86_64__)

__attribute__((target("sha,sse4.1,ssse3"))) static void
blocks_native(uint32_t state[8], const uint8_t *at, size_t count)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    /* The instructions want the state as (a b e f) and (c d g h), highest word first. */
    __m128i dcba = _mm_loadu_si128((const __m128i *)state);
    __m128i hgfe = _mm_loadu_si128((const __m128i *)(state + 4));
    __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1);
    __m128i efgh = _mm_shuffle_epi32(hgfe, 0x1b);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
    __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
    for (; count > 0; count--, at += 64) {
        __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4];
        for (int i = 0; i < 4; i++) {
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(at + 16 * i)), swap);
        }
        for (int i = 0; i < 16; i++) {
            __m128i words =
                _mm_add_epi32(w[i & 3], _mm_loadu_si128((const __m128i *)(round_words + 4 * i)));
            if (i < 12) {
                __m128i mixed = _mm_sha256msg1_epu32(w[i & 3], w[(i + 1) & 3]);
                mixed = _mm_add_epi32(mixed, _mm_alignr_epi8(w[(i + 3) & 3], w[(i + 2) & 3], 4));
                w[i & 3] = _mm_sha256msg2_epu32(mixed, w[(i + 3) & 3]);
            }
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, words);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(words, 0x0e));
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
    __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

static int have_native(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_SSSE3) == 0 || (c & bit_SSE4_1) == 0) {
        return 0;
    }
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 29)) != 0;
}

#else

#define blocks_native blocks_portable

static int have_native(void)
{
    return 0;
}

#endif

/* 0 unknown, 1 portable, 2 native. */
static _Atomic int choice;

void tow_sha256_force_portable(int on)
{
    atomic_store_explicit(&choice, on ? 1 : 0, memory_order_relaxed);
}

static void hash_blocks(uint32_t state[8], const uint8_t *at, size_t count)
{
    int chosen = atomic_load_explicit(&choice, memory_order_relaxed);
    if (chosen == 0) {
        chosen = have_native() ? 2 : 1;
        atomic_store_explicit(&choice, chosen, memory_order_relaxed);
    }
    if (chosen == 2) {
        blocks_native(state, at, count);
    } else {
        blocks_portable(state, at, count);
    }
}

void tow_sha256_init(struct tow_sha256 *sha)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(sha->state, start, sizeof start);
    sha->length = 0;
}

void tow_sha256_update(struct tow_sha256 *sha, const void *bytes, size_t n)
{
    if (n == 0) {
        return;
    }
    const uint8_t *at = bytes;
    size_t held = sha->length % 64;
    sha->length += n;
    if (held > 0) {
        size_t take = 64 - held < n ? 64 - held : n;
        memcpy(sha->block + held, at, take);
        at += take;
        n -= take;
        if (held + take < 64) {
            return;
        }
        hash_blocks(sha->state, sha->block, 1);
    }
    hash_blocks(sha->state, at, n / 64);
    memcpy(sha->block, at + n / 64 * 64, n % 64);
}

void tow_sha256_final(struct tow_sha256 *sha, uint8_t ret_digest[TOW_SHA256_SIZE])
{
    uint64_t bits = sha->length * 8;
    size_t held = sha->length % 64;
    sha->block[held++] = 0x80;
    if (held > 56) {
        memset(sha->block + held, 0, 64 - held);
        hash_blocks(sha->state, sha->block, 1);
        held = 0;
    }
    memset(sha->block + held, 0, 56 - held);
    store_be32(sha->block + 56, (uint32_t)(bits >> 32));
    store_be32(sha->block + 60, (uint32_t)bits);
    hash_blocks(sha->state, sha->block, 1);
    for (int i = 0; i < 8; i++) {
        store_be32(ret_digest + 4 * i, sha->state[i]);
    }
}

void tow_sha256_of(const void *bytes, size_t n, uint8_t ret_digest[TOW_SHA256_SIZE])
{
    struct tow_sha256 sha;
    tow_sha256_init(&sha);
    tow_sha256_update(&sha, bytes, n);
    tow_sha256_final(&sha, ret_digest);
    explicit_bzero(&sha, sizeof sha); /* it may have been a secret */
}

void tow_sha256_hex(const uint8_t digest[TOW_SHA256_SIZE], char ret_text[2 * TOW_SHA256_SIZE + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < TOW_SHA256_SIZE; i++) {
        ret_text[2 * i] = digits[digest[i] >> 4];
        ret_text[2 * i + 1] = digits[digest[i] & 15];
    }
    ret_text[2 * TOW_SHA256_SIZE] = '\0';
}

bool tow_hex_read(const char *text, uint8_t *ret_bytes, size_t n)
{
    for (size_t i = 0; i < 2 * n; i++) {
        int digit = text[i] >= 'A' && text[i] <= 'F' ? -1 : tow_hex_digit(text[i]);
        if (digit < 0) {
            return false;
        }
        ret_bytes[i / 2] = (uint8_t)(i % 2 == 0 ? digit << 4 : ret_bytes[i / 2] | digit);
    }
    return true;
}

void tow_hmac_sha256(const void *key, size_t key_size, const void *bytes, size_t n,
                     uint8_t ret_mac[TOW_SHA256_SIZE])
{
    struct tow_sha256 sha;
    uint8_t block[64] = {0}, inner[TOW_SHA256_SIZE];
    if (key_size > sizeof block) {
        tow_sha256_of(key, key_size, block);
    } else {
        memcpy(block, key, key_size);
    }
    for (size_t i = 0; i < sizeof block; i++) {
        block[i] ^= 0x36;
    }
    tow_sha256_init(&sha);
    tow_sha256_update(&sha, block, sizeof block);
    tow_sha256_update(&sha, bytes, n);
    tow_sha256_final(&sha, inner);
    for (size_t i = 0; i < sizeof block; i++) {
        block[i] ^= 0x36 ^ 0x5c;
    }
    tow_sha256_init(&sha);
    tow_sha256_update(&sha, block, sizeof block);
    tow_sha256_update(&sha, inner, sizeof inner);
    tow_sha256_final(&sha, ret_mac);
    /* Keys are secrets, and so is what was made of them. */
    explicit_bzero(block, sizeof block);
    explicit_bzero(inner, sizeof inner);
    explicit_bzero(&sha, sizeof sha);
}

bool tow_hash_equal(const uint8_t one[TOW_SHA256_SIZE], const uint8_t other[TOW_SHA256_SIZE])
{
    uint8_t differs = 0;
    for (size_t i = 0; i < TOW_SHA256_SIZE; i++) {
        differs |= one[i] ^ other[i];
    }
    return differs == 0;
}
