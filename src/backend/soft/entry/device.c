/* The devices and what they say of themselves: a plausible GPU of the configured capability. */
#include "backend/soft/entry/entry.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/state.h"
#include "gen/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int attribute(CUdevice_attribute attrib, const struct tow_soft_device *device,
                     bool *ret_known)
{
    struct tow_soft_limits_of_device limits;
    tow_soft_device_limits(&limits);
    *ret_known = true;
    switch ((int)attrib) {
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
        /* It does not; tests let it say so, for what a server says then. */
        return getenv("TOW_TEST_PAGEABLE") != NULL;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
        return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
        return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
        return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        return 48 * 1024;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
        return 65536;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
        return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
        return limits.registers_per_sm;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        return 1000000; /* kHz: %clock counts nanoseconds */
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
        return 512;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
        return 32;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
    case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT:
        return 1;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
        return tow_soft.capability >= 90;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return (int)tow_soft.sm_count;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH:
        return 131072;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT:
        return 65536;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH:
        return 16384;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE:
        return 8192;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE:
        return 32768;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH:
        return 32768;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS:
        return 2048;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS:
        return 2046;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH:
        return 268435456;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH:
        return 2097120;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return 1 + device->ordinal;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
        return 1000000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
        return 128;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        return 4 << 20;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        return limits.threads_per_sm;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        return 2;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return tow_soft.capability / 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return tow_soft.capability % 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        return limits.shared_per_sm;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return limits.shared_optin;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
        return tow_soft.capability >= 80 ? 1024 : 0;
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID:
        return device->ordinal;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO:
        return 2;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
        return limits.blocks_per_sm;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
        return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    case CU_DEVICE_ATTRIBUTE_NUMA_ID:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
        return -1;
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
    int value = attribute(attrib, device, &known);
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

static CUresult atomics(unsigned int *capabilities, const CUatomicOperation *operations,
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
    return atomics(capabilities, operations, count);
}

static CUresult soft_cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities,
                                                      const CUatomicOperation *operations,
                                                      unsigned int count, CUdevice srcDevice,
                                                      CUdevice dstDevice)
{
    DEVICE(source, srcDevice);
    DEVICE(target, dstDevice);
    return atomics(capabilities, operations, count);
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
