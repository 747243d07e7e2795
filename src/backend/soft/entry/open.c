/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing the software GPU, and the little that belongs to no family. */
#include "backend/backend.h"
#include "backend/soft/code/module.h"
#include "backend/soft/engine/engine.h"
#include "backend/spans.h"
#include "backend/soft/entry/entry.h"
#include "backend/soft/graph/graph.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/arena.h"
#include "backend/soft/ground/check.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/index.h"
#include "backend/soft/ground/space.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/ground/written.h"
#include "backend/soft/memory/ipc.h"
#include "backend/soft/memory/pool.h"
#include "backend/soft/memory/texture.h"
#include "backend/soft/memory/vmm.h"
#include "backend/soft/stream/context.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"

#define MEMORY_DEFAULT_MAX (UINT64_C(16) << 30)

static uint64_t default_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t half =
        pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page / 2 : UINT64_C(1) << 30;
    return (half < MEMORY_DEFAULT_MAX ? half : MEMORY_DEFAULT_MAX) & ~(TOW_SOFT_BLOCK - 1);
}

void tow_soft_uuid_make(unsigned ordinal, CUuuid *ret_uuid)
{
    char seed[512] = "towline software gpu";
    size_t length = strlen(seed);
    FILE *file = fopen("/etc/machine-id", "re");
    if (file != NULL) {
        length += fread(seed + length, 1, 64, file);
        fclose(file);
    }
    char host[128] = "";
    gethostname(host, sizeof host - 1);
    length += (size_t)snprintf(seed + length, sizeof seed - length, "%s %u", host, ordinal);
    uint8_t digest[TOW_SHA256_SIZE];
    tow_sha256_of(seed, length, digest);
    digest[6] = (uint8_t)((digest[6] & 0x0f) | 0x40);
    digest[8] = (uint8_t)((digest[8] & 0x3f) | 0x80);
    for (size_t i = 0; i < sizeof ret_uuid->bytes; i++) {
        digest[i] = digest[i] == 0 ? 0xff : digest[i];
    }
    memcpy(ret_uuid->bytes, digest, sizeof ret_uuid->bytes);
}

static void close_all(void)
{
    tow_mutex_lock(&tow_soft.lock);
    for (unsigned i = 0; i < tow_soft.device_count; i++) {
        if (tow_soft.devices[i].primary != NULL) {
            tow_soft_ctx_destroy_contents(tow_soft.devices[i].primary);
        }
    }
    tow_soft_greens_free();
    tow_soft_contexts_destroy_all();
    tow_soft_ipc_fini();
    tow_soft_libraries_fini();
    tow_soft_graphs_fini();
    tow_soft_engine_stop();
    tow_spans_fini();
    tow_soft_retire_poll(UINT64_MAX);
    for (unsigned i = 0; i < tow_soft.device_count; i++) {
        tow_soft_ctx_free(tow_soft.devices[i].primary);
        tow_soft.devices[i].primary = NULL;
    }
    tow_soft_pools_fini();
    tow_soft_vmm_fini();
    tow_soft_textures_fini();
    tow_soft_variables_fini();
    tow_soft_handles_fini();
    tow_soft_index_fini();
    tow_soft_written_close();
    tow_soft_arena_close();
    tow_soft_check_close();
    pthread_cond_destroy(&tow_soft.changed);
    pthread_cond_destroy(&tow_soft.work);
    tow_soft.open = false;
    tow_soft.initialised = false;
    tow_soft.device_count = 0;
    tow_soft.print = NULL;
    tow_soft.print_error = NULL;
    tow_soft.print_user = NULL;
    tow_soft.exchange = NULL;
    tow_mutex_unlock(&tow_soft.lock);
}

static int soft_timeline_begin(struct tow_backend_timeline_how *ret_how)
{
    *ret_how = (struct tow_backend_timeline_how){.stays = false};
    return tow_spans_begin();
}

static const struct tow_backend_timeline_ops soft_timeline = {
    .begin = soft_timeline_begin, .take = tow_spans_take, .name = tow_spans_name};

static void soft_close(struct tow_backend *backend)
{
    if (backend->state != NULL) {
        backend->state = NULL;
        close_all();
    }
}

static unsigned soft_show_used(_Atomic uint64_t *used, unsigned count)
{
    tow_mutex_lock(&tow_soft.lock);
    unsigned shown = tow_soft.device_count < count ? tow_soft.device_count : count;
    for (unsigned i = 0; i < shown; i++) {
        used[i] = *tow_soft.devices[i].used;
        tow_soft.devices[i].used = &used[i];
    }
    tow_mutex_unlock(&tow_soft.lock);
    return shown;
}

static void soft_limit_queued(_Atomic uint32_t *queued, uint32_t most)
{
    tow_mutex_lock(&tow_soft.lock);
    atomic_fetch_add(queued, atomic_load(tow_soft.queued));
    tow_soft.queued = queued;
    tow_soft.queued_most = most;
    tow_soft.queue_full_told = false;
    tow_mutex_unlock(&tow_soft.lock);
}

