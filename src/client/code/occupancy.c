/* SPDX-License-Identifier: Apache-2.0 */
/* Occupancy: asked once per kernel and configuration. Libraries ask the same many times while they
 * choose. */
#include "client/code/code.h"
#include "client/code/launch_attributes.h"

#include "gen/device_client.h"
#include "gen/launch_client.h"

#include <stdlib.h>
#include <string.h>

/* What an answer depends on; for clusters the encoded configuration follows. */
struct question {
    uint32_t fn;
    uint32_t context;
    int32_t blocks, block_size;
    uint64_t shared;
    uint64_t flags;
};

/* The kernel of a handle and the current context, or why there is none. */
static CUresult occupancy_subject(CUfunction func, struct towc_kernel **ret_kernel,
                                  struct towc_context **ret_context)
{
    CUresult status = towc_code_context(ret_context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    *ret_kernel = towc_kernel_find(func);
    return *ret_kernel == NULL ? towc_no_handle()
                               : towc_kernel_reach(*ret_kernel, (*ret_context)->link);
}

CUresult towc_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func,
                                                                   int blockSize,
                                                                   size_t dynamicSMemSize,
                                                                   unsigned int flags)
{
    struct towc_kernel *kernel;
    struct towc_context *context;
    CUresult status =
        numBlocks == NULL ? CUDA_ERROR_INVALID_VALUE : occupancy_subject(func, &kernel, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct question q = {
        .fn = TOW_FN_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
        .context = context->number,
        .block_size = blockSize,
        .shared = dynamicSMemSize,
        .flags = flags,
    };
    uint64_t answer;
    if (!towc_occupancy_recall(kernel, &q, sizeof q, &answer)) {
        int blocks = 0;
        status = towc_send_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            &blocks, func, blockSize, dynamicSMemSize, flags);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        answer = (uint64_t)blocks;
        towc_occupancy_remember(kernel, &q, sizeof q, answer);
    }
    *numBlocks = (int)answer;
    return CUDA_SUCCESS;
}

CUresult towc_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func,
                                                          int blockSize, size_t dynamicSMemSize)
{
    return towc_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        numBlocks, func, blockSize, dynamicSMemSize, CU_OCCUPANCY_DEFAULT);
}

CUresult towc_cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func,
                                                      int numBlocks, int blockSize)
{
    struct towc_kernel *kernel;
    struct towc_context *context;
    CUresult status = dynamicSmemSize == NULL ? CUDA_ERROR_INVALID_VALUE
                                              : occupancy_subject(func, &kernel, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct question q = {
        .fn = TOW_FN_cuOccupancyAvailableDynamicSMemPerBlock,
        .context = context->number,
        .blocks = numBlocks,
        .block_size = blockSize,
    };
    uint64_t answer;
    if (!towc_occupancy_recall(kernel, &q, sizeof q, &answer)) {
        size_t bytes = 0;
        status =
            towc_send_cuOccupancyAvailableDynamicSMemPerBlock(&bytes, func, numBlocks, blockSize);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        answer = bytes;
        towc_occupancy_remember(kernel, &q, sizeof q, answer);
    }
    *dynamicSmemSize = (size_t)answer;
    return CUDA_SUCCESS;
}

/* The largest occupancy is looked for from the largest block downwards in steps of a warp; of equal
 * ones the larger block wins. The callback can only run here, so the search does, too. */
CUresult
towc_cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
                                               CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                               size_t dynamicSMemSize, int blockSizeLimit,
                                               unsigned int flags)
{
    struct towc_kernel *kernel;
    struct towc_context *context;
    CUresult status = minGridSize == NULL || blockSize == NULL || blockSizeLimit < 0
                          ? CUDA_ERROR_INVALID_VALUE
                          : occupancy_subject(func, &kernel, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    const struct towc_launch_limits *limits = towc_launch_limits(context->device);
    int threads = 0, per_processor = 0;
    if (limits == NULL || limits->warp == 0 || limits->warp > UINT16_MAX) {
        return towc_no_context();
    }
    status = towc_kernel_attribute(kernel, context->device, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                   &threads);
    if (status == CUDA_SUCCESS) {
        status = towc_cuDeviceGetAttribute(
            &per_processor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, context->device);
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    int warp = (int)limits->warp;
    int largest = threads < (int)limits->threads ? threads : (int)limits->threads;
    largest = largest < UINT16_MAX ? largest : UINT16_MAX; /* as tow_launch_dimension says */
    if (blockSizeLimit != 0 && blockSizeLimit < largest) {
        largest = blockSizeLimit;
    }
    int best_size = 0, best_blocks = 0;
    int64_t best_threads = 0;
    int size = (largest + warp - 1) / warp * warp;
    for (; size > 0 && best_threads < per_processor; size -= warp) {
        int tried = size < largest ? size : largest;
        size_t shared = blockSizeToDynamicSMemSize != NULL ? blockSizeToDynamicSMemSize(tried)
                                                           : dynamicSMemSize;
        int blocks = 0;
        status = towc_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, func, tried,
                                                                           shared, flags);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        if ((int64_t)blocks * tried > best_threads) {
            best_threads = (int64_t)blocks * tried;
            best_blocks = blocks;
            best_size = tried;
        }
    }
    *minGridSize = (int)((int64_t)best_blocks * (int)limits->processors);
    *blockSize = best_size;
    return CUDA_SUCCESS;
}

CUresult towc_cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
                                               CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                               size_t dynamicSMemSize, int blockSizeLimit)
{
    return towc_cuOccupancyMaxPotentialBlockSizeWithFlags(
        minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit,
        CU_OCCUPANCY_DEFAULT);
}

