/* SPDX-License-Identifier: Apache-2.0 */
/* Launch attributes: what can be refused at once, and their bytes. */
#include "client/code/launch_attributes.h"

#include <string.h>

#include "client/code/code.h"
#include "client/stream/stream.h"
#include "wire/code.h"

static unsigned value_words(const CUlaunchAttributeValue *value)
{
    uint64_t words[TOW_LAUNCH_VALUE_WORDS];
    _Static_assert(sizeof words == sizeof *value, "a launch attribute's value has 64 bytes");
    memcpy(words, value, sizeof words);
    unsigned n = TOW_LAUNCH_VALUE_WORDS;
    while (n > 0 && words[n - 1] == 0) {
        n--;
    }
    return n;
}

CUresult towc_launch_attributes_check(const CUlaunchAttribute *attributes, unsigned count,
                                      size_t *ret_size)
{
    if (count > TOW_LAUNCH_ATTRIBUTES_MAX || (count > 0 && attributes == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t size = 8;
    for (unsigned i = 0; i < count; i++) {
        CUevent event = NULL;
        if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
            event = attributes[i].value.programmaticEvent.event;
        } else if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
            event = attributes[i].value.launchCompletionEvent.event;
        }
        if (event != NULL) {
            towc_event_elsewhere(event);
        }
        if (event != NULL && !towc_handle_valid(TOW_H_EVENT, (uint64_t)(uintptr_t)event)) {
            return towc_no_handle();
        }
        size += sizeof(struct tow_launch_attribute) + sizeof(CUlaunchAttributeValue);
    }
    *ret_size = size;
    return CUDA_SUCCESS;
}

void towc_launch_attributes_encode(struct tow_enc *enc, const CUlaunchAttribute *attributes,
                                   unsigned count)
{
    tow_enc_u32(enc, count);
    tow_enc_u32(enc, 0);
    for (unsigned i = 0; i < count; i++) {
        unsigned words = value_words(&attributes[i].value);
        tow_enc_u32(enc, (uint32_t)attributes[i].id);
        tow_enc_u32(enc, words);
        tow_enc_bytes(enc, &attributes[i].value, (size_t)words * 8);
    }
}
