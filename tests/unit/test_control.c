/* SPDX-License-Identifier: Apache-2.0 */
/* Every control message: its exact bytes, there and back, cut at each byte, and each byte wrong. */
#include "cmocka_all.h"

#include "../lib/control_heads.h"
#include "wire/control.h"
#include "wire/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

union message {
    struct tow_hello hello;
    struct tow_welcome welcome;
    struct tow_refuse refuse;
    struct tow_callback callback;
    struct tow_callback_done callback_done;
    struct tow_callback_bytes callback_bytes;
    struct tow_fence fence;
    struct tow_fetch fetch;
    struct tow_timeline timeline;
    struct tow_forget forget;
    struct tow_done done;
    struct tow_print print;
    struct tow_credit credit;
    struct tow_bye bye;
    struct tow_notice notice;
    struct tow_lane lane;
    struct tow_lasting lasting;
    struct tow_resume resume;
    struct tow_challenge challenge;
    struct tow_proof proof;
    struct tow_proved proved;
    struct tow_grant grant;
    struct tow_status status;
    struct tow_report report;
};

/* One shape for all encoders and decoders. */
#define WRAP(name)                                                                                 \
    static int encode_##name(const union message *message, void *at, size_t size,                  \
                             uint32_t *ret_length)                                                 \
    {                                                                                              \
        return tow_##name##_encode(&message->name, at, size, ret_length);                          \
    }                                                                                              \
    static int decode_##name(const void *at, const struct tow_frame *frame,                        \
                             union message *ret_message)                                           \
    {                                                                                              \
        return tow_##name##_decode(at, frame, &ret_message->name);                                 \
    }

WRAP(hello)
WRAP(welcome)
WRAP(refuse)
WRAP(callback)
WRAP(callback_done)
WRAP(callback_bytes)
WRAP(fence)
WRAP(fetch)
WRAP(forget)
WRAP(done)
WRAP(print)
WRAP(credit)
WRAP(bye)
WRAP(notice)
WRAP(lane)
WRAP(lasting)
WRAP(resume)
WRAP(challenge)
WRAP(proof)
WRAP(proved)
WRAP(grant)
WRAP(status)
WRAP(report)

/* It is the one control frame that has a number of its own. */
static int encode_timeline(const union message *message, void *at, size_t size,
                           uint32_t *ret_length)
{
    uint8_t head[TOW_TIMELINE_HEAD];
    tow_timeline_head(&message->timeline, head);
    struct tow_enc enc = tow_frame_begin(at, size);
    tow_enc_bytes(&enc, head, sizeof head);
    return tow_frame_end(&enc, at, (struct tow_frame){.kind = TOW_CONTROL_TIMELINE, .seq = 7},
                         ret_length);
}

static int decode_timeline(const void *at, const struct tow_frame *frame,
                           union message *ret_message)
{
    return tow_timeline_decode(at, frame, &ret_message->timeline);
}

#define OPS(name) .encode = encode_##name, .decode = decode_##name

