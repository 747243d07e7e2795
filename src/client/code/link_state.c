/* SPDX-License-Identifier: Apache-2.0 */
/* cuLink*: inputs travel by value as soon as they are added; the cubin comes back into the client's
 * memory. */
#include "client/code/code.h"

#include "base/buf.h"
#include "base/file.h"
#include "client/link/link.h"
#include "gen/module_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The object of a CUlinkState. */
struct linking {
    uint64_t id;
    struct towc_jit jit; /* of cuLinkCreate: the program keeps its arrays, where logs are written */
    CUjit_option *options; /* owned: a copy, since only the values have to stay */
    size_t rooms[2];
    uint8_t *cubin; /* owned; NULL until completed */
    size_t cubin_size;
};

static struct linking *linking_of(CUlinkState state)
{
    return towc_handle_object(TOW_H_LINKSTATE, (uint64_t)(uintptr_t)state);
}

static void linking_free(struct linking *linking)
{
    if (linking != NULL) {
        free(linking->options);
        free(linking->cubin);
        free(linking);
    }
}

CUresult towc_cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues,
                              CUlinkState *stateOut)
{
    struct towc_jit jit = {numOptions, options, optionValues};
    CUresult status = stateOut == NULL ? CUDA_ERROR_INVALID_VALUE : towc_jit_check(&jit);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct linking *linking = calloc(1, sizeof *linking);
    if (linking == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    linking->options = malloc((numOptions + 1) * sizeof *options);
    if (linking->options == NULL) {
        linking_free(linking);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (numOptions > 0) {
        memcpy(linking->options, options, numOptions * sizeof *options);
    }
    linking->jit = (struct towc_jit){numOptions, linking->options, optionValues};
    towc_jit_log_rooms(&linking->jit, linking->rooms);
    status = towc_handle_mint_object(TOW_H_LINKSTATE, linking, &linking->id);
    if (status != CUDA_SUCCESS) {
        linking_free(linking);
        return status;
    }
    struct towc_call call;
    status = towc_call_begin(&call, TOW_FN_cuLinkCreate_v2, 8 + towc_jit_size(&jit),
                             TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, linking->id);
        towc_jit_encode(&call.enc, &jit);
        status = towc_call_wait(&call);
        if (status == CUDA_SUCCESS && tow_dec_left(&call.dec) > 0) { /* a server may be older */
            towc_jit_decode(&call.dec, &linking->jit, linking->rooms);
        }
        status = towc_call_end(&call, status);
    }
    if (status != CUDA_SUCCESS) {
        towc_handle_retire(linking->id);
        linking_free(linking);
        return status;
    }
    *stateOut = (CUlinkState)(uintptr_t)linking->id;
    return CUDA_SUCCESS;
}

/* As loading: an offer, then, if the server wants it, the bytes and the same command again. */
static CUresult link_state_add(struct linking *linking, CUjitInputType type,
                               const struct towc_image *image, const char *name,
                               const struct towc_jit *jit)
{
    uint32_t transfer = 0;
    enum tow_code_stage stage = TOW_CODE_OFFER;
    size_t name_size = name != NULL ? strlen(name) + 1 : 0;
    for (;;) {
        struct towc_call call;
        CUresult status =
            towc_call_begin(&call, TOW_FN_cuLinkAddData_v2,
                            32 + sizeof(struct tow_code_ref) + name_size + towc_jit_size(jit),
                            TOW_CALL_REPLY | TOW_CALL_CONTEXT);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        struct towc_link *link = call.link;
        tow_enc_u64(&call.enc, linking->id);
        towc_code_put(&call, image, stage, &transfer);
        tow_enc_u32(&call.enc, (uint32_t)type);
        tow_enc_cstr(&call.enc, name);
        tow_enc_align(&call.enc, 8);
        towc_jit_encode(&call.enc, jit);
        status = towc_call_wait(&call);
        CUresult result = CUDA_ERROR_UNKNOWN;
        uint32_t answer = TOW_CODE_DONE;
        if (status == CUDA_SUCCESS) {
            result = (CUresult)tow_dec_u32(&call.dec);
            answer = tow_dec_u32(&call.dec);
            if (answer == TOW_CODE_DONE) {
                towc_jit_decode(&call.dec, &linking->jit, linking->rooms);
            }
        }
        status = towc_call_end(&call, status);
        if (status != CUDA_SUCCESS || answer == TOW_CODE_DONE) {
            return status != CUDA_SUCCESS ? status : result;
        }
        if (stage == TOW_CODE_SENT) {
            return CUDA_ERROR_UNKNOWN;
        }
        status = towc_link_upload(link, transfer, image->data, image->size);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        stage = TOW_CODE_SENT;
    }
}

CUresult towc_cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
                               const char *name, unsigned int numOptions, CUjit_option *options,
                               void **optionValues)
{
    struct linking *linking = linking_of(state);
    if (linking == NULL) {
        return towc_no_handle();
    }
    struct towc_jit jit = {numOptions, options, optionValues};
    CUresult status = linking->cubin != NULL || data == NULL || size == 0 || size > TOW_IMAGE_MAX ||
                              (unsigned)type >= CU_JIT_NUM_INPUT_TYPES
                          ? CUDA_ERROR_INVALID_VALUE
                          : towc_jit_check(&jit);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct towc_image image;
    towc_image_open_raw(data, size, &image);
    return link_state_add(linking, type, &image, name, &jit);
}