/* ---- clusters ---- */

static CUresult occupancy_clusters(unsigned fn, int *ret_count, CUfunction func,
                                   const CUlaunchConfig *config)
{
    if (ret_count == NULL || config == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_kernel *kernel;
    struct towc_context *context;
    CUresult status = occupancy_subject(func, &kernel, &context);
    size_t attributes_size = 0;
    if (status == CUDA_SUCCESS) {
        status = towc_launch_attributes_check(config->attrs, config->numAttrs, &attributes_size);
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct tow_launch_head head = {
        .function = kernel->id,
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {tow_launch_dimension(config->blockDimX), tow_launch_dimension(config->blockDimY),
                  tow_launch_dimension(config->blockDimZ)},
        .shared = config->sharedMemBytes,
        .stream = (uint64_t)(uintptr_t)config->hStream,
    };
    struct question q = {.fn = fn, .context = context->number};
    size_t room = sizeof q + sizeof head + attributes_size;
    uint64_t *key = malloc(room + 8); /* u64: the cursor aligns by address */
    if (key == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct tow_enc enc = tow_enc_init(key, room);
    tow_enc_bytes(&enc, &q, sizeof q);
    tow_enc_bytes(&enc, &head, sizeof head);
    towc_launch_attributes_encode(&enc, config->attrs, config->numAttrs);
    uint32_t size = (uint32_t)(enc.at - (uint8_t *)key);
    uint64_t answer = 0;
    if (!towc_occupancy_recall(kernel, key, size, &answer)) {
        struct towc_call call;
        status = towc_call_begin(&call, fn, size, TOW_CALL_REPLY | TOW_CALL_CONTEXT);
        if (status == CUDA_SUCCESS) {
            tow_enc_bytes(&call.enc, (uint8_t *)key + sizeof q, size - sizeof q);
            status = towc_call_wait(&call);
            if (status == CUDA_SUCCESS) {
                answer = (uint32_t)tow_dec_i32(&call.dec);
            }
            status = towc_call_end(&call, status);
        }
        if (status == CUDA_SUCCESS) {
            towc_occupancy_remember(kernel, key, size, answer);
        }
    }
    free(key);
    if (status == CUDA_SUCCESS) {
        *ret_count = (int)answer;
    }
    return status;
}

CUresult towc_cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func,
                                                 const CUlaunchConfig *config)
{
    return occupancy_clusters(TOW_FN_cuOccupancyMaxPotentialClusterSize, clusterSize, func, config);
}

CUresult towc_cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func,
                                           const CUlaunchConfig *config)
{
    return occupancy_clusters(TOW_FN_cuOccupancyMaxActiveClusters, numClusters, func, config);
}
