/* SPDX-License-Identifier: Apache-2.0 */
/* Occupancy of launches with attributes (clusters); the plain queries are generated. */
#include "server/code/launch.h"

#include "gen/launch_server.h"
#include "server/session/serve.h"

static void clusters(struct tow_serve *call, CUresult (*ask)(int *ret_count, CUfunction function,
                                                             const CUlaunchConfig *config))
{
    struct tow_serve_launch launch;
    tow_serve_launch_read(call, &launch);
    if (!tow_serve_ready(call)) {
        return;
    }
    int answer = 0;
    call->status = ask(&answer, launch.function, &launch.config);
    tow_enc_i32(&call->out, answer);
}

void tow_serve_cuOccupancyMaxPotentialClusterSize(struct tow_serve *call)
{
    clusters(call, tow_drive(call->driver, cuOccupancyMaxPotentialClusterSize));
}

void tow_serve_cuOccupancyMaxActiveClusters(struct tow_serve *call)
{
    clusters(call, tow_drive(call->driver, cuOccupancyMaxActiveClusters));
}