static const struct sample {
    const char *name;
    int (*encode)(const union message *message, void *at, size_t size, uint32_t *ret_length);
    int (*decode)(const void *at, const struct tow_frame *frame, union message *ret_message);
    union message message;
    uint32_t needed; /* the frame's bytes without its last padding */
    const char *golden;
} samples[] = {
    {.name = "HELLO",
     OPS(hello),
     .message.hello = {.version_min = 1,
                       .version_max = 2,
                       .table_hash = {0x1111111111111111u, 0x2222222222222222u, 0x3333333333333333u,
                                      0x4444444444444444u},
                       .capabilities = 5,
                       .pid = 0x1234,
                       .slot = TOW_SLOT_NONE,
                       .name = "app",
                       .token = "secret",
                       .env_count = 2,
                       .env = {"A=1", "CUDA_VISIBLE_DEVICES="}},
     .needed = 136,
     .golden = "8800000000f000000000000000000000"
               "544f574c010000000200000034120000"
               "11111111111111112222222222222222"
               "33333333333333334444444444444444"
               "0500000000000000ffffffff02000000"
               "04000000413d3100"
               "16000000435544415f56495349424c455f444556494345533d000000"
               "0400000061707000"
               "070000007365637265740000"},
    {.name = "WELCOME",
     OPS(welcome),
     .message.welcome = {.version = 1,
                         .table_hash = {1, 2, 3, 4},
                         .capabilities = 0x8000000000000001u,
                         .session = 77,
                         .frame_max = TOW_FRAME_MAX,
                         .data_max = TOW_DATA_MAX,
                         .command_window = 0x100000,
                         .data_window = 0x200000,
                         .range_count = 2,
                         .ranges = {{0x2aaa00000000u, 0x100000000u, TOW_RANGE_DEVICE},
                                    {0x302000000u, 0x1000u, TOW_RANGE_POOL}},
                         .snapshot_size = 3,
                         .snapshot = (const uint8_t *)"abc"},
     .needed = 163,
     .golden = "a800000001f000000000000000000000"
               "544f574c01000000"
               "0100000000000000020000000000000003000000000000000400000000000000"
               "01000000000000804d00000000000000"
               "00101000000010000000100000000000"
               "0000200000000000"
               "0200000000000000"
               "00000000aa2a000000000000010000000100000000000000"
               "000000020300000000100000000000000200000000000000"
               "0300000000000000"
               "6162630000000000"},
    {.name = "REFUSE",
     OPS(refuse),
     .message.refuse = {.code = TOW_REFUSE_BUSY, .sentence = "busy"},
     .needed = 36,
     .golden = "2800000002f000000000000000000000544f574c02000000050000006275737900000000"
               "00000000"},
    {.name = "CALLBACK",
     OPS(callback),
     .message.callback = {.id = 0x0102030405060708u, .status = 700},
     .needed = 28,
     .golden = "2000000004f0000000000000000000000807060504030201bc02000000000000"},
    {.name = "CALLBACK_DONE",
     OPS(callback_done),
     .message.callback_done = {.id = 9, .behind = 0x0a},
     .needed = 32,
     .golden = "2000000005f00000000000000000000009000000000000000a00000000000000"},
    {.name = "CALLBACK_BYTES",
     OPS(callback_bytes),
     .message.callback_bytes = {.number = 9, .offset = 0x40000, .size = 3, .bytes = "abc"},
     .needed = 43,
     .golden = "3000000012f0000000000000000000000900000000000000"
               "000004000000000003000000000000006162630000000000"},
    {.name = "FENCE",
     OPS(fence),
     .message.fence = {.mirrors = 0x0102030405060708u},
     .needed = 24,
     .golden = "1800000011f0000000000000000000000807060504030201"},
    {.name = "FORGET",
     OPS(forget),
     .message.forget = {.token = {{0x0102030405060708u, 0x0a}}},
     .needed = 32,
     .golden = "2000000015f00000000000000000000008070605040302010a00000000000000"},
    {.name = "FETCH",
     OPS(fetch),
     .message.fetch = {.address = 0x0102030405060708u, .size = 0x10000},
     .needed = 32,
     .golden = "2000000013f0000000000000000000000807060504030201"
               "0000010000000000"},
    {.name = "TIMELINE",
     .encode = encode_timeline,
     .decode = decode_timeline,
     .message.timeline = {.flags = TOW_TIMELINE_SPANS, .names = 0x01020304},
     .needed = 24,
     .golden = "180000001cf0000000000000070000000100000004030201"},
    {.name = "DONE",
     OPS(done),
     .message.done = {.count = 2, .entries = {{3, 0x01020304, false}, {5, 7, true}}},
     .needed = 40,
     .golden = "2800000014f00000000000000000000002000000000000000300000004030201"
               "0500008007000000"},
    {.name = "PRINT",
     OPS(print),
     .message.print = {.size = 3, .text = "hi\n"},
     .needed = 23,
     .golden = "1800000006f0000000000000000000000300000068690a00"},
    {.name = "CREDIT",
     OPS(credit),
     .message.credit = {.commands = 0x10000, .data = 0x123456789abcu},
     .needed = 32,
     .golden = "2000000008f0000000000000000000000000010000000000bc9a785634120000"},
    {.name = "BYE",
     OPS(bye),
     .message.bye = {.code = 3, .sentence = "end"},
     .needed = 28,
     .golden = "2000000009f0000000000000000000000300000004000000656e640000000000"},
    {.name = "BYE without a word",
     OPS(bye),
     .message.bye = {.code = 0, .sentence = NULL},
     .needed = 24,
     .golden = "1800000009f0000000000000000000000000000000000000"},
    {.name = "NOTICE",
     OPS(notice),
     .message.notice = {.topic = TOW_NOTICE_ERROR, .values = {1, 43}, .text = "bad"},
     .needed = 48,
     .golden = "300000000af000000000000000000000020000000000000001000000000000002b00000000000000"
               "0400000062616400"},
    {.name = "LANE",
     OPS(lane),
     .message.lane = {.session = 77, .key = {0x0102030405060708u, 9}, .index = 3},
     .needed = 48,
     .golden = "300000000ff000000000000000000000544f574c030000004d00000000000000"
               "08070605040302010900000000000000"},
    {.name = "CHALLENGE",
     OPS(challenge),
     .message.challenge = {.nonce = {[0] = 10, [31] = 11}},
     .needed = 56,
     .golden = "3800000016f000000000000000000000544f574c00000000"
               "0a0000000000000000000000000000000000000000000000000000000000000b"},
    {.name = "PROOF",
     OPS(proof),
     .message.proof = {.id = 0x0102030405060708u,
                       .nonce = {[0] = 10, [31] = 11},
                       .proof = {[0] = 10, [31] = 11}},
     .needed = 96,
     .golden = "6000000017f000000000000000000000544f574c000000000807060504030201"
               "0a0000000000000000000000000000000000000000000000000000000000000b"
               "0a0000000000000000000000000000000000000000000000000000000000000b"},
    {.name = "PROVED",
     OPS(proved),
     .message.proved = {.answer = {[0] = 10, [31] = 11}},
     .needed = 56,
     .golden = "3800000018f000000000000000000000544f574c00000000"
               "0a0000000000000000000000000000000000000000000000000000000000000b"},
    {.name = "GRANT",
     OPS(grant),
     .message.grant = {.id = {[0] = 10, [15] = 11}, .secret = {[0] = 12, [31] = 13}},
     .needed = 72,
     .golden = "4800000019f000000000000000000000544f574c00000000"
               "0a00000000000000000000000000000b"
               "0c0000000000000000000000000000000000000000000000000000000000000d"},
    {.name = "LASTING",
     OPS(lasting),
     .message.lasting = {.seconds = 60, .secret = {[0] = 12, [31] = 13}},
     .needed = 56,
     .golden = "380000001af000000000000000000000544f574c3c000000"
               "0c0000000000000000000000000000000000000000000000000000000000000d"},
    {.name = "RESUME",
     OPS(resume),
     .message.resume = {.session = 77, .line = TOW_LANE_LEASH},
     .needed = 32,
     .golden = "200000001bf000000000000000000000544f574cfeffffff4d00000000000000"},
    {.name = "STATUS",
     OPS(status),
     .message.status = {.topics = 0},
     .needed = 24,
     .golden = "180000000cf000000000000000000000544f574c00000000"},
    {.name = "STATUS of a session",
     OPS(status),
     .message.status = {.topics = TOW_STATUS_END, .session = 0x0102030405060708u},
     .needed = 32,
     .golden = "200000000cf000000000000000000000544f574c040000000807060504030201"},
    {.name = "STATUS that suspends",
     OPS(status),
     .message.status = {.topics = TOW_STATUS_SUSPEND,
                        .session = 0x0102030405060708u,
                        .limit_ms = 30000},
     .needed = 36,
     .golden = "280000000cf000000000000000000000544f574c200000000807060504030201"
               "3075000000000000"},
    {.name = "REPORT",
     OPS(report),
     .message.report = {.size = 2, .text = "{}"},
     .needed = 26,
     .golden = "200000000df000000000000000000000544f574c020000007b7d000000000000"},
};
#define SAMPLES (sizeof samples / sizeof *samples)

