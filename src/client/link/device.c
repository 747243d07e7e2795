/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the devices of all servers into the program's order, and answers what their snapshots know.
 */
#include "client/link/device.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/number.h"
#include "client/link/call.h"
#include "client/link/current.h"
#include "client/session/state.h"
#include "client/session/error.h"
#include "client/link/link.h"
#include "gen/device_client.h"

/* Process-wide: the devices of all servers have one numbering. */
static struct tow_snapshot snapshots[TOW_SERVERS_MAX]; /* fixed once phase is READY */
static struct towc_device devices[TOW_SNAPSHOT_DEVICES_MAX];
static int device_count;
static int driver_version;

/* What a device on the other side of a line cannot promise to a program on this side. */
static const uint16_t masked[] = {
    CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
};

static void device_mask(struct tow_snapshot_device *device)
{
    int32_t types;
    if (tow_snapshot_get(device, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, &types)) {
        tow_snapshot_set(device, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
                         types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    }
    for (size_t i = 0; i < sizeof masked / sizeof masked[0]; i++) {
        int32_t value;
        if (tow_snapshot_get(device, masked[i], &value)) {
            tow_snapshot_set(device, masked[i], 0);
        }
    }
}

/* "GPU-" and the beginning of a UUID, dashes anywhere: how many bytes of hex digits match all of
 * it. */
static bool uuid_begins(const uint8_t uuid[16], const char *text, size_t length)
{
    unsigned digits = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '-') {
            continue;
        }
        int digit = tow_hex_digit(text[i]);
        if (digit < 0 || digits >= 32 ||
            (uuid[digits / 2] >> (digits % 2 == 0 ? 4 : 0) & 15) != digit) {
            return false;
        }
        digits++;
    }
    return digits > 0;
}

unsigned towc_devices_choose(const char *visible, const uint8_t (*uuids)[16], unsigned count,
                             unsigned *ret_chosen)
{
    unsigned chosen = 0;
    if (visible == NULL) {
        for (; chosen < count; chosen++) {
            ret_chosen[chosen] = chosen;
        }
        return chosen;
    }
    const char *at = visible;
    while (chosen < count) {
        at += strspn(at, " \t");
        size_t length = strcspn(at, ",");
        size_t used = length;
        while (used > 0 && (at[used - 1] == ' ' || at[used - 1] == '\t')) {
            used--;
        }
        long found = -1;
        if (used > 4 && (strncasecmp(at, "GPU-", 4) == 0 || strncasecmp(at, "MIG-", 4) == 0)) {
            const char *text = at + 4;
            size_t left = used - 4;
            if (left > 4 && strncasecmp(text, "GPU-", 4) == 0) {
                text += 4;
                left -= 4;
            }
            for (unsigned i = 0; i < count; i++) {
                if (uuid_begins(uuids[i], text, left)) {
                    /* The beginning must name one device only. */
                    found = found < 0 ? (long)i : -2;
                }
            }
        } else if (used > 0 && isdigit((unsigned char)*at)) {
            found = strtol(at, NULL, 10);
        }
        if (found < 0 || found >= (long)count) {
            break;
        }
        bool twice = false;
        for (unsigned i = 0; i < chosen; i++) {
            twice = twice || ret_chosen[i] == (unsigned)found;
        }
        if (twice) {
            break;
        }
        ret_chosen[chosen++] = (unsigned)found;
        if (at[length] != ',') {
            break;
        }
        at += length + 1;
    }
    return chosen;
}

static long long pci_key(const struct towc_device *device)
{
    int32_t domain = 0, bus = 0, slot = 0;
    tow_snapshot_get(device->facts, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, &domain);
    tow_snapshot_get(device->facts, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, &bus);
    tow_snapshot_get(device->facts, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, &slot);
    return (long long)domain << 32 | (long long)(bus & 0xffff) << 16 | (slot & 0xffff);
}

struct towc_link *towc_client_link(CUdevice device)
{
    if (device >= 0) {
        const struct towc_device *d = towc_device_at(device);
        return d != NULL ? d->link : NULL;
    }
    return towc_client_link_at(0);
}

