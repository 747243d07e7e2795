/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the snapshot of the devices. */
#include "server/family/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/limits.h"
#include "wire/snapshot.h"
#include "gen/core.h"
#include "gen/device.h"

static void device_describe(const struct tow_driver *driver, CUdevice device,
                            struct tow_snapshot_device *out)
{
    size_t memory = 0;
    CUuuid uuid;
    if (tow_drive(driver, cuDeviceGetName)(out->name, sizeof out->name, device) != CUDA_SUCCESS) {
        snprintf(out->name, sizeof out->name, "unknown");
    }
    if (tow_drive(driver, cuDeviceGetUuid)(&uuid, device) == CUDA_SUCCESS) {
        memcpy(out->uuid, uuid.bytes, sizeof out->uuid);
    }
    memcpy(out->uuid_v2, out->uuid, sizeof out->uuid_v2);
    if (tow_drive(driver, cuDeviceGetUuid_v2)(&uuid, device) == CUDA_SUCCESS) {
        memcpy(out->uuid_v2, uuid.bytes, sizeof out->uuid_v2);
    }
    if (tow_drive(driver, cuDeviceTotalMem_v2)(&memory, device) == CUDA_SUCCESS) {
        out->memory = memory;
    }
    for (unsigned id = 1; id < TOW_SNAPSHOT_ATTRIBUTES_MAX; id++) {
        int value = 0;
        if (tow_drive(driver, cuDeviceGetAttribute)(&value, (CUdevice_attribute)id, device) ==
            CUDA_SUCCESS) {
            tow_snapshot_set(out, id, value);
        }
    }
    int supported = 0;
    if (tow_drive(driver, cuDeviceGetExecAffinitySupport)(
            &supported, CU_EXEC_AFFINITY_TYPE_SM_COUNT, device) == CUDA_SUCCESS &&
        supported) {
        out->affinity |= 1u << CU_EXEC_AFFINITY_TYPE_SM_COUNT;
    }
}

static void describe_pair(const struct tow_driver *driver, CUdevice a, CUdevice b,
                          struct tow_snapshot_peer *out)
{
    int value = 0;
    if (tow_drive(driver, cuDeviceCanAccessPeer)(&value, a, b) == CUDA_SUCCESS) {
        out->may_access = value != 0;
    }
    for (unsigned id = 1; id < TOW_SNAPSHOT_PEER_ATTRIBUTES; id++) {
        if (tow_drive(driver, cuDeviceGetP2PAttribute)(&value, (CUdevice_P2PAttribute)id, a, b) ==
            CUDA_SUCCESS) {
            out->attribute[id] = value;
            out->known |= 1u << id;
        }
    }
}

int tows_device_snapshot(struct tow_backend *backend, uint8_t **ret_bytes, size_t *ret_size)
{
    const struct tow_driver *driver = &backend->driver;
    int count = 0, version = 0;
    if (tow_drive(driver, cuInit)(0) != CUDA_SUCCESS ||
        tow_drive(driver, cuDeviceGetCount)(&count) != CUDA_SUCCESS || count <= 0) {
        return -ENODEV;
    }
    if (count > TOW_SNAPSHOT_DEVICES_MAX) {
        count = TOW_SNAPSHOT_DEVICES_MAX;
    }
    struct tow_snapshot snapshot;
    int error = tow_snapshot_init(&snapshot, (uint32_t)count);
    if (error < 0) {
        return error;
    }
    tow_drive(driver, cuDriverGetVersion)(&version);
    snapshot.version = (uint32_t)version;
    snapshot.flags = strcmp(backend->name, "soft") == 0 ? TOW_SNAPSHOT_SOFT : 0;
    for (CUdevice a = 0; a < count; a++) {
        device_describe(driver, a, &snapshot.devices[a]);
        for (CUdevice b = 0; b < count; b++) {
            if (a != b) {
                describe_pair(driver, a, b, &snapshot.peers[a * count + b]);
            }
        }
    }
    /* Programs print them: they are to be the driver's own. (The software GPU has none.) */
    bool soft = (snapshot.flags & TOW_SNAPSHOT_SOFT) != 0;
    for (unsigned i = 0; i < TOW_SNAPSHOT_RESULTS && !soft; i++) {
        const char *text = NULL;
        if (tow_drive(driver, cuGetErrorString)((CUresult)i, &text) == CUDA_SUCCESS &&
            text != NULL) {
            snapshot.texts[i] = strdup(text); /* NULL without memory: the client has its own */
        }
    }
    size_t size = tow_snapshot_size(&snapshot);
    uint8_t *bytes = size <= TOW_WELCOME_SNAPSHOT_MAX ? malloc(size) : NULL;
    error = bytes == NULL ? -ENOMEM : tow_snapshot_encode(&snapshot, bytes, size);
    tow_snapshot_fini(&snapshot);
    if (error < 0) {
        free(bytes);
        return error;
    }
    *ret_bytes = bytes;
    *ret_size = size;
    return 0;
}
