/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory put out and in by NVIDIA's driver itself: cuCheckpointProcess*, which this process
 * calls for itself. */
#ifndef TOW_BACKEND_CUDA_AWAY_H
#define TOW_BACKEND_CUDA_AWAY_H

#include "backend/backend.h"

/* For the driver that is in the table. From now on it is watched for what cannot be put out. */
const struct tow_backend_away_ops *tow_cuda_away_begin(struct tow_driver *driver);

#endif