static _Alignas(8) uint8_t bytes[TOW_FRAME_MAX + 64];

static uint32_t encode(const struct sample *sample)
{
    uint32_t length = 0;
    memset(bytes, 0xee, 4096);
    assert_int_equal(sample->encode(&sample->message, bytes, sizeof bytes, &length), 0);
    return length;
}

static void their_bytes_are_the_specified_ones(void **state)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        uint32_t length = encode(&samples[i]);
        char hex[1024];
        for (uint32_t k = 0; k < length; k++) {
            snprintf(hex + 2 * k, 3, "%02x", bytes[k]);
        }
        if (strcmp(hex, samples[i].golden) != 0) {
            print_error("%s\n is      %s\n must be %s\n", samples[i].name, hex, samples[i].golden);
            fail();
        }
        assert_true(samples[i].needed <= length && length < samples[i].needed + 8);
    }
}

static void they_come_back_as_they_went(void **state)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        uint32_t length = encode(&samples[i]), again = 0;
        struct tow_frame frame;
        union message message;
        static _Alignas(8) uint8_t copy[4096];
        assert_int_equal(tow_frame_read(bytes, &frame), 0);
        assert_int_equal(samples[i].decode(bytes, &frame, &message), 0);
        assert_int_equal(samples[i].encode(&message, copy, sizeof copy, &again), 0);
        assert_int_equal(again, length);
        assert_memory_equal(copy, bytes, length);
    }
}

