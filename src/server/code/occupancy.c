/* SPDX-License-Identifier: Apache-2.0 */
/* Occupancy of launches with attributes (clusters); the plain queries are generated. */
#include "server/code/launch.h"

#include "gen/launch_server.h"
#include "server/session/serve.h"

static void occupancy_clusters(struct tows_serve *call,
                               CUresult (*ask)(int *ret_count, CUfunction function,
                                               const CUlaunchConfig *config))
{
    struct tows_serve_launch launch;
    tows_serve_launch_read(call, &launch);
    if (!tows_serve_ready(call)) {
        return;
    }
    int answer = 0;
    call->status = ask(&answer, launch.function, &launch.config);
    tow_enc_i32(&call->out, answer);
}

void tows_serve_cuOccupancyMaxPotentialClusterSize(struct tows_serve *call)
{
    occupancy_clusters(call, tow_drive(call->driver, cuOccupancyMaxPotentialClusterSize));
}

void tows_serve_cuOccupancyMaxActiveClusters(struct tows_serve *call)
{
    occupancy_clusters(call, tow_drive(call->driver, cuOccupancyMaxActiveClusters));
}