CUresult towc_cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path,
                               unsigned int numOptions, CUjit_option *options, void **optionValues)
{
    struct linking *linking = linking_of(state);
    if (linking == NULL) {
        return towc_no_handle();
    }
    struct towc_jit jit = {numOptions, options, optionValues};
    CUresult status = path == NULL || (unsigned)type >= CU_JIT_NUM_INPUT_TYPES
                          ? CUDA_ERROR_INVALID_VALUE
                          : towc_jit_check(&jit);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct tow_buf content;
    tow_buf_init(&content, TOW_IMAGE_MAX);
    int error = tow_file_read(path, &content);
    if (error == 0 && type == CU_JIT_INPUT_PTX) {
        error = tow_buf_append(&content, "", 1); /* a text in memory ends with a NUL */
    }
    if (error < 0 || content.size == 0) {
        tow_buf_fini(&content);
        return towc_image_result(error);
    }
    struct towc_image image;
    towc_image_open_raw(content.data, content.size, &image);
    status = link_state_add(linking, type, &image, path, &jit);
    tow_buf_fini(&content);
    return status;
}

/* The cubin comes in pieces: each reply has those bytes from `offset` that fit. */
static CUresult link_state_fetch(struct linking *linking, uint64_t offset, CUresult *ret_result,
                                 uint64_t *ret_total, uint64_t *ret_got)
{
    struct towc_call call;
    CUresult status =
        towc_call_begin(&call, TOW_FN_cuLinkComplete, 16, TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, linking->id);
    tow_enc_u64(&call.enc, offset);
    status = towc_call_wait(&call);
    if (status == CUDA_SUCCESS) {
        *ret_result = (CUresult)tow_dec_u32(&call.dec);
        tow_dec_u32(&call.dec);
        *ret_total = tow_dec_u64(&call.dec);
        *ret_got = tow_dec_u64(&call.dec);
        if (offset == 0) {
            towc_jit_decode(&call.dec, &linking->jit, linking->rooms);
        }
        if (*ret_result == CUDA_SUCCESS) {
            if (linking->cubin == NULL && *ret_total <= TOW_IMAGE_MAX) {
                linking->cubin = malloc(*ret_total + 1);
                linking->cubin_size = *ret_total;
            }
            if (linking->cubin == NULL) {
                *ret_result = CUDA_ERROR_OUT_OF_MEMORY;
            } else if (*ret_got > *ret_total - offset || *ret_total != linking->cubin_size) {
                *ret_result = CUDA_ERROR_UNKNOWN;
            } else {
                tow_dec_copy(&call.dec, linking->cubin + offset, *ret_got);
            }
        }
    }
    return towc_call_end(&call, status);
}

CUresult towc_cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
    struct linking *linking = linking_of(state);
    if (linking == NULL) {
        return towc_no_handle();
    }
    if (cubinOut == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (linking->cubin != NULL) {
        return CUDA_ERROR_INVALID_HANDLE; /* a state can be completed once */
    }
    uint64_t offset = 0, total = 0;
    do {
        CUresult result = CUDA_ERROR_UNKNOWN;
        uint64_t got = 0;
        CUresult status = link_state_fetch(linking, offset, &result, &total, &got);
        if (status == CUDA_SUCCESS) {
            status = result;
        }
        if (status == CUDA_SUCCESS && got == 0 && offset < total) {
            status = CUDA_ERROR_UNKNOWN;
        }
        if (status != CUDA_SUCCESS) {
            free(linking->cubin);
            linking->cubin = NULL;
            return status;
        }
        offset += got;
    } while (offset < total);
    *cubinOut = linking->cubin;
    if (sizeOut != NULL) {
        *sizeOut = linking->cubin_size;
    }
    return CUDA_SUCCESS;
}

CUresult towc_cuLinkDestroy(CUlinkState state)
{
    struct linking *linking = state != NULL ? linking_of(state) : NULL;
    if (linking == NULL) {
        return state != NULL ? towc_no_handle()
                             : CUDA_ERROR_INVALID_HANDLE; /* before cuInit, too */
    }
    struct towc_call call;
    CUresult status = towc_call_begin(&call, TOW_FN_cuLinkDestroy, 8, 0);
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, linking->id);
        status = towc_call_send(&call);
    }
    towc_handle_retire(linking->id);
    linking_free(linking);
    return status;
}