CUresult towc_devices_take(const char *visible, const char *order)
{
    struct towc_device all[TOW_SNAPSHOT_DEVICES_MAX];
    uint8_t uuids[TOW_SNAPSHOT_DEVICES_MAX][16];
    unsigned total = 0;
    bool by_bus = order != NULL && strcmp(order, "PCI_BUS_ID") == 0;
    driver_version = CUDA_VERSION;
    for (unsigned server = 0; server < towc_client_link_count(); server++) {
        struct towc_link *link = towc_client_link_at(server);
        struct tow_snapshot *snapshot = &snapshots[server];
        int error =
            tow_snapshot_decode(link->welcome.snapshot, link->welcome.snapshot_size, snapshot);
        if (error < 0) {
            tow_log(
                TOW_AREA_CLIENT, TOW_LOG_ERROR,
                "the server at %s describes its devices in a way this client does not understand: "
                "install the same version of Towline on both sides",
                link->address);
            return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
        }
        if (server == 0) {
            towc_error_take(snapshot);
        }
        if ((int)snapshot->version < driver_version) {
            driver_version = (int)snapshot->version;
        }
        unsigned first = total;
        for (unsigned i = 0; i < snapshot->count && total < TOW_SNAPSHOT_DEVICES_MAX; i++) {
            device_mask(&snapshot->devices[i]);
            struct towc_device device = {.link = link,
                                         .ordinal = (int)i,
                                         .snapshot = snapshot,
                                         .facts = &snapshot->devices[i]};
            unsigned place = total;
            while (by_bus && place > first && pci_key(&all[place - 1]) > pci_key(&device)) {
                all[place] = all[place - 1];
                place--;
            }
            all[place] = device;
            total++;
        }
    }
    for (unsigned i = 0; i < total; i++) {
        memcpy(uuids[i], all[i].facts->uuid, 16);
    }
    unsigned chosen[TOW_SNAPSHOT_DEVICES_MAX];
    unsigned n = towc_devices_choose(visible, (const uint8_t(*)[16])uuids, total, chosen);
    for (unsigned i = 0; i < n; i++) {
        devices[i] = all[chosen[i]];
    }
    device_count = (int)n;
    return n > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

void towc_devices_forget(void)
{
    memset(snapshots, 0, sizeof snapshots);
    device_count = 0;
}

const struct towc_device *towc_device_at(CUdevice device)
{
    return device >= 0 && device < device_count ? &devices[device] : NULL;
}

int towc_device_count(void)
{
    return device_count;
}

int towc_device_driver_version(void)
{
    return driver_version;
}

int towc_device_attribute(CUdevice device, CUdevice_attribute attribute)
{
    const struct towc_device *d = towc_device_at(device);
    int32_t value = 0;
    if (d != NULL) {
        tow_snapshot_get(d->facts, (unsigned)attribute, &value);
    }
    return value;
}

int towc_device_to_server(CUdevice device)
{
    const struct towc_device *d = towc_device_at(device);
    return d != NULL ? d->ordinal : -1;
}

CUdevice towc_device_on(const struct towc_link *link, int ordinal)
{
    for (CUdevice i = 0; i < device_count; i++) {
        if (devices[i].ordinal == ordinal && devices[i].link == link) {
            return i;
        }
    }
    return CU_DEVICE_INVALID;
}

CUresult towc_device_route(CUdevice device, struct towc_link **link)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    const struct towc_device *d = towc_device_at(device);
    if (d == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (*link != NULL && *link != d->link) {
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    *link = d->link;
    return CUDA_SUCCESS;
}

CUdevice towc_device_from_server(int ordinal)
{
    /* Of the server that the calling thread talks to. A device it may not see is none. */
    struct towc_context *context = towc_context_current();
    for (CUdevice i = 0; i < device_count; i++) {
        if (devices[i].ordinal == ordinal &&
            (context == NULL || devices[i].link == context->link)) {
            return i;
        }
    }
    return CU_DEVICE_INVALID;
}

/* Answers of one device: checks what every such function checks, and gives the device. */
static CUresult device_find(CUdevice device, const void *out, const struct towc_device **ret_device)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    if (out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ret_device = towc_device_at(device);
    return *ret_device != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult towc_cuDeviceGet(CUdevice *device, int ordinal)
{
    const struct towc_device *d;
    CUresult status = device_find(ordinal, device, &d);
    if (status == CUDA_SUCCESS) {
        *device = ordinal;
    }
    return status;
}

CUresult towc_cuDeviceGetCount(int *count)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    if (count == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *count = device_count;
    return CUDA_SUCCESS;
}

CUresult towc_cuDeviceGetName(char *name, int len, CUdevice dev)
{
    const struct towc_device *d;
    CUresult status = device_find(dev, name, &d);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (len <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    snprintf(name, (size_t)len, "%s", d->facts->name);
    return CUDA_SUCCESS;
}

CUresult towc_cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    const struct towc_device *d;
    CUresult status = device_find(dev, uuid, &d);
    if (status == CUDA_SUCCESS) {
        memcpy(uuid->bytes, d->facts->uuid, 16);
    }
    return status;
}

CUresult towc_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    const struct towc_device *d;
    CUresult status = device_find(dev, uuid, &d);
    if (status == CUDA_SUCCESS) {
        memcpy(uuid->bytes, d->facts->uuid_v2, 16);
    }
    return status;
}

CUresult towc_cuDeviceGetLuid(char *luid, unsigned int *deviceNodeMask, CUdevice dev)
{
    const struct towc_device *d;
    CUresult status = device_find(dev, luid, &d);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (deviceNodeMask == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (d->facts->luid_mask == 0) {
        return CUDA_ERROR_NOT_SUPPORTED; /* Linux drivers have none */
    }
    memcpy(luid, d->facts->luid, 8);
    *deviceNodeMask = d->facts->luid_mask;
    return CUDA_SUCCESS;
}

CUresult towc_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    const struct towc_device *d;
    CUresult status = device_find(dev, bytes, &d);
    if (status == CUDA_SUCCESS) {
        *bytes = d->facts->memory;
    }
    return status;
}

CUresult towc_cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    const struct towc_device *d;
    CUresult status = device_find(dev, pi, &d);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    int32_t value;
    if (!tow_snapshot_get(d->facts, (unsigned)attrib, &value)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pi = value;
    return CUDA_SUCCESS;
}

CUresult towc_cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev)
{
    const struct towc_device *d;
    CUresult status = device_find(dev, pi, &d);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if ((unsigned)type >= CU_EXEC_AFFINITY_TYPE_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pi = d->facts->affinity >> type & 1;
    return CUDA_SUCCESS;
}

CUresult towc_cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    const struct towc_device *d;
    CUresult status = device_find(dev, major, &d);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (minor == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *major = towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    *minor = towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return CUDA_SUCCESS;
}

CUresult towc_cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
    const struct towc_device *d;
    CUresult status = device_find(dev, prop, &d);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    *prop = (CUdevprop){
        .maxThreadsPerBlock = towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        .maxThreadsDim = {towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                          towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                          towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)},
        .maxGridSize = {towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                        towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                        towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)},
        .sharedMemPerBlock =
            towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
        .totalConstantMemory =
            towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
        .SIMDWidth = towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_WARP_SIZE),
        .memPitch = towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_PITCH),
        .regsPerBlock = towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
        .clockRate = towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        .textureAlign = towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
    };
    return CUDA_SUCCESS;
}

