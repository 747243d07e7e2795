/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of two and three dimensions, and of arrays: reads what the program asks for. Of host
 * memory that the worker does not have the rows travel packed (wire/copy.h).
 */
#include "client/copy/copy.h"
#include "client/hostmem/mirror.h"
#include "client/stream/context.h"
#include "gen/copy_client.h"
#include "gen/stream_client.h"

/* A copy as the program describes it, its operands not resolved. */
static struct tow_copy_3d describe_3d(const CUDA_MEMCPY3D_PEER *p, bool peer)
{
    return (struct tow_copy_3d){
        .from = {.pitch = p->srcPitch,
                 .height = p->srcHeight,
                 .x = p->srcXInBytes,
                 .y = p->srcY,
                 .z = p->srcZ,
                 .level = (uint32_t)p->srcLOD,
                 .context = (uint64_t)(uintptr_t)p->srcContext},
        .to = {.pitch = p->dstPitch,
               .height = p->dstHeight,
               .x = p->dstXInBytes,
               .y = p->dstY,
               .z = p->dstZ,
               .level = (uint32_t)p->dstLOD,
               .context = (uint64_t)(uintptr_t)p->dstContext},
        .width = p->WidthInBytes,
        .rows = p->Height,
        .planes = p->Depth,
        .flags = peer ? TOW_COPY_3D_PEER : 0,
    };
}

