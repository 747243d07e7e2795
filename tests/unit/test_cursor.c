/* SPDX-License-Identifier: Apache-2.0 */
/* Cursors: every cut, every size, and errors that stay. */
#include "cmocka_all.h"

#include "wire/frame.h"

#include <string.h>

static void every_type_comes_back(void **state)
{
    _Alignas(8) uint8_t bytes[128];
    memset(bytes, 0xee, sizeof bytes);
    struct tow_enc enc = tow_enc_init(bytes, sizeof bytes);
    tow_enc_u8(&enc, 0x12);
    tow_enc_align(&enc, 2);
    tow_enc_u16(&enc, 0x3456);
    tow_enc_u32(&enc, 0x789abcde);
    tow_enc_u64(&enc, 0x0123456789abcdefu);
    tow_enc_i32(&enc, -2);
    tow_enc_f32(&enc, 1.5f);
    tow_enc_f64(&enc, -0.25);
    tow_enc_i64(&enc, INT64_MIN);
    tow_enc_cstr(&enc, "hello");
    tow_enc_cstr(&enc, NULL);
    tow_enc_cstr(&enc, "");
    tow_enc_bytes(&enc, "xyz", 3);
    assert_false(enc.overflow);
    static const uint8_t golden[] = {
        0x12, 0,    0x56, 0x34, 0xde, 0xbc, 0x9a, 0x78, 0xef, 0xcd, 0xab, 0x89, 0x67, 0x45,
        0x23, 0x01, 0xfe, 0xff, 0xff, 0xff, 0,    0,    0xc0, 0x3f, 0,    0,    0,    0,
        0,    0,    0xd0, 0xbf, 0,    0,    0,    0,    0,    0,    0,    0x80, 6,    0,
        0,    0,    'h',  'e',  'l',  'l',  'o',  0,    0,    0,    0,    0,    0,    0,
        1,    0,    0,    0,    0,    0,    0,    0,    'x',  'y',  'z',
    };
    assert_int_equal(enc.at - bytes, sizeof golden);
    assert_memory_equal(bytes, golden, sizeof golden);

    struct tow_dec dec = tow_dec_init(bytes, sizeof golden);
    assert_int_equal(tow_dec_u8(&dec), 0x12);
    tow_dec_align(&dec, 2);
    assert_int_equal(tow_dec_u16(&dec), 0x3456);
    assert_int_equal(tow_dec_u32(&dec), 0x789abcde);
    assert_true(tow_dec_u64(&dec) == 0x0123456789abcdefu);
    assert_int_equal(tow_dec_i32(&dec), -2);
    assert_true(tow_dec_f32(&dec) == 1.5f);
    assert_true(tow_dec_f64(&dec) == -0.25);
    assert_true(tow_dec_i64(&dec) == INT64_MIN);
    assert_string_equal(tow_dec_cstr(&dec, 5), "hello");
    assert_null(tow_dec_cstr(&dec, 5));
    assert_false(dec.bad);
    assert_string_equal(tow_dec_cstr(&dec, 0), "");
    char xyz[3];
    tow_dec_copy(&dec, xyz, 3);
    assert_memory_equal(xyz, "xyz", 3);
    assert_int_equal(tow_dec_left(&dec), 0);
    assert_false(dec.bad);
}

static void an_encoder_stops_at_its_end_for_good(void **state)
{
    _Alignas(8) uint8_t bytes[16];
    memset(bytes, 0xee, sizeof bytes);
    struct tow_enc enc = tow_enc_init(bytes, 7);
    tow_enc_u32(&enc, 1);
    tow_enc_u32(&enc, 2);
    assert_true(enc.overflow);
    /* What would fit does not follow what did not. */
    tow_enc_u8(&enc, 3);
    tow_enc_align(&enc, 8);
    assert_true(enc.overflow);
    for (size_t i = 4; i < sizeof bytes; i++) {
        assert_int_equal(bytes[i], 0xee);
    }
    assert_null(tow_enc_block(&enc, 1));
    enc = tow_enc_init(bytes, sizeof bytes);
    assert_null(tow_enc_block(&enc, SIZE_MAX));
    assert_true(enc.overflow);
}

static void a_decoder_reads_nothing_beyond_its_end(void **state)
{
    static const uint8_t bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct tow_dec dec = tow_dec_init(bytes, 7);
    assert_int_equal(tow_dec_u32(&dec), 0x04030201);
    assert_int_equal(tow_dec_u32(&dec), 0);
    assert_true(dec.bad);
    assert_int_equal(tow_dec_u8(&dec), 0);
    assert_null(tow_dec_bytes(&dec, 0));
    uint8_t copy[4] = {9, 9, 9, 9};
    tow_dec_copy(&dec, copy, 4);
    assert_int_equal(copy[0] | copy[3], 0);
    dec = tow_dec_init(bytes, 8);
    assert_null(tow_dec_bytes(&dec, SIZE_MAX));
    assert_true(dec.bad);
}

