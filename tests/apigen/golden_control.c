/* SPDX-License-Identifier: Apache-2.0 */
/* One of every control frame. tests/unit/test_control.c takes them apart more closely. */
#include "golden.h"

#include <string.h>

#include "../lib/control_heads.h"
#include "wire/control.h"
#include "wire/diff.h"
#include "wire/timeline.h"

static uint64_t room[1024];
static bool kept[64]; /* by kind */

static struct tow_frame keep(const char *name, int error, uint32_t length)
{
    struct tow_frame frame = {0};
    if (error < 0 || tow_frame_read(room, &frame) < 0 || frame.length != length ||
        strncmp(name, tow_control_name(frame.kind), strlen(tow_control_name(frame.kind))) != 0) {
        golden_wrong("%s cannot be written", name);
    } else {
        golden_line(name, "-", room, length);
        kept[(frame.kind - TOW_CONTROL_FIRST) % 64] = true;
    }
    return frame;
}

/* Encodes `value`, keeps the line, decodes into `back`. */
#define THERE_AND_BACK(NAME, kind)                                                                 \
    do {                                                                                           \
        uint32_t length = 0;                                                                       \
        memset(room, 0xee, sizeof room);                                                           \
        int error = tow_##kind##_encode(&value, room, sizeof room, &length);                       \
        struct tow_frame frame = keep(NAME, error, length);                                        \
        if (tow_##kind##_decode(room, &frame, &back) < 0) {                                        \
            golden_wrong("%s cannot be read", NAME);                                               \
        }                                                                                          \
    } while (0)

static void expect(const char *name, bool same)
{
    if (!same) {
        golden_wrong("%s is read otherwise than it was written", name);
    }
}

