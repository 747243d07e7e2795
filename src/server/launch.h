#ifndef TOW_SERVER_LAUNCH_H
#define TOW_SERVER_LAUNCH_H

#include "server/serve.h"
#include "wire/code.h"

/* Reads launch attributes; events become the driver's. `ret_attributes` has room for
 * TOW_LAUNCH_ATTRIBUTES_MAX. */
unsigned tow_serve_launch_attributes(struct tow_serve *call, CUlaunchAttribute *ret_attributes);

#endif