static void a_newer_peer_may_have_added_fields(void **state)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        uint32_t length = encode(&samples[i]);
        memset(bytes + length, 0x5a, 64);
        uint32_t longer = length + 64;
        memcpy(bytes, &longer, 4);
        struct tow_frame frame;
        union message message;
        assert_int_equal(tow_frame_read(bytes, &frame), 0);
        assert_int_equal(samples[i].decode(bytes, &frame, &message), 0);
    }
}

static void a_cut_message_is_refused_wherever_it_is_cut(void **state)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        encode(&samples[i]);
        for (uint32_t length = TOW_FRAME_HEADER; length < samples[i].needed; length++) {
            /* In memory of exactly that size, so that a sanitizer sees a byte too many. */
            uint8_t *cut = test_malloc(length);
            memcpy(cut, bytes, length);
            struct tow_frame frame;
            memcpy(&frame, bytes, sizeof frame);
            frame.length = length;
            union message message;
            assert_int_equal(samples[i].decode(cut, &frame, &message), -EPROTO);
            test_free(cut);
        }
    }
}

static void a_welcome_may_bring_a_context(void **state)
{
    static const struct tow_welcome whole = {.version = 1,
                                             .frame_max = TOW_FRAME_MAX,
                                             .snapshot_size = 3,
                                             .snapshot = (const uint8_t *)"abc",
                                             .context_size = 5,
                                             .context = (const uint8_t *)"facts"};
    struct tow_welcome without = whole, got;
    struct tow_frame frame;
    uint32_t length = 0, shorter = 0;
    without.context_size = 0;
    assert_int_equal(tow_welcome_encode(&without, bytes, sizeof bytes, &shorter), 0);
    assert_int_equal(tow_welcome_encode(&whole, bytes, sizeof bytes, &length), 0);
    assert_int_equal(length, shorter + 16);
    for (frame.length = length; frame.length >= shorter; frame.length -= 8) {
        memcpy(bytes, &frame.length, sizeof frame.length);
        assert_int_equal(tow_frame_read(bytes, &frame), 0);
        assert_int_equal(tow_welcome_decode(bytes, &frame, &got), 0);
        /* Cut anywhere, it was not said. */
        assert_int_equal(got.context_size, frame.length == length ? 5 : 0);
        assert_memory_equal(got.snapshot, "abc", 3);
    }
    assert_int_equal(tow_welcome_encode(&whole, bytes, sizeof bytes, &length), 0);
    assert_int_equal(tow_frame_read(bytes, &frame), 0);
    assert_int_equal(tow_welcome_decode(bytes, &frame, &got), 0);
    assert_memory_equal(got.context, "facts", 5);
    without.context_size = TOW_WELCOME_CONTEXT_MAX + 1;
    assert_int_equal(tow_welcome_encode(&without, bytes, sizeof bytes, &length), -EMSGSIZE);
}

static void a_welcome_may_name_functions_that_are_lacking(void **state)
{
    static const uint32_t numbers[] = {3, 1381, 77};
    static const struct tow_welcome whole = {.version = 1,
                                             .frame_max = TOW_FRAME_MAX,
                                             .snapshot_size = 3,
                                             .snapshot = (const uint8_t *)"abc",
                                             .lacking_count = 3,
                                             .lacking = numbers};
    struct tow_welcome many = whole, got;
    struct tow_frame frame;
    uint32_t length = 0;
    assert_int_equal(tow_welcome_encode(&whole, bytes, sizeof bytes, &length), 0);
    for (frame.length = length; frame.length + 24 > length; frame.length -= 8) {
        memcpy(bytes, &frame.length, sizeof frame.length);
        assert_int_equal(tow_frame_read(bytes, &frame), 0);
        assert_int_equal(tow_welcome_decode(bytes, &frame, &got), 0);
        assert_int_equal(got.context_size, 0);
        /* Cut anywhere, it was not said. */
        assert_int_equal(got.lacking_count, frame.length == length ? 3 : 0);
        if (got.lacking_count > 0) {
            assert_memory_equal(got.lacking, numbers, sizeof numbers);
        }
    }
    many.lacking_count = TOW_HELLO_FUNCTIONS_MAX + 1;
    assert_int_equal(tow_welcome_encode(&many, bytes, sizeof bytes, &length), -EMSGSIZE);
}

