/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a launch off the wire: attributes, function and grid as the driver wants them. */
#ifndef TOW_SERVER_LAUNCH_H
#define TOW_SERVER_LAUNCH_H

#include "server/session/serve.h"
#include "wire/code.h"

/* Reads launch attributes; events become the driver's. `ret_attributes` has room for
 * TOW_LAUNCH_ATTRIBUTES_MAX. */
unsigned tows_serve_launch_attributes(struct tows_serve *call, CUlaunchAttribute *ret_attributes);

/* A launch with attributes, handles and events as the driver's. */
struct tows_serve_launch {
    uint32_t bytes; /* of arguments, which come next in the command */
    CUfunction function;
    CUlaunchConfig config; /* refers to the attributes */
    CUlaunchAttribute attributes[TOW_LAUNCH_ATTRIBUTES_MAX];
};

void tows_serve_launch_read(struct tows_serve *call, struct tows_serve_launch *ret_launch);

#endif
