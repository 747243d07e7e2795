/* SPDX-License-Identifier: Apache-2.0 */
/* The undocumented tables of functions that NVIDIA's libraries ask a driver for.
 *
 * A table is an array of words: its size in bytes, then functions; the context-local storage has no
 * size and ends with 0. Entries that nobody was ever seen to call answer NOT_SUPPORTED and say so
 * in the log. Table addresses are part of what the integrity check hashes, so each is one static
 * object.
 */
#include "client/edge/export.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/ours.h"
#include "client/stream/context.h"
#include "client/link/device.h"
#include "client/code/jit_cache.h"
#include "client/edge/md2.h"
#include "client/stream/stream.h"
#include "gen/core_client.h"
#include "gen/module.h"

#define WORD(x) ((void *)(uintptr_t)(x))
#define SIZE_OF(words) WORD((words) * sizeof(void *))

#define UNKNOWN_ENTRY(table)                                                                       \
    static CUresult unknown_##table(void)                                                          \
    {                                                                                              \
        /* Process-wide: one line is enough. */                                                    \
        static atomic_flag said = ATOMIC_FLAG_INIT;                                                \
        if (!atomic_flag_test_and_set(&said)) {                                                    \
            tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,                                                 \
                    "a library called an unknown entry of the driver's table " #table              \
                    "; it was refused");                                                           \
        }                                                                                          \
        return CUDA_ERROR_NOT_SUPPORTED;                                                           \
    }

UNKNOWN_ENTRY(cudart_interface)
UNKNOWN_ENTRY(callback_hooks)
UNKNOWN_ENTRY(tools_tls)
UNKNOWN_ENTRY(context_checks)
UNKNOWN_ENTRY(integrity)
UNKNOWN_ENTRY(identity)
UNKNOWN_ENTRY(topology)
UNKNOWN_ENTRY(modules)
UNKNOWN_ENTRY(compile_cache)

/* ---- the runtime's own interface ---- */

static CUresult load_wrapper(CUmodule *module, const void *wrapper)
{
    return cuModuleLoadData(module, wrapper);
}

