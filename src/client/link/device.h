/* SPDX-License-Identifier: Apache-2.0 */
/* The devices that the program sees: those of all servers, as CUDA_VISIBLE_DEVICES chooses and
 * orders them. */
#ifndef TOW_CLIENT_DEVICE_H
#define TOW_CLIENT_DEVICE_H

#include "gen/cuda_types.h"
#include "wire/snapshot.h"

struct towc_link;

struct towc_device {
    struct towc_link *link;                  /* borrowed: the server that has it */
    int ordinal;                             /* on that server */
    const struct tow_snapshot *snapshot;     /* borrowed from this module: that server's */
    const struct tow_snapshot_device *facts; /* borrowed from the snapshot */
};

/* Takes the devices of the servers, in order, as `visible` (CUDA_VISIBLE_DEVICES, NULL: all) and
 * `order` (CUDA_DEVICE_ORDER, may be NULL) say. Called once, while connecting. CUDA_ERROR_NO_DEVICE
 * if none is left. */
CUresult towc_devices_take(const char *visible, const char *order);
/* Forgets everything: a forked child that connects anew. Frees nothing. */
void towc_devices_forget(void);

/* The device of a visible ordinal; NULL if there is none. */
const struct towc_device *towc_device_at(CUdevice device);
int towc_device_count(void);
/* The lowest driver version of the servers, at most the newest this library knows. */
int towc_device_driver_version(void);
/* An attribute, 0 if the device does not know it. */
int towc_device_attribute(CUdevice device, CUdevice_attribute attribute);

/* Chooses among `count` devices with these ids: writes indices into `ret_chosen` (room for
 * `count`), returns how many. The list ends at the first entry that names no device or one that was
 * named before. */
unsigned towc_devices_choose(const char *visible, const uint8_t (*uuids)[16], unsigned count,
                             unsigned *ret_chosen);

#endif
