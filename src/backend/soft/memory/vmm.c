/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management: reserved addresses, memory objects (a memfd each), and mappings of one
 * into the other, which kernels may use once access was given. */
#include "backend/soft/engine/engine.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/arena.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/index.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/memory/shareable.h"
#include "backend/soft/memory/vmm.h"
#include "gen/vmm.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRANULARITY TOW_SOFT_BLOCK

struct tow_soft_memory {
    struct tow_soft_object object;
    unsigned refs; /* handles given out, and mappings */
    unsigned handles;
    int fd;
    bool imported; /* counted where it was made */
    bool given;    /* others may have its file */
    uint64_t size;
    CUmemAllocationProp prop;
    int device;
    struct tow_soft_memory *prev, *next; /* all of them */
};

struct reservation {
    struct reservation *next;
    uint64_t base, size;
};

struct mapping {
    struct mapping *next;
    struct tow_soft_alloc alloc; /* in the index while mapped */
    uint32_t read, write;        /* devices */
    bool going;                  /* being unmapped */
};

/* Guarded by tow_soft.lock. */
static struct reservation *reservations;
static struct mapping *mappings;
static struct tow_soft_memory *memories;

static void memory_unref(struct tow_soft_memory *memory)
{
    if (--memory->refs != 0) {
        return;
    }
    tow_soft_object_remove(&memory->object);
    if (!memory->imported) {
        *tow_soft.devices[memory->device].used -= memory->size;
    }
    if (memory->prev != NULL) {
        memory->prev->next = memory->next;
    } else {
        memories = memory->next;
    }
    if (memory->next != NULL) {
        memory->next->prev = memory->prev;
    }
    close(memory->fd);
    free(memory);
}

void tow_soft_vmm_fini(void)
{
    while (mappings != NULL) {
        struct mapping *mapping = mappings;
        mappings = mapping->next;
        tow_soft_index_remove(mapping->alloc.base, NULL);
        memory_unref(mapping->alloc.memory);
        free(mapping);
    }
    while (reservations != NULL) {
        struct reservation *reservation = reservations;
        reservations = reservation->next;
        free(reservation);
    }
    while (memories != NULL) {
        memories->refs = 1; /* handles that nobody released */
        memory_unref(memories);
    }
}

static struct reservation *reservation_of(uint64_t base, uint64_t size)
{
    for (struct reservation *r = reservations; r != NULL; r = r->next) {
        if (base >= r->base && base - r->base <= r->size && size <= r->size - (base - r->base)) {
            return r;
        }
    }
    return NULL;
}

void tow_soft_reservation_around(uint64_t address, uint64_t *base, uint64_t *size)
{
    const struct reservation *r = reservation_of(address, 1);
    if (r != NULL) {
        *base = r->base;
        *size = r->size;
    }
}

static bool any_mapping(uint64_t base, uint64_t size)
{
    for (struct mapping *m = mappings; m != NULL; m = m->next) {
        if (m->alloc.base < base + size && base < m->alloc.base + m->alloc.size) {
            return true;
        }
    }
    return false;
}

