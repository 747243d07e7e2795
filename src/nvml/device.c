/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices there are, what they are, what memory they have and who uses it. */
#include "nvml/nvml_api.h"
#include "nvml/nvml.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- finding ---- */

TOW_NVML_PUBLIC int nvmlDeviceGetCount_v2(unsigned *ret_count)
{
    int result = tow_nvml_begin();
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (ret_count == NULL) {
        return tow_nvml_end(NVML_ERROR_INVALID_ARGUMENT);
    }
    *ret_count = tow_nvml_count();
    return tow_nvml_end(NVML_SUCCESS);
}

TOW_NVML_PUBLIC int nvmlDeviceGetCount(unsigned *ret_count)
{
    return nvmlDeviceGetCount_v2(ret_count);
}

TOW_NVML_PUBLIC int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **ret_device)
{
    int result = tow_nvml_begin();
    if (result != NVML_SUCCESS) {
        return result;
    }
    struct tow_nvml_device *device = tow_nvml_at(index);
    if (ret_device == NULL || device == NULL) {
        return tow_nvml_end(NVML_ERROR_INVALID_ARGUMENT);
    }
    *ret_device = device;
    return tow_nvml_end(NVML_SUCCESS);
}

TOW_NVML_PUBLIC int nvmlDeviceGetHandleByIndex(unsigned index, void **ret_device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, ret_device);
}

static int device_find(bool (*fits)(const struct tow_nvml_device *, const char *), const char *text,
                       void **ret_device)
{
    int result = tow_nvml_begin();
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (text == NULL || ret_device == NULL) {
        return tow_nvml_end(NVML_ERROR_INVALID_ARGUMENT);
    }
    for (unsigned i = 0; i < tow_nvml_count(); i++) {
        if (fits(tow_nvml_at(i), text)) {
            *ret_device = tow_nvml_at(i);
            return tow_nvml_end(NVML_SUCCESS);
        }
    }
    return tow_nvml_end(NVML_ERROR_NOT_FOUND);
}

static bool has_uuid(const struct tow_nvml_device *device, const char *uuid)
{
    return strcasecmp(device->uuid, uuid) == 0;
}

static bool has_bus(const struct tow_nvml_device *device, const char *text)
{
    unsigned domain = 0, bus = 0, slot = 0;
    if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        if (sscanf(text, "%x:%x", &bus, &slot) != 2) {
            return false;
        }
    }
    return device->domain == domain && device->bus == bus && device->slot == slot;
}

TOW_NVML_PUBLIC int nvmlDeviceGetHandleByUUID(const char *uuid, void **ret_device)
{
    return device_find(has_uuid, uuid, ret_device);
}

TOW_NVML_PUBLIC int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **ret_device)
{
    return device_find(has_bus, bus, ret_device);
}

TOW_NVML_PUBLIC int nvmlDeviceGetHandleByPciBusId(const char *bus, void **ret_device)
{
    return device_find(has_bus, bus, ret_device);
}

/* Begins, and finds the device; with something to write to. */
static int device_begin(void *handle, const void *out, struct tow_nvml_device **ret_device)
{
    int result = tow_nvml_begin();
    if (result != NVML_SUCCESS) {
        return result;
    }
    *ret_device = tow_nvml_device(handle);
    return *ret_device == NULL || out == NULL ? tow_nvml_end(NVML_ERROR_INVALID_ARGUMENT)
                                              : NVML_SUCCESS;
}

/* ---- what it is ---- */

TOW_NVML_PUBLIC int nvmlDeviceGetIndex(void *handle, unsigned *ret_index)
{
    struct tow_nvml_device *device;
    int result = device_begin(handle, ret_index, &device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    *ret_index = device->index;
    return tow_nvml_end(NVML_SUCCESS);
}

TOW_NVML_PUBLIC int nvmlDeviceGetName(void *handle, char *name, unsigned size)
{
    struct tow_nvml_device *device;
    int result = device_begin(handle, name, &device);
    return result != NVML_SUCCESS ? result
                                  : tow_nvml_end(tow_nvml_give_text(device->name, name, size));
}

TOW_NVML_PUBLIC int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned size)
{
    struct tow_nvml_device *device;
    int result = device_begin(handle, uuid, &device);
    return result != NVML_SUCCESS ? result
                                  : tow_nvml_end(tow_nvml_give_text(device->uuid, uuid, size));
}

TOW_NVML_PUBLIC int nvmlDeviceGetSerial(void *handle, char *serial, unsigned size)
{
    struct tow_nvml_device *device;
    int result = device_begin(handle, serial, &device);
    return result != NVML_SUCCESS ? result
                                  : tow_nvml_end(tow_nvml_give_text(device->serial, serial, size));
}

