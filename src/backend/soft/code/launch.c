/* SPDX-License-Identifier: Apache-2.0 */
/* Launching kernels: checks, parameters, running, faults; and occupancy, which counts the same
 * limits. */
#include "backend/backend.h"
#include "backend/soft/code/image.h"
#include "backend/soft/code/launch.h"
#include "backend/soft/code/module.h"
#include "backend/soft/engine/capture.h"
#include "backend/soft/engine/engine.h"
#include "backend/soft/engine/work.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/check.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/hooks.h"
#include "backend/soft/ground/index.h"
#include "backend/soft/ground/space.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/ground/written.h"
#include "backend/soft/memory/texture.h"
#include "backend/soft/stream/event.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "gen/launch.h"

#define CLUSTER_PORTABLE 8
#define CLUSTER_MAX 16

/* ---- what a running kernel asks
 * -------------------------------------------------------------------------- */

static bool env_find(void *user, uint64_t address, struct tow_ptx_range *ret_range)
{
    const struct tow_soft_ctx *ctx = user;
    struct tow_soft_entry entry;
    if (!tow_soft_index_reach(address, &entry)) {
        return false;
    }
    enum tow_soft_alloc_kind kind = tow_soft_meta_kind(entry.meta);
    /* Mapped memory has access rights per device; other memory follows peer access. */
    uint32_t devices = kind == TOW_SOFT_MEM_VMM ? 1u << ctx->device->ordinal
                                                : atomic_load_explicit((atomic_uint *)&ctx->visible,
                                                                       memory_order_relaxed);
    if (kind == TOW_SOFT_MEM_ARRAY || (entry.meta & 0xffff & devices) == 0) {
        return false;
    }
    ret_range->low = entry.low;
    ret_range->high = entry.reach;
    ret_range->writable = (entry.meta >> 16 & 0xffff & devices) != 0;
    return true;
}

static const struct tow_ptx_texture *env_texture(void *user, uint64_t handle)
{
    (void)user;
    return tow_soft_texture_get(handle);
}

static uint64_t env_heap_alloc(void *user, uint64_t bytes)
{
    return tow_soft_heap_alloc(user, bytes);
}

static int env_heap_free(void *user, uint64_t address)
{
    return tow_soft_heap_free(user, address);
}

static void env_print(void *user, const char *text, size_t length)
{
    tow_soft_print_add(user, text, length);
}

static void env_assert_failed(void *user, const char *message, const char *file, unsigned line,
                              const char *function, const uint32_t block[3],
                              const uint32_t thread[3])
{
    (void)user;
    char text[1024];
    int length = snprintf(
        text, sizeof text,
        "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n", file, line,
        function, block[0], block[1], block[2], thread[0], thread[1], thread[2], message);
    size_t size = length < 0 ? 0 : (size_t)length < sizeof text ? (size_t)length : sizeof text - 1;
    if (tow_soft.print_error != NULL) {
        tow_soft.print_error(tow_soft.print_user, text, size);
    } else {
        fwrite(text, 1, size, stderr);
    }
}

static uint64_t env_time(void *user)
{
    (void)user;
    return (uint64_t)tow_time_real_ns();
}

static int env_set_condition(void *user, uint64_t handle, uint32_t value)
{
    return tow_soft.hooks->condition_set(user, handle, value);
}

static const struct tow_ptx_env_ops env_ops = {
    .find = env_find,
    .texture = env_texture,
    .heap_alloc = env_heap_alloc,
    .heap_free = env_heap_free,
    .print = env_print,
    .assert_failed = env_assert_failed,
    .time = env_time,
    .set_condition = env_set_condition,
};

