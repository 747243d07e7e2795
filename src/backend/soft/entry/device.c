/* SPDX-License-Identifier: Apache-2.0 */
/* The devices and what they say of themselves: a plausible GPU of the configured capability. */
#include "backend/soft/entry/entry.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/state.h"
#include "gen/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int device_attribute(CUdevice_attribute attrib, const struct tow_soft_device *device,
                            bool *ret_known)
{
    struct tow_soft_limits_of_device limits;
    tow_soft_device_limits(&limits);
    *ret_known = true;
    switch ((int)attrib) {
#define TOW_ATTRIBUTE(name, value)                                                                 \
    case CU_DEVICE_ATTRIBUTE_##name:                                                               \
        return value;
#include "backend/soft/entry/attributes.def"
#undef TOW_ATTRIBUTE
    default:
        *ret_known = attrib > 0 && attrib < CU_DEVICE_ATTRIBUTE_MAX;
        return 0; /* everything else this device has not */
    }
}

#define DEVICE(device, dev)                                                                        \
    if (!tow_soft.initialised) {                                                                   \
        return CUDA_ERROR_NOT_INITIALIZED;                                                         \
    }                                                                                              \
    struct tow_soft_device *device = tow_soft_device_of(dev);                                      \
    if (device == NULL) {                                                                          \
        return CUDA_ERROR_INVALID_DEVICE;                                                          \
    }

static CUresult soft_cuDeviceGet(CUdevice *device, int ordinal)
{
    if (device == NULL) {
        return tow_soft.initialised ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
    }
    DEVICE(found, ordinal);
    *device = found->ordinal;
    return CUDA_SUCCESS;
}

static CUresult soft_cuDeviceGetCount(int *count)
{
    if (!tow_soft.initialised) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (count == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *count = (int)tow_soft.device_count;
    return CUDA_SUCCESS;
}

static CUresult soft_cuDeviceGetName(char *name, int len, CUdevice dev)
{
    DEVICE(device, dev);
    if (name == NULL || len <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    snprintf(name, (size_t)len, "%s", tow_soft.dry ? TOW_SOFT_NAME_DRY : TOW_SOFT_NAME);
    return CUDA_SUCCESS;
}

static CUresult soft_cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    DEVICE(device, dev);
    if (uuid == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *uuid = device->uuid;
    return CUDA_SUCCESS;
}

static CUresult soft_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    DEVICE(device, dev);
    if (bytes == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *bytes = device->total;
    return CUDA_SUCCESS;
}

static CUresult soft_cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    DEVICE(device, dev);
    bool known;
    int value = device_attribute(attrib, device, &known);
    if (pi == NULL || !known) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pi = value;
    return CUDA_SUCCESS;
}

static CUresult soft_cuDeviceGetTexture1DLinearMaxWidth(size_t *maxWidthInElements,
                                                        CUarray_format format,
                                                        unsigned int numChannels, CUdevice dev)
{
    DEVICE(device, dev);
    (void)format;
    if (maxWidthInElements == NULL || (numChannels != 1 && numChannels != 2 && numChannels != 4)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *maxWidthInElements = 268435456;
    return CUDA_SUCCESS;
}

static CUresult soft_cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev)
{
    DEVICE(device, dev);
    if (pi == NULL || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pi = 0;
    return CUDA_SUCCESS;
}

static CUresult soft_cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
    DEVICE(device, dev);
    if (prop == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *prop = (CUdevprop){.maxThreadsPerBlock = 1024,
                        .maxThreadsDim = {1024, 1024, 64},
                        .maxGridSize = {2147483647, 65535, 65535},
                        .sharedMemPerBlock = 48 * 1024,
                        .totalConstantMemory = 65536,
                        .SIMDWidth = 32,
                        .memPitch = 2147483647,
                        .regsPerBlock = 65536,
                        .clockRate = 1000000,
                        .textureAlign = 512};
    return CUDA_SUCCESS;
}

static CUresult soft_cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    DEVICE(device, dev);
    if (major == NULL || minor == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *major = tow_soft.capability / 10;
    *minor = tow_soft.capability % 10;
    return CUDA_SUCCESS;
}

static CUresult soft_cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    if (!tow_soft.initialised) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    unsigned domain = 0, bus, slot, function = 0;
    if (dev == NULL || pciBusId == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        if (sscanf(pciBusId, "%x:%x.%x", &bus, &slot, &function) < 2) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (domain != 0 || slot != 0 || function != 0 || bus == 0 || bus > tow_soft.device_count) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *dev = (CUdevice)(bus - 1);
    return CUDA_SUCCESS;
}

static CUresult soft_cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    DEVICE(device, dev);
    if (pciBusId == NULL || len < 13) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", 1 + device->ordinal);
    return CUDA_SUCCESS;
}

static CUresult soft_cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    DEVICE(device, dev);
    DEVICE(peer, peerDev);
    if (canAccessPeer == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *canAccessPeer = device != peer;
    return CUDA_SUCCESS;
}

static CUresult soft_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib,
                                             CUdevice srcDevice, CUdevice dstDevice)
{
    DEVICE(source, srcDevice);
    DEVICE(target, dstDevice);
    if (value == NULL || source == target) {
        return value == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
    }
    switch (attrib) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
    case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
        *value = 0;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = 1;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult device_atomics(unsigned int *capabilities, const CUatomicOperation *operations,
                               unsigned int count)
{
    if (capabilities == NULL || operations == NULL || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < count; i++) {
        if ((int)operations[i] < 0 || operations[i] >= CU_ATOMIC_OPERATION_MAX) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        capabilities[i] = CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_UNSIGNED |
                          CU_ATOMIC_CAPABILITY_REDUCTION | CU_ATOMIC_CAPABILITY_SCALAR_32 |
                          CU_ATOMIC_CAPABILITY_SCALAR_64;
    }
    return CUDA_SUCCESS;
}

static CUresult soft_cuDeviceGetHostAtomicCapabilities(unsigned int *capabilities,
                                                       const CUatomicOperation *operations,
                                                       unsigned int count, CUdevice dev)
{
    DEVICE(device, dev);
    return device_atomics(capabilities, operations, count);
}

static CUresult soft_cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities,
                                                      const CUatomicOperation *operations,
                                                      unsigned int count, CUdevice srcDevice,
                                                      CUdevice dstDevice)
{
    DEVICE(source, srcDevice);
    DEVICE(target, dstDevice);
    return device_atomics(capabilities, operations, count);
}

