/* Occupancy of launches with attributes (clusters); the plain queries are generated. */
#include "server/launch.h"

#include "gen/server_api.h"

static void clusters(struct tow_serve *call, CUresult (*ask)(int *ret_count, CUfunction function,
                                                             const CUlaunchConfig *config))
{
    struct tow_launch_head head;
    CUlaunchAttribute attributes[TOW_LAUNCH_ATTRIBUTES_MAX];
    tow_dec_copy(&call->in, &head, sizeof head);
    unsigned count = tow_serve_launch_attributes(call, attributes);
    CUfunction function = tow_serve_handle(call, TOW_H_FUNCTION, head.function);
    CUlaunchConfig config = {
        .gridDimX = head.grid[0],
        .gridDimY = head.grid[1],
        .gridDimZ = head.grid[2],
        .blockDimX = head.block[0],
        .blockDimY = head.block[1],
        .blockDimZ = head.block[2],
        .sharedMemBytes = head.shared,
        .hStream = tow_serve_handle(call, TOW_H_STREAM, head.stream),
        .attrs = attributes,
        .numAttrs = count,
    };
    if (!tow_serve_ready(call)) {
        return;
    }
    int answer = 0;
    call->status = ask(&answer, function, &config);
    tow_enc_i32(&call->out, answer);
}

void tow_serve_cuOccupancyMaxPotentialClusterSize(struct tow_serve *call)
{
    clusters(call, call->driver->cuOccupancyMaxPotentialClusterSize);
}

void tow_serve_cuOccupancyMaxActiveClusters(struct tow_serve *call)
{
    clusters(call, call->driver->cuOccupancyMaxActiveClusters);
}
