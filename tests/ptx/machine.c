/* SPDX-License-Identifier: Apache-2.0 */
/* Loads PTX and runs a kernel of it, for the tests of this folder. */
#include "machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool find(void *user, uint64_t address, struct tow_ptx_range *ret_range)
{
    struct machine *m = user;
    bool found = false;
    pthread_mutex_lock(&m->lock);
    for (unsigned i = 0; i < m->count && !found; i++) {
        if (address >= m->ranges[i].low && address < m->ranges[i].high) {
            *ret_range = m->ranges[i];
            found = true;
        }
    }
    pthread_mutex_unlock(&m->lock);
    return found;
}

static const struct tow_ptx_texture *texture(void *user, uint64_t handle)
{
    struct machine *m = user;
    return handle ? m->texture : NULL;
}

static uint64_t heap_alloc(void *user, uint64_t bytes)
{
    struct machine *m = user;
    pthread_mutex_lock(&m->lock);
    bool full = m->count + 64 >= MACHINE_ALLOCS; /* leave some to the test itself */
    pthread_mutex_unlock(&m->lock);
    return bytes > 1u << 20 || full ? 0 : ARG(machine_alloc(user, bytes));
}

static int heap_free(void *user, uint64_t address)
{
    struct machine *m = user;
    int result = -EINVAL;
    pthread_mutex_lock(&m->lock);
    for (unsigned i = 0; i < m->count; i++) {
        if (m->ranges[i].low == address && m->ranges[i].high > address) {
            m->ranges[i].high = m->ranges[i].low; /* the memory itself stays until the end */
            result = 0;
        }
    }
    pthread_mutex_unlock(&m->lock);
    return result;
}

static void print(void *user, const char *text, size_t length)
{
    struct machine *m = user;
    pthread_mutex_lock(&m->lock);
    if (length < sizeof m->output - m->output_length) {
        memcpy(m->output + m->output_length, text, length);
        m->output_length += length;
        m->output[m->output_length] = 0;
    }
    pthread_mutex_unlock(&m->lock);
}

static void assert_failed(void *user, const char *message, const char *file, unsigned line,
                          const char *function, const uint32_t block[3], const uint32_t thread[3])
{
    struct machine *m = user;
    char text[512];
    (void)block;
    int length = snprintf(text, sizeof text, "%s:%u: %s: thread %u: %s\n", file, line, function,
                          thread[0], message);
    print(user, text, (size_t)length);
    m->asserts++;
}

static uint64_t now(void *user)
{
    (void)user;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int set_condition(void *user, uint64_t handle, uint32_t value)
{
    struct machine *m = user;
    if (handle != MACHINE_CONDITION) {
        return -1;
    }
    m->condition = value;
    return 0;
}

static const struct tow_ptx_env_ops env = {find,  texture,       heap_alloc, heap_free,
                                           print, assert_failed, now,        set_condition};

void *machine_alloc(struct machine *m, size_t bytes)
{
    pthread_mutex_lock(&m->lock);
    if (m->count == MACHINE_ALLOCS) {
        fprintf(stderr, "the test allocates too often\n");
        abort();
    }
    /* Room on both sides, so that what lies beside another block is never this one's. */
    size_t size = ((bytes + 255) & ~(size_t)255) + 2 * 256;
    uint8_t *room = aligned_alloc(256, size), *block = room + 256;
    memset(room, 0, size);
    m->blocks[m->count] = room;
    m->ranges[m->count] =
        (struct tow_ptx_range){.low = ARG(block), .high = ARG(block) + bytes, .writable = true};
    m->count++;
    pthread_mutex_unlock(&m->lock);
    return block;
}

int machine_load(struct machine *m, const char *text, bool must)
{
    memset(m, 0, sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
    m->threads = 1;
    m->cluster[0] = m->cluster[1] = m->cluster[2] = 1;
    struct tow_ptx_text source = {.text = text, .length = strlen(text), .name = "test"};
    int error = tow_ptx_load(&source, 1, &m->diag, &m->module);
    if (error == 0) {
        size_t count = tow_ptx_variable_count(m->module);
        uint64_t *addresses = calloc(count + 1, sizeof *addresses);
        for (size_t i = 0; i < count; i++) {
            addresses[i] = ARG(machine_alloc(m, tow_ptx_variable_at(m->module, i)->size));
        }
        error = tow_ptx_instantiate(m->module, addresses, &m->instance);
        free(addresses);
    }
    if (error && must) {
        fprintf(stderr, "load: line %u: %s\n", m->diag.line, m->diag.message);
        abort();
    }
    return error;
}

void machine_unload(struct machine *m)
{
    tow_ptx_instance_free(m->instance);
    tow_ptx_unload(m->module);
    for (unsigned i = 0; i < m->count; i++) {
        free(m->blocks[i]);
    }
    pthread_mutex_destroy(&m->lock);
    memset(m, 0, sizeof *m);
}

void *machine_variable(struct machine *m, const char *name)
{
    for (size_t i = 0; i < tow_ptx_variable_count(m->module); i++) {
        if (strcmp(tow_ptx_variable_at(m->module, i)->name, name) == 0) {
            return (void *)(uintptr_t)m->ranges[i].low;
        }
    }
    return NULL;
}

int machine_run(struct machine *m, const char *kernel, const uint32_t grid[3],
                const uint32_t block[3], const uint64_t *args, unsigned count)
{
    uint8_t params[4096] = {0};
    struct tow_ptx_kernel_info info;
    const struct tow_ptx_kernel *k = tow_ptx_kernel_find(m->module, kernel);
    if (!k) {
        fprintf(stderr, "no kernel '%s'\n", kernel);
        abort();
    }
    tow_ptx_kernel_describe(k, &info);
    for (unsigned i = 0; i < count && i < info.param_count; i++) {
        memcpy(params + info.params[i].offset, &args[i],
               info.params[i].size < 8 ? info.params[i].size : 8);
    }
    struct tow_ptx_launch launch = {.instance = m->instance,
                                    .kernel = k,
                                    .dynamic_shared = m->dynamic_shared,
                                    .cooperative = m->cooperative,
                                    .params = params,
                                    .env = &env,
                                    .env_user = m,
                                    .stop = &m->stop,
                                    .grid_id = 1,
                                    .sm_count = 4,
                                    .found = m->found,
                                    .checks = m->checks,
                                    .found_user = m,
                                    .written = m->written};
    memcpy(launch.grid, grid, sizeof launch.grid);
    memcpy(launch.block, block, sizeof launch.block);
    memcpy(launch.cluster, m->cluster, sizeof launch.cluster);
    memset(&m->fault, 0, sizeof m->fault);
    return tow_ptx_run(&launch, m->threads, &m->fault);
}

int machine_run1(struct machine *m, const char *kernel, uint32_t grid, uint32_t block,
                 const uint64_t *args, unsigned count)
{
    uint32_t g[3] = {grid, 1, 1}, b[3] = {block, 1, 1};
    return machine_run(m, kernel, g, b, args, count);
}

const char *machine_wrap(const char *declarations, const char *body)
{
    static char text[1 << 18];
    snprintf(text, sizeof text,
             PTX_HEAD "%s\n.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, "
                      ".param .u64 p3, .param .u64 p4, .param .u64 p5, .param .u64 p6, "
                      ".param .u64 p7)\n{\n%s\nret;\n}\n",
             declarations, body);
    return text;
}