static CUresult result_of(enum tow_ptx_fault_kind kind)
{
    switch (kind) {
    case TOW_PTX_FAULT_NONE:
    case TOW_PTX_FAULT_STOPPED:
    case TOW_PTX_FAULT_DIVERGED:
    case TOW_PTX_FAULT_MASK_CALLER:
    case TOW_PTX_FAULT_MASK_OTHER:
    case TOW_PTX_FAULT_UNWRITTEN:
    case TOW_PTX_FAULT_RACE:
    case TOW_PTX_FAULT_UNSEEN:
    case TOW_PTX_FAULT_UNSEEN_READS:
        return CUDA_ERROR_LAUNCH_FAILED;
    case TOW_PTX_FAULT_ADDRESS:
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    case TOW_PTX_FAULT_MISALIGNED:
        return CUDA_ERROR_MISALIGNED_ADDRESS;
    case TOW_PTX_FAULT_ASSERT:
        return CUDA_ERROR_ASSERT;
    case TOW_PTX_FAULT_TRAP:
        return CUDA_ERROR_LAUNCH_FAILED;
    case TOW_PTX_FAULT_INSTRUCTION:
        return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case TOW_PTX_FAULT_SPACE:
        return CUDA_ERROR_INVALID_ADDRESS_SPACE;
    case TOW_PTX_FAULT_STACK:
        return CUDA_ERROR_HARDWARE_STACK_ERROR;
    case TOW_PTX_FAULT_DEADLOCK:
        return CUDA_ERROR_LAUNCH_TIMEOUT;
    case TOW_PTX_FAULT_OVERDUE:
        return CUDA_ERROR_LAUNCH_TIMEOUT;
    case TOW_PTX_FAULT_UNDEFINED:
        return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
    case TOW_PTX_FAULT_MEMORY:
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_ERROR_LAUNCH_FAILED;
}

/* What is wrong is told by `towline check`, not by the log. As under NVIDIA's compute-sanitizer the
 * context gets an error when the kernel has ended. */
static CUresult run_checked(struct tow_ptx_launch *launch, const struct tow_soft_code *code)
{
    struct tow_soft_findings *findings = calloc(1, sizeof *findings);
    struct tow_ptx_fault fault = {0};
    if (findings == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    findings->code = code->digest;
    launch->found = tow_soft_check_found;
    launch->found_user = findings;
    launch->checks = tow_soft_checks();
    launch->written = tow_soft_written();
    int rc = tow_ptx_run(launch, tow_soft.threads, &fault);
    bool wrong = findings->wrong;
    if (findings->count > 0) {
        tow_soft_check_tell(findings);
    }
    free(findings);
    if (rc != 0 && (!wrong || fault.kind == TOW_PTX_FAULT_ASSERT)) {
        return result_of(fault.kind);
    }
    return wrong ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

static CUresult kernel_run(struct tow_soft_work *work, struct tow_soft_ctx *ctx)
{
    const struct tow_soft_kernel_work *kernel = &work->kernel;
    static atomic_uint grid_id;
    struct tow_ptx_launch launch = {
        .instance = kernel->function->module->instance,
        .kernel = kernel->function->kernel,
        .dynamic_shared = kernel->shared,
        .cooperative = kernel->cooperative,
        .params = kernel->params,
        .env = &env_ops,
        .env_user = ctx,
        .stop = &ctx->stop,
        .grid_id = atomic_fetch_add(&grid_id, 1) + 1,
        .sm_count = tow_soft.sm_count,
    };
    memcpy(launch.grid, kernel->grid, sizeof launch.grid);
    memcpy(launch.block, kernel->block, sizeof launch.block);
    memcpy(launch.cluster, kernel->cluster, sizeof launch.cluster);
    struct tow_ptx_fault fault = {0};
    if (tow_soft_checked()) {
        return run_checked(&launch, kernel->function->module->code);
    }
    int rc = tow_ptx_run(&launch, tow_soft.threads, &fault);
    if (rc == 0) {
        return CUDA_SUCCESS;
    }
    CUresult result = result_of(fault.kind);
    if (fault.kind != TOW_PTX_FAULT_STOPPED) {
        /* A device assert has said so itself, as with NVIDIA's driver. */
        tow_log(TOW_AREA_SOFT, result == CUDA_ERROR_ASSERT ? TOW_LOG_INFO : TOW_LOG_ERROR,
                "kernel %s failed with error %d: %s (block %u,%u,%u, thread %u,%u,%u, PTX line %u, "
                "address "
                "0x%llx)",
                kernel->function->info.name, (int)result, fault.message, fault.block[0],
                fault.block[1], fault.block[2], fault.thread[0], fault.thread[1], fault.thread[2],
                fault.line, (unsigned long long)fault.address);
    }
    return result;
}

static void kernel_fini(struct tow_soft_work *work)
{
    if (work->kernel.function != NULL) {
        tow_soft_module_unref(work->kernel.function->module);
    }
    free(work->kernel.params);
}

static int kernel_clone(struct tow_soft_work *copy)
{
    copy->kernel.params = tow_soft_copy_bytes(copy->kernel.params, copy->kernel.param_bytes);
    if (copy->kernel.params == NULL) {
        return -ENOMEM;
    }
    tow_soft_module_ref(copy->kernel.function->module);
    return 0;
}

static const char *kernel_describe(const struct tow_soft_work *work, struct tow_backend_span *span)
{
    span->kind = TOW_BACKEND_KERNEL;
    return work->kernel.function->info.name;
}

const struct tow_soft_work_ops tow_soft_kernel_ops = {kernel_run, kernel_fini, kernel_clone,
                                                      kernel_describe};

/* ---- checks
 * -----------------------------------------------------------------------------------------------
 */

/* Collects the parameter bytes from either form. */
static CUresult pack_params(const struct tow_ptx_kernel_info *info, void **params, void **extra,
                            struct tow_soft_kernel_work *work)
{
    if (params != NULL && extra != NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    work->param_bytes = info->param_bytes;
    work->params = calloc(1, info->param_bytes + 1);
    if (work->params == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (params != NULL) {
        for (uint32_t i = 0; i < info->param_count; i++) {
            if (params[i] == NULL) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            memcpy(work->params + info->params[i].offset, params[i], info->params[i].size);
        }
        return CUDA_SUCCESS;
    }
    if (extra != NULL) {
        const void *buffer = NULL;
        size_t size = 0;
        bool sized = false;
        for (size_t i = 0; extra[i] != (void *)CU_LAUNCH_PARAM_END_AS_INT; i += 2) {
            if (extra[i] == (void *)CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT) {
                buffer = extra[i + 1];
            } else if (extra[i] == (void *)CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT &&
                       extra[i + 1] != NULL) {
                size = *(const size_t *)extra[i + 1];
                sized = true;
            } else {
                return CUDA_ERROR_INVALID_VALUE;
            }
        }
        if (!sized || (buffer == NULL && size != 0) || size > TOW_SOFT_PARAMS_MAX) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        /* What is missing at the end is zero here; on hardware it is anything. */
        memcpy(work->params, buffer, size < info->param_bytes ? size : info->param_bytes);
        return CUDA_SUCCESS;
    }
    return info->param_count == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static int launch_occupancy(const struct tow_soft_function *function, int block, size_t dynamic)
{
    struct tow_soft_limits_of_device limits;
    tow_soft_device_limits(&limits);
    int warps = (block + 31) / 32;
    int blocks = limits.threads_per_sm / 32 / warps;
    blocks = blocks < limits.blocks_per_sm ? blocks : limits.blocks_per_sm;
    int registers = (int)tow_soft_round_up(function->info.registers * 32, 256) * warps;
    if (registers > 0 && limits.registers_per_sm / registers < blocks) {
        blocks = limits.registers_per_sm / registers;
    }
    size_t shared = function->info.static_shared + dynamic;
    if (dynamic > (size_t)function->attributes.max_dynamic_shared ||
        block > (int)function->info.max_threads) {
        return 0;
    }
    shared = tow_soft_round_up(shared + (tow_soft.capability >= 80 ? 1024 : 0), 128);
    if ((size_t)limits.shared_per_sm / shared < (size_t)blocks) {
        blocks = (int)((size_t)limits.shared_per_sm / shared);
    }
    return blocks;
}

static CUresult check_cluster(const struct tow_soft_function *function,
                              struct tow_soft_kernel_work *kernel, bool given)
{
    const struct tow_soft_attributes *attributes = &function->attributes;
    if (attributes->cluster[0] != 0) {
        for (int i = 0; i < 3; i++) {
            uint32_t wanted = attributes->cluster[i] > 0 ? (uint32_t)attributes->cluster[i] : 1;
            if (given && kernel->cluster[i] != wanted) {
                return CUDA_ERROR_INVALID_CLUSTER_SIZE;
            }
            kernel->cluster[i] = wanted;
        }
    } else if (!given && function->info.explicit_cluster) {
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
    uint64_t size = 1;
    for (int i = 0; i < 3; i++) {
        if (kernel->cluster[i] == 0 || kernel->cluster[i] > CLUSTER_MAX) {
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        }
        size *= kernel->cluster[i];
        if (kernel->grid[i] % kernel->cluster[i] != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    uint64_t most = attributes->non_portable_cluster ? CLUSTER_MAX : CLUSTER_PORTABLE;
    return size > most || (size > 1 && tow_soft.capability < 90) ? CUDA_ERROR_INVALID_CLUSTER_SIZE
                                                                 : CUDA_SUCCESS;
}

static CUresult check_dims(const struct tow_soft_function *function,
                           const struct tow_soft_kernel_work *kernel)
{
    for (int i = 0; i < 3; i++) {
        if (kernel->grid[i] == 0 || kernel->block[i] == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    uint64_t threads = (uint64_t)kernel->block[0] * kernel->block[1] * kernel->block[2];
    if (kernel->grid[0] > 2147483647 || kernel->grid[1] > 65535 || kernel->grid[2] > 65535 ||
        kernel->block[0] > 1024 || kernel->block[1] > 1024 || kernel->block[2] > 64 ||
        threads > 1024) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const uint32_t *required = function->info.reqntid;
    if (required[0] != 0) {
        for (int i = 0; i < 3; i++) {
            if (kernel->block[i] != (required[i] != 0 ? required[i] : 1)) {
                return CUDA_ERROR_INVALID_VALUE;
            }
        }
    }
    if (threads > function->info.max_threads) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (kernel->shared > (uint32_t)function->attributes.max_dynamic_shared) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* Takes one attribute of cuLaunchKernelEx; *ret_cluster says that a cluster was given. */
static CUresult take_attribute(const CUlaunchAttribute *attribute,
                               struct tow_soft_kernel_work *kernel, bool *ret_cluster)
{
    const CUlaunchAttributeValue *value = &attribute->value;
    switch ((int)attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        if (value->cooperative != 0 && value->cooperative != 1) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        kernel->cooperative = value->cooperative != 0;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        kernel->cluster[0] = value->clusterDim.x;
        kernel->cluster[1] = value->clusterDim.y;
        kernel->cluster[2] = value->clusterDim.z;
        *ret_cluster = true;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        kernel->priority = value->priority;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: /* kernels of a stream never overlap
                                                                   here */
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT: /* recorded behind the launch */
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* A kernel that can come to an instruction that we lack, or a function that nobody has. What others
 * of its program do is not concerned, and the context lives on. */
static CUresult launch_refuse(struct tow_soft_function *function)
{
    const struct tow_ptx_kernel_info *info = &function->info;
    if (info->refused != NULL) {
        if (!function->refused) {
            tow_log(TOW_AREA_SOFT, TOW_LOG_ERROR,
                    "kernel %.200s was refused: it can come to the instruction '%.120s' (line %u "
                    "of its PTX), which the software GPU does not have; it needs a real GPU",
                    info->name, info->refused, info->refused_line);
        }
        function->refused = true;
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    bool runtime = tow_soft_is_device_runtime(info->undefined);
    if (!function->refused && runtime) {
        tow_log(TOW_AREA_SOFT, TOW_LOG_ERROR,
                "kernel %.200s was refused: it can call %.100s of the CUDA device runtime, which "
                "the software GPU does not have; kernels that launch kernels (dynamic "
                "parallelism) need a real GPU",
                info->name, info->undefined);
    } else if (!function->refused) {
        tow_log(TOW_AREA_SOFT, TOW_LOG_ERROR,
                "kernel %.200s was refused: it can call the function '%.200s', which nothing in "
                "the program's code defines; link what defines it",
                info->name, info->undefined);
    }
    function->refused = true;
    return runtime ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
}

CUresult tow_soft_launch_build(struct tow_soft_ctx *ctx, const CUlaunchConfig *config, CUfunction f,
                               void **params, void **extra, struct tow_soft_work *ret_work)
{
    struct tow_soft_function *function;
    CUresult result = tow_soft_function_of(ctx, f, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (function->module->object.ctx != ctx) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (function->info.undefined != NULL || function->info.refused != NULL) {
        return launch_refuse(function);
    }
    struct tow_soft_work work = {.kind = TOW_SOFT_WORK_KERNEL};
    struct tow_soft_kernel_work *kernel = &work.kernel;
    *kernel = (struct tow_soft_kernel_work){
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .cluster = {1, 1, 1},
        .shared = config->sharedMemBytes,
        .through_kernel = tow_soft_handle_kind(TOW_SOFT_HANDLE(f)) == TOW_SOFT_KERNEL,
    };
    bool cluster = false;
    if (config->numAttrs != 0 && config->attrs == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < config->numAttrs; i++) {
        result = take_attribute(&config->attrs[i], kernel, &cluster);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        if (kernel->attr_count < sizeof kernel->attrs / sizeof *kernel->attrs &&
            config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_IGNORE) {
            kernel->attrs[kernel->attr_count++] = config->attrs[i];
        }
    }
    result = check_dims(function, kernel);
    if (result == CUDA_SUCCESS) {
        result = check_cluster(function, kernel, cluster);
    }
    if (result == CUDA_SUCCESS && kernel->cooperative) {
        int threads = (int)(kernel->block[0] * kernel->block[1] * kernel->block[2]);
        uint64_t resident =
            (uint64_t)launch_occupancy(function, threads, kernel->shared) * tow_soft.sm_count;
        if ((uint64_t)kernel->grid[0] * kernel->grid[1] * kernel->grid[2] > resident) {
            result = CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
        }
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = pack_params(&function->info, params, extra, kernel);
    if (result != CUDA_SUCCESS) {
        free(kernel->params);
        return result;
    }
    kernel->function = function;
    tow_soft_module_ref(function->module);
    *ret_work = work;
    return CUDA_SUCCESS;
}

/* ---- launching
 * ---------------------------------------------------------------------------------------------- */

/* The event that cuLaunchKernelEx is to record behind the launch; NULL for none. */
static CUresult event_after(const CUlaunchConfig *config, struct tow_soft_event **ret_event)
{
    for (unsigned i = 0; i < config->numAttrs; i++) {
        if (config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
            continue;
        }
        CUevent handle = config->attrs[i].value.launchCompletionEvent.event;
        *ret_event = tow_soft_lookup(TOW_SOFT_EVENT, TOW_SOFT_HANDLE(handle));
        if (*ret_event == NULL) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        if (((*ret_event)->flags & CU_EVENT_DISABLE_TIMING) == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult launch_run(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_stream *stream;
    if (f == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    result = tow_soft_stream_of(ctx, config->hStream, &stream);
    if (result == CUDA_SUCCESS && stream->object.ctx != ctx) {
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    if (result == CUDA_SUCCESS && stream->legacy) {
        result = tow_soft_capture_forbid_implicit(ctx);
    }
    struct tow_soft_work work;
    struct tow_soft_event *after = NULL;
    if (result == CUDA_SUCCESS) {
        result = event_after(config, &after);
    }
    if (result == CUDA_SUCCESS) {
        result = tow_soft_launch_build(ctx, config, f, params, extra, &work);
        if (result != CUDA_SUCCESS) {
            tow_soft_capture_spoil(stream);
        }
    }
    if (result == CUDA_SUCCESS) {
        result = tow_soft_submit(stream, &work);
    }
    if (result == CUDA_SUCCESS && after != NULL) {
        result = tow_soft_event_record(after, stream);
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                    unsigned int gridDimZ, unsigned int blockDimX,
                                    unsigned int blockDimY, unsigned int blockDimZ,
                                    unsigned int sharedMemBytes, CUstream hStream,
                                    void **kernelParams, void **extra)
{
    CUlaunchConfig config = {.gridDimX = gridDimX,
                             .gridDimY = gridDimY,
                             .gridDimZ = gridDimZ,
                             .blockDimX = blockDimX,
                             .blockDimY = blockDimY,
                             .blockDimZ = blockDimZ,
                             .sharedMemBytes = sharedMemBytes,
                             .hStream = hStream};
    return launch_run(&config, f, kernelParams, extra);
}

static CUresult soft_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f,
                                      void **kernelParams, void **extra)
{
    return config == NULL ? CUDA_ERROR_INVALID_VALUE : launch_run(config, f, kernelParams, extra);
}

static CUresult soft_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX,
                                               unsigned int gridDimY, unsigned int gridDimZ,
                                               unsigned int blockDimX, unsigned int blockDimY,
                                               unsigned int blockDimZ, unsigned int sharedMemBytes,
                                               CUstream hStream, void **kernelParams)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                                   .value = {.cooperative = 1}};
    CUlaunchConfig config = {.gridDimX = gridDimX,
                             .gridDimY = gridDimY,
                             .gridDimZ = gridDimZ,
                             .blockDimX = blockDimX,
                             .blockDimY = blockDimY,
                             .blockDimZ = blockDimZ,
                             .sharedMemBytes = sharedMemBytes,
                             .hStream = hStream,
                             .attrs = &attribute,
                             .numAttrs = 1};
    return launch_run(&config, f, kernelParams, NULL);
}

/* ---- occupancy
 * ---------------------------------------------------------------------------------------------- */

static CUresult enter_function(CUfunction handle, struct tow_soft_function **ret_function)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = tow_soft_function_of(ctx, handle, ret_function);
    return result == CUDA_SUCCESS ? result : tow_soft_leave(result);
}

static CUresult soft_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize, unsigned int flags)
{
    struct tow_soft_function *function;
    CUresult result = enter_function(func, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (numBlocks == NULL || blockSize <= 0 ||
        (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) != 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *numBlocks = blockSize > 1024 ? 0 : launch_occupancy(function, blockSize, dynamicSMemSize);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func,
                                                                 int blockSize,
                                                                 size_t dynamicSMemSize)
{
    return soft_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
                                                                     dynamicSMemSize, 0);
}

static CUresult
soft_cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
                                               CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                               size_t dynamicSMemSize, int blockSizeLimit,
                                               unsigned int flags)
{
    struct tow_soft_function *function;
    CUresult result = enter_function(func, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (minGridSize == NULL || blockSize == NULL ||
        (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) != 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    int limit = (int)function->info.max_threads;
    limit = blockSizeLimit > 0 && blockSizeLimit < limit ? blockSizeLimit : limit;
    int best_threads = 0, best_block = 0, best_grid = 0;
    for (int block = (limit + 31) / 32 * 32; block > 0; block -= 32) {
        int size = block < limit ? block : limit;
        size_t dynamic =
            blockSizeToDynamicSMemSize != NULL ? blockSizeToDynamicSMemSize(size) : dynamicSMemSize;
        int blocks = launch_occupancy(function, size, dynamic);
        if (blocks * size > best_threads) {
            best_threads = blocks * size;
            best_block = size;
            best_grid = blocks * (int)tow_soft.sm_count;
        }
    }
    *minGridSize = best_grid;
    *blockSize = best_block;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize,
                                                      CUfunction func,
                                                      CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                      size_t dynamicSMemSize, int blockSizeLimit)
{
    return soft_cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func,
                                                          blockSizeToDynamicSMemSize,
                                                          dynamicSMemSize, blockSizeLimit, 0);
}

static CUresult soft_cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize,
                                                             CUfunction func, int numBlocks,
                                                             int blockSize)
{
    struct tow_soft_function *function;
    CUresult result = enter_function(func, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_limits_of_device limits;
    tow_soft_device_limits(&limits);
    if (dynamicSmemSize == NULL || numBlocks <= 0 || blockSize <= 0 || blockSize > 1024 ||
        launch_occupancy(function, blockSize, 0) < numBlocks) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    int64_t per_block =
        limits.shared_per_sm / numBlocks / 128 * 128 - (tow_soft.capability >= 80 ? 1024 : 0);
    per_block -= function->info.static_shared;
    int64_t most = limits.shared_optin - (int64_t)function->info.static_shared;
    per_block = per_block < most ? per_block : most;
    *dynamicSmemSize = per_block > 0 ? (size_t)per_block : 0;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func,
                                                        const CUlaunchConfig *config)
{
    struct tow_soft_function *function;
    CUresult result = enter_function(func, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (clusterSize == NULL || config == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *clusterSize = tow_soft.capability < 90                    ? 1
                   : function->attributes.non_portable_cluster ? CLUSTER_MAX
                                                               : CLUSTER_PORTABLE;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func,
                                                  const CUlaunchConfig *config)
{
    struct tow_soft_function *function;
    CUresult result = enter_function(func, &function);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (numClusters == NULL || config == NULL || config->blockDimX == 0 || config->blockDimY == 0 ||
        config->blockDimZ == 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    uint64_t size = 1;
    for (unsigned i = 0; i < config->numAttrs && config->attrs != NULL; i++) {
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
            size = (uint64_t)config->attrs[i].value.clusterDim.x *
                   config->attrs[i].value.clusterDim.y * config->attrs[i].value.clusterDim.z;
        }
    }
    uint64_t threads = (uint64_t)config->blockDimX * config->blockDimY * config->blockDimZ;
    uint64_t most = function->attributes.non_portable_cluster ? CLUSTER_MAX : CLUSTER_PORTABLE;
    if (size == 0 || size > most || threads > 1024) {
        return tow_soft_leave(CUDA_ERROR_INVALID_CLUSTER_SIZE);
    }
    *numClusters =
        (int)((uint64_t)launch_occupancy(function, (int)threads, config->sharedMemBytes) *
              tow_soft.sm_count / size);
    return tow_soft_leave(CUDA_SUCCESS);
}

void tow_soft_fill_launch(struct tow_driver *driver)
{
    tow_driver_set(driver, cuLaunchKernel, soft_cuLaunchKernel);
    tow_driver_set(driver, cuLaunchKernelEx, soft_cuLaunchKernelEx);
    tow_driver_set(driver, cuLaunchCooperativeKernel, soft_cuLaunchCooperativeKernel);
    tow_driver_set(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor,
                   soft_cuOccupancyMaxActiveBlocksPerMultiprocessor);
    tow_driver_set(driver, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
                   soft_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
    tow_driver_set(driver, cuOccupancyMaxPotentialBlockSize, soft_cuOccupancyMaxPotentialBlockSize);
    tow_driver_set(driver, cuOccupancyMaxPotentialBlockSizeWithFlags,
                   soft_cuOccupancyMaxPotentialBlockSizeWithFlags);
    tow_driver_set(driver, cuOccupancyAvailableDynamicSMemPerBlock,
                   soft_cuOccupancyAvailableDynamicSMemPerBlock);
    tow_driver_set(driver, cuOccupancyMaxPotentialClusterSize,
                   soft_cuOccupancyMaxPotentialClusterSize);
    tow_driver_set(driver, cuOccupancyMaxActiveClusters, soft_cuOccupancyMaxActiveClusters);
}