/* One operand of a copy. Host memory is `ret_host`, and packed on its way. */
static CUresult resolve_operand(const struct tow_copy_3d *copy_3d, struct tow_copy_operand *operand,
                                CUmemorytype type, const void *host, CUdeviceptr device,
                                CUarray array, CUstream stream, struct towc_host_rect *ret_host)
{
    uint64_t width = copy_3d->width, rows = copy_3d->rows;
    if (type == CU_MEMORYTYPE_UNIFIED) {
        type = towc_copy_is_device(device, stream) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        host = (const void *)(uintptr_t)device;
    }
    if (operand->pitch == 0) {
        operand->pitch = operand->x + width;
    }
    if (operand->height == 0) {
        operand->height = operand->y + rows;
    }
    if (type != CU_MEMORYTYPE_ARRAY &&
        (operand->pitch < operand->x + width || operand->height < operand->y + rows)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        if (host == NULL) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        operand->kind = TOW_AT_HOST;
        *ret_host = (struct towc_host_rect){.width = width,
                                            .rows = rows,
                                            .planes = copy_3d->planes,
                                            .pitch = operand->pitch,
                                            .plane = operand->pitch * operand->height};
        ret_host->first = (uint8_t *)(uintptr_t)host + operand->z * ret_host->plane +
                          operand->y * operand->pitch + operand->x;
        operand->address = operand->x = operand->y = operand->z = 0;
        operand->pitch = width;
        operand->height = rows;
        return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
        operand->kind = TOW_AT_DEVICE;
        operand->address = device;
        return towc_mirror_check_work(stream, device, 1);
    case CU_MEMORYTYPE_ARRAY:
        operand->kind = TOW_AT_ARRAY;
        operand->address = (uint64_t)(uintptr_t)array;
        operand->pitch = operand->height = 0;
        if (array == NULL) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        return towc_handle_valid(TOW_H_ARRAY, operand->address) ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_HANDLE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* The operand as an address: host memory that a graph uses at every launch, or that the worker has.
 */
static void name_operand(struct tow_copy_operand *operand, const struct tow_copy_operand *resolved,
                         CUmemorytype type, const void *host, CUdeviceptr device)
{
    bool here = resolved->kind == TOW_AT_HOST;
    operand->kind = here ? TOW_AT_ADDRESS : resolved->kind;
    operand->address = !here                           ? resolved->address
                       : type == CU_MEMORYTYPE_UNIFIED ? device
                                                       : (uint64_t)(uintptr_t)host;
}

/* Bytes that travel; 0 if there is no such number. */
static uint64_t packed_size(const struct tow_copy_3d *copy_3d)
{
    uint64_t bytes;
    return __builtin_mul_overflow(copy_3d->width, copy_3d->rows, &bytes) ||
                   __builtin_mul_overflow(bytes, copy_3d->planes, &bytes)
               ? 0
               : bytes;
}

/* `facts`: TOW_FACT_WAIT if the program's call is synchronous; `peer`: the two operands name their
 * contexts. */
static CUresult copy_rows(const CUDA_MEMCPY3D_PEER *p, CUstream stream, unsigned facts, bool peer)
{
    struct towc_copy_rows rows = {.asked = p, .packed = describe_3d(p, peer)};
    struct towc_copy copy = {.stream = stream, .facts = facts, .rows = &rows};
    struct tow_copy_3d *packed = &rows.packed, *named = &rows.named;
    CUresult status = towc_context_link(&copy.link);
    if (status != CUDA_SUCCESS || p->WidthInBytes == 0 || p->Height == 0 || p->Depth == 0) {
        return status;
    }
    packed->stream = (uint64_t)(uintptr_t)stream;
    *named = *packed;
    status = resolve_operand(packed, &packed->from, p->srcMemoryType, p->srcHost, p->srcDevice,
                             p->srcArray, stream, &rows.from);
    if (status == CUDA_SUCCESS) {
        status = resolve_operand(packed, &packed->to, p->dstMemoryType, p->dstHost, p->dstDevice,
                                 p->dstArray, stream, &rows.to);
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    name_operand(&named->from, &packed->from, p->srcMemoryType, p->srcHost, p->srcDevice);
    name_operand(&named->to, &packed->to, p->dstMemoryType, p->dstHost, p->dstDevice);
    bool up = packed->from.kind == TOW_AT_HOST, down = packed->to.kind == TOW_AT_HOST;
    packed->bytes = up != down ? packed_size(packed) : 0;
    copy.facts |= (up ? TOW_FACT_UP : 0) | (down ? TOW_FACT_DOWN : 0);
    status = towc_copy_look_rows(&copy);
    return status == CUDA_SUCCESS ? towc_copy_run(&copy) : status;
}

static CUDA_MEMCPY3D_PEER peer_of_3d(const CUDA_MEMCPY3D *c)
{
    return (CUDA_MEMCPY3D_PEER){
        .srcXInBytes = c->srcXInBytes,
        .srcY = c->srcY,
        .srcZ = c->srcZ,
        .srcLOD = c->srcLOD,
        .srcMemoryType = c->srcMemoryType,
        .srcHost = c->srcHost,
        .srcDevice = c->srcDevice,
        .srcArray = c->srcArray,
        .srcPitch = c->srcPitch,
        .srcHeight = c->srcHeight,
        .dstXInBytes = c->dstXInBytes,
        .dstY = c->dstY,
        .dstZ = c->dstZ,
        .dstLOD = c->dstLOD,
        .dstMemoryType = c->dstMemoryType,
        .dstHost = c->dstHost,
        .dstDevice = c->dstDevice,
        .dstArray = c->dstArray,
        .dstPitch = c->dstPitch,
        .dstHeight = c->dstHeight,
        .WidthInBytes = c->WidthInBytes,
        .Height = c->Height,
        .Depth = c->Depth,
    };
}

static CUDA_MEMCPY3D_PEER peer_of_2d(const CUDA_MEMCPY2D *c)
{
    return (CUDA_MEMCPY3D_PEER){
        .srcXInBytes = c->srcXInBytes,
        .srcY = c->srcY,
        .srcMemoryType = c->srcMemoryType,
        .srcHost = c->srcHost,
        .srcDevice = c->srcDevice,
        .srcArray = c->srcArray,
        .srcPitch = c->srcPitch,
        .dstXInBytes = c->dstXInBytes,
        .dstY = c->dstY,
        .dstMemoryType = c->dstMemoryType,
        .dstHost = c->dstHost,
        .dstDevice = c->dstDevice,
        .dstArray = c->dstArray,
        .dstPitch = c->dstPitch,
        .WidthInBytes = c->WidthInBytes,
        .Height = c->Height,
        .Depth = 1,
    };
}

/* A copy that is not described: that there is a context is looked at first. */
static CUresult no_copy(void)
{
    struct towc_link *link;
    CUresult status = towc_context_link(&link);
    return status != CUDA_SUCCESS ? status : CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream, unsigned facts)
{
    if (copy == NULL) {
        return no_copy();
    }
    CUDA_MEMCPY3D_PEER peer = peer_of_2d(copy);
    return copy_rows(&peer, stream, facts, false);
}

CUresult towc_cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, towc_default_stream(), TOW_FACT_WAIT);
}

CUresult towc_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, towc_default_stream(), TOW_FACT_WAIT);
}

CUresult towc_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    return copy_2d(pCopy, hStream, 0);
}

