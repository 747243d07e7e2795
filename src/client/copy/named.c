/* SPDX-License-Identifier: Apache-2.0 */
/* Sends copies that name addresses, and makes host memory reachable for them. */
#include "client/copy/named.h"

#include "base/clock.h"
#include "client/callback/hostfn.h"
#include "client/hostmem/mirror.h"
#include "gen/copy_client.h"
#include "gen/stream_client.h"

/* How long a copy that is large or has rows waits for host functions that were queued before. */
#define FUNCTIONS_NS (100 * TOW_TIME_MS)

bool towc_named_push(struct towc_copy *copy, CUresult *ret_status)
{
    *ret_status = towc_mirror_push(copy->link);
    return *ret_status != CUDA_SUCCESS;
}

/* ---- commands ---- */

static CUresult send_rows(const struct tow_copy_3d *copy_3d)
{
    struct towc_call call;
    CUresult status =
        towc_call_begin(&call, TOW_FN_cuMemcpy3DAsync_v2, sizeof *copy_3d, TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_bytes(&call.enc, copy_3d, sizeof *copy_3d);
    return towc_call_send(&call);
}

/* How many bytes from the first address on an operand in host memory takes. */
static size_t named_span(const struct tow_copy_operand *operand, const struct tow_copy_3d *copy_3d)
{
    uint64_t pitch = operand->pitch != 0 ? operand->pitch : operand->x + copy_3d->width;
    uint64_t height = operand->height != 0 ? operand->height : operand->y + copy_3d->rows;
    return pitch * height * (operand->z + copy_3d->planes - 1) +
           pitch * (operand->y + copy_3d->rows - 1) + operand->x + copy_3d->width;
}

static CUresult reach_operand(const struct tow_copy_operand *operand,
                              const struct tow_copy_3d *copy_3d)
{
    return operand->kind != TOW_AT_ADDRESS
               ? CUDA_SUCCESS
               : towc_mirror_host_here((const void *)(uintptr_t)operand->address,
                                       named_span(operand, copy_3d));
}

/* A copy whose host operands stay where they are: the worker has that memory at the same address.
 */
static CUresult send_named_rows(const struct tow_copy_3d *named)
{
    CUresult status = reach_operand(&named->from, named);
    if (status == CUDA_SUCCESS) {
        status = reach_operand(&named->to, named);
    }
    return status == CUDA_SUCCESS ? send_rows(named) : status;
}

/* A capture refuses a copy of what is no memory, so that is waited for. */
static CUresult send_device_to_device(const struct towc_copy *copy)
{
    unsigned captured = towc_capture_flag(copy->stream);
    if (captured != 0 && (towc_mirror_check_device(copy->to, copy->size) != CUDA_SUCCESS ||
                          towc_mirror_check_device(copy->from, copy->size) != CUDA_SUCCESS)) {
        captured = 0;
    }
    struct towc_call call;
    CUresult status =
        towc_call_begin(&call, TOW_FN_cuMemcpyDtoDAsync_v2, 32, TOW_CALL_CONTEXT | captured);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, copy->to);
    tow_enc_u64(&call.enc, copy->from);
    tow_enc_u64(&call.enc, copy->size);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)copy->stream);
    return towc_call_send(&call);
}

/* ---- executors ---- */

bool towc_named_device(struct towc_copy *copy, CUresult *ret_status)
{
    *ret_status = copy->rows != NULL ? send_rows(&copy->rows->packed) : send_device_to_device(copy);
    return true;
}

/* One whose device's operand is no memory: the driver cannot see from the address that it is meant
 * as the device's, so this says so. */
static CUresult send_made_up(struct towc_copy *copy)
{
    bool up = (copy->facts & TOW_FACT_UP) != 0;
    struct tow_copy_3d named = {
        .from = {.kind = up ? TOW_AT_ADDRESS : TOW_AT_DEVICE, .address = copy->from},
        .to = {.kind = up ? TOW_AT_DEVICE : TOW_AT_ADDRESS, .address = copy->to},
        .width = copy->size,
        .rows = 1,
        .planes = 1,
        .stream = (uint64_t)(uintptr_t)copy->stream,
    };
    CUresult status = towc_mirror_push(copy->link);
    return status == CUDA_SUCCESS ? send_named_rows(&named) : status;
}

bool towc_named_captured(struct towc_copy *copy, CUresult *ret_status)
{
    if (copy->rows != NULL) {
        *ret_status = send_named_rows(&copy->rows->named);
    } else if (copy->facts & TOW_FACT_BAD) {
        *ret_status = send_made_up(copy);
    } else {
        *ret_status = towc_mirror_host_here(copy->host.first, copy->size);
        if (*ret_status == CUDA_SUCCESS) {
            *ret_status = towc_send_cuMemcpyAsync(copy->to, copy->from, copy->size, copy->stream);
        }
    }
    return true;
}

/* Rows of memory that is lent in part must be one piece to the driver. */
static CUresult join_rows(struct towc_copy *copy)
{
    CUresult status = towc_mirror_host(copy->link, (uint64_t)(uintptr_t)copy->host.first,
                                       towc_host_rect_span(&copy->host));
    return status == CUDA_SUCCESS ? towc_mirror_push(copy->link) : status;
}

/* Kernels that come before the copy in its stream may be writing its host memory, and those behind
 * it read there. So the worker's memory takes part in it, and the program's is made equal as
 * always. */
bool towc_named_copy(struct towc_copy *copy, CUresult *ret_status)
{
    if (copy->rows != NULL) {
        *ret_status = copy->facts & TOW_FACT_PARTLY ? join_rows(copy) : CUDA_SUCCESS;
        if (*ret_status == CUDA_SUCCESS) {
            *ret_status = send_named_rows(&copy->rows->named);
        }
        return true;
    }
    *ret_status = towc_mirror_push(copy->link);
    if (*ret_status == CUDA_SUCCESS) {
        *ret_status = towc_send_cuMemcpyAsync(copy->to, copy->from, copy->size, copy->stream);
    }
    return true;
}

bool towc_named_turn(struct towc_copy *copy, CUresult *ret_status)
{
    *ret_status = CUDA_SUCCESS;
    if (towc_hostfn_wait_all(copy->link, FUNCTIONS_NS)) {
        return false;
    }
    if (towc_mirror_host(copy->link, (uint64_t)(uintptr_t)copy->host.first,
                         towc_host_rect_span(&copy->host)) == CUDA_SUCCESS) {
        copy->facts = (copy->facts & ~(unsigned)TOW_FACT_PARTLY) | TOW_FACT_MIRRORED;
        *ret_status = copy->rows != NULL ? towc_mirror_push(copy->link) : CUDA_SUCCESS;
    } else if (copy->facts & TOW_FACT_UP) {
        *ret_status = towc_send_cuStreamSynchronize(copy->stream);
    }
    return *ret_status != CUDA_SUCCESS;
}