static CUresult primary_context(CUcontext *ret_context, CUdevice device)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    if (ret_context == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_context *context = towc_context_primary(device);
    if (context == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *ret_context = context->handle;
    return CUDA_SUCCESS;
}

static CUresult load_registered(CUmodule *module, const void *wrapper, void *a, void *b, unsigned c)
{
    (void)a;
    (void)b;
    (void)c;
    return cuModuleLoadData(module, wrapper);
}

static void export_unregistered(const void *wrapper)
{
    (void)wrapper;
}

static CUresult load_fatbin(const void *fatbin, CUmodule *module, void *a, void *b, unsigned c)
{
    (void)a;
    (void)b;
    (void)c;
    return cuModuleLoadData(module, fatbin);
}

static CUresult load_compilers(void)
{
    return CUDA_SUCCESS;
}

static void *const cudart_interface[13] = {
    SIZE_OF(13),
    WORD(load_wrapper),
    WORD(primary_context),
    [3 ... 5] = WORD(unknown_cudart_interface),
    [6] = WORD(load_registered),
    [7] = WORD(export_unregistered),
    [8] = WORD(load_fatbin),
    [9 ... 11] = WORD(unknown_cudart_interface),
    [12] = WORD(load_compilers),
};

/* ---- flags by which a tool asks for callbacks: never set ---- */

/* Process-wide: the runtime keeps its own flags there; NVIDIA's driver has one for the process. */
static uint32_t runtime_flags[1024];
static uint32_t other_flags[64];

static void flags_of_runtime(uint32_t **ret_flags, size_t *ret_count)
{
    *ret_flags = runtime_flags;
    *ret_count = sizeof runtime_flags / sizeof runtime_flags[0];
}

static void flags_of_others(uint32_t **ret_flags, size_t *ret_count)
{
    *ret_flags = other_flags;
    *ret_count = 14;
}

static void *const callback_hooks[7] = {
    SIZE_OF(7),
    WORD(unknown_callback_hooks),
    WORD(flags_of_runtime),
    [3 ... 5] = WORD(unknown_callback_hooks),
    [6] = WORD(flags_of_others),
};

/* ---- contexts ---- */

static CUresult current_context(CUcontext *ret_context)
{
    struct towc_context *context = towc_context_current();
    *ret_context = context != NULL ? context->handle : NULL;
    return CUDA_SUCCESS;
}

static void *const tools_tls[4] = {
    SIZE_OF(4),
    WORD(unknown_tools_tls),
    WORD(current_context),
    WORD(unknown_tools_tls),
};

static void *const local_storage[4] = {
    WORD(towc_context_put_local),
    WORD(towc_context_delete_local),
    WORD(towc_context_get_local),
    NULL,
};

static CUresult check_context(CUcontext context, uint32_t *ret_flags, const void **ret_more)
{
    (void)context;
    (void)ret_more;
    *ret_flags = 0;
    return CUDA_SUCCESS;
}

static uint32_t no_restriction(void)
{
    return 0;
}

static void *const context_checks[15] = {
    SIZE_OF(15),
    WORD(unknown_context_checks),
    WORD(check_context),
    WORD(no_restriction),
    [4 ... 14] = WORD(unknown_context_checks),
};

/* ---- integrity ---- */

void towc_integrity_mac(const struct towc_integrity_head *head,
                        const struct towc_integrity_device *devices, unsigned count,
                        uint8_t ret_mac[16])
{
    static const uint8_t key[16] = {0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52,
                                    0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f};
    _Static_assert(sizeof *head == 48 && sizeof *devices == 28, "laid out as hashed");
    uint8_t message[sizeof *head + TOW_SNAPSHOT_DEVICES_MAX * sizeof *devices];
    memcpy(message, head, sizeof *head);
    if (count > 0) {
        memcpy(message + sizeof *head, devices, count * sizeof *devices);
    }
    towc_md2_hmac(key, message, sizeof *head + count * sizeof *devices, ret_mac);
}

static CUresult integrity_check(uint32_t version, uint64_t seconds, uint8_t ret_answer[16]);

static void *const integrity[3] = {
    SIZE_OF(3),
    WORD(integrity_check),
    WORD(unknown_integrity),
};

static CUresult integrity_check(uint32_t version, uint64_t seconds, uint8_t ret_answer[16])
{
    static const uint64_t constants[2][2] = {{0x3341181c03cb675c, 0x8ed383aa1f4cd1e8},
                                             {0x1841181c03cb675c, 0x8ed383aa1f4cd1e8}};
    if (version % 10 < 2) {
        memcpy(ret_answer, constants[version % 10], 16);
        return CUDA_SUCCESS;
    }
    int driver = 0;
    towc_cuDriverGetVersion(&driver);
    struct towc_integrity_head head = {
        .driver_version = (uint32_t)driver,
        .version = version,
        .pid = (uint32_t)getpid(),
        .thread = (uint32_t)(uintptr_t)pthread_self(),
        .cudart_table = (uint64_t)(uintptr_t)cudart_interface,
        .integrity_table = (uint64_t)(uintptr_t)integrity,
        .function = (uint64_t)(uintptr_t)integrity[1],
        .seconds = seconds,
    };
    struct towc_integrity_device devices[TOW_SNAPSHOT_DEVICES_MAX];
    int count = towc_device_count();
    for (CUdevice i = 0; i < count; i++) {
        memcpy(devices[i].uuid, towc_device_at(i)->facts->uuid, 16);
        devices[i].pci_domain = towc_device_attribute(i, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
        devices[i].pci_bus = towc_device_attribute(i, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
        devices[i].pci_device = towc_device_attribute(i, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
    }
    towc_integrity_mac(&head, devices, (unsigned)count, ret_answer);
    return CUDA_SUCCESS;
}

/* ---- who is who: ids of contexts and streams ---- */

static CUresult context_id(CUcontext handle, uint64_t *ret_id)
{
    struct towc_context *context = towc_context_or_current(handle);
    if (context == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *ret_id = context->unique;
    return CUDA_SUCCESS;
}

/* The stream "object" that callers only hand back to stream_id is the id itself. */
static CUresult stream_object(CUcontext handle, CUstream stream, void **ret_object)
{
    struct towc_context *context = towc_context_or_current(handle);
    uint64_t id = 0;
    CUresult status = towc_stream_id(context, stream, &id);
    if (status == CUDA_SUCCESS) {
        *ret_object = WORD(id);
    }
    return status;
}

static CUresult stream_id(CUcontext handle, void *object, uint64_t *ret_id)
{
    (void)handle;
    *ret_id = (uint64_t)(uintptr_t)object;
    return CUDA_SUCCESS;
}

static void *const identity[93] = {
    SIZE_OF(93),
    [1 ... 3] = WORD(unknown_identity),
    [4] = WORD(context_id),
    [5 ... 38] = WORD(unknown_identity),
    [39] = WORD(stream_id),
    [40 ... 50] = WORD(unknown_identity),
    [51] = WORD(stream_object),
    [52 ... 92] = WORD(unknown_identity),
};

/* ---- device topology: libraries manage without, and a wrong map would be worse than none ---- */

static CUresult no_topology(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static void *const topology[17] = {
    SIZE_OF(17),
    [1 ... 3] = WORD(unknown_topology),
    [4] = WORD(no_topology),
    [5 ... 12] = WORD(unknown_topology),
    [13] = WORD(no_topology),
    [14 ... 16] = WORD(unknown_topology),
};

/* ---- functions of a module ---- */

typedef void function_visitor(void *user, CUfunction function, const void *name);

/* Returns how many functions there are; 0 if the module is not known. */
static int each_function(CUcontext context, CUmodule module, function_visitor *visit, void *user)
{
    (void)context;
    unsigned count = 0;
    if (cuModuleGetFunctionCount(&count, module) != CUDA_SUCCESS || count == 0) {
        return 0;
    }
    CUfunction *functions = calloc(count, sizeof *functions);
    if (functions == NULL || cuModuleEnumerateFunctions(functions, count, module) != CUDA_SUCCESS) {
        free(functions);
        return 0;
    }
    for (unsigned i = 0; i < count && visit != NULL; i++) {
        const char *name = NULL;
        if (cuFuncGetName(&name, functions[i]) != CUDA_SUCCESS) {
            name = NULL;
        }
        visit(user, functions[i], name);
    }
    free(functions);
    return (int)count;
}

static void *const modules[99] = {
    SIZE_OF(99),
    [1 ... 6] = WORD(unknown_modules),
    [7] = WORD(each_function),
    [8 ... 98] = WORD(unknown_modules),
};

/* ---- the compile cache ---- */

static void *const compile_cache[7] = {
    SIZE_OF(7),
    WORD(towc_jit_cache_key),
    WORD(towc_jit_cache_free_key),
    WORD(towc_jit_cache_find),
    WORD(towc_jit_cache_store),
    WORD(unknown_compile_cache),
    WORD(towc_jit_cache_free_data),
};

/* ---- */

static const struct {
    uint8_t id[16];
    void *const *table;
} tables[] = {
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d,
      0xf9},
     cudart_interface},
    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a,
      0x66},
     callback_hooks},
    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec,
      0xdc},
     tools_tls},
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95,
      0x93},
     local_storage},
    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa,
      0x7e},
     context_checks},
    {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1,
      0xf2},
     integrity},
    {{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8,
      0xf2},
     identity},
    {{0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b,
      0xca},
     topology},
    {{0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99,
      0x1e},
     modules},
    {{0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3,
      0x28},
     compile_cache},
};

CUresult towc_cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
    if (ppExportTable == NULL || pExportTableId == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        if (memcmp(tables[i].id, pExportTableId->bytes, 16) == 0) {
            *ppExportTable = tables[i].table;
            return CUDA_SUCCESS;
        }
    }
    if (memcmp(TOW_OURS_UUID, pExportTableId->bytes, TOW_OURS_UUID_SIZE) == 0) {
        /* A server that was about to open this library as its driver now knows better. */
        static void *const ours[1] = {SIZE_OF(1)};
        *ppExportTable = ours;
        return CUDA_SUCCESS;
    }
    const uint8_t *id = (const uint8_t *)pExportTableId->bytes;
    tow_log(TOW_AREA_CLIENT, TOW_LOG_DEBUG, "the driver's table %02x%02x%02x%02x... is not known",
            id[0], id[1], id[2], id[3]);
    *ppExportTable = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}