CUresult towc_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    if (pCopy == NULL) {
        return no_copy();
    }
    CUDA_MEMCPY3D_PEER peer = peer_of_3d(pCopy);
    return copy_rows(&peer, hStream, 0, false);
}

CUresult towc_cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
    if (pCopy == NULL) {
        return no_copy();
    }
    CUDA_MEMCPY3D_PEER peer = peer_of_3d(pCopy);
    return copy_rows(&peer, towc_default_stream(), TOW_FACT_WAIT, false);
}

CUresult towc_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
    return pCopy == NULL ? no_copy() : copy_rows(pCopy, hStream, 0, true);
}

CUresult towc_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
    if (pCopy == NULL) {
        return no_copy();
    }
    CUstream stream = towc_default_stream();
    bool others = false;
    CUresult status = towc_copy_wait_for_others(pCopy->dstContext, pCopy->srcContext, &others);
    if (status == CUDA_SUCCESS) {
        status = copy_rows(pCopy, stream, TOW_FACT_WAIT, true);
    }
    return status == CUDA_SUCCESS && others ? towc_send_cuStreamSynchronize(stream) : status;
}

/* A row of bytes; of each operand only what its type names counts. `up`: to the array. */
static CUresult copy_row(CUarray array, size_t offset, const void *host, size_t size, bool up,
                         CUstream stream, unsigned facts)
{
    CUDA_MEMCPY3D_PEER p = {.srcMemoryType = up ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY,
                            .dstMemoryType = up ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST,
                            .srcHost = host,
                            .dstHost = (void *)(uintptr_t)host,
                            .srcArray = array,
                            .dstArray = array,
                            .srcXInBytes = up ? 0 : offset,
                            .dstXInBytes = up ? offset : 0,
                            .WidthInBytes = size,
                            .Height = 1,
                            .Depth = 1};
    return copy_rows(&p, stream, facts, false);
}

CUresult towc_cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost,
                              size_t ByteCount)
{
    return copy_row(dstArray, dstOffset, srcHost, ByteCount, true, towc_default_stream(),
                    TOW_FACT_WAIT);
}

CUresult towc_cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return copy_row(srcArray, srcOffset, dstHost, ByteCount, false, towc_default_stream(),
                    TOW_FACT_WAIT);
}

CUresult towc_cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost,
                                   size_t ByteCount, CUstream hStream)
{
    return copy_row(dstArray, dstOffset, srcHost, ByteCount, true, hStream, 0);
}

CUresult towc_cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset,
                                   size_t ByteCount, CUstream hStream)
{
    return copy_row(srcArray, srcOffset, dstHost, ByteCount, false, hStream, 0);
}

/* ---- between arrays and device memory ---- */

/* CUDA_SUCCESS with *ret_empty: nothing is to be copied. `device`: the operand that is no array, or
 * 0. What the host wrote there, if it can, comes first. */
static CUresult check_arrays(bool have, CUdeviceptr device, size_t size, bool *ret_empty)
{
    struct towc_link *link;
    CUresult status = towc_context_link(&link);
    *ret_empty = size == 0;
    if (status == CUDA_SUCCESS && size > 0) {
        status = have ? towc_mirror_reach(device) : CUDA_ERROR_INVALID_VALUE;
    }
    return status == CUDA_SUCCESS && size > 0 ? towc_mirror_push(link) : status;
}

CUresult towc_cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                              size_t ByteCount)
{
    bool empty;
    CUresult status = check_arrays(dstArray != NULL, srcDevice, ByteCount, &empty);
    return status != CUDA_SUCCESS || empty
               ? status
               : towc_send_cuMemcpyDtoA_v2(dstArray, dstOffset, srcDevice, ByteCount);
}

CUresult towc_cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                              size_t ByteCount)
{
    bool empty;
    CUresult status = check_arrays(srcArray != NULL, dstDevice, ByteCount, &empty);
    return status != CUDA_SUCCESS || empty
               ? status
               : towc_send_cuMemcpyAtoD_v2(dstDevice, srcArray, srcOffset, ByteCount);
}

CUresult towc_cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray,
                              size_t srcOffset, size_t ByteCount)
{
    bool empty;
    CUresult status = check_arrays(dstArray != NULL && srcArray != NULL, 0, ByteCount, &empty);
    return status != CUDA_SUCCESS || empty
               ? status
               : towc_send_cuMemcpyAtoA_v2(dstArray, dstOffset, srcArray, srcOffset, ByteCount);
}
