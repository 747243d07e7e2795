/* SPDX-License-Identifier: Apache-2.0 */
/* The only way bytes get into and out of frames.
 *
 * Little-endian, fixed layout. A cursor never goes beyond its end: an encoder sets `overflow`, a
 * decoder sets `bad` and from then on reads 0 and NULL; both are sticky, so a caller checks once,
 * after the last field. Nothing here allocates or fails in any other way.
 *
 * Alignment: frames start at addresses that are multiples of 8, so aligning the cursor's address
 * is aligning the field within its frame. Fields are written at the place the cursor is at; whoever
 * writes a u64 after a u32 calls tow_enc_align(enc, 8), and the reader tow_dec_align(dec, 8).
 * Padding is written as zeros: no byte of an older frame leaves the process.
 */
#ifndef TOW_WIRE_CURSOR_H
#define TOW_WIRE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire is little-endian and these cursors copy: a big-endian machine needs swaps here"
#endif

#define TOW_UNLIKELY(x) __builtin_expect(!!(x), 0)

struct tow_enc {
    uint8_t *at;  /* borrowed: the next byte to write */
    uint8_t *end; /* borrowed: one behind the last */
    bool overflow;
};

struct tow_dec {
    const uint8_t *at;  /* borrowed: the next byte to read */
    const uint8_t *end; /* borrowed: one behind the last */
    bool bad;
};

/* ---- writing ---- */

static inline struct tow_enc tow_enc_init(void *start, size_t size)
{
    return (struct tow_enc){.at = start, .end = (uint8_t *)start + size};
}

static inline size_t tow_enc_left(const struct tow_enc *enc)
{
    return (size_t)(enc->end - enc->at);
}

/* Takes the next `n` bytes for the caller to fill in one go; NULL if they are not there. */
static inline uint8_t *tow_enc_block(struct tow_enc *enc, size_t n)
{
    if (TOW_UNLIKELY(n > tow_enc_left(enc))) {
        /* Nothing may follow a field that did not fit. */
        enc->end = enc->at;
        enc->overflow = true;
        return NULL;
    }
    uint8_t *at = enc->at;
    enc->at += n;
    return at;
}

static inline void tow_enc_bytes(struct tow_enc *enc, const void *bytes, size_t n)
{
    uint8_t *at = tow_enc_block(enc, n);
    if (at != NULL && n > 0) {
        memcpy(at, bytes, n);
    }
}

#define TOW_ENC_SCALAR(name, type)                                                                 \
    static inline void tow_enc_##name(struct tow_enc *enc, type value)                             \
    {                                                                                              \
        uint8_t *at = tow_enc_block(enc, sizeof value);                                            \
        if (at != NULL) {                                                                          \
            memcpy(at, &value, sizeof value);                                                      \
        }                                                                                          \
    }

TOW_ENC_SCALAR(u8, uint8_t)
TOW_ENC_SCALAR(u16, uint16_t)
TOW_ENC_SCALAR(u32, uint32_t)
TOW_ENC_SCALAR(u64, uint64_t)
TOW_ENC_SCALAR(i32, int32_t)
TOW_ENC_SCALAR(i64, int64_t)
TOW_ENC_SCALAR(f32, float)
TOW_ENC_SCALAR(f64, double)
#undef TOW_ENC_SCALAR

/* Zeros up to the next multiple of `to`, a power of two of at most 8. */
static inline void tow_enc_align(struct tow_enc *enc, size_t to)
{
    size_t gap = (size_t)(-(uintptr_t)enc->at & (to - 1));
    uint8_t *at = tow_enc_block(enc, gap);
    if (at != NULL && gap > 0) { /* most often nothing is to do: no call then */
        memset(at, 0, gap);
    }
}

/* A string: u32 count of its bytes with the NUL (0 for NULL), the bytes, zeros to a multiple of 4.
 */
