/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes the client's JIT options for the driver, and encodes the logs that it wrote. */
#include "server/code/jit_options.h"

#include <stdlib.h>
#include <string.h>

enum { UNWRITTEN = 0xff }; /* the first byte of a log as long as the driver leaves it alone */

static int log_index(CUjit_option option)
{
    return option == CU_JIT_INFO_LOG_BUFFER ? 0 : option == CU_JIT_ERROR_LOG_BUFFER ? 1 : -1;
}

static int log_size_index(CUjit_option option)
{
    return option == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES    ? 0
           : option == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES ? 1
                                                          : -1;
}

static bool is_names(CUjit_option option)
{
    return option == CU_JIT_GLOBAL_SYMBOL_NAMES || option == CU_JIT_REFERENCED_KERNEL_NAMES ||
           option == CU_JIT_REFERENCED_VARIABLE_NAMES;
}

/* `count` strings, one behind the other, become an array of pointers with the texts behind it. */
static void *jit_options_names(struct tows_serve *call, uint64_t count, const uint8_t *payload,
                               size_t bytes)
{
    if (count > TOW_JIT_NAMES_MAX || count > bytes || (bytes > 0 && payload[bytes - 1] != '\0')) {
        call->malformed = true;
        return NULL;
    }
    char **list = malloc(count * sizeof *list + bytes + 1);
    if (list == NULL) {
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    char *text = (char *)(list + count), *end = text + bytes;
    if (bytes > 0) {
        memcpy(text, payload, bytes);
    }
    for (uint64_t i = 0; i < count; i++) {
        if (text == end) {
            free(list);
            call->malformed = true;
            return NULL;
        }
        list[i] = text;
        text += strlen(text) + 1;
    }
    return list;
}

static void read_option(struct tows_serve_jit *jit, struct tows_serve *call, unsigned i)
{
    CUjit_option option = (CUjit_option)tow_dec_u32(&call->in);
    uint32_t bytes = tow_dec_u32(&call->in);
    uint64_t value = tow_dec_u64(&call->in);
    const uint8_t *payload = tow_dec_bytes(&call->in, bytes);
    tow_dec_align(&call->in, 8);
    if (call->in.bad || (unsigned)option >= CU_JIT_NUM_OPTIONS) {
        call->malformed = true;
        return;
    }
    jit->options[i] = option;
    if (is_names(option)) {
        jit->owned[i] = jit_options_names(call, value, payload, bytes);
        jit->values[i] = jit->owned[i];
    } else if (option == CU_JIT_GLOBAL_SYMBOL_ADDRESSES) {
        jit->owned[i] = malloc(bytes + 1);
        if (jit->owned[i] == NULL) {
            call->status = CUDA_ERROR_OUT_OF_MEMORY;
        } else if (bytes > 0) {
            memcpy(jit->owned[i], payload, bytes);
        }
        jit->values[i] = jit->owned[i];
    } else {
        int log = log_size_index(option);
        if (log >= 0) {
            value = (uint32_t)value < TOW_JIT_LOG_MAX ? (uint32_t)value : TOW_JIT_LOG_MAX;
            /* Said twice, it is the driver that chooses: there is room for either. */
            jit->log_rooms[log] =
                value > jit->log_rooms[log] ? (uint32_t)value : jit->log_rooms[log];
        }
        jit->values[i] = (void *)(uintptr_t)value;
    }
}

/* Counts of lists and the lists themselves must agree: the driver reads as many as the count says.
 */
static void check_lists(struct tows_serve_jit *jit, struct tows_serve *call,
                        const uint64_t *list_counts)
{
    static const struct {
        CUjit_option list, count;
    } pairs[] = {
        {CU_JIT_GLOBAL_SYMBOL_NAMES, CU_JIT_GLOBAL_SYMBOL_COUNT},
        {CU_JIT_GLOBAL_SYMBOL_ADDRESSES, CU_JIT_GLOBAL_SYMBOL_COUNT},
        {CU_JIT_REFERENCED_KERNEL_NAMES, CU_JIT_REFERENCED_KERNEL_COUNT},
        {CU_JIT_REFERENCED_VARIABLE_NAMES, CU_JIT_REFERENCED_VARIABLE_COUNT},
    };
    for (unsigned p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
        for (unsigned i = 0; i < jit->count; i++) {
            for (unsigned c = 0; jit->options[i] == pairs[p].list && c < jit->count; c++) {
                if (jit->options[c] == pairs[p].count &&
                    (uint64_t)(uintptr_t)jit->values[c] > list_counts[i]) {
                    call->malformed = true;
                }
            }
        }
    }
}

void tows_serve_jit_init(struct tows_serve_jit *jit, struct tows_serve *call)
{
    memset(jit, 0, sizeof *jit);
    uint64_t list_counts[TOW_JIT_OPTIONS_MAX] = {0};
    uint32_t count = tow_dec_count(&call->in, TOW_JIT_OPTIONS_MAX, sizeof(struct tow_jit_field));
    tow_dec_u32(&call->in);
    for (uint32_t i = 0; i < count && !call->malformed && !call->in.bad; i++) {
        struct tow_jit_field field;
        struct tow_dec ahead = call->in;
        tow_dec_copy(&ahead, &field, sizeof field);
        list_counts[i] =
            field.option == CU_JIT_GLOBAL_SYMBOL_ADDRESSES ? field.bytes / 8 : field.value;
        read_option(jit, call, i);
        jit->count = i + 1;
    }
    check_lists(jit, call, list_counts);
    for (unsigned i = 0; i < jit->count && !call->malformed; i++) {
        int log = log_index(jit->options[i]);
        if (log >= 0 && jit->values[i] != NULL) {
            jit->owned[i] = calloc(1, jit->log_rooms[log] + 2);
            jit->values[i] = jit->owned[i];
            if (jit->owned[i] == NULL) {
                call->status = CUDA_ERROR_OUT_OF_MEMORY;
            } else {
                *(uint8_t *)jit->owned[i] = UNWRITTEN;
            }
        }
    }
}

void tows_serve_jit_fini(struct tows_serve_jit *jit)
{
    for (unsigned i = 0; i < jit->count; i++) {
        free(jit->owned[i]);
        jit->owned[i] = NULL;
    }
    jit->count = 0;
}

static bool is_report(CUjit_option option)
{
    return log_index(option) >= 0 || log_size_index(option) >= 0 || option == CU_JIT_WALL_TIME;
}

static bool is_output(const struct tows_serve_jit *jit, unsigned i)
{
    if (log_index(jit->options[i]) >= 0) {
        return jit->owned[i] != NULL && *(const uint8_t *)jit->owned[i] != UNWRITTEN;
    }
    return is_report(jit->options[i]) || jit->options[i] == CU_JIT_THREADS_PER_BLOCK;
}

bool tows_serve_jit_is_plain(const struct tows_serve_jit *jit)
{
    bool plain = true;
    for (unsigned i = 0; i < jit->count; i++) {
        plain &= is_report(jit->options[i]) || jit->options[i] == CU_JIT_LOG_VERBOSE ||
                 jit->options[i] == CU_JIT_TARGET_FROM_CUCONTEXT ||
                 jit->options[i] == CU_JIT_CACHE_MODE;
    }
    return plain;
}

void tows_serve_jit_reply(const struct tows_serve_jit *jit, struct tows_serve *call)
{
    uint32_t count = 0;
    for (unsigned i = 0; i < jit->count; i++) {
        count += is_output(jit, i);
    }
    tows_serve_reserve(call, 8);
    tow_enc_u32(&call->out, count);
    tow_enc_u32(&call->out, 0);
    for (unsigned i = 0; i < jit->count; i++) {
        if (!is_output(jit, i)) {
            continue;
        }
        int log = log_index(jit->options[i]);
        const char *text = log >= 0 ? jit->owned[i] : NULL;
        uint32_t bytes = text != NULL ? (uint32_t)strnlen(text, jit->log_rooms[log]) : 0;
        tows_serve_reserve(call, sizeof(struct tow_jit_field) + bytes + 8);
        tow_enc_u32(&call->out, i);
        tow_enc_u32(&call->out, bytes);
        tow_enc_u64(&call->out, log >= 0 ? 0 : (uint64_t)(uintptr_t)jit->values[i]);
        tow_enc_bytes(&call->out, text, bytes);
        tow_enc_align(&call->out, 8);
    }
}
