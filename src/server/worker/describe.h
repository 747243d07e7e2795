/* SPDX-License-Identifier: Apache-2.0 */
/* What `towline devices` shows of a backend's GPUs. */
#ifndef TOW_SERVER_DESCRIBE_H
#define TOW_SERVER_DESCRIBE_H

#include <stdbool.h>

#include "backend/backend.h"
#include "base/buf.h"

/* Appends a JSON array with one object per GPU. */
int tows_describe_devices(const struct tow_backend *backend, struct tow_buf *out);

/* Whether a GPU can reach memory that is not page-locked (HMM or ATS): then it reaches all of the
 * worker's. */
bool tows_describe_pageable(const struct tow_backend *backend);

#endif