static inline void tow_enc_cstr(struct tow_enc *enc, const char *text)
{
    size_t n = text == NULL ? 0 : strlen(text) + 1;
    if (n > UINT32_MAX) {
        enc->end = enc->at;
        enc->overflow = true;
        return;
    }
    tow_enc_u32(enc, (uint32_t)n);
    tow_enc_bytes(enc, text, n);
    tow_enc_align(enc, 4);
}

/* ---- reading ---- */

static inline struct tow_dec tow_dec_init(const void *start, size_t size)
{
    return (struct tow_dec){.at = start, .end = (const uint8_t *)start + size};
}

static inline size_t tow_dec_left(const struct tow_dec *dec)
{
    return (size_t)(dec->end - dec->at);
}

static inline void tow_dec_fail(struct tow_dec *dec)
{
    dec->at = dec->end;
    dec->bad = true;
}

/* The next `n` bytes, in place, borrowed from the frame; NULL if they are not there. */
static inline const uint8_t *tow_dec_bytes(struct tow_dec *dec, size_t n)
{
    if (TOW_UNLIKELY(n > tow_dec_left(dec) || dec->bad)) {
        tow_dec_fail(dec);
        return NULL;
    }
    const uint8_t *at = dec->at;
    dec->at += n;
    return at;
}

/* Copies the next `n` bytes; zeros if they are not there. */
static inline void tow_dec_copy(struct tow_dec *dec, void *ret_bytes, size_t n)
{
    const uint8_t *at = tow_dec_bytes(dec, n);
    if (at == NULL) {
        memset(ret_bytes, 0, n);
    } else if (n > 0) {
        memcpy(ret_bytes, at, n);
    }
}

#define TOW_DEC_SCALAR(name, type)                                                                 \
    static inline type tow_dec_##name(struct tow_dec *dec)                                         \
    {                                                                                              \
        type value = 0;                                                                            \
        const uint8_t *at = tow_dec_bytes(dec, sizeof value);                                      \
        if (at != NULL) {                                                                          \
            memcpy(&value, at, sizeof value);                                                      \
        }                                                                                          \
        return value;                                                                              \
    }

TOW_DEC_SCALAR(u8, uint8_t)
TOW_DEC_SCALAR(u16, uint16_t)
TOW_DEC_SCALAR(u32, uint32_t)
TOW_DEC_SCALAR(u64, uint64_t)
TOW_DEC_SCALAR(i32, int32_t)
TOW_DEC_SCALAR(i64, int64_t)
TOW_DEC_SCALAR(f32, float)
TOW_DEC_SCALAR(f64, double)
#undef TOW_DEC_SCALAR

/* Skips to the next multiple of `to`; what is skipped is not looked at. */
static inline void tow_dec_align(struct tow_dec *dec, size_t to)
{
    tow_dec_bytes(dec, (size_t)(-(uintptr_t)dec->at & (to - 1)));
}

/* A u32 count of elements of `size` bytes each: at most `max`, and as many as can still follow.
 * So what is allocated for it is never larger than what the peer really sent. */
static inline uint32_t tow_dec_count(struct tow_dec *dec, uint32_t max, size_t size)
{
    uint32_t count = tow_dec_u32(dec);
    if (TOW_UNLIKELY(count > max || (size > 0 && count > tow_dec_left(dec) / size))) {
        tow_dec_fail(dec);
        return 0;
    }
    return count;
}

/* A string as tow_enc_cstr writes it, in place: NULL where NULL was sent, and when it is bad. At
 * most `max` characters without the NUL; it ends where it says and not before. */
static inline const char *tow_dec_cstr(struct tow_dec *dec, size_t max)
{
    uint32_t n = tow_dec_u32(dec);
    if (n == 0) {
        return NULL;
    }
    if (TOW_UNLIKELY(n - 1 > max)) {
        tow_dec_fail(dec);
        return NULL;
    }
    const char *text = (const char *)tow_dec_bytes(dec, n);
    if (TOW_UNLIKELY(text == NULL || memchr(text, '\0', n) != text + n - 1)) {
        tow_dec_fail(dec);
        return NULL;
    }
    tow_dec_align(dec, 4);
    return dec->bad ? NULL : text;
}

#endif
