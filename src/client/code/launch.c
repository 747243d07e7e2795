/* SPDX-License-Identifier: Apache-2.0 */
/* cuLaunchKernel, cuLaunchKernelEx, cuLaunchCooperativeKernel.
 *
 * The path of an ordinary launch allocates nothing and takes one lock, the link's: its cost is what
 * a training loop sees.
 */
#include "client/code/launch.h"

#include "client/code/launch_attributes.h"
#include "client/stream/capture.h"
#include "client/link/link.h"
#include "client/hostmem/mirror.h"
#include "client/stream/stream.h"
#include "gen/device_client.h"
#include "gen/launch_client.h"
#include "gen/stream_client.h"

#include <stdlib.h>
#include <string.h>

static inline CUresult check_bounds(struct towc_bounds *bounds, const uint32_t grid[3],
                                    const uint32_t block[3], uint32_t shared)
{
    /* 0 - 1 is larger than every bound. No branches: all are looked at anyway. */
    unsigned beyond = (grid[0] - 1 >= bounds->grid[0]) | (grid[1] - 1 >= bounds->grid[1]) |
                      (grid[2] - 1 >= bounds->grid[2]) | (block[0] - 1 >= bounds->block[0]) |
                      (block[1] - 1 >= bounds->block[1]) | (block[2] - 1 >= bounds->block[2]);
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    beyond |= threads > atomic_load_explicit(&bounds->threads, memory_order_relaxed);
    beyond |= shared > atomic_load_explicit(&bounds->shared, memory_order_relaxed);
    return TOW_UNLIKELY(beyond) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static inline CUresult launch_check(struct towc_kernel *kernel, CUdevice device,
                                    const uint32_t grid[3], const uint32_t block[3],
                                    uint32_t shared)
{
    struct towc_attributes *a = towc_kernel_attributes(kernel, device);
    if (TOW_UNLIKELY(a == NULL)) {
        /* Nothing is known of it here: the server's driver checks the rest. */
        struct towc_bounds bounds;
        towc_launch_bounds_init(&bounds, device);
        return check_bounds(&bounds, grid, block, shared);
    }
    return check_bounds(&a->bounds, grid, block, shared);
}

CUresult towc_launch_check(struct towc_kernel *kernel, CUdevice device, const uint32_t grid[3],
                           const uint32_t block[3], uint32_t shared)
{
    return launch_check(kernel, device, grid, block, shared);
}

/* {key, value, key, value, ..., END} */
static CUresult read_extra(const struct towc_kernel *kernel, void **extra,
                           struct towc_launch_args *args)
{
    enum { KEYS_MAX = 16 };
    const size_t *size = NULL;
    for (unsigned i = 0; i < KEYS_MAX && extra[2 * i] != CU_LAUNCH_PARAM_END; i++) {
        if (extra[2 * i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            args->buffer = extra[2 * i + 1];
        } else if (extra[2 * i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            size = extra[2 * i + 1];
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (args->buffer == NULL || size == NULL || *size > TOW_LAUNCH_ARGS_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* Fewer than the kernel has are fine with NVIDIA's driver: NCCL sends what is used of 4 KiB. */
    args->given = (uint32_t)*size;
    args->bytes = args->given > kernel->param_bytes ? args->given : kernel->param_bytes;
    return CUDA_SUCCESS;
}

static inline CUresult args_init(const struct towc_kernel *kernel, void **params, void **extra,
                                 struct towc_launch_args *ret_args)
{
    ret_args->params = params;
    ret_args->buffer = NULL;
    ret_args->bytes = kernel->param_bytes;
    if (TOW_UNLIKELY(extra != NULL)) {
        return params != NULL ? CUDA_ERROR_INVALID_VALUE : read_extra(kernel, extra, ret_args);
    }
    if (TOW_UNLIKELY(params == NULL && kernel->param_count > 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult towc_launch_args_init(const struct towc_kernel *kernel, void **params, void **extra,
                               struct towc_launch_args *ret_args)
{
    return args_init(kernel, params, extra, ret_args);
}

static inline void launch_encode(const struct towc_kernel *kernel,
                                 const struct towc_launch_args *args, uint8_t *into)
{
    if (TOW_UNLIKELY(args->buffer != NULL)) {
        memcpy(into, args->buffer, args->given);
        memset(into + args->given, 0, args->bytes - args->given);
        return;
    }
    const struct towc_param *param = kernel->params, *last = param + kernel->param_count;
    void **from = args->params;
    uint32_t end = 0;
    for (; param < last; param++, from++) {
        uint32_t offset = param->offset, size = param->size;
        while (TOW_UNLIKELY(end < offset)) {
            into[end++] = 0;
        }
        /* Pointers and ints without a call. */
        if (size == 8) {
            memcpy(into + offset, *from, 8);
        } else if (size == 4) {
            memcpy(into + offset, *from, 4);
        } else {
            memcpy(into + offset, *from, size);
        }
        end = offset + size;
    }
}

void towc_launch_args_pack(const struct towc_kernel *kernel, const struct towc_launch_args *args,
                           uint8_t *into)
{
    launch_encode(kernel, args, into);
}

CUresult towc_launch_reach_all(struct towc_link *link, const struct towc_kernel *kernel,
                               const struct towc_launch_args *args)
{
    CUresult status = CUDA_SUCCESS;
    if (args->bytes > 0 &&
        atomic_load_explicit(&towc_mirror_candidates, memory_order_relaxed) != 0) {
        uint8_t *packed = calloc(1, args->bytes);
        if (packed == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        towc_launch_args_pack(kernel, args, packed);
        status = towc_mirror_scan(link, packed, args->bytes);
        free(packed);
    }
    return status == CUDA_SUCCESS ? towc_mirror_push(link) : status;
}

/* Host memory that the kernel may reach is made equal on both sides first. */
static inline CUresult launch_reach(struct towc_link *link, const struct towc_kernel *kernel,
                                    const struct towc_launch_args *args)
{
    if (__builtin_expect(atomic_load_explicit(&towc_mirror_candidates, memory_order_relaxed) == 0 &&
                             atomic_load_explicit(&towc_mirror_count, memory_order_relaxed) == 0,
                         1)) {
        return CUDA_SUCCESS;
    }
    return towc_launch_reach_all(link, kernel, args);
}

/* ---- waiting for launches ---- */

/* Process-wide: CUDA_LAUNCH_BLOCKING is the environment's. */
static atomic_bool blocking;

static bool launch_wished(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}

void towc_launch_wishes(void)
{
    if (launch_wished("TOWLINE_SYNC") || launch_wished("CUDA_LAUNCH_BLOCKING")) {
        atomic_store(&blocking, true);
        atomic_fetch_add(&towc_wait_always, 1);
    }
}

CUresult towc_launch_wait_if_blocking(CUstream stream, CUresult status)
{
    /* What is captured does not run yet; and to synchronise now might spoil the capture. */
    bool blocks = status == CUDA_SUCCESS && atomic_load_explicit(&blocking, memory_order_relaxed) &&
                  atomic_load_explicit(&towc_captures, memory_order_relaxed) == 0;
    return blocks ? towc_cuStreamSynchronize(stream) : status;
}

static inline CUresult launch_send(struct towc_call *call, CUstream stream)
{
    return TOW_UNLIKELY(call->waits) ? towc_launch_wait_if_blocking(stream, towc_call_send(call))
                                     : towc_call_send(call);
}

/* ---- launches ---- */

/* Function and stream must be of the current context; a CUkernel and a default stream are of any.
 */
static inline bool launch_belongs(const struct towc_kernel *kernel,
                                  const struct towc_context *context, CUstream stream)
{
    if (kernel->context != 0 && kernel->context != context->number) {
        return false;
    }
    if ((uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD) {
        return true;
    }
    const struct towc_stream *s = towc_stream_find(stream);
    return s != NULL && s->context == context;
}

/* A launch between its checks and its command. */
struct launch {
    struct towc_context *context;
    struct towc_kernel *kernel;
    struct towc_launch_args args;
};

/* The current context and the kernel of a handle in it. */
static inline CUresult launch_find(CUfunction f, CUstream stream, struct launch *ret_launch)
{
    CUresult status = towc_client_state(); /* a forked child has the parent's contexts */
    if (TOW_UNLIKELY(status != CUDA_SUCCESS)) {
        return status;
    }
    status = towc_code_context(&ret_launch->context);
    if (TOW_UNLIKELY(status != CUDA_SUCCESS)) {
        return status;
    }
    ret_launch->kernel = towc_kernel_find(f);
    return TOW_UNLIKELY(ret_launch->kernel == NULL ||
                        !launch_belongs(ret_launch->kernel, ret_launch->context, stream))
               ? towc_no_handle()
               : CUDA_SUCCESS;
}

/* The arguments of a launch whose sizes are checked; the server has, or gets, what it needs. */
static inline CUresult launch_prepare(struct launch *launch, void **params, void **extra)
{
    CUresult status = args_init(launch->kernel, params, extra, &launch->args);
    if (status == CUDA_SUCCESS) {
        status = launch_reach(launch->context->link, launch->kernel, &launch->args);
    }
    return status == CUDA_SUCCESS ? towc_kernel_reach(launch->kernel, launch->context->link)
                                  : status;
}

/* Arguments travel in words of 8 bytes. */
static inline size_t launch_padded(const struct launch *launch)
{
    return (launch->args.bytes + 7) & ~(size_t)7;
}

static inline void launch_pack(const struct launch *launch, uint8_t *into)
{
    size_t padded = launch_padded(launch);
    if (padded > 0) {
        const uint64_t padding = 0;
        memcpy(into + padded - 8, &padding, 8);
        launch_encode(launch->kernel, &launch->args, into);
    }
    atomic_store_explicit(&launch->kernel->loaded, true, memory_order_relaxed);
}

CUresult towc_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                             unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                             unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                             void **kernelParams, void **extra)
{
    struct launch launch;
    CUresult status = launch_find(f, hStream, &launch);
    if (TOW_UNLIKELY(status != CUDA_SUCCESS)) {
        return status;
    }
    const uint32_t grid[3] = {gridDimX, gridDimY, gridDimZ};
    const uint32_t block[3] = {blockDimX, blockDimY, blockDimZ};
    status = launch_check(launch.kernel, launch.context->device, grid, block, sharedMemBytes);
    if (TOW_UNLIKELY(status != CUDA_SUCCESS)) {
        return towc_capture_refused(hStream, status);
    }
    status = launch_prepare(&launch, kernelParams, extra);
    if (TOW_UNLIKELY(status != CUDA_SUCCESS)) {
        return status;
    }
    struct tow_launch_head head = {
        .function = launch.kernel->id,
        .stream = (uint64_t)(uintptr_t)hStream,
        .grid = {gridDimX, gridDimY, gridDimZ},
        .shared = sharedMemBytes,
        .block = {(uint16_t)blockDimX, (uint16_t)blockDimY, (uint16_t)blockDimZ}, /* checked */
        .bytes = (uint16_t)launch.args.bytes,
    };
    size_t size = sizeof head + launch_padded(&launch);
    struct towc_call call;
    status = towc_call_begin_on(&call, launch.context->link, launch.context->number,
                                TOW_FN_cuLaunchKernel, size, towc_capture_flag(hStream));
    if (TOW_UNLIKELY(status != CUDA_SUCCESS)) {
        return status;
    }
    uint8_t *at = tow_enc_block(&call.enc, size);
    if (TOW_UNLIKELY(at == NULL)) {
        towc_call_cancel(&call);
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(at, &head, sizeof head);
    launch_pack(&launch, at + sizeof head);
    towc_link_mark_work(call.link);
    return launch_send(&call, hStream);
}

/* ---- launches with attributes ---- */

static const CUlaunchAttribute *attribute_of(const CUlaunchConfig *config, CUlaunchAttributeID id)
{
    for (unsigned i = 0; i < config->numAttrs; i++) {
        if (config->attrs[i].id == id) {
            return &config->attrs[i];
        }
    }
    return NULL;
}

/* A cooperative grid must be resident at once, which the driver checks when it is launched. */
static CUresult check_cooperative(struct towc_kernel *kernel, CUdevice device,
                                  const CUlaunchConfig *config)
{
    const struct towc_launch_limits *limits = towc_launch_limits(device);
    int blocks = 0;
    CUresult status = towc_cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, (CUfunction)(uintptr_t)kernel->id,
        (int)(config->blockDimX * config->blockDimY * config->blockDimZ), config->sharedMemBytes);
    if (status != CUDA_SUCCESS || limits == NULL) {
        return CUDA_SUCCESS; /* then the server's driver is to say what is wrong */
    }
    uint64_t grid = (uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ;
    return grid > (uint64_t)blocks * limits->processors ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
                                                        : CUDA_SUCCESS;
}

/* The grid must consist of whole clusters. */
static CUresult check_cluster(const CUlaunchConfig *config, const CUlaunchAttribute *cluster)
{
    uint32_t x = cluster->value.clusterDim.x, y = cluster->value.clusterDim.y,
             z = cluster->value.clusterDim.z;
    if (x == 0 || y == 0 || z == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return config->gridDimX % x != 0 || config->gridDimY % y != 0 || config->gridDimZ % z != 0
               ? CUDA_ERROR_INVALID_CLUSTER_SIZE
               : CUDA_SUCCESS;
}

/* Everything that the driver checks before it queues the launch. */
static CUresult check_config(struct towc_kernel *kernel, CUdevice device,
                             const CUlaunchConfig *config, size_t *ret_attributes_size)
{
    CUresult status =
        towc_launch_attributes_check(config->attrs, config->numAttrs, ret_attributes_size);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    const uint32_t grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
    const uint32_t block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
    status = towc_launch_check(kernel, device, grid, block, config->sharedMemBytes);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    const CUlaunchAttribute *cluster = attribute_of(config, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
    if (cluster != NULL) {
        status = check_cluster(config, cluster);
    }
    const CUlaunchAttribute *cooperative = attribute_of(config, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
    if (status == CUDA_SUCCESS && cooperative != NULL && cooperative->value.cooperative != 0 &&
        cluster == NULL) {
        status = check_cooperative(kernel, device, config);
    }
    return status;
}

/* A node that the GPU will update gets its handle from the driver: the only output of a launch. */
static bool has_output(const CUlaunchConfig *config)
{
    const CUlaunchAttribute *node =
        attribute_of(config, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE);
    return node != NULL && node->value.deviceUpdatableKernelNode.deviceUpdatable != 0;
}

CUresult towc_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                               void **extra)
{
    if (config == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (config->numAttrs == 0) {
        return towc_cuLaunchKernel(f, config->gridDimX, config->gridDimY, config->gridDimZ,
                                   config->blockDimX, config->blockDimY, config->blockDimZ,
                                   config->sharedMemBytes, config->hStream, kernelParams, extra);
    }
    struct launch launch;
    CUresult status = launch_find(f, config->hStream, &launch);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    size_t attributes_size = 0;
    status = check_config(launch.kernel, launch.context->device, config, &attributes_size);
    if (status != CUDA_SUCCESS) {
        return towc_capture_refused(config->hStream, status);
    }
    status = launch_prepare(&launch, kernelParams, extra);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct tow_launch_head head = {
        .function = launch.kernel->id,
        .stream = (uint64_t)(uintptr_t)config->hStream,
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .shared = config->sharedMemBytes,
        .block = {tow_launch_dimension(config->blockDimX), tow_launch_dimension(config->blockDimY),
                  tow_launch_dimension(config->blockDimZ)},
        .bytes = (uint16_t)launch.args.bytes,
    };
    size_t padded = launch_padded(&launch);
    bool waits = has_output(config);
    struct towc_call call;
    /* Looks at the context once more: what was asked on the way may have found it broken. */
    status = towc_call_begin(&call, TOW_FN_cuLaunchKernelEx, sizeof head + attributes_size + padded,
                             TOW_CALL_CONTEXT |
                                 (waits ? TOW_CALL_REPLY : towc_capture_flag(config->hStream)));
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_bytes(&call.enc, &head, sizeof head);
    towc_launch_attributes_encode(&call.enc, config->attrs, config->numAttrs);
    uint8_t *at = tow_enc_block(&call.enc, padded);
    if (at == NULL) {
        towc_call_cancel(&call);
        return CUDA_ERROR_INVALID_VALUE;
    }
    launch_pack(&launch, at);
    towc_link_mark_work(call.link);
    if (!waits) {
        return launch_send(&call, config->hStream);
    }
    status = towc_call_wait(&call);
    if (status == CUDA_SUCCESS) {
        CUlaunchAttribute *node = (CUlaunchAttribute *)attribute_of(
            config, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE);
        node->value.deviceUpdatableKernelNode.devNode =
            (CUgraphDeviceNode)(uintptr_t)tow_dec_u64(&call.dec);
    }
    return towc_launch_wait_if_blocking(config->hStream, towc_call_end(&call, status));
}

/* The server's driver has no packed form of this call, so it travels as what it means. */
CUresult towc_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                        unsigned int gridDimZ, unsigned int blockDimX,
                                        unsigned int blockDimY, unsigned int blockDimZ,
                                        unsigned int sharedMemBytes, CUstream hStream,
                                        void **kernelParams)
{
    CUlaunchAttribute cooperative;
    memset(&cooperative, 0, sizeof cooperative);
    cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    cooperative.value.cooperative = 1;
    CUlaunchConfig config = {
        .gridDimX = gridDimX,
        .gridDimY = gridDimY,
        .gridDimZ = gridDimZ,
        .blockDimX = blockDimX,
        .blockDimY = blockDimY,
        .blockDimZ = blockDimZ,
        .sharedMemBytes = sharedMemBytes,
        .hStream = hStream,
        .attrs = &cooperative,
        .numAttrs = 1,
    };
    return towc_cuLaunchKernelEx(&config, f, kernelParams, NULL);
}