void tow_soft_fill_device(struct tow_driver *driver)
{
    tow_driver_set(driver, cuDeviceGet, soft_cuDeviceGet);
    tow_driver_set(driver, cuDeviceGetCount, soft_cuDeviceGetCount);
    tow_driver_set(driver, cuDeviceGetName, soft_cuDeviceGetName);
    tow_driver_set(driver, cuDeviceGetUuid, soft_cuDeviceGetUuid);
    tow_driver_set(driver, cuDeviceGetUuid_v2, soft_cuDeviceGetUuid);
    tow_driver_set(driver, cuDeviceTotalMem_v2, soft_cuDeviceTotalMem_v2);
    tow_driver_set(driver, cuDeviceGetAttribute, soft_cuDeviceGetAttribute);
    tow_driver_set(driver, cuDeviceGetTexture1DLinearMaxWidth,
                   soft_cuDeviceGetTexture1DLinearMaxWidth);
    tow_driver_set(driver, cuDeviceGetExecAffinitySupport, soft_cuDeviceGetExecAffinitySupport);
    tow_driver_set(driver, cuDeviceGetProperties, soft_cuDeviceGetProperties);
    tow_driver_set(driver, cuDeviceComputeCapability, soft_cuDeviceComputeCapability);
    tow_driver_set(driver, cuDeviceGetByPCIBusId, soft_cuDeviceGetByPCIBusId);
    tow_driver_set(driver, cuDeviceGetPCIBusId, soft_cuDeviceGetPCIBusId);
    tow_driver_set(driver, cuDeviceCanAccessPeer, soft_cuDeviceCanAccessPeer);
    tow_driver_set(driver, cuDeviceGetP2PAttribute, soft_cuDeviceGetP2PAttribute);
    tow_driver_set(driver, cuDeviceGetHostAtomicCapabilities,
                   soft_cuDeviceGetHostAtomicCapabilities);
    tow_driver_set(driver, cuDeviceGetP2PAtomicCapabilities, soft_cuDeviceGetP2PAtomicCapabilities);
}
