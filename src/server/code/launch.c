/* SPDX-License-Identifier: Apache-2.0 */
/* Launches: decoded and handed to the driver without a copy of the arguments. */
#include "server/code/launch.h"

#include "gen/launch_server.h"
#include "server/session/serve.h"
#include "server/session/session.h"

#include <string.h>

/* The packed arguments of a launch, in the form that the driver takes. */
struct packed {
    size_t size;
    void *extra[5];
};

static void **launch_pack(struct packed *packed, const uint8_t *bytes, uint32_t size)
{
    if (size == 0) {
        return NULL;
    }
    packed->size = size;
    packed->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
    packed->extra[1] = (void *)(uintptr_t)bytes;
    packed->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
    packed->extra[3] = &packed->size;
    packed->extra[4] = CU_LAUNCH_PARAM_END;
    return packed->extra;
}

/* Who suspends the session asks for its name. */
static void launch_record(struct tows_serve *call, CUfunction function)
{
    atomic_store_explicit(&call->session->last_context, call->frame.context, memory_order_relaxed);
    atomic_store_explicit(&call->session->last_kernel, function, memory_order_relaxed);
}

void tows_serve_cuLaunchKernel(struct tows_serve *call)
{
    struct tow_launch_head head;
    tow_dec_copy(&call->in, &head, sizeof head);
    const uint8_t *bytes = tow_dec_bytes(&call->in, head.bytes);
    CUfunction function = tows_serve_handle(call, TOW_H_FUNCTION, head.function);
    CUstream stream = tows_serve_handle(call, TOW_H_STREAM, head.stream);
    if (!tows_serve_ready(call)) {
        return;
    }
    tow_line_count(&call->session->stats->launches, 1);
    launch_record(call, function);
    struct packed packed;
    call->status = tow_drive(call->driver, cuLaunchKernel)(
        function, head.grid[0], head.grid[1], head.grid[2], head.block[0], head.block[1],
        head.block[2], head.shared, stream, NULL, launch_pack(&packed, bytes, head.bytes));
}

unsigned tows_serve_launch_attributes(struct tows_serve *call, CUlaunchAttribute *ret_attributes)
{
    uint32_t count =
        tow_dec_count(&call->in, TOW_LAUNCH_ATTRIBUTES_MAX, sizeof(struct tow_launch_attribute));
    tow_dec_u32(&call->in);
    for (uint32_t i = 0; i < count; i++) {
        CUlaunchAttribute *a = &ret_attributes[i];
        memset(a, 0, sizeof *a);
        a->id = (CUlaunchAttributeID)tow_dec_u32(&call->in);
        uint32_t words = tow_dec_count(&call->in, TOW_LAUNCH_VALUE_WORDS, 8);
        tow_dec_copy(&call->in, &a->value, (size_t)words * 8);
        if (a->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
            uint64_t event = (uint64_t)(uintptr_t)a->value.programmaticEvent.event;
            a->value.programmaticEvent.event = tows_serve_handle(call, TOW_H_EVENT, event);
        } else if (a->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
            uint64_t event = (uint64_t)(uintptr_t)a->value.launchCompletionEvent.event;
            a->value.launchCompletionEvent.event = tows_serve_handle(call, TOW_H_EVENT, event);
        }
    }
    return count;
}

void tows_serve_launch_read(struct tows_serve *call, struct tows_serve_launch *ret_launch)
{
    struct tow_launch_head head;
    tow_dec_copy(&call->in, &head, sizeof head);
    unsigned count = tows_serve_launch_attributes(call, ret_launch->attributes);
    ret_launch->bytes = head.bytes;
    ret_launch->function = tows_serve_handle(call, TOW_H_FUNCTION, head.function);
    ret_launch->config = (CUlaunchConfig){
        .gridDimX = head.grid[0],
        .gridDimY = head.grid[1],
        .gridDimZ = head.grid[2],
        .blockDimX = head.block[0],
        .blockDimY = head.block[1],
        .blockDimZ = head.block[2],
        .sharedMemBytes = head.shared,
        .hStream = tows_serve_handle(call, TOW_H_STREAM, head.stream),
        .attrs = ret_launch->attributes,
        .numAttrs = count,
    };
}

void tows_serve_cuLaunchKernelEx(struct tows_serve *call)
{
    struct tows_serve_launch launch;
    tows_serve_launch_read(call, &launch);
    const uint8_t *bytes = tow_dec_bytes(&call->in, launch.bytes);
    if (!tows_serve_ready(call)) {
        return;
    }
    tow_line_count(&call->session->stats->launches, 1);
    launch_record(call, launch.function);
    struct packed packed;
    call->status = tow_drive(call->driver, cuLaunchKernelEx)(
        &launch.config, launch.function, NULL, launch_pack(&packed, bytes, launch.bytes));
    if (call->status != CUDA_SUCCESS || call->frame.seq == 0) {
        return;
    }
    uint64_t node = 0; /* the driver's own: GPU code uses it */
    for (unsigned i = 0; i < launch.config.numAttrs; i++) {
        const CUlaunchAttribute *a = &launch.attributes[i];
        if (a->id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) {
            node = (uint64_t)(uintptr_t)a->value.deviceUpdatableKernelNode.devNode;
        }
    }
    tow_enc_u64(&call->out, node);
}
