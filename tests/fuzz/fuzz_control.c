/* SPDX-License-Identifier: Apache-2.0 */
/* Frame headers, every control message, and the judgement of a stranger's first bytes. */
#include "fuzz.h"

#include "wire/handshake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads everything that a decoded message points at. */
static void touch(const void *bytes, size_t n)
{
    static volatile uint8_t sum;
    for (size_t i = 0; i < n; i++) {
        sum = (uint8_t)(sum + ((const uint8_t *)bytes)[i]);
    }
}

static void touch_text(const char *text)
{
    if (text != NULL) {
        touch(text, strlen(text) + 1);
    }
}

static void decode(const uint8_t *at, const struct tow_frame *frame)
{
    union {
        struct tow_hello hello;
        struct tow_welcome welcome;
        struct tow_refuse refuse;
        struct tow_callback callback;
        struct tow_callback_done done;
        struct tow_callback_bytes piece;
        struct tow_fence fence;
        struct tow_fetch fetch;
        struct tow_forget forget;
        struct tow_done told;
        struct tow_print print;
        struct tow_credit credit;
        struct tow_bye bye;
        struct tow_notice notice;
        struct tow_status status;
        struct tow_report report;
        struct tow_data data;
    } got;
    uint32_t pad;
    if (tow_hello_decode(at, frame, &got.hello) == 0) {
        touch_text(got.hello.name);
        touch_text(got.hello.token);
        touch_text(got.hello.release);
        touch(got.hello.travels, got.hello.functions * sizeof(struct tow_travel));
        for (uint32_t i = 0; i < got.hello.env_count; i++) {
            touch_text(got.hello.env[i]);
        }
    }
    if (tow_welcome_decode(at, frame, &got.welcome) == 0) {
        touch(got.welcome.snapshot, got.welcome.snapshot_size);
        touch(got.welcome.context, got.welcome.context_size);
        touch(got.welcome.lacking, got.welcome.lacking_count * sizeof(uint32_t));
    }
    if (tow_refuse_decode(at, frame, &got.refuse) == 0) {
        touch_text(got.refuse.sentence);
    }
    if (tow_callback_bytes_decode(at, frame, &got.piece) == 0) {
        touch(got.piece.bytes, got.piece.size);
    }
    if (tow_print_decode(at, frame, &got.print) == 0) {
        touch(got.print.text, got.print.size);
    }
    if (tow_bye_decode(at, frame, &got.bye) == 0) {
        touch_text(got.bye.sentence);
    }
    if (tow_notice_decode(at, frame, &got.notice) == 0) {
        touch_text(got.notice.text);
    }
    if (tow_report_decode(at, frame, &got.report) == 0) {
        touch(got.report.text, got.report.size);
    }
    if (tow_data_head_decode(at, frame, &got.data, &pad) == 0) {
        touch(at + TOW_DATA_HEAD, got.data.size);
        if (TOW_DATA_HEAD + got.data.size + pad != frame->length) {
            abort();
        }
    }
    tow_callback_decode(at, frame, &got.callback);
    tow_callback_done_decode(at, frame, &got.done);
    tow_fence_decode(at, frame, &got.fence);
    tow_fetch_decode(at, frame, &got.fetch);
    tow_forget_decode(at, frame, &got.forget);
    tow_done_decode(at, frame, &got.told);
    tow_credit_decode(at, frame, &got.credit);
    tow_status_decode(at, frame, &got.status);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char why[256];
    struct tow_frame frame;
    tow_handshake_sniff(TOW_ROLE_CLIENT, bytes, n, "somewhere", why, sizeof why);
    tow_handshake_sniff(TOW_ROLE_SERVER, bytes, n, "somewhere", why, sizeof why);
    if (n < TOW_FRAME_HEADER) {
        return 0;
    }
    if (tow_frame_read(bytes, &frame) == 0 && frame.length <= n) {
        decode(bytes, &frame);
    }
    /* Also when the length is wrong: otherwise most changes end there. */
    memcpy(&frame, bytes, sizeof frame);
    frame.length = (uint32_t)n;
    decode(bytes, &frame);
    return 0;
}

size_t fuzz_seed(unsigned number, uint8_t *ret_bytes, size_t size)
{
    uint32_t length = 0;
    switch (number) {
    case 0: {
        struct tow_hello hello = {.version_min = 1,
                                  .version_max = 1,
                                  .name = "program",
                                  .token = "token",
                                  .env_count = 3,
                                  .env = {"A=B", "CUDA_VISIBLE_DEVICES=0,1", "C="}};
        tow_hello_encode(&hello, ret_bytes, size, &length);
        break;
    }
    case 1: {
        struct tow_welcome welcome = {.version = 1,
                                      .frame_max = TOW_FRAME_MAX,
                                      .range_count = 2,
                                      .ranges = {{1 << 20, 4096, 1}, {1 << 30, 4096, 2}},
                                      .snapshot_size = 5,
                                      .snapshot = (const uint8_t *)"12345"};
        tow_welcome_encode(&welcome, ret_bytes, size, &length);
        break;
    }
    case 2: {
        struct tow_refuse refuse = {.code = 1, .sentence = "not today"};
        tow_refuse_encode(&refuse, ret_bytes, size, &length);
        break;
    }
    case 3: {
        struct tow_print print = {.size = 6, .text = "hello\n"};
        tow_print_encode(&print, ret_bytes, size, &length);
        break;
    }
    case 4: {
        struct tow_notice notice = {.topic = 1, .text = "a notice"};
        tow_notice_encode(&notice, ret_bytes, size, &length);
        break;
    }
    case 5: {
        struct tow_bye bye = {.code = 1, .sentence = "over"};
        tow_bye_encode(&bye, ret_bytes, size, &length);
        break;
    }
    case 6: {
        struct tow_data data = {.transfer = 1, .flags = TOW_DATA_LAST, .size = 13};
        uint32_t pad;
        tow_data_head_encode(&data, 1, 1, ret_bytes, &pad);
        memset(ret_bytes + TOW_DATA_HEAD, 7, data.size + pad);
        length = TOW_DATA_HEAD + data.size + pad;
        break;
    }
    case 7: {
        struct tow_report report = {.size = 9, .text = "{\"a\":[1]}"};
        tow_report_encode(&report, ret_bytes, size, &length);
        break;
    }
    default:
        break;
    }
    return length;
}