CUresult towc_cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    const struct towc_device *d;
    CUresult status = device_find(0, dev, &d);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (pciBusId == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* domain:bus:device.function, bus:device.function or bus:device, in hexadecimal digits. */
    unsigned domain = 0, bus = 0, slot = 0, function = 0;
    if (sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        if (sscanf(pciBusId, "%x:%x.%x", &bus, &slot, &function) < 2) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    for (CUdevice i = 0; i < device_count; i++) {
        if ((unsigned)towc_device_attribute(i, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID) == domain &&
            (unsigned)towc_device_attribute(i, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) == bus &&
            (unsigned)towc_device_attribute(i, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID) == slot) {
            *dev = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult towc_cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    const struct towc_device *d;
    CUresult status = device_find(dev, pciBusId, &d);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    char text[32];
    int size = snprintf(text, sizeof text, "%04X:%02X:%02X.0",
                        (unsigned)towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                        (unsigned)towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
                        (unsigned)towc_device_attribute(dev, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
    if (len <= size) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(pciBusId, text, (size_t)size + 1);
    return CUDA_SUCCESS;
}

/* What the snapshot says of a pair of devices; NULL if they are not on one server. */
static const struct tow_snapshot_peer *device_pair(const struct towc_device *a,
                                                   const struct towc_device *b)
{
    if (a->link != b->link) {
        return NULL;
    }
    return &a->snapshot->peers[(unsigned)a->ordinal * a->snapshot->count + (unsigned)b->ordinal];
}

CUresult towc_cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    const struct towc_device *a, *b;
    CUresult status = device_find(dev, canAccessPeer, &a);
    if (status == CUDA_SUCCESS) {
        status = device_find(peerDev, canAccessPeer, &b);
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    const struct tow_snapshot_peer *p = device_pair(a, b);
    *canAccessPeer = p != NULL && p->may_access != 0 && a != b;
    return CUDA_SUCCESS;
}

CUresult towc_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                      CUdevice dstDevice)
{
    const struct towc_device *a, *b;
    CUresult status = device_find(srcDevice, value, &a);
    if (status == CUDA_SUCCESS) {
        status = device_find(dstDevice, value, &b);
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (a == b) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (attrib < 1 || (int)attrib >= TOW_SNAPSHOT_PEER_ATTRIBUTES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct tow_snapshot_peer *p = device_pair(a, b);
    *value = p != NULL && (p->known >> attrib & 1) != 0 ? p->attribute[attrib] : 0;
    return CUDA_SUCCESS;
}

CUresult towc_cuDeviceGetHostAtomicCapabilities(unsigned int *capabilities,
                                                const CUatomicOperation *operations,
                                                unsigned int count, CUdevice dev)
{
    const struct towc_device *d;
    CUresult status = device_find(dev, capabilities, &d);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (operations == NULL || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* Host and GPU are two machines: none is native, as the masked attributes say. */
    memset(capabilities, 0, count * sizeof *capabilities);
    return CUDA_SUCCESS;
}