static void a_hello_tells_the_clients_functions(void **state)
{
    static const struct tow_travel travels[] = {{3, 0x103}, {7, 0x107}, {9, 0x109}};
    struct tow_hello hello = {.version_min = 1,
                              .version_max = 1,
                              .name = "p",
                              .release = "1.2",
                              .functions = 3,
                              .travels = travels};
    struct tow_hello got;
    struct tow_frame frame;
    uint32_t length = 0;
    assert_int_equal(tow_hello_encode(&hello, bytes, sizeof bytes, &length), 0);
    for (frame.length = length; frame.length + 32 > length; frame.length -= 8) {
        memcpy(bytes, &frame.length, sizeof frame.length);
        assert_int_equal(tow_frame_read(bytes, &frame), 0);
        assert_int_equal(tow_hello_decode(bytes, &frame, &got), 0);
        bool all = frame.length == length;
        assert_int_equal(got.functions, all ? 3 : 0);
        assert_int_equal(got.release != NULL, all);
        if (all) {
            assert_memory_equal(got.travels, travels, sizeof travels);
        }
    }
    /* More than there may be: none. */
    assert_int_equal(tow_hello_encode(&hello, bytes, sizeof bytes, &length), 0);
    uint32_t too_many = TOW_HELLO_FUNCTIONS_MAX + 1;
    memcpy(bytes + length - sizeof travels - 4, &too_many, sizeof too_many);
    uint32_t longer = (uint32_t)(length + too_many * sizeof *travels) & ~7u;
    memcpy(bytes, &longer, sizeof longer);
    assert_int_equal(tow_frame_read(bytes, &frame), 0);
    assert_int_equal(tow_hello_decode(bytes, &frame, &got), 0);
    assert_int_equal(got.functions, 0);
    hello.functions = too_many;
    assert_int_equal(tow_hello_encode(&hello, bytes, sizeof bytes, &length), -EMSGSIZE);
}

static void a_hello_asks_for_gpu_memory_behind_all_else(void **state)
{
    static const struct tow_travel travels[] = {{3, 0x103}};
    struct tow_hello hello = {
        .version_min = 1, .version_max = 1, .release = "1.2", .functions = 1, .travels = travels};
    struct tow_hello got;
    struct tow_frame frame;
    uint32_t without = 0, with = 0;
    assert_int_equal(tow_hello_encode(&hello, bytes, sizeof bytes, &without), 0);
    assert_int_equal(tow_frame_read(bytes, &frame), 0);
    assert_int_equal(tow_hello_decode(bytes, &frame, &got), 0);
    assert_int_equal(got.gpu_memory, 0);
    hello.gpu_memory = UINT64_C(3) << 40;
    assert_int_equal(tow_hello_encode(&hello, bytes, sizeof bytes, &with), 0);
    assert_int_equal(with, without + sizeof hello.gpu_memory);
    assert_int_equal(tow_frame_read(bytes, &frame), 0);
    assert_int_equal(tow_hello_decode(bytes, &frame, &got), 0);
    assert_true(got.gpu_memory == hello.gpu_memory);
    /* A frame that ends before says nothing of it. */
    memcpy(bytes, &without, sizeof without);
    assert_int_equal(tow_frame_read(bytes, &frame), 0);
    assert_int_equal(tow_hello_decode(bytes, &frame, &got), 0);
    assert_int_equal(got.gpu_memory, 0);
    assert_int_equal(got.functions, 1);
}