static bool same_text(const char *a, const char *b)
{
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

static void handshake(void)
{
    {
        static const struct tow_travel travels[] = {{1, 0x01020304}, {0xefff, 0xfffffffe}};
        static const struct tow_hello value = {.version_min = 1,
                                               .version_max = 0x01020304,
                                               .table_hash = {0x1111111111111111u, 2, 3, 0x44},
                                               .capabilities = 0x8000000000000005u,
                                               .pid = 0x1234,
                                               .slot = TOW_SLOT_NONE,
                                               .name = "made-up program",
                                               .token = "token",
                                               .release = "1.2.3",
                                               .functions = 2,
                                               .travels = travels,
                                               .env_count = 2,
                                               .env = {"A=1", "CUDA_MODULE_LOADING=EAGER"}};
        struct tow_hello back = {0};
        THERE_AND_BACK("HELLO", hello);
        expect("HELLO", back.version_max == value.version_max && back.pid == value.pid &&
                            memcmp(back.table_hash, value.table_hash, 32) == 0 &&
                            back.capabilities == value.capabilities && back.slot == value.slot &&
                            same_text(back.name, value.name) &&
                            same_text(back.token, value.token) && back.env_count == 2 &&
                            same_text(back.release, "1.2.3") && back.functions == 2 &&
                            memcmp(back.travels, travels, sizeof travels) == 0 &&
                            same_text(back.env[1], value.env[1]));
    }
    {
        static const uint32_t lacking[] = {66, 1381};
        static const struct tow_welcome value = {
            .version = 1,
            .table_hash = {1, 2, 3, 4},
            .capabilities = 6,
            .session = 0x1122334455667788u,
            .frame_max = TOW_FRAME_MAX,
            .data_max = TOW_DATA_MAX,
            .command_window = 1u << 20,
            .data_window = 1ull << 33,
            .range_count = 2,
            .ranges = {{0x2aaa00000000u, 0x100000000u, TOW_RANGE_DEVICE},
                       {0x302000000u, 0x1000u, TOW_RANGE_POOL}},
            .snapshot_size = 5,
            .snapshot = (const uint8_t *)"abcde",
            .lacking_count = 2,
            .lacking = lacking};
        struct tow_welcome back = {0};
        THERE_AND_BACK("WELCOME", welcome);
        expect("WELCOME", back.session == value.session && back.data_window == value.data_window &&
                              back.range_count == 2 && back.ranges[1].base == 0x302000000u &&
                              back.ranges[1].kind == TOW_RANGE_POOL && back.snapshot_size == 5 &&
                              memcmp(back.snapshot, "abcde", 5) == 0 && back.lacking_count == 2 &&
                              memcmp(back.lacking, lacking, sizeof lacking) == 0);
    }
    {
        static const struct tow_lasting value = {60, {0x11, 0x22, [TOW_LOGIN_SIZE - 1] = 0x33}};
        struct tow_lasting back = {0};
        THERE_AND_BACK("LASTING", lasting);
        expect("LASTING", back.seconds == value.seconds &&
                              memcmp(back.secret, value.secret, sizeof back.secret) == 0);
    }
    {
        static const struct tow_resume value = {0x1122334455667788u, TOW_LANE_LEASH};
        struct tow_resume back = {0};
        THERE_AND_BACK("RESUME", resume);
        expect("RESUME", back.session == value.session && back.line == value.line);
    }
    {
        static const struct tow_refuse value = {TOW_REFUSE_TOKEN, "a sentence"};
        struct tow_refuse back = {0};
        THERE_AND_BACK("REFUSE", refuse);
        expect("REFUSE", back.code == value.code && same_text(back.sentence, value.sentence));
    }
    {
        static const struct tow_status value = {.topics = 0};
        struct tow_status back = {.topics = 9};
        THERE_AND_BACK("STATUS", status);
        expect("STATUS", back.topics == 0);
    }
    {
        static const struct tow_report value = {2, "{}"};
        struct tow_report back = {0};
        THERE_AND_BACK("REPORT", report);
        expect("REPORT", back.size == 2 && memcmp(back.text, "{}", 2) == 0);
    }
}

static void session(void)
{
    {
        static const struct tow_callback value = {0x0102030405060708u, 700};
        struct tow_callback back = {0};
        THERE_AND_BACK("CALLBACK", callback);
        expect("CALLBACK", back.id == value.id && back.status == value.status);
    }
    {
        static const struct tow_callback_done value = {0x0102030405060709u, 0x1112131415161718u};
        struct tow_callback_done back = {0};
        THERE_AND_BACK("CALLBACK_DONE", callback_done);
        expect("CALLBACK_DONE", back.id == value.id && back.behind == value.behind);
    }
    {
        static const struct tow_print value = {3, "hi\n", true};
        struct tow_print back = {0};
        THERE_AND_BACK("PRINT", print);
        expect("PRINT", back.size == 3 && back.to_stderr && memcmp(back.text, "hi\n", 3) == 0);
    }
    {
        static const struct tow_lane value = {
            .index = 2, .session = 0x1122334455667788u, .key = {0x0102030405060708u, 9}};
        struct tow_lane back = {0};
        THERE_AND_BACK("LANE", lane);
        expect("LANE", back.index == 2 && back.session == value.session &&
                           back.key[0] == value.key[0] && back.key[1] == 9);
    }
    {
        static const struct tow_challenge value = {.nonce = {1, 2, 3}};
        struct tow_challenge back = {0};
        THERE_AND_BACK("CHALLENGE", challenge);
        expect("CHALLENGE", memcmp(&back, &value, sizeof back) == 0);
    }
    {
        static const struct tow_proof value = {
            .id = 0x1122334455667788u, .nonce = {4, 5}, .proof = {6, 7}};
        struct tow_proof back = {0};
        THERE_AND_BACK("PROOF", proof);
        expect("PROOF", memcmp(&back, &value, sizeof back) == 0);
    }
    {
        static const struct tow_proved value = {.answer = {8, 9}};
        struct tow_proved back = {0};
        THERE_AND_BACK("PROVED", proved);
        expect("PROVED", memcmp(&back, &value, sizeof back) == 0);
    }
    {
        static const struct tow_grant value = {.id = {1, 2}, .secret = {3, 4}};
        struct tow_grant back = {0};
        THERE_AND_BACK("GRANT", grant);
        expect("GRANT", memcmp(&back, &value, sizeof back) == 0);
    }
    {
        static const struct tow_credit value = {0x10000, 0x123456789abcu};
        struct tow_credit back = {0};
        THERE_AND_BACK("CREDIT", credit);
        expect("CREDIT", back.commands == value.commands && back.data == value.data);
    }
    {
        static const struct tow_bye value = {3, "the end"};
        struct tow_bye back = {0};
        THERE_AND_BACK("BYE", bye);
        expect("BYE", back.code == 3 && same_text(back.sentence, value.sentence));
    }
    {
        static const struct tow_notice value = {TOW_NOTICE_ERROR, {1, 43}, "what"};
        struct tow_notice back = {0};
        THERE_AND_BACK("NOTICE", notice);
        expect("NOTICE", back.topic == value.topic && back.values[1] == 43 &&
                             same_text(back.text, value.text));
    }
}

static void data(void)
{
    static const struct tow_data value = {
        .transfer = 0x0a0b0c0d, .flags = TOW_DATA_LAST, .offset = 0x1234567890u, .size = 3};
    struct tow_data back = {0};
    struct tow_frame frame = {0};
    uint32_t pad = 0, pad_back = 0;
    memset(room, 0, sizeof room);
    int error = tow_data_head_encode(&value, 3, 4, (uint8_t *)room, &pad);
    memcpy((uint8_t *)room + TOW_DATA_HEAD, "xyz", 3);
    frame = keep("DATA", error, TOW_DATA_HEAD + 3 + pad);
    if (tow_data_head_decode(room, &frame, &back, &pad_back) < 0) {
        golden_wrong("DATA cannot be read");
    }
    expect("DATA", back.transfer == value.transfer && back.offset == value.offset &&
                       back.size == 3 && pad_back == pad && (back.flags & TOW_DATA_LAST));
}

static uint8_t theirs[256], theirs_known[256];

static bool find(void *user, uint64_t address, size_t size, uint8_t **ret_now, uint8_t **ret_known)
{
    uint64_t base = *(const uint64_t *)user;
    if (address < base || address - base + size > sizeof theirs) {
        return false;
    }
    *ret_now = theirs + (address - base);
    *ret_known = theirs_known + (address - base);
    return true;
}

static void mirror(void)
{
    static uint8_t known[256], now[256];
    uint64_t address = 0x7f0000001000u;
    golden_fill(known, sizeof known, 1);
    memcpy(now, known, sizeof now);
    memcpy(theirs, known, sizeof theirs);
    memcpy(theirs_known, known, sizeof theirs_known);
    now[3] ^= 0xff; /* a few bytes of a line, and a whole one */
    for (int i = 128; i < 192; i++) {
        now[i] = (uint8_t)~now[i];
    }
    struct tow_diff diff = {.known = known, .now = now, .address = address, .size = sizeof now};
    memset(room, 0, sizeof room);
    uint8_t *body = (uint8_t *)room + TOW_FRAME_HEADER;
    size_t size = tow_diff_next(&diff, body, 1024);
    struct tow_frame frame = {.length = tow_frame_length(size), .kind = TOW_CONTROL_MIRROR};
    tow_frame_write(room, &frame);
    keep("MIRROR", 0, frame.length);
    expect("MIRROR",
           tow_diff_apply(body, size, find, &address) == 0 && memcmp(theirs, now, sizeof now) == 0);
}

/* Nothing but a header, which the client ends as it ends a command's. */
static void without_body(const char *name, struct tow_frame frame)
{
    uint32_t length = 0;
    memset(room, 0xee, sizeof room);
    struct tow_enc enc = tow_frame_begin(room, sizeof room);
    int error = tow_frame_end(&enc, room, frame, &length);
    keep(name, error, length);
}

/* It has a seq of its own, and its answer is a REPLY's body. */
static void timeline(void)
{
    static const struct tow_timeline value = {TOW_TIMELINE_SPANS, 0x01020304};
    static const struct tow_timeline_answer answer = {0x0102030405060708u, 9, TOW_TIMELINE_MORE, 3,
                                                      4};
    static const struct tow_span span = {
        0x11, 0x2222222222222222u, 0x3333333333333333u, 0x44, TOW_SPAN_COPY_OUT, 5, 6, 7};
    uint8_t head[TOW_TIMELINE_HEAD];
    uint32_t length = 0;
    memset(room, 0xee, sizeof room);
    tow_timeline_head(&value, head);
    struct tow_enc enc = tow_frame_begin(room, sizeof room);
    tow_enc_bytes(&enc, head, sizeof head);
    int error = tow_frame_end(&enc, room,
                              (struct tow_frame){.kind = TOW_CONTROL_TIMELINE, .seq = 8}, &length);
    struct tow_frame frame = keep("TIMELINE", error, length);
    struct tow_timeline back = {0};
    expect("TIMELINE", tow_timeline_decode(room, &frame, &back) == 0 && frame.seq == 8 &&
                           back.flags == value.flags && back.names == value.names);
    enc = tow_enc_init(room, sizeof room);
    tow_timeline_answer_put(&enc, &answer);
    tow_span_put(&enc, &span);
    size_t size = TOW_TIMELINE_ANSWER_SIZE + TOW_SPAN_SIZE;
    golden_line("TIMELINE", "<", room, size);
    struct tow_dec dec = tow_dec_init(room, size);
    struct tow_timeline_answer answer_back = {0};
    expect("TIMELINE", tow_timeline_answer_get(&dec, &answer_back) == 0 &&
                           memcmp(&answer_back, &answer, sizeof answer) == 0);
    struct tow_span span_back = tow_span_get(&dec);
    expect("TIMELINE", !dec.bad && memcmp(&span_back, &span, sizeof span) == 0);
}

static void side(void)
{
    without_body("THREAD_EXIT",
                 (struct tow_frame){.kind = TOW_CONTROL_THREAD_EXIT, .thread = 0x0102});
    without_body("SIDE", (struct tow_frame){.kind = TOW_CONTROL_SIDE});
    {
        static const struct tow_fence value = {0x0102030405060708u};
        struct tow_fence back = {0};
        THERE_AND_BACK("FENCE", fence);
        expect("FENCE", back.mirrors == value.mirrors);
    }
    {
        static const struct tow_fetch value = {0x0102030405060708u, 0x10000};
        struct tow_fetch back = {0};
        THERE_AND_BACK("FETCH", fetch);
        expect("FETCH", back.address == value.address && back.size == value.size);
    }
    {
        static const struct tow_forget value = {{{0x0102030405060708u, 0x1112131415161718u}}};
        struct tow_forget back = {0};
        THERE_AND_BACK("FORGET", forget);
        expect("FORGET", tow_token_equal(&back.token, &value.token));
    }
    {
        static const struct tow_done value = {2, {{3, 0x01020304, false}, {5, 7, true}}};
        static struct tow_done back;
        THERE_AND_BACK("DONE", done);
        expect("DONE", back.count == 2 && back.entries[0].watch_id == 3 &&
                           !back.entries[0].refused &&
                           back.entries[0].value == value.entries[0].value &&
                           back.entries[1].watch_id == 5 && back.entries[1].refused &&
                           back.entries[1].value == 7);
    }
    {
        static const struct tow_callback_bytes value = {0x0102030405060708u, 0x40000, 5, "hello"};
        struct tow_callback_bytes back = {0};
        THERE_AND_BACK("CALLBACK_BYTES", callback_bytes);
        expect("CALLBACK_BYTES", back.number == value.number && back.offset == value.offset &&
                                     back.size == 5 && memcmp(back.bytes, "hello", 5) == 0);
    }
}

void golden_run_control(void)
{
    handshake();
    session();
    data();
    mirror();
    timeline();
    side();
    kept[TOW_CONTROL_REPLY - TOW_CONTROL_FIRST] = true; /* all lines with "<" */
    for (unsigned kind = TOW_CONTROL_FIRST; kind < TOW_CONTROL_FIRST + 64; kind++) {
        const char *name = tow_control_name((uint16_t)kind);
        if (name != NULL && !kept[kind - TOW_CONTROL_FIRST]) {
            golden_wrong("%s has no line: add one", name);
        }
    }
}
