/* SPDX-License-Identifier: Apache-2.0 */
/* What the client is told of the devices, once, with the welcome. */
#ifndef TOW_SERVER_DEVICE_H
#define TOW_SERVER_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

/* All devices with every attribute, name, uuid and memory size, as src/client/link/device.c
 * reads it. The bytes are the caller's to free. -ENODEV if the driver has none. */
int tows_device_snapshot(struct tow_backend *backend, uint8_t **ret_bytes, size_t *ret_size);

#endif