static void a_hello_says_how_it_waits_behind_that(void **state)
{
    static const struct tow_travel travels[] = {{3, 0x103}};
    struct tow_hello hello = {.version_min = 1,
                              .version_max = 1,
                              .release = "1.2",
                              .functions = 1,
                              .travels = travels,
                              .wish = {600, TOW_PRIORITY_LOW, 3, 1}};
    struct tow_hello got;
    struct tow_frame frame;
    uint32_t length = 0;
    assert_int_equal(tow_hello_encode(&hello, bytes, sizeof bytes, &length), 0);
    assert_int_equal(tow_frame_read(bytes, &frame), 0);
    assert_int_equal(tow_hello_decode(bytes, &frame, &got), 0);
    assert_int_equal(got.gpu_memory, 0);
    assert_memory_equal(&got.wish, &hello.wish, sizeof got.wish);
    /* A priority of a later version. */
    uint32_t unknown = TOW_PRIORITY_HIGH + 1;
    memcpy(bytes + length - 12, &unknown, sizeof unknown);
    assert_int_equal(tow_hello_decode(bytes, &frame, &got), 0);
    assert_int_equal(got.wish.priority, TOW_PRIORITY_UNSAID);
    assert_int_equal(got.wish.wait_s, 600);
    /* One that ends before all of it says nothing. */
    uint32_t shorter = length - 8;
    memcpy(bytes, &shorter, sizeof shorter);
    assert_int_equal(tow_frame_read(bytes, &frame), 0);
    assert_int_equal(tow_hello_decode(bytes, &frame, &got), 0);
    assert_int_equal(got.wish.wait_s, TOW_WAIT_UNSAID);
    assert_int_equal(got.wish.exclusive, 0);
}

static void a_wrong_byte_is_refused_or_harmless(void **state)
{
    static const uint8_t flips[] = {0x01, 0x80, 0xff};
    for (size_t i = 0; i < SAMPLES; i++) {
        uint32_t length = encode(&samples[i]);
        uint8_t *copy = test_malloc(length);
        for (uint32_t at = 4; at < length; at++) {
            for (size_t f = 0; f < sizeof flips; f++) {
                memcpy(copy, bytes, length);
                copy[at] ^= flips[f];
                struct tow_frame frame;
                union message message;
                if (tow_frame_read(copy, &frame) < 0) {
                    continue;
                }
                int result = samples[i].decode(copy, &frame, &message);
                assert_true(result == 0 || result == -EPROTO);
                if (at == 4 || at == 5) {
                    assert_int_equal(result, -EPROTO);
                }
                if (result == 0) {
                    /* Everything it points at must be there: the encoder reads it all. */
                    static _Alignas(8) uint8_t again[4096];
                    uint32_t ignored;
                    assert_int_equal(samples[i].encode(&message, again, sizeof again, &ignored), 0);
                }
            }
        }
        test_free(copy);
    }
}

static void a_small_place_is_an_error(void **state)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        uint32_t length = encode(&samples[i]);
        for (uint32_t size = 0; size < length; size++) {
            uint8_t *place = aligned_alloc(8, (size + 8) & ~7u);
            uint32_t ignored;
            if (size < samples[i].needed) {
                assert_int_equal(samples[i].encode(&samples[i].message, place, size, &ignored),
                                 -EMSGSIZE);
            }
            free(place);
        }
    }
}

static void hellos_that_make_no_sense_are_refused(void **state)
{
    struct tow_hello hello = samples[0].message.hello, got;
    struct tow_frame frame;
    uint32_t length;
    hello.env[1] = "NO_EQUALS_SIGN";
    assert_int_equal(tow_hello_encode(&hello, bytes, sizeof bytes, &length), 0);
    assert_int_equal(tow_frame_read(bytes, &frame), 0);
    assert_int_equal(tow_hello_decode(bytes, &frame, &got), -EPROTO);
    hello = samples[0].message.hello;
    hello.version_min = 3;
    assert_int_equal(tow_hello_encode(&hello, bytes, sizeof bytes, &length), 0);
    assert_int_equal(tow_frame_read(bytes, &frame), 0);
    assert_int_equal(tow_hello_decode(bytes, &frame, &got), -EPROTO);
    hello.env_count = TOW_HELLO_ENV_MAX + 1;
    assert_int_equal(tow_hello_encode(&hello, bytes, sizeof bytes, &length), -EMSGSIZE);
    /* No name and no token are fine. */
    hello = (struct tow_hello){.version_min = 1, .version_max = 1};
    assert_int_equal(tow_hello_encode(&hello, bytes, sizeof bytes, &length), 0);
    assert_int_equal(tow_frame_read(bytes, &frame), 0);
    assert_int_equal(tow_hello_decode(bytes, &frame, &got), 0);
    assert_string_equal(got.name, "");
    assert_null(got.token);
}

