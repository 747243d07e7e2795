/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes the options of the JIT compiler, and gives its logs and times back to the program. */
#include "client/code/jit_options.h"

#include "wire/code.h"

#include <string.h>

/* Where an option stands; of several the last counts. jit->count: nowhere. */
static unsigned last_of(const struct towc_jit *jit, CUjit_option option)
{
    for (unsigned i = jit->count; i > 0; i--) {
        if (jit->options[i - 1] == option) {
            return i - 1;
        }
    }
    return jit->count;
}

static size_t value_of(const struct towc_jit *jit, CUjit_option option, size_t otherwise)
{
    unsigned i = last_of(jit, option);
    return i < jit->count ? (size_t)(uintptr_t)jit->values[i] : otherwise;
}

/* Lists have their count in another option. */
static size_t names_of(const struct towc_jit *jit, CUjit_option option)
{
    switch (option) {
    case CU_JIT_GLOBAL_SYMBOL_NAMES:
    case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
        return (unsigned)value_of(jit, CU_JIT_GLOBAL_SYMBOL_COUNT, 0);
    case CU_JIT_REFERENCED_KERNEL_NAMES:
        return (unsigned)value_of(jit, CU_JIT_REFERENCED_KERNEL_COUNT, 0);
    case CU_JIT_REFERENCED_VARIABLE_NAMES:
        return (unsigned)value_of(jit, CU_JIT_REFERENCED_VARIABLE_COUNT, 0);
    default:
        return 0;
    }
}

static bool is_log(CUjit_option option)
{
    return option == CU_JIT_INFO_LOG_BUFFER || option == CU_JIT_ERROR_LOG_BUFFER;
}

/* What an option's value becomes by a server's answer. Of most it stays what the program gave: some
 * are pointers, which the next call with the same options would follow. A log's size is never more
 * than its room, for the same reason. */
static void take_value(const struct towc_jit *jit, unsigned index, uint64_t value,
                       const size_t log_rooms[2])
{
    switch (jit->options[index]) {
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        value = value < log_rooms[0] ? value : log_rooms[0];
        break;
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        value = value < log_rooms[1] ? value : log_rooms[1];
        break;
    case CU_JIT_WALL_TIME:
    case CU_JIT_THREADS_PER_BLOCK:
        break;
    default:
        return;
    }
    jit->values[index] = (void *)(uintptr_t)value;
}

CUresult towc_jit_check(const struct towc_jit *jit)
{
    if (jit->count == 0) {
        return CUDA_SUCCESS;
    }
    if (jit->count > TOW_JIT_OPTIONS_MAX || jit->options == NULL || jit->values == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < jit->count; i++) {
        if ((unsigned)jit->options[i] >= CU_JIT_NUM_OPTIONS ||
            names_of(jit, jit->options[i]) > TOW_JIT_NAMES_MAX) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

static size_t payload_of(const struct towc_jit *jit, unsigned i)
{
    size_t names = jit->values[i] != NULL ? names_of(jit, jit->options[i]) : 0;
    if (jit->options[i] == CU_JIT_GLOBAL_SYMBOL_ADDRESSES) {
        return names * sizeof(uint64_t);
    }
    const char *const *list = (const char *const *)jit->values[i];
    size_t bytes = 0;
    for (size_t n = 0; n < names; n++) {
        bytes += strlen(list[n]) + 1;
    }
    return bytes;
}

size_t towc_jit_size(const struct towc_jit *jit)
{
    size_t bytes = 8;
    for (unsigned i = 0; i < jit->count; i++) {
        bytes += sizeof(struct tow_jit_field) + payload_of(jit, i) + 8;
    }
    return bytes;
}

void towc_jit_encode(struct tow_enc *enc, const struct towc_jit *jit)
{
    tow_enc_u32(enc, jit->count);
    tow_enc_u32(enc, 0);
    for (unsigned i = 0; i < jit->count; i++) {
        CUjit_option option = jit->options[i];
        size_t names = jit->values[i] != NULL ? names_of(jit, option) : 0;
        size_t bytes = payload_of(jit, i);
        uint64_t value = (uint64_t)(uintptr_t)jit->values[i];
        if (is_log(option)) {
            value = value != 0;
        } else if (names_of(jit, option) != 0) {
            value = names;
        }
        tow_enc_u32(enc, (uint32_t)option);
        tow_enc_u32(enc, (uint32_t)bytes);
        tow_enc_u64(enc, value);
        if (option == CU_JIT_GLOBAL_SYMBOL_ADDRESSES) {
            tow_enc_bytes(enc, jit->values[i], bytes);
        } else {
            const char *const *list = (const char *const *)jit->values[i];
            for (size_t n = 0; n < names; n++) {
                tow_enc_bytes(enc, list[n], strlen(list[n]) + 1);
            }
        }
        tow_enc_align(enc, 8);
    }
}

void towc_jit_log_rooms(const struct towc_jit *jit, size_t ret_rooms[2])
{
    ret_rooms[0] = (unsigned)value_of(jit, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, 0);
    ret_rooms[1] = (unsigned)value_of(jit, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 0);
}

void towc_jit_decode(struct tow_dec *dec, const struct towc_jit *jit, const size_t log_rooms[2])
{
    uint32_t count = tow_dec_count(dec, TOW_JIT_OPTIONS_MAX, sizeof(struct tow_jit_field));
    tow_dec_u32(dec);
    for (uint32_t n = 0; n < count; n++) {
        uint32_t index = tow_dec_u32(dec);
        uint32_t bytes = tow_dec_u32(dec);
        uint64_t value = tow_dec_u64(dec);
        const uint8_t *payload = tow_dec_bytes(dec, bytes);
        tow_dec_align(dec, 8);
        if (dec->bad || index >= jit->count) {
            return;
        }
        CUjit_option option = jit->options[index];
        if (!is_log(option)) {
            take_value(jit, index, value, log_rooms);
            continue;
        }
        size_t room = log_rooms[option == CU_JIT_ERROR_LOG_BUFFER];
        char *log = jit->values[index];
        if (log == NULL || last_of(jit, option) != index) {
            continue;
        }
        /* As NVIDIA's driver, the NUL is written where there is no room, too. */
        size_t size = bytes < room ? bytes : room > 0 ? room - 1 : 0;
        if (size > 0) {
            memcpy(log, payload, size);
        }
        log[size] = '\0';
    }
}
