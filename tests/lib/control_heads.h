/* SPDX-License-Identifier: Apache-2.0 */
/* Whole frames of control messages of which the product writes the body alone (tow_*_head), because
 * a line's own sender puts the header in front. */
#ifndef TOW_TESTS_CONTROL_HEADS_H
#define TOW_TESTS_CONTROL_HEADS_H

#include "wire/control.h"

static inline int tow_frame_of_head(uint16_t kind, const void *head, size_t head_size,
                                    const void *bytes, size_t count, void *at, size_t size,
                                    uint32_t *ret_length)
{
    struct tow_enc enc = tow_frame_begin(at, size);
    tow_enc_bytes(&enc, head, head_size);
    tow_enc_bytes(&enc, bytes, count);
    return tow_frame_end(&enc, at, (struct tow_frame){.kind = kind}, ret_length);
}

#define TOW_FRAME_OF_HEAD(name, NAME, bytes, count)                                                \
    static inline int tow_##name##_encode(const struct tow_##name *value, void *at, size_t size,   \
                                          uint32_t *ret_length)                                    \
    {                                                                                              \
        uint8_t head[TOW_##NAME##_HEAD];                                                           \
        tow_##name##_head(value, head);                                                            \
        return tow_frame_of_head(TOW_CONTROL_##NAME, head, sizeof head, bytes, count, at, size,    \
                                 ret_length);                                                      \
    }

TOW_FRAME_OF_HEAD(callback, CALLBACK, NULL, 0)
TOW_FRAME_OF_HEAD(callback_done, CALLBACK_DONE, NULL, 0)
TOW_FRAME_OF_HEAD(callback_bytes, CALLBACK_BYTES, value->bytes, (size_t)value->size)
TOW_FRAME_OF_HEAD(fence, FENCE, NULL, 0)
TOW_FRAME_OF_HEAD(fetch, FETCH, NULL, 0)

#endif