static void data_heads_carry_any_size(void **state)
{
    static const uint32_t sizes[] = {0, 1, 7, 8, 9, 4096, TOW_DATA_MAX - 1, TOW_DATA_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct tow_data data = {.transfer = 7,
                                .flags = TOW_DATA_LAST,
                                .offset = 0x100000000u,
                                .size = sizes[i]},
                        got;
        uint8_t head[TOW_DATA_HEAD];
        uint32_t pad, pad_again;
        struct tow_frame frame;
        assert_int_equal(tow_data_head_encode(&data, 3, 4, head, &pad), 0);
        assert_int_equal((sizes[i] + pad) % 8, 0);
        assert_int_equal(tow_frame_read(head, &frame), 0);
        assert_int_equal(frame.length, TOW_DATA_HEAD + sizes[i] + pad);
        assert_int_equal(tow_data_head_decode(head, &frame, &got, &pad_again), 0);
        assert_int_equal(pad, pad_again);
        assert_int_equal(got.transfer, data.transfer);
        assert_int_equal(got.flags, data.flags);
        assert_true(got.offset == data.offset);
        assert_int_equal(got.size, data.size);
    }
    struct tow_data data = {.transfer = 0x01020304, .flags = TOW_DATA_LAST, .offset = 5, .size = 3};
    static const uint8_t golden[] = {40, 0, 0, 0, 7,  0xf0, 3, 0, 4, 0, 0, 0, 0, 0, 0, 0,
                                     4,  3, 2, 1, 13, 0,    0, 0, 5, 0, 0, 0, 0, 0, 0, 0};
    uint8_t head[TOW_DATA_HEAD];
    uint32_t pad;
    assert_int_equal(tow_data_head_encode(&data, 3, 4, head, &pad), 0);
    assert_memory_equal(head, golden, sizeof golden);
    data.size = TOW_DATA_MAX + 1;
    assert_int_equal(tow_data_head_encode(&data, 3, 4, head, &pad), -EMSGSIZE);
    /* Pad beyond the frame, offset beyond the end of the world, a frame too large for its limit. */
    struct tow_frame frame = {.length = 32, .kind = TOW_CONTROL_DATA};
    assert_int_equal(tow_data_head_decode(head, &frame, &data, &pad), -EPROTO);
    frame.length = TOW_FRAME_MAX;
    assert_int_equal(tow_data_head_decode(head, &frame, &data, &pad), -EPROTO);
    frame.length = 40;
    memset(head + 24, 0xff, 8);
    assert_int_equal(tow_data_head_decode(head, &frame, &data, &pad), -EPROTO);
    frame.length = 24;
    assert_int_equal(tow_data_head_decode(head, &frame, &data, &pad), -EPROTO);
}

static void frames_make_up_a_transfer(void **state)
{
    enum { EACH = 1000 };
    /* None left: a last frame all the same. */
    static const uint64_t ends[] = {0,        1,        EACH - 1, EACH,
                                    EACH + 1, 7 * EACH, 8 * EACH, 8 * EACH + 3};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct tow_data_frame frames[TOW_DATA_HEADS];
        struct tow_data data = {.transfer = 9, .size = EACH, .flags = TOW_DATA_LAST}, got;
        uint64_t at = 0;
        do {
            unsigned count = 0;
            data.offset = at;
            assert_int_equal(tow_data_frames_encode(&data, ends[i], frames, &count), 0);
            assert_in_range(count, 1, TOW_DATA_HEADS);
            for (unsigned n = 0; n < count; n++) {
                struct tow_frame frame;
                uint32_t pad;
                assert_int_equal(tow_frame_read(frames[n].head, &frame), 0);
                assert_int_equal(tow_data_head_decode(frames[n].head, &frame, &got, &pad), 0);
                assert_int_equal(got.transfer, 9);
                assert_true(got.offset == at && frames[n].offset == at);
                assert_true(got.size == frames[n].size && pad == frames[n].pad);
                at += got.size;
                assert_int_equal(got.flags, at == ends[i] ? TOW_DATA_LAST : 0);
                assert_true(got.size == EACH || at == ends[i]);
            }
        } while (at < ends[i]);
        assert_true(at == ends[i]);
    }
}