static CUresult soft_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment,
                                         CUdeviceptr addr, unsigned long long flags)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (ptr == NULL || size == 0 || size % GRANULARITY != 0 || flags != 0 ||
        (alignment & (alignment - 1)) != 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct reservation *reservation = calloc(1, sizeof *reservation);
    if (reservation == NULL) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    uint64_t align = alignment > GRANULARITY ? alignment : GRANULARITY;
    uint64_t base;
    /* The address is a wish. */
    if (addr == 0 || addr % align != 0 || !tow_soft_arena_holds(addr, size) ||
        tow_soft_arena_take(size, align, addr, &base) != 0) {
        if (tow_soft_arena_take(size, align, 0, &base) != 0) {
            free(reservation);
            return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    *reservation = (struct reservation){reservations, base, size};
    reservations = reservation;
    *ptr = base;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct reservation **at = &reservations;
    while (*at != NULL && ((*at)->base != ptr || (*at)->size != size)) {
        at = &(*at)->next;
    }
    if (*at == NULL || any_mapping(ptr, size)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct reservation *reservation = *at;
    *at = reservation->next;
    tow_soft_arena_give(reservation->base, reservation->size);
    free(reservation);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult prop_ok(const CUmemAllocationProp *prop)
{
    if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* NCCL wants all its memory to be exportable, whether it exports it or not. */
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return tow_soft_device_of(prop->location.id) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* Takes the descriptor, also when it fails. */
static CUresult memory_add(int fd, uint64_t size, const CUmemAllocationProp *prop, bool imported,
                           CUmemGenericAllocationHandle *ret_handle)
{
    struct tow_soft_memory *memory = fd >= 0 ? calloc(1, sizeof *memory) : NULL;
    if (memory == NULL || tow_soft_object_add(&memory->object, TOW_SOFT_MEMORY, NULL) != 0) {
        if (fd >= 0) {
            close(fd);
        }
        free(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory->refs = 1;
    memory->handles = 1;
    memory->fd = fd;
    memory->imported = imported;
    memory->size = size;
    memory->prop = *prop;
    memory->device = prop->location.id;
    memory->next = memories;
    if (memories != NULL) {
        memories->prev = memory;
    }
    memories = memory;
    if (!imported) {
        *tow_soft.devices[memory->device].used += size;
    }
    *ret_handle = memory->object.handle;
    return CUDA_SUCCESS;
}

static int memory_file(const CUmemAllocationProp *prop, uint64_t size)
{
    struct tow_soft_file file;
    if (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) {
        return tow_soft_file_make(TOW_SOFT_FILE_MEMORY, prop->location.id, size, &file);
    }
    int fd = memfd_create("towline-soft", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)size) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static CUresult soft_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                                 const CUmemAllocationProp *prop, unsigned long long flags)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = prop_ok(prop);
    if (result != CUDA_SUCCESS || handle == NULL || size == 0 || size % GRANULARITY != 0 ||
        flags != 0) {
        return tow_soft_leave(result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE);
    }
    struct tow_soft_device *device = tow_soft_device_of(prop->location.id);
    if (size > device->total || *device->used > device->total - size) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    return tow_soft_leave(memory_add(memory_file(prop, size), size, prop, false, handle));
}

static CUresult enter_memory(CUmemGenericAllocationHandle handle,
                             struct tow_soft_memory **ret_memory)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_memory = tow_soft_lookup(TOW_SOFT_MEMORY, handle);
    if (*ret_memory == NULL || (*ret_memory)->handles == 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return CUDA_SUCCESS;
}

static CUresult soft_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct tow_soft_memory *memory;
    CUresult result = enter_memory(handle, &memory);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    memory->handles--;
    memory_unref(memory);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct tow_soft_memory *memory;
    CUresult result = enter_memory(handle, &memory);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (size == 0 || size % GRANULARITY != 0 || ptr % GRANULARITY != 0 ||
        offset % GRANULARITY != 0 || flags != 0 || reservation_of(ptr, size) == NULL ||
        any_mapping(ptr, size)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (offset > memory->size || size > memory->size - offset) {
        return tow_soft_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    struct mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL || tow_soft_arena_commit(ptr, size, memory->fd, offset) != 0) {
        free(mapping);
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    mapping->alloc = (struct tow_soft_alloc){.base = ptr,
                                             .size = size,
                                             .reserved = size,
                                             .kind = TOW_SOFT_MEM_VMM,
                                             .device = memory->device,
                                             .memory = memory};
    if (tow_soft_alloc_enter(&mapping->alloc) != 0) {
        tow_soft_arena_decommit(ptr, size);
        free(mapping);
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    tow_soft_index_set_meta(ptr, tow_soft_meta(TOW_SOFT_MEM_VMM, 0, 0));
    memory->refs++;
    mapping->next = mappings;
    mappings = mapping;
    return tow_soft_leave(CUDA_SUCCESS);
}

/* How much of [ptr, ptr + size) is mapped; UINT64_MAX if an end of it cuts a mapping. */
static uint64_t mapped_in(uint64_t ptr, uint64_t size)
{
    uint64_t sum = 0;
    for (struct mapping *m = mappings; m != NULL; m = m->next) {
        if (m->alloc.base < ptr + size && ptr < m->alloc.base + m->alloc.size) {
            if (m->going || m->alloc.base < ptr || m->alloc.base + m->alloc.size > ptr + size) {
                return UINT64_MAX;
            }
            sum += m->alloc.size;
        }
    }
    return sum;
}

static CUresult soft_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    /* Where nothing is mapped nothing is done, which is no mistake. */
    uint64_t mapped = mapped_in(ptr, size);
    if (size == 0 || ptr + size < ptr || mapped == UINT64_MAX ||
        (mapped != size && reservation_of(ptr, size) == NULL)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    for (struct mapping *m = mappings; m != NULL; m = m->next) {
        if (m->alloc.base >= ptr && m->alloc.base < ptr + size) {
            m->going = true;
            tow_soft_index_remove(m->alloc.base, NULL);
        }
    }
    /* What began before may still hold on to the addresses. */
    tow_soft_quiesce();
    for (struct mapping **at = &mappings; *at != NULL;) {
        struct mapping *m = *at;
        if (m->going && m->alloc.base >= ptr && m->alloc.base < ptr + size) {
            *at = m->next;
            tow_soft_arena_decommit(m->alloc.base, m->alloc.size);
            memory_unref(m->alloc.memory);
            free(m);
        } else {
            at = &m->next;
        }
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
                                    size_t count)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (desc == NULL || count == 0 || size == 0 || ptr + size < ptr ||
        mapped_in(ptr, size) != size) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t i = 0; i < count; i++) {
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            tow_soft_device_of(desc[i].location.id) == NULL) {
            return tow_soft_leave(desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE
                                      ? CUDA_ERROR_NOT_SUPPORTED
                                      : CUDA_ERROR_INVALID_DEVICE);
        }
        if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
            return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
        }
    }
    for (struct mapping *m = mappings; m != NULL; m = m->next) {
        if (m->alloc.base < ptr || m->alloc.base >= ptr + size) {
            continue;
        }
        for (size_t i = 0; i < count; i++) {
            uint32_t bit = 1u << desc[i].location.id;
            m->read =
                desc[i].flags & CU_MEM_ACCESS_FLAGS_PROT_READ ? m->read | bit : m->read & ~bit;
            m->write = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? m->write | bit
                                                                           : m->write & ~bit;
        }
        tow_soft_index_set_meta(m->alloc.base, tow_soft_meta(TOW_SOFT_MEM_VMM, m->read, m->write));
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

static struct mapping *mapping_at(uint64_t address)
{
    for (struct mapping *m = mappings; m != NULL; m = m->next) {
        if (!m->going && address >= m->alloc.base && address - m->alloc.base < m->alloc.size) {
            return m;
        }
    }
    return NULL;
}

static CUresult soft_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                                    CUdeviceptr ptr)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct mapping *mapping = mapping_at(ptr);
    if (flags == NULL || location == NULL || mapping == NULL ||
        location->type != CU_MEM_LOCATION_TYPE_DEVICE || tow_soft_device_of(location->id) == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    uint32_t bit = 1u << location->id;
    *flags = mapping->write & bit  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : mapping->read & bit ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                   : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuMemGetAllocationGranularity(size_t *granularity,
                                                   const CUmemAllocationProp *prop,
                                                   CUmemAllocationGranularity_flags option)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = prop_ok(prop);
    if (result == CUDA_ERROR_NOT_SUPPORTED && prop->location.type >= CU_MEM_LOCATION_TYPE_HOST &&
        prop->location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
        result = CUDA_SUCCESS; /* NVIDIA's driver tells, whether such memory can be had or not */
    }
    if (result == CUDA_SUCCESS &&
        (granularity == NULL || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                                 option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *granularity = GRANULARITY;
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                            CUmemGenericAllocationHandle handle)
{
    struct tow_soft_memory *memory;
    CUresult result = enter_memory(handle, &memory);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (prop == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *prop = memory->prop;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct mapping *mapping = mapping_at((uintptr_t)addr);
    if (handle == NULL || mapping == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct tow_soft_memory *memory = mapping->alloc.memory;
    memory->refs++;
    memory->handles++;
    *handle = memory->object.handle;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuMemExportToShareableHandle(void *shareableHandle,
                                                  CUmemGenericAllocationHandle handle,
                                                  CUmemAllocationHandleType handleType,
                                                  unsigned long long flags)
{
    struct tow_soft_memory *memory;
    CUresult result = enter_memory(handle, &memory);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = tow_soft_file_export_ok(shareableHandle, handleType, flags);
    if (result == CUDA_SUCCESS && (memory->prop.requestedHandleTypes & handleType) == 0) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        result = tow_soft_file_give(memory->fd, shareableHandle);
        memory->given |= result == CUDA_SUCCESS;
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                    void *osHandle,
                                                    CUmemAllocationHandleType shHandleType)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    int fd = (int)(intptr_t)osHandle;
    struct tow_soft_file file;
    result = tow_soft_file_export_ok(handle, shHandleType, 0);
    if (result == CUDA_SUCCESS) {
        result = tow_soft_file_read(fd, TOW_SOFT_FILE_MEMORY, &file);
    }
    if (result == CUDA_SUCCESS) {
        CUmemAllocationProp prop = {
            .type = CU_MEM_ALLOCATION_TYPE_PINNED,
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = file.device},
        };
        result = memory_add(fcntl(fd, F_DUPFD_CLOEXEC, 0), file.size, &prop, true, handle);
    }
    return tow_soft_leave(result);
}

bool tow_soft_memories_shared(void)
{
    for (const struct tow_soft_memory *memory = memories; memory != NULL; memory = memory->next) {
        if (memory->imported || memory->given) {
            return true;
        }
    }
    return false;
}

void tow_soft_memories_each(tow_soft_area_fn *visit, void *user)
{
    for (const struct tow_soft_memory *memory = memories; memory != NULL; memory = memory->next) {
        const struct tow_soft_area area = {
            .device = memory->device, .base = 0, .size = memory->size, .fd = memory->fd};
        visit(user, &area);
    }
}

void tow_soft_fill_vmm(struct tow_driver *driver)
{
    tow_driver_set(driver, cuMemAddressReserve, soft_cuMemAddressReserve);
    tow_driver_set(driver, cuMemAddressFree, soft_cuMemAddressFree);
    tow_driver_set(driver, cuMemCreate, soft_cuMemCreate);
    tow_driver_set(driver, cuMemRelease, soft_cuMemRelease);
    tow_driver_set(driver, cuMemMap, soft_cuMemMap);
    tow_driver_set(driver, cuMemUnmap, soft_cuMemUnmap);
    tow_driver_set(driver, cuMemSetAccess, soft_cuMemSetAccess);
    tow_driver_set(driver, cuMemGetAccess, soft_cuMemGetAccess);
    tow_driver_set(driver, cuMemGetAllocationGranularity, soft_cuMemGetAllocationGranularity);
    tow_driver_set(driver, cuMemGetAllocationPropertiesFromHandle,
                   soft_cuMemGetAllocationPropertiesFromHandle);
    tow_driver_set(driver, cuMemRetainAllocationHandle, soft_cuMemRetainAllocationHandle);
    tow_driver_set(driver, cuMemExportToShareableHandle, soft_cuMemExportToShareableHandle);
    tow_driver_set(driver, cuMemImportFromShareableHandle, soft_cuMemImportFromShareableHandle);
}
