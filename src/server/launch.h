#ifndef TOW_SERVER_LAUNCH_H
#define TOW_SERVER_LAUNCH_H

#include "server/serve.h"
#include "wire/code.h"

/* Reads launch attributes; events become the driver's. `ret_attributes` has room for
 * TOW_LAUNCH_ATTRIBUTES_MAX. */
unsigned tow_serve_launch_attributes(struct tow_serve *call, CUlaunchAttribute *ret_attributes);

/* A launch with attributes, handles and events as the driver's. */
struct tow_serve_launch {
    uint32_t bytes; /* of arguments, which come next in the command */
    CUfunction function;
    CUlaunchConfig config; /* refers to the attributes */
    CUlaunchAttribute attributes[TOW_LAUNCH_ATTRIBUTES_MAX];
};

static inline void tow_serve_launch_read(struct tow_serve *call,
                                         struct tow_serve_launch *ret_launch)
{
    struct tow_launch_head head;
    tow_dec_copy(&call->in, &head, sizeof head);
    unsigned count = tow_serve_launch_attributes(call, ret_launch->attributes);
    ret_launch->bytes = head.bytes;
    ret_launch->function = tow_serve_handle(call, TOW_H_FUNCTION, head.function);
    ret_launch->config = (CUlaunchConfig){
        .gridDimX = head.grid[0],
        .gridDimY = head.grid[1],
        .gridDimZ = head.grid[2],
        .blockDimX = head.block[0],
        .blockDimY = head.block[1],
        .blockDimZ = head.block[2],
        .sharedMemBytes = head.shared,
        .hStream = tow_serve_handle(call, TOW_H_STREAM, head.stream),
        .attrs = ret_launch->attributes,
        .numAttrs = count,
    };
}

#endif