static void a_timelines_answer_has_its_bytes(void **state)
{
    (void)state;
    static const struct tow_timeline_answer answer = {
        .now_ns = 0x0102030405060708u, .lost = 2, .flags = 3, .names = 4, .spans = 5};
    static const struct tow_span span = {.given = 1,
                                         .began = 2,
                                         .ended = 3,
                                         .bytes = 4,
                                         .kind = 5,
                                         .name = 6,
                                         .stream = 7,
                                         .queued = 8};
    static const uint8_t golden[] = {8, 7, 6, 5, 4, 3, 2, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0,
                                     4, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
                                     2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0,
                                     0, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0};
    _Alignas(8) uint8_t raw[sizeof golden];
    struct tow_enc enc = tow_enc_init(raw, sizeof raw);
    tow_timeline_answer_put(&enc, &answer);
    assert_int_equal(enc.at - raw, TOW_TIMELINE_ANSWER_SIZE);
    tow_span_put(&enc, &span);
    assert_int_equal(enc.at - raw, TOW_TIMELINE_ANSWER_SIZE + TOW_SPAN_SIZE);
    assert_memory_equal(raw, golden, sizeof golden);
    struct tow_dec dec = tow_dec_init(raw, sizeof raw);
    struct tow_timeline_answer got;
    assert_int_equal(tow_timeline_answer_get(&dec, &got), 0);
    assert_true(got.now_ns == answer.now_ns && got.lost == 2 && got.flags == 3 && got.names == 4 &&
                got.spans == 5);
    struct tow_span back = tow_span_get(&dec);
    assert_memory_equal(&back, &span, sizeof back);
    for (size_t size = 0; size < TOW_TIMELINE_ANSWER_SIZE; size++) {
        dec = tow_dec_init(raw, size);
        assert_int_equal(tow_timeline_answer_get(&dec, &got), -EPROTO);
    }
    for (size_t count = 20; count <= 24; count += 4) { /* too many names, too many spans */
        raw[count + 1] = 0xff;
        dec = tow_dec_init(raw, sizeof raw);
        assert_int_equal(tow_timeline_answer_get(&dec, &got), -EPROTO);
        raw[count + 1] = 0;
    }
}

static void every_kind_has_its_name(void **state)
{
    assert_string_equal(tow_control_name(TOW_CONTROL_HELLO), "HELLO");
    assert_string_equal(tow_control_name(TOW_CONTROL_CALLBACK_DONE), "CALLBACK_DONE");
    assert_string_equal(tow_control_name(TOW_CONTROL_NOTICE), "NOTICE");
    assert_string_equal(tow_control_name(TOW_CONTROL_REPORT), "REPORT");
    assert_string_equal(tow_control_name(TOW_CONTROL_CALLBACK_BYTES), "CALLBACK_BYTES");
    assert_string_equal(tow_control_name(TOW_CONTROL_DONE), "DONE");
    assert_string_equal(tow_control_name(TOW_CONTROL_TIMELINE), "TIMELINE");
    assert_null(tow_control_name(0));
    assert_null(tow_control_name(0xefff));
    assert_null(tow_control_name(0xffff));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(their_bytes_are_the_specified_ones),
        cmocka_unit_test(they_come_back_as_they_went),
        cmocka_unit_test(a_newer_peer_may_have_added_fields),
        cmocka_unit_test(a_cut_message_is_refused_wherever_it_is_cut),
        cmocka_unit_test(a_welcome_may_bring_a_context),
        cmocka_unit_test(a_welcome_may_name_functions_that_are_lacking),
        cmocka_unit_test(a_hello_tells_the_clients_functions),
        cmocka_unit_test(a_hello_asks_for_gpu_memory_behind_all_else),
        cmocka_unit_test(a_hello_says_how_it_waits_behind_that),
        cmocka_unit_test(a_wrong_byte_is_refused_or_harmless),
        cmocka_unit_test(a_small_place_is_an_error),
        cmocka_unit_test(hellos_that_make_no_sense_are_refused),
        cmocka_unit_test(data_heads_carry_any_size),
        cmocka_unit_test(frames_make_up_a_transfer),
        cmocka_unit_test(a_timelines_answer_has_its_bytes),
        cmocka_unit_test(every_kind_has_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
