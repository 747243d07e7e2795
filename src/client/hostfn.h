/* Host functions that the program put into streams. */
#ifndef TOW_CLIENT_HOSTFN_H
#define TOW_CLIENT_HOSTFN_H

#include <stdint.h>

#include "gen/cuda_abi.h"

struct tow_link;

/* The server says that it is the turn of function `id`: hands it to the thread that runs them.
 * Never runs it here. */
void tow_hostfn_call(struct tow_link *link, uint64_t id, CUresult status);

#endif
