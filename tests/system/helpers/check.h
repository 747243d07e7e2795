/* SPDX-License-Identifier: Apache-2.0 */
/* For the driver-API helpers: every call is checked; what is wrong ends the program with 1. */
#ifndef TOW_TESTS_HELPERS_CHECK_H
#define TOW_TESTS_HELPERS_CHECK_H

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            fprintf(stderr, "FAILED: %s:%d: %s: error %d\n", __FILE__, __LINE__, #call,            \
                    (int)result_);                                                                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
