/* SPDX-License-Identifier: Apache-2.0 */
/* Encoders and decoders of the bodies about code. */
#include "wire/code.h"

#include <string.h>

static uint32_t check_of(const uint8_t *bytes, size_t size)
{
    uint8_t digest[TOW_SHA256_SIZE];
    uint32_t check;
    tow_sha256_of(bytes, size, digest);
    memcpy(&check, digest, sizeof check);
    return check;
}

bool tow_kernel_fact_read(struct tow_dec *dec, struct tow_kernel_info *ret_info,
                          const uint8_t **ret_params, const char **ret_name)
{
    struct tow_kernel_fact head;
    if (tow_dec_left(dec) < sizeof head) {
        return false;
    }
    tow_dec_copy(dec, &head, sizeof head);
    if (head.bytes < sizeof head || head.bytes % 8 != 0 || head.bytes > TOW_KERNEL_FACT_MAX) {
        return false;
    }
    const uint8_t *body = tow_dec_bytes(dec, head.bytes - sizeof head);
    if (body == NULL || check_of(body, head.bytes - sizeof head) != head.check) {
        return false;
    }
    struct tow_dec in = tow_dec_init(body, head.bytes - sizeof head);
    tow_dec_copy(&in, ret_info, sizeof *ret_info);
    if (in.bad || ret_info->params > TOW_KERNEL_PARAMS_MAX) {
        return false;
    }
    *ret_params = tow_dec_bytes(&in, (size_t)ret_info->params * 8);
    *ret_name = tow_dec_cstr(&in, TOW_KERNEL_NAME_MAX);
    return !in.bad && *ret_name != NULL;
}

bool tow_kernel_fact_write(struct tow_enc *enc, const struct tow_kernel_info *info,
                           const void *params, const char *name)
{
    struct tow_kernel_fact head;
    uint8_t *start = tow_enc_block(enc, sizeof head);
    tow_enc_bytes(enc, info, sizeof *info);
    tow_enc_bytes(enc, params, (size_t)info->params * 8);
    tow_enc_cstr(enc, name);
    tow_enc_align(enc, 8);
    if (enc->overflow || start == NULL) {
        return false;
    }
    head.bytes = (uint32_t)(enc->at - start);
    head.check = check_of(start + sizeof head, head.bytes - sizeof head);
    memcpy(start, &head, sizeof head);
    return head.bytes <= TOW_KERNEL_FACT_MAX;
}
