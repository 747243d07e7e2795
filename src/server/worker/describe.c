/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a backend's GPUs as JSON. */
#include "server/worker/describe.h"

#include <errno.h>
#include <stdio.h>

#include "base/json_write.h"
#include "gen/core.h"
#include "gen/device.h"

enum { DEVICES_MAX = 64 };

static int describe_attribute(const struct tow_driver *driver, CUdevice device,
                              CUdevice_attribute which)
{
    int value = 0;
    return tow_drive(driver, cuDeviceGetAttribute)(&value, which, device) == CUDA_SUCCESS ? value
                                                                                          : 0;
}

static void describe_run(struct tow_json *json, const struct tow_driver *driver, int index)
{
    CUdevice device;
    if (tow_drive(driver, cuDeviceGet)(&device, index) != CUDA_SUCCESS) {
        return;
    }
    char name[128] = "";
    tow_drive(driver, cuDeviceGetName)(name, sizeof name - 1, device);
    size_t memory = 0;
    tow_drive(driver, cuDeviceTotalMem_v2)(&memory, device);
    char bus[32] = "";
    tow_drive(driver, cuDeviceGetPCIBusId)(bus, sizeof bus - 1, device);
    CUuuid uuid = {{0}};
    tow_drive(driver, cuDeviceGetUuid_v2)(&uuid, device);
    char uuid_text[64];
    int used = snprintf(uuid_text, sizeof uuid_text, "GPU-");
    for (int i = 0; i < 16; i++) {
        used += snprintf(uuid_text + used, sizeof uuid_text - (size_t)used, "%s%02x",
                         i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                         (unsigned char)uuid.bytes[i]);
    }
    char capability[24];
    snprintf(capability, sizeof capability, "%d.%d",
             describe_attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
             describe_attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    tow_json_object(json, NULL);
    tow_json_i64(json, "index", index);
    tow_json_str(json, "name", name);
    tow_json_str(json, "uuid", uuid_text);
    tow_json_str(json, "pci", bus);
    tow_json_str(json, "capability", capability);
    tow_json_u64(json, "memory", memory);
    tow_json_i64(json, "multiprocessors",
                 describe_attribute(driver, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    tow_json_i64(json, "bus_width",
                 describe_attribute(driver, device, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH));
    tow_json_i64(json, "clock_khz",
                 describe_attribute(driver, device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE));
    tow_json_i64(json, "memory_clock_khz",
                 describe_attribute(driver, device, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE));
    int version = 0, count = 0;
    tow_drive(driver, cuDriverGetVersion)(&version);
    tow_json_i64(json, "cuda", version);
    tow_json_array(json, "peers");
    tow_drive(driver, cuDeviceGetCount)(&count);
    for (int i = 0; i < count && i < DEVICES_MAX; i++) {
        int can = 0;
        if (i != index) {
            tow_drive(driver, cuDeviceCanAccessPeer)(&can, device, i);
        }
        tow_json_i64(json, NULL, can);
    }
    tow_json_end(json);
    tow_json_end(json);
}

int tows_describe_devices(const struct tow_backend *backend, struct tow_buf *out)
{
    struct tow_json json;
    tow_json_init(&json, out);
    tow_json_array(&json, NULL);
    int count = 0;
    if (tow_drive(&backend->driver, cuDeviceGetCount)(&count) == CUDA_SUCCESS) {
        for (int i = 0; i < count && i < DEVICES_MAX; i++) {
            describe_run(&json, &backend->driver, i);
        }
    }
    tow_json_end(&json);
    return tow_json_finish(&json);
}

bool tows_describe_pageable(const struct tow_backend *backend)
{
    const struct tow_driver *driver = &backend->driver;
    int count = 0;
    bool pageable = false;
    tow_drive(driver, cuDeviceGetCount)(&count);
    for (int i = 0; i < count && i < DEVICES_MAX && !pageable; i++) {
        CUdevice device;
        pageable =
            tow_drive(driver, cuDeviceGet)(&device, i) == CUDA_SUCCESS &&
            describe_attribute(driver, device, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS) != 0;
    }
    return pageable;
}
