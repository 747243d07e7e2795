/* SPDX-License-Identifier: Apache-2.0 */
/* What NVIDIA's driver did and when, for a timeline: by CUPTI's activity records, where there is a
 * libcupti. It is opened when somebody asks for the first time, and building needs none of it. *
 * Events around each kernel would do without it, and say too much: on an H200 5.1 us for a kernel
 * of 0.8 us, in a stream that is full 4.5 us; and each launch takes 5.8 us instead of 3.5.
 */
#ifndef TOW_BACKEND_CUDA_CUPTI_H
#define TOW_BACKEND_CUDA_CUPTI_H

#include "backend/backend.h"

extern const struct tow_backend_timeline_ops tow_cupti_ops;

#endif