TOW_NVML_PUBLIC int nvmlDeviceGetVbiosVersion(void *handle, char *version, unsigned size)
{
    struct tow_nvml_device *device;
    int result = device_begin(handle, version, &device);
    return result != NVML_SUCCESS ? result
                                  : tow_nvml_end(tow_nvml_give_text(device->vbios, version, size));
}

TOW_NVML_PUBLIC int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor)
{
    struct tow_nvml_device *device;
    int result = device_begin(handle, minor == NULL ? NULL : major, &device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    *major = device->major;
    *minor = device->minor;
    return tow_nvml_end(NVML_SUCCESS);
}

TOW_NVML_PUBLIC int nvmlDeviceGetArchitecture(void *handle, unsigned *ret_architecture)
{
    /* By compute capability: Kepler 2, Maxwell 3, Pascal 4, Volta 5, Turing 6, Ampere 7, Ada 8,
     * Hopper 9, Blackwell 10. */
    struct tow_nvml_device *device;
    int result = device_begin(handle, ret_architecture, &device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    switch (device->major) {
    case 3:
        *ret_architecture = 2;
        break;
    case 5:
        *ret_architecture = 3;
        break;
    case 6:
        *ret_architecture = 4;
        break;
    case 7:
        *ret_architecture = device->minor < 5 ? 5 : 6;
        break;
    case 8:
        *ret_architecture = device->minor < 9 ? 7 : 8;
        break;
    case 9:
        *ret_architecture = 9;
        break;
    case 10:
    case 11:
    case 12:
        *ret_architecture = 10;
        break;
    default:
        *ret_architecture = 0xffffffffu;
    }
    return tow_nvml_end(NVML_SUCCESS);
}

static unsigned pci_id(const struct tow_nvml_device *device, enum tow_gauge_id id)
{
    return device->known >> id & 1 ? (unsigned)device->gauge[id] : 0;
}

TOW_NVML_PUBLIC int nvmlDeviceGetPciInfo_v3(void *handle, struct nvml_pci_v3 *pci)
{
    struct tow_nvml_device *device;
    int result = device_begin(handle, pci, &device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    memset(pci, 0, sizeof *pci);
    snprintf(pci->legacy_id, sizeof pci->legacy_id, "%04X:%02X:%02X.0", device->domain & 0xffff,
             device->bus & 0xff, device->slot & 0xff);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", device->domain,
             device->bus & 0xff, device->slot & 0xff);
    pci->domain = device->domain;
    pci->bus = device->bus;
    pci->device = device->slot;
    pci->device_id = pci_id(device, TOW_GAUGE_pci_device_id);
    pci->subsystem_id = pci_id(device, TOW_GAUGE_pci_subsystem_id);
    return tow_nvml_end(NVML_SUCCESS);
}

TOW_NVML_PUBLIC int nvmlDeviceGetPciInfo_v2(void *handle, struct nvml_pci_v2 *pci)
{
    struct nvml_pci_v3 whole;
    int result = nvmlDeviceGetPciInfo_v3(handle, &whole);
    if (result == NVML_SUCCESS && pci == NULL) {
        result = NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result == NVML_SUCCESS) {
        memcpy(pci->bus_id, whole.legacy_id, sizeof pci->bus_id);
        pci->domain = whole.domain;
        pci->bus = whole.bus;
        pci->device = whole.device;
        pci->device_id = whole.device_id;
        pci->subsystem_id = whole.subsystem_id;
    }
    return result;
}

TOW_NVML_PUBLIC int nvmlDeviceGetPciInfo(void *handle, struct nvml_pci_v2 *pci)
{
    return nvmlDeviceGetPciInfo_v2(handle, pci);
}

TOW_NVML_PUBLIC int nvmlDeviceGetPciInfoExt(void *handle, struct nvml_pci_ext *pci)
{
    struct nvml_pci_v3 whole;
    int result = nvmlDeviceGetPciInfo_v3(handle, &whole);
    if (result != NVML_SUCCESS || pci == NULL) {
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    }
    if (pci->version != (sizeof *pci | 1u << 24)) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    pci->domain = whole.domain;
    pci->bus = whole.bus;
    pci->device = whole.device;
    pci->device_id = whole.device_id;
    pci->subsystem_id = whole.subsystem_id;
    pci->base_class = 3; /* a display controller, of the 3D kind */
    pci->sub_class = 2;
    memcpy(pci->bus_id, whole.bus_id, sizeof pci->bus_id);
    return NVML_SUCCESS;
}

/* ---- memory ---- */

/* Begins, finds the device and asks for new numbers: a program that has just allocated or freed
 * memory wants to see that. */
static int begin_fresh(void *handle, const void *out, struct tow_nvml_device **ret_device)
{
    int result = device_begin(handle, out, ret_device);
    if (result == NVML_SUCCESS) {
        result = tow_nvml_refresh_now();
        if (result != NVML_SUCCESS) {
            tow_nvml_end(result);
        }
    }
    return result;
}

static bool device_knows(const struct tow_nvml_device *device, enum tow_gauge_id id)
{
    return (device->known >> id & 1) != 0;
}

/* As NVIDIA's library says; where there is none, what the sessions hold. */
static void memory_of(const struct tow_nvml_device *device, struct nvml_memory *ret_memory)
{
    if (device->quota != 0) {
        ret_memory->total = device->quota;
        ret_memory->used = device->charged < device->quota ? device->charged : device->quota;
        ret_memory->free = ret_memory->total - ret_memory->used;
        return;
    }
    if (device_knows(device, TOW_GAUGE_memory_total)) {
        ret_memory->total = (unsigned long long)device->gauge[TOW_GAUGE_memory_total];
        ret_memory->free = (unsigned long long)device->gauge[TOW_GAUGE_memory_free];
        ret_memory->used = (unsigned long long)device->gauge[TOW_GAUGE_memory_used];
        return;
    }
    ret_memory->total = device->memory;
    ret_memory->used = device->held < device->memory ? device->held : device->memory;
    ret_memory->free = device->memory - ret_memory->used;
}

TOW_NVML_PUBLIC int nvmlDeviceGetMemoryInfo(void *handle, struct nvml_memory *memory)
{
    struct tow_nvml_device *device;
    int result = begin_fresh(handle, memory, &device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    memory_of(device, memory);
    return tow_nvml_end(NVML_SUCCESS);
}

TOW_NVML_PUBLIC int nvmlDeviceGetMemoryInfo_v2(void *handle, struct nvml_memory_v2 *memory)
{
    struct tow_nvml_device *device;
    int result = begin_fresh(handle, memory, &device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (memory->version != (sizeof *memory | 2u << 24)) {
        return tow_nvml_end(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    struct nvml_memory plain;
    memory_of(device, &plain);
    memory->total = plain.total;
    memory->free = plain.free;
    memory->reserved = device->quota == 0 && device_knows(device, TOW_GAUGE_memory_reserved)
                           ? (unsigned long long)device->gauge[TOW_GAUGE_memory_reserved]
                           : 0;
    /* Here, other than in the first form, what the driver keeps does not count as used. */
    memory->used = plain.used > memory->reserved ? plain.used - memory->reserved : 0;
    return tow_nvml_end(NVML_SUCCESS);
}

TOW_NVML_PUBLIC int nvmlDeviceGetBAR1MemoryInfo(void *handle, struct nvml_memory *memory)
{
    struct tow_nvml_device *device;
    int result = begin_fresh(handle, memory, &device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (!device_knows(device, TOW_GAUGE_bar1_total)) {
        return tow_nvml_end(NVML_ERROR_NOT_SUPPORTED);
    }
    memory->total = (unsigned long long)device->gauge[TOW_GAUGE_bar1_total];
    memory->free = (unsigned long long)device->gauge[TOW_GAUGE_bar1_free];
    memory->used = (unsigned long long)device->gauge[TOW_GAUGE_bar1_used];
    return tow_nvml_end(NVML_SUCCESS);
}

/* ---- who uses it: the sessions of its server, by their programs' process numbers ---- */

static int device_processes(void *handle, unsigned *inout_count, void *list, size_t element)
{
    struct tow_nvml_device *device;
    int result = begin_fresh(handle, inout_count, &device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    unsigned room = *inout_count;
    *inout_count = device->process_count;
    if (device->process_count > room) {
        return tow_nvml_end(NVML_ERROR_INSUFFICIENT_SIZE);
    }
    if (list == NULL && device->process_count > 0) {
        return tow_nvml_end(NVML_ERROR_INVALID_ARGUMENT);
    }
    for (unsigned i = 0; i < device->process_count; i++) {
        struct nvml_process process = {.pid = device->process[i].pid,
                                       .memory = device->process[i].memory,
                                       .gpu_instance = 0xffffffffu,
                                       .compute_instance = 0xffffffffu};
        memcpy((char *)list + i * element, &process, element);
    }
    return tow_nvml_end(NVML_SUCCESS);
}

TOW_NVML_PUBLIC int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *inout_count,
                                                            struct nvml_process *list)
{
    return device_processes(handle, inout_count, list, sizeof *list);
}

TOW_NVML_PUBLIC int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *inout_count,
                                                            struct nvml_process *list)
{
    return device_processes(handle, inout_count, list, sizeof *list);
}

TOW_NVML_PUBLIC int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *inout_count,
                                                         struct nvml_process_v1 *list)
{
    return device_processes(handle, inout_count, list, sizeof *list);
}

/* Sessions compute; none draws. */
static int no_processes(void *handle, unsigned *ret_count)
{
    struct tow_nvml_device *device;
    int result = device_begin(handle, ret_count, &device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    *ret_count = 0;
    return tow_nvml_end(NVML_SUCCESS);
}

TOW_NVML_PUBLIC int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *inout_count,
                                                             struct nvml_process *list)
{
    (void)list;
    return no_processes(handle, inout_count);
}

TOW_NVML_PUBLIC int nvmlDeviceGetGraphicsRunningProcesses_v2(void *handle, unsigned *inout_count,
                                                             struct nvml_process *list)
{
    (void)list;
    return no_processes(handle, inout_count);
}

TOW_NVML_PUBLIC int nvmlDeviceGetGraphicsRunningProcesses(void *handle, unsigned *inout_count,
                                                          struct nvml_process_v1 *list)
{
    (void)list;
    return no_processes(handle, inout_count);
}

/* ---- several devices, links between them ---- */

TOW_NVML_PUBLIC int nvmlDeviceGetP2PStatus(void *first, void *second, int index, int *ret_status)
{
    enum { READ = 0, WRITE = 1, STATUS_OK = 0, STATUS_NOT_SUPPORTED = 5, STATUS_UNKNOWN = 6 };
    struct tow_nvml_device *a;
    int result = device_begin(first, ret_status, &a);
    if (result != NVML_SUCCESS) {
        return result;
    }
    struct tow_nvml_device *b = tow_nvml_device(second);
    if (b == NULL || index < 0 || index > 5) {
        return tow_nvml_end(NVML_ERROR_INVALID_ARGUMENT);
    }
    bool reach = a->server == b->server && (a->peers >> b->ordinal & 1) != 0;
    if (a == b) {
        *ret_status = STATUS_OK; /* NCCL asks for all pairs, these too */
    } else if (!reach) {
        *ret_status = STATUS_NOT_SUPPORTED;
    } else {
        *ret_status = index == READ || index == WRITE ? STATUS_OK : STATUS_UNKNOWN;
    }
    return tow_nvml_end(NVML_SUCCESS);
}

TOW_NVML_PUBLIC int nvmlDeviceGetTopologyCommonAncestor(void *first, void *second, int *ret_level)
{
    struct tow_nvml_device *a;
    int result = device_begin(first, ret_level, &a);
    if (result != NVML_SUCCESS) {
        return result;
    }
    struct tow_nvml_device *b = tow_nvml_device(second);
    if (b == NULL) {
        return tow_nvml_end(NVML_ERROR_INVALID_ARGUMENT);
    }
    if (a != b) {
        return tow_nvml_end(NVML_ERROR_NOT_SUPPORTED); /* a matter of the server's machine */
    }
    *ret_level = 0;
    return tow_nvml_end(NVML_SUCCESS);
}

/* Sessions do not reach beyond their server's machine: no fabric. */
TOW_NVML_PUBLIC int nvmlDeviceGetGpuFabricInfo(void *handle, struct nvml_fabric *fabric)
{
    struct tow_nvml_device *device;
    int result = device_begin(handle, fabric, &device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    memset(fabric, 0, sizeof *fabric); /* state 0: not supported */
    return tow_nvml_end(NVML_SUCCESS);
}

TOW_NVML_PUBLIC int nvmlDeviceGetGpuFabricInfoV(void *handle, struct nvml_fabric_v *fabric)
{
    struct tow_nvml_device *device;
    int result = device_begin(handle, fabric, &device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    unsigned version = fabric->version, size = version & 0xffffff;
    if ((version != (36u | 2u << 24) && version != (40u | 3u << 24)) || size > sizeof *fabric) {
        return tow_nvml_end(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    memset(fabric, 0, size);
    fabric->version = version;
    return tow_nvml_end(NVML_SUCCESS);
}

TOW_NVML_PUBLIC int nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *ret_is)
{
    return no_processes(handle, ret_is); /* 0: whole GPUs only */
}

TOW_NVML_PUBLIC int nvmlDeviceGetFieldValues(void *handle, int count,
                                             struct nvml_field_value *values)
{
    struct tow_nvml_device *device;
    int result = device_begin(handle, values, &device);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (count <= 0) {
        return tow_nvml_end(NVML_ERROR_INVALID_ARGUMENT);
    }
    for (int i = 0; i < count; i++) {
        char what[32];
        snprintf(what, sizeof what, "field %u", values[i].field);
        values[i].result = tow_nvml_refuse(what);
    }
    return tow_nvml_end(NVML_SUCCESS);
}
