/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the bytes of uploads. Nobody waits for a reply: the source has been read when the call
 * returns, which is what CUDA promises for pageable memory. */
#include "client/copy/upload.h"

#include <stdlib.h>

#include "client/callback/deferred_upload.h"
#include "client/copy/download.h"
#include "client/copy/stage.h"
#include "client/link/lane.h"
#include "gen/copy.h"

bool towc_upload_wait_source(struct towc_copy *copy, CUresult *ret_status)
{
    *ret_status =
        towc_download_wait(copy->link, copy->host.first, towc_host_rect_span(&copy->host));
    towc_copy_look_again(copy);
    return *ret_status != CUDA_SUCCESS;
}

bool towc_upload_deferred(struct towc_copy *copy, CUresult *ret_status)
{
    return towc_deferred_upload_put(copy->to, copy->host.first, copy->size, copy->stream,
                                    ret_status);
}

/* The call is synchronous, and nobody waits for the device. */
static bool upload_is_synchronous(const struct towc_copy *copy, enum towc_copy_way way)
{
    return (copy->facts & TOW_FACT_WAIT) && !towc_copy_awaits(copy->facts, way);
}

bool towc_upload_staged(struct towc_copy *copy, CUresult *ret_status)
{
    struct towc_staged staged = towc_staged_of(copy);
    /* A small one may still be under way when the call returns, as natively. */
    bool synchronous = upload_is_synchronous(copy, TOW_WAY_STAGED) &&
                       (copy->rows != NULL || copy->size > TOW_COPY_INLINE_MAX);
    return towc_stage_up(copy->link, &staged, synchronous, ret_status);
}

/* ---- over the line ---- */

static void encode_rows(struct tow_enc *enc, const struct towc_copy *copy, uint32_t transfer,
                        unsigned flags)
{
    struct tow_copy_3d sent = copy->rows->packed;
    sent.transfer = transfer;
    sent.flags |= flags;
    tow_enc_bytes(enc, &sent, sizeof sent);
}

/* The command. `bytes` ride in it; NULL: they follow, as a transfer. */
static CUresult send_command(const struct towc_copy *copy, const uint8_t *bytes, unsigned lanes,
                             uint32_t *ret_transfer)
{
    bool flat = copy->rows == NULL,
         synchronous = bytes == NULL && upload_is_synchronous(copy, TOW_WAY_LINE);
    struct towc_call call;
    CUresult status =
        towc_call_begin(&call, flat ? TOW_FN_cuMemcpyHtoDAsync_v2 : TOW_FN_cuMemcpy3DAsync_v2,
                        (flat ? 40 : sizeof(struct tow_copy_3d)) + (bytes != NULL ? copy->size : 0),
                        TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    *ret_transfer = bytes != NULL ? 0 : copy->link->send.next_transfer++;
    if (flat) {
        tow_enc_u64(&call.enc, copy->to);
        tow_enc_u64(&call.enc, copy->size);
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)copy->stream);
        tow_enc_u32(&call.enc, *ret_transfer);
        tow_enc_u32(&call.enc, (lanes > 0 ? TOW_COPY_SPREAD : TOW_COPY_BYTES) |
                                   (synchronous ? TOW_COPY_SYNCHRONOUS : 0));
    } else {
        encode_rows(&call.enc, copy, *ret_transfer,
                    (lanes > 0 ? TOW_COPY_3D_SPREAD : 0) |
                        (synchronous ? TOW_COPY_3D_SYNCHRONOUS : 0));
    }
    if (bytes != NULL) {
        tow_enc_bytes(&call.enc, bytes, copy->size);
    }
    return towc_call_send(&call);
}

/* The bytes are packed into the frames' room, if they do not lie side by side. */
static CUresult send_packed(const struct towc_copy *copy, const struct towc_packer *packer,
                            unsigned lanes)
{
    uint32_t transfer = 0;
    bool inside = copy->size <= TOW_COPY_INLINE_MAX;
    const uint8_t *bytes = inside ? towc_packer_bytes(packer, 0, copy->size) : NULL;
    CUresult status = send_command(copy, bytes, lanes, &transfer);
    return status == CUDA_SUCCESS && !inside ? towc_lane_upload(copy->link, transfer, packer, lanes)
                                             : status;
}

bool towc_upload_line(struct towc_copy *copy, CUresult *ret_status)
{
    unsigned lanes = towc_lane_use(copy->link, copy->size);
    struct towc_packer packer = towc_packer_of(&copy->host, TOW_DATA_MAX);
    /* A frame of each line. */
    packer.room = packer.flat ? NULL : malloc(packer.each * (lanes + 1));
    *ret_status = packer.flat || packer.room != NULL ? send_packed(copy, &packer, lanes)
                                                     : CUDA_ERROR_OUT_OF_MEMORY;
    free(packer.room);
    return true;
}
