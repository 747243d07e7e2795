/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that wait for values in memory, and write them. */
#include "client/hostmem/memops.h"

#include "client/hostmem/mirror.h"
#include "client/stream/stream.h"
#include "gen/stream_client.h"

/* 0 for an operation without an address. */
static uint64_t memops_address(const CUstreamBatchMemOpParams *op)
{
    switch ((int)op->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return op->waitValue.address;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return op->writeValue.address;
    default:
        return 0;
    }
}

CUresult towc_memops_reach(const CUstreamBatchMemOpParams *ops, unsigned count)
{
    CUresult status = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && status == CUDA_SUCCESS; i++) {
        status = towc_mirror_reach(memops_address(&ops[i]));
    }
    return status;
}

CUresult towc_cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                                    CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
    if (paramArray == NULL && count > 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && status == CUDA_SUCCESS; i++) {
        status = towc_mirror_reach_work(memops_address(&paramArray[i]));
    }
    return status != CUDA_SUCCESS
               ? status
               : towc_send_cuStreamBatchMemOp_v2(stream, count, paramArray, flags);
}

/* The first versions of these are not supported by any driver that CUDA 13 runs on. */
static CUresult first_memops(CUstream stream)
{
    CUresult status = towc_stream_check(stream);
    return status != CUDA_SUCCESS ? status : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult towc_cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                   unsigned int flags)
{
    (void)addr, (void)value, (void)flags;
    return first_memops(stream);
}

CUresult towc_cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                  unsigned int flags)
{
    (void)addr, (void)value, (void)flags;
    return first_memops(stream);
}

CUresult towc_cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                   unsigned int flags)
{
    (void)addr, (void)value, (void)flags;
    return first_memops(stream);
}

CUresult towc_cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                  unsigned int flags)
{
    (void)addr, (void)value, (void)flags;
    return first_memops(stream);
}

CUresult towc_cuStreamBatchMemOp(CUstream stream, unsigned int count,
                                 CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
    (void)count, (void)paramArray, (void)flags;
    return first_memops(stream);
}