static int open_devices(const struct tow_soft_options *options)
{
    unsigned count = options->devices == 0 ? 1 : options->devices;
    for (unsigned i = 0; i < count; i++) {
        struct tow_soft_device *device = &tow_soft.devices[i];
        memset(device, 0, sizeof *device);
        device->ordinal = (int)i;
        uint64_t memory = options->memory != 0 ? options->memory : default_memory();
        device->total = tow_soft_round_up(memory, TOW_SOFT_BLOCK);
        device->used = &device->own_used;
        tow_soft_uuid_make(i, &device->uuid);
        tow_soft.device_count = i + 1;
        int rc = tow_soft_ctx_create(device, 0, true, &device->primary);
        if (rc != 0) {
            return rc;
        }
        device->default_pool = tow_soft_pool_create((int)i, true);
        device->pool = device->default_pool;
        if (device->default_pool == NULL) {
            return -ENOMEM;
        }
    }
    return 0;
}

static void fill_driver(struct tow_driver *driver)
{
    tow_driver_fill_stubs(driver);
    tow_soft_fill_core(driver);
    tow_soft_fill_device(driver);
    tow_soft_fill_context(driver);
    tow_soft_fill_memory(driver);
    tow_soft_fill_copy(driver);
    tow_soft_fill_stream(driver);
    tow_soft_fill_event(driver);
    tow_soft_fill_module(driver);
    tow_soft_fill_kernel(driver);
    tow_soft_fill_link(driver);
    tow_soft_fill_launch(driver);
    tow_soft_fill_pool(driver);
    tow_soft_fill_vmm(driver);
    tow_soft_fill_texture(driver);
    tow_soft_fill_graph(driver);
    tow_soft_fill_graph_nodes(driver);
    tow_soft_fill_graph_condition(driver);
    tow_soft_fill_graph_exec(driver);
    tow_soft_fill_capture(driver);
    tow_soft_fill_green(driver);
    tow_soft_fill_ipc(driver);
    tow_soft_fill_ipc_event(driver);
}

static void describe_backend(const struct tow_soft_options *options,
                             struct tow_backend *ret_backend)
{
    memset(ret_backend, 0, sizeof *ret_backend);
    ret_backend->name = "soft";
    /* A dry one is there to count calls: it is asked as the real driver is. */
    ret_backend->describes_all = !options->dry;
    fill_driver(&ret_backend->driver);
    snprintf(ret_backend->description, sizeof ret_backend->description,
             "%s (%u of them, compute capability %d.%d, %llu MiB each, %u threads)",
             tow_soft.dry ? TOW_SOFT_NAME_DRY : TOW_SOFT_NAME, tow_soft.device_count,
             tow_soft.capability / 10, tow_soft.capability % 10,
             (unsigned long long)(tow_soft.devices[0].total >> 20), tow_soft.threads);
    ret_backend->ranges[0] = (struct tow_backend_range){tow_soft.arena_base, tow_soft.arena_size};
    ret_backend->range_count = 1;
    ret_backend->print = &tow_soft.print;
    ret_backend->print_error = &tow_soft.print_error;
    ret_backend->print_user = &tow_soft.print_user;
    ret_backend->exchange = &tow_soft.exchange;
    ret_backend->show_used = soft_show_used;
    ret_backend->limit_queued = soft_limit_queued;
    ret_backend->away = &tow_soft_away_ops;
    ret_backend->gpu_time = tow_soft_engine_time;
    ret_backend->session = tow_soft_checked() ? tow_soft_check_session : NULL;
    ret_backend->timeline = &soft_timeline;
    ret_backend->close = soft_close;
    ret_backend->state = &tow_soft;
}

int tow_backend_soft_check(const char *order, char *why, size_t why_size)
{
    return tow_soft_check_open(order, why, why_size);
}

int tow_backend_soft_open(const struct tow_soft_options *options, struct tow_backend *ret_backend,
                          char *why, size_t why_size)
{
    static const struct tow_soft_options defaults;
    if (options == NULL) {
        options = &defaults;
    }
    if (options->devices > TOW_SOFT_DEVICES_MAX) {
        snprintf(why, why_size, "The software GPU has at most %d devices; %u were asked for.",
                 TOW_SOFT_DEVICES_MAX, options->devices);
        return -EINVAL;
    }
    tow_mutex_lock(&tow_soft.lock);
    if (tow_soft.open) {
        tow_mutex_unlock(&tow_soft.lock);
        snprintf(why, why_size, "The software GPU is open already in this process.");
        return -EBUSY;
    }
    tow_soft.open = true;
    tow_soft.hooks = &tow_soft_hooks;
    tow_soft.queued = &tow_soft.own_queued;
    atomic_store(&tow_soft.own_queued, 0);
    tow_soft.queued_most = 0;
    tow_soft.strict = options->strict;
    tow_soft.capability = options->capability != 0 ? options->capability : 121;
    tow_soft.dry = options->dry;
    tow_soft.threads = options->threads != 0 ? options->threads : tow_cpu_count();
    tow_soft.sm_count = tow_soft.threads < 4 ? 4 : tow_soft.threads;
    tow_cond_init(&tow_soft.changed);
    tow_cond_init(&tow_soft.work);

    snprintf(why, why_size, "The software GPU ran out of host memory.");
    int rc = tow_soft_index_init();
    if (rc == 0) {
        rc = tow_soft_arena_open(options->address_base, why, why_size);
    }
    if (rc == 0) {
        rc = tow_soft_written_open(why, why_size);
    }
    if (rc == 0) {
        rc = open_devices(options);
    }
    tow_mutex_unlock(&tow_soft.lock);
    if (rc != 0) {
        close_all();
        return rc;
    }
    why[0] = '\0';

    describe_backend(options, ret_backend);
    return 0;
}
