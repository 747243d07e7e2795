/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's log of failed calls: cuLogs*, CUDA_LOG_FILE. */
#ifndef TOW_CLIENT_LOGS_H
#define TOW_CLIENT_LOGS_H

#include "gen/cuda_types.h"

/* A call of the program has failed: remembered, written where CUDA_LOG_FILE says, and told to who
 * asked. Returns `result`. */
CUresult towc_logs_failed(unsigned fn, CUresult result);

/* The server says something to the person at the program: written where CUDA_LOG_FILE says. */
void towc_logs_text(const char *text);

/* CUDA is being initialised: the time zone is looked up. */
void towc_logs_begin(void);

/* What every entry returns through. */
static inline CUresult towc_logged(unsigned fn, CUresult result)
{
    return __builtin_expect(result == CUDA_SUCCESS, 1) ? result : towc_logs_failed(fn, result);
}

#endif