static void counts_fit_what_follows(void **state)
{
    _Alignas(8) uint8_t bytes[16] = {3};
    struct tow_dec dec = tow_dec_init(bytes, 16);
    assert_int_equal(tow_dec_count(&dec, 3, 4), 3);
    dec = tow_dec_init(bytes, 16);
    assert_int_equal(tow_dec_count(&dec, 2, 4), 0);
    assert_true(dec.bad);
    dec = tow_dec_init(bytes, 15);
    assert_int_equal(tow_dec_count(&dec, 100, 4), 0);
    assert_true(dec.bad);
    memset(bytes, 0xff, 4);
    dec = tow_dec_init(bytes, 16);
    assert_int_equal(tow_dec_count(&dec, UINT32_MAX, 8), 0);
    assert_true(dec.bad);
}

static void strings_end_where_they_say(void **state)
{
    _Alignas(8) uint8_t bytes[12] = {4, 0, 0, 0, 'a', 'b', 'c', 0};
    struct tow_dec dec = tow_dec_init(bytes, 8);
    assert_string_equal(tow_dec_cstr(&dec, 3), "abc");
    dec = tow_dec_init(bytes, 8);
    assert_null(tow_dec_cstr(&dec, 2));
    assert_true(dec.bad);
    bytes[7] = 'd';
    dec = tow_dec_init(bytes, 12);
    assert_null(tow_dec_cstr(&dec, 10));
    assert_true(dec.bad);
    bytes[7] = 0;
    bytes[5] = 0;
    dec = tow_dec_init(bytes, 8);
    assert_null(tow_dec_cstr(&dec, 10));
    assert_true(dec.bad);
    memset(bytes, 0xff, 4);
    dec = tow_dec_init(bytes, 12);
    assert_null(tow_dec_cstr(&dec, SIZE_MAX));
    assert_true(dec.bad);
}

static void frames_have_a_possible_length(void **state)
{
    struct tow_frame frame = {.kind = 7}, got;
    static const uint32_t good[] = {16, 24, TOW_FRAME_MAX};
    static const uint32_t bad[] = {0, 8, 15, 17, 20, TOW_FRAME_MAX + 8, UINT32_MAX - 7};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        frame.length = good[i];
        assert_int_equal(tow_frame_read(&frame, &got), 0);
        assert_memory_equal(&frame, &got, sizeof got);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        frame.length = bad[i];
        assert_int_equal(tow_frame_read(&frame, &got), -EPROTO);
    }
    frame.length = 16;
    frame.kind = 0;
    assert_int_equal(tow_frame_read(&frame, &got), -EPROTO);
    assert_int_equal(tow_frame_length(0), 16);
    assert_int_equal(tow_frame_length(1), 24);
    assert_int_equal(tow_frame_length(8), 24);
}

static void a_finished_frame_is_padded_with_zeros(void **state)
{
    _Alignas(8) uint8_t bytes[64];
    memset(bytes, 0xee, sizeof bytes);
    struct tow_enc enc = tow_frame_begin(bytes, sizeof bytes);
    tow_enc_u8(&enc, 5);
    uint32_t length = 0;
    struct tow_frame frame = {.kind = 0x1234, .thread = 0x5678, .context = 0x9abcdef0, .seq = 42};
    assert_int_equal(tow_frame_end(&enc, bytes, frame, &length), 0);
    assert_int_equal(length, 24);
    static const uint8_t golden[] = {24, 0, 0, 0, 0x34, 0x12, 0x78, 0x56, 0xf0, 0xde, 0xbc, 0x9a,
                                     42, 0, 0, 0, 5,    0,    0,    0,    0,    0,    0,    0};
    assert_memory_equal(bytes, golden, sizeof golden);
    enc = tow_frame_begin(bytes, 20);
    tow_enc_u64(&enc, 5);
    assert_int_equal(tow_frame_end(&enc, bytes, frame, &length), -EMSGSIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_comes_back),
        cmocka_unit_test(an_encoder_stops_at_its_end_for_good),
        cmocka_unit_test(a_decoder_reads_nothing_beyond_its_end),
        cmocka_unit_test(counts_fit_what_follows),
        cmocka_unit_test(strings_end_where_they_say),
        cmocka_unit_test(frames_have_a_possible_length),
        cmocka_unit_test(a_finished_frame_is_padded_with_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
