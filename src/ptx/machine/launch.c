/* SPDX-License-Identifier: Apache-2.0 */
/* Running a grid: blocks on host threads, each thread with its own runner.
 *
 * A runner keeps a few resident blocks ("slots"). Usually it runs one block to its end; when that
 * takes long, more blocks become resident beside it, because a program may have blocks that wait
 * for each other. Cooperative grids and clusters are resident as a whole from the start. */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "ptx/machine/check.h"
#include "ptx/machine/machine.h"
#include "ptx/machine/pool.h"

#define RESIDENT_MAX 64u           /* blocks of one host thread that are there just in case */
#define SHARED_UNIT 128u           /* a block has whole units, as on hardware */
#define FOUND_NS (10 * TOW_TIME_S) /* what threads may wait for that have ended by a fault */
#define ROUNDS_BEFORE_NEXT 64u     /* slices of a block before another one joins it */

struct tow_ptx_slot {
    struct tow_ptx_block *blocks; /* owned, `count`; more than one for a cluster */
    uint32_t count;
    struct tow_ptx_cluster cluster;
    bool busy;
};

struct tow_ptx_job {
    const struct tow_ptx_launch *launch;
    struct tow_ptx_fault *fault; /* guarded by `lock` */
    struct tow_mutex lock;
    atomic_bool failed;
    _Atomic int64_t deadline; /* of a checked launch with a fault; 0 without */
    _Atomic uint64_t next;    /* cluster (or block) to start next */
    uint64_t total;
    uint32_t cluster_blocks, cluster_grid[3];
    unsigned threads;
    _Atomic unsigned joined;
    uint32_t local_stride, shared_bytes, warps, block_threads;
    const uint8_t *params; /* owned copy */
    uint64_t *workspace;   /* owned: of the grid barrier */
};

static struct {
    struct tow_mutex lock; /* guards the list */
    struct tow_ptx_runner *runners;
} idle = {.lock = TOW_MUTEX(PTX_IDLE)};

/* Where in the source it is: the last .loc in front of the instruction. */
static void fault_source(struct tow_ptx_fault *fault, const struct tow_ptx_func *func)
{
    uint32_t low = 0, high = func->loc_count;
    fault->function = func->name;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (func->locs[middle].ptx_line <= fault->line) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) {
        return;
    }
    const struct tow_ptx_loc *loc = &func->locs[low - 1];
    for (const struct tow_ptx_file *file = func->source->files; file; file = file->next) {
        if (file->number == loc->file) {
            fault->file = file->name;
            fault->file_line = loc->line;
            return;
        }
    }
}

static void fault_fill(struct tow_ptx_warp *w, const struct tow_ptx_op *o, unsigned lane,
                       struct tow_ptx_fault *fault)
{
    const uint32_t *rows = (const uint32_t *)w->sregs;
    fault->kernel = w->runner->job->launch->kernel->info.name;
    memcpy(fault->block, w->block->id, sizeof fault->block);
    for (unsigned i = 0; i < 3; i++) {
        fault->thread[i] = rows[i * LANES + lane];
    }
    fault->line = o ? o->line : 0;
    if (o && w->current < w->groups_used) {
        fault_source(fault, w->groups[w->current].frame->func);
    }
}

/* Records it, or tells it: true when its lane alone ends. */
static bool fault_record(struct tow_ptx_warp *w, const struct tow_ptx_fault *fault, bool again)
{
    struct tow_ptx_job *job = w->runner->job;
    tow_mutex_lock(&job->lock);
    if (job->launch->found && !atomic_load(&job->failed)) {
        job->launch->found(job->launch->found_user, fault);
        again = again && job->launch->checks & TOW_PTX_CHECK_MEMORY;
        if (!atomic_load(&job->deadline)) {
            atomic_store(&job->deadline, tow_time_now_ns() + FOUND_NS);
        }
    } else {
        again = false;
    }
    if (!again && !atomic_load(&job->failed)) {
        *job->fault = *fault;
        atomic_store(&job->failed, true);
    }
    tow_mutex_unlock(&job->lock);
    w->runner->failed |= !again;
    return again;
}

const struct tow_ptx_op *tow_ptx_fault(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                       enum tow_ptx_fault_kind kind, unsigned lane,
                                       uint64_t address, const char *format, ...)
{
    struct tow_ptx_fault fault = {.kind = kind, .address = address};
    va_list args;
    va_start(args, format);
    vsnprintf(fault.message, sizeof fault.message, format, args);
    va_end(args);
    fault_fill(w, o, lane, &fault);
    fault_record(w, &fault, false);
    return HALT;
}

static struct tow_ptx_fault fault_of(const struct tow_ptx_warp *w, enum tow_ptx_fault_kind kind,
                                     uint64_t address, const struct tow_ptx_deed_of *deed)
{
    bool shared = deed->place == TOW_PTX_PLACE_SHARED, local = deed->place == TOW_PTX_PLACE_LOCAL;
    return (struct tow_ptx_fault){.kind = kind,
                                  .address = address,
                                  .deed = deed->deed,
                                  .place = deed->place,
                                  .bytes = deed->bytes,
                                  .room = shared  ? w->block->shared_bytes
                                          : local ? w->local_stride
                                                  : 0};
}

void tow_ptx_fault_at(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                      enum tow_ptx_fault_kind kind, unsigned lane, uint64_t address,
                      const struct tow_ptx_deed_of *deed, const char *format, ...)
{
    struct tow_ptx_fault fault = fault_of(w, kind, address, deed);
    va_list args;
    va_start(args, format);
    vsnprintf(fault.message, sizeof fault.message, format, args);
    va_end(args);
    fault_fill(w, o, lane, &fault);
    /* Only what the group is at can be begun again. */
    struct tow_ptx_group *group = &w->groups[w->current];
    const struct tow_ptx_func *func = group->frame->func;
    bool own = o >= func->code && o < func->code + func->op_count;
    if (fault_record(w, &fault, deed->again && own)) {
        group->pc = o;
        w->wrong |= 1u << lane;
        w->yielded = true; /* so that tow_ptx_warp_run looks */
    }
}

static void fault_tell(struct tow_ptx_job *job, const struct tow_ptx_fault *fault)
{
    tow_mutex_lock(&job->lock);
    job->launch->found(job->launch->found_user, fault);
    tow_mutex_unlock(&job->lock);
}

void tow_ptx_tell_access(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                         enum tow_ptx_fault_kind kind, uint32_t lanes, uint64_t address,
                         const struct tow_ptx_deed_of *deed)
{
    struct tow_ptx_fault fault = fault_of(w, kind, address, deed);
    fault.more = (uint32_t)__builtin_popcount(lanes) - 1;
    fault_fill(w, o, (unsigned)__builtin_ctz(lanes), &fault);
    fault_tell(w->runner->job, &fault);
}

/* Whose code it is; NULL: nobody's. */
static const struct tow_ptx_func *func_at(const struct tow_ptx_module *module,
                                          const struct tow_ptx_op *o)
{
    for (uint32_t i = 0; i < module->func_count; i++) {
        const struct tow_ptx_func *func = module->funcs[i];
        if (func && func->code && o >= func->code && o < func->code + func->op_count) {
            return func;
        }
    }
    return NULL;
}

void tow_ptx_tell_race(struct tow_ptx_warp *w, const struct tow_ptx_op *o, unsigned lane,
                       uint64_t address, const struct tow_ptx_deed_of *deed,
                       const struct tow_ptx_op *at, uint32_t other, enum tow_ptx_deed other_deed)
{
    struct tow_ptx_fault fault = fault_of(w, TOW_PTX_FAULT_RACE, address, deed), there = fault;
    if (atomic_load(&w->runner->job->deadline)) {
        return; /* threads that ended by their mistake come to no barrier */
    }
    const uint32_t *rows = (const uint32_t *)w->block->warps[other / LANES].sregs;
    fault_fill(w, o, lane, &fault);
    there.line = at->line;
    there.deed = other_deed;
    for (unsigned i = 0; i < 3; i++) {
        there.thread[i] = rows[i * LANES + other % LANES];
    }
    const struct tow_ptx_func *func = func_at(w->launch->instance->module, at);
    if (func) {
        fault_source(&there, func);
    }
    bool turned = there.line < fault.line;
    const struct tow_ptx_fault *low = turned ? &there : &fault, *high = turned ? &fault : &there;
    struct tow_ptx_fault told = fault;
    told.function = low->function;
    told.file = low->file;
    told.file_line = low->file_line;
    told.line = low->line;
    told.deed = low->deed;
    memcpy(told.thread, low->thread, sizeof told.thread);
    told.other = (struct tow_ptx_other){.function = high->function,
                                        .file = high->file,
                                        .file_line = high->file_line,
                                        .line = high->line,
                                        .deed = high->deed};
    memcpy(told.other.thread, high->thread, sizeof told.other.thread);
    fault_tell(w->runner->job, &told);
}

static void tell_unseen(struct tow_ptx_job *job, const struct tow_ptx_block *block,
                        enum tow_ptx_fault_kind kind, const char *message)
{
    struct tow_ptx_fault fault = {.kind = kind, .kernel = job->launch->kernel->info.name};
    memcpy(fault.block, block->id, sizeof fault.block);
    snprintf(fault.message, sizeof fault.message, "%s", message);
    fault_tell(job, &fault);
}

void tow_ptx_tell(struct tow_ptx_warp *w, const struct tow_ptx_op *o, enum tow_ptx_fault_kind kind,
                  unsigned lane, const char *format, ...)
{
    struct tow_ptx_fault fault = {.kind = kind};
    va_list args;
    va_start(args, format);
    vsnprintf(fault.message, sizeof fault.message, format, args);
    va_end(args);
    fault_fill(w, o, lane, &fault);
    fault_tell(w->runner->job, &fault);
}

bool tow_ptx_overdue(struct tow_ptx_warp *w)
{
    struct tow_ptx_job *job = w->runner->job;
    if (!job->launch->found) {
        return false;
    }
    int64_t deadline = atomic_load(&job->deadline);
    if (!deadline || tow_time_now_ns() < deadline) {
        return false;
    }
    struct tow_ptx_fault fault = {.kind = TOW_PTX_FAULT_OVERDUE,
                                  .kernel = job->launch->kernel->info.name};
    snprintf(fault.message, sizeof fault.message,
             "the threads that are left still ran %d s after the first had ended by its mistake",
             (int)(FOUND_NS / TOW_TIME_S));
    fault_record(w, &fault, false);
    return true;
}

/* ---- slots ---- */

static void block_memory_free(struct tow_ptx_block *block)
{
    for (uint32_t i = 0; block->warps && i < block->warp_capacity; i++) {
        free(block->warps[i].local);
    }
    free(block->warps);
    free(block->shared);
    free(block->written);
    tow_ptx_races_free(block->races);
    block->warps = NULL;
    block->shared = NULL;
    block->written = NULL;
    block->races = NULL;
}

static void slot_free(struct tow_ptx_slot *slot)
{
    if (slot) {
        for (uint32_t i = 0; i < slot->count; i++) {
            block_memory_free(&slot->blocks[i]);
        }
        free(slot->blocks);
        free(slot);
    }
}

static void launch_broadcast(uint8_t *rows, unsigned row, uint32_t value)
{
    uint32_t *at = (uint32_t *)rows + row * LANES;
    for (unsigned l = 0; l < LANES; l++) {
        at[l] = value;
    }
}

/* Of a row that was never written in another way. */
static void launch_change(uint8_t *rows, unsigned row, uint32_t value)
{
    if (((uint32_t *)rows)[row * LANES] != value) {
        launch_broadcast(rows, row, value);
    }
}

static int block_grow(struct tow_ptx_block *block, const struct tow_ptx_job *job)
{
    if (block->warp_capacity < job->warps) {
        struct tow_ptx_warp *warps =
            aligned_alloc(128, (job->warps * sizeof *warps + 127) & ~(size_t)127);
        if (!warps) {
            return -ENOMEM;
        }
        memset(warps, 0, job->warps * sizeof *warps);
        if (block->warp_capacity) {
            memcpy(warps, block->warps, block->warp_capacity * sizeof *warps);
        }
        free(block->warps);
        block->warps = warps;
        block->warp_capacity = job->warps;
    }
    if (block->shared_capacity < job->shared_bytes + 16) {
        free(block->shared);
        block->shared_capacity = 0;
        size_t want = ((size_t)job->shared_bytes + 16 + 4095) & ~(size_t)4095;
        if (!(block->shared = aligned_alloc(4096, want))) {
            return -ENOMEM;
        }
        memset(block->shared, 0, want);
        block->shared_capacity = (uint32_t)want;
    }
    return 0;
}

static int warp_grow(struct tow_ptx_warp *w, const struct tow_ptx_job *job)
{
    if (w->local_stride == job->local_stride && w->local) {
        return 0;
    }
    free(w->local);
    w->local = job->local_stride
                   ? aligned_alloc(64, ((size_t)job->local_stride * LANES + 63) & ~(size_t)63)
                   : NULL;
    w->local_stride = job->local_stride;
    if (job->local_stride && !w->local) {
        w->local_stride = 0;
        return -ENOMEM;
    }
    return 0;
}

/* Warp `i` of a block; `at` is the place of its first thread, and is moved to the next warp's. */
static int warp_prepare(struct tow_ptx_runner *runner, struct tow_ptx_block *block, uint32_t i,
                        uint32_t at[3])
{
    const struct tow_ptx_launch *launch = runner->job->launch;
    struct tow_ptx_warp *w = &block->warps[i];
    int error = warp_grow(w, runner->job);
    if (error < 0) {
        return error;
    }
    w->block = block;
    w->runner = runner;
    w->launch = launch;
    w->index = i;
    tow_ptx_set_base(w, BASE_CONST, launch->instance->module->consts);
    tow_ptx_set_base(w, BASE_WARP, w->sregs);
    tow_ptx_set_base(w, BASE_BLOCK, block->sregs);
    uint32_t *rows = (uint32_t *)w->sregs;
    for (unsigned l = 0; l < LANES; l++) {
        rows[WROW_TID_X * LANES + l] = at[0];
        rows[WROW_TID_Y * LANES + l] = at[1];
        rows[WROW_TID_Z * LANES + l] = at[2];
        rows[WROW_WARPID * LANES + l] = i;
        if (++at[0] == launch->block[0]) {
            at[0] = 0;
            if (++at[1] == launch->block[1]) {
                at[1] = 0;
                at[2]++;
            }
        }
    }
    return 0;
}

static void block_registers(const struct tow_ptx_job *job, struct tow_ptx_block *block)
{
    const struct tow_ptx_launch *launch = job->launch;
    uint8_t *rows = block->sregs;
    uint32_t static_shared = launch->kernel->info.static_shared;
    for (unsigned i = 0; i < 3; i++) {
        launch_broadcast(rows, BROW_NTID_X + i, launch->block[i]);
        launch_broadcast(rows, BROW_NCTAID_X + i, launch->grid[i]);
        launch_broadcast(rows, BROW_NCLUSTERID_X + i, job->cluster_grid[i]);
        launch_broadcast(rows, BROW_CLUSTER_NCTAID_X + i, launch->cluster[i]);
    }
    launch_broadcast(rows, BROW_NWARPID, 64);
    launch_broadcast(rows, BROW_NSMID, launch->sm_count ? launch->sm_count : 1);
    launch_broadcast(rows, BROW_GRIDID, launch->grid_id);
    launch_broadcast(rows, BROW_DYNAMIC_SMEM, launch->dynamic_shared);
    launch_broadcast(rows, BROW_TOTAL_SMEM, job->shared_bytes);
    launch_broadcast(rows, BROW_AGGR_SMEM, job->shared_bytes);
    launch_broadcast(rows, BROW_CLUSTER_NCTARANK, job->cluster_blocks);
    launch_broadcast(rows, BROW_DYNAMIC_BASE, (static_shared + 15u) & ~15u);
    uint64_t workspace = (uint64_t)(uintptr_t)job->workspace;
    launch_broadcast(rows, BROW_ENVREG1, (uint32_t)(workspace >> 32));
    launch_broadcast(rows, BROW_ENVREG2, (uint32_t)workspace);
    const struct tow_ptx_func *func = launch->kernel->func;
    for (uint32_t i = 0; i < func->param_row_count; i++) {
        const struct tow_ptx_param_row *param = &func->param_rows[i];
        uint64_t value = 0, *wide = (uint64_t *)(rows + param->row * 128u);
        memcpy(&value, job->params + param->offset, param->wide ? 8 : 4);
        if (!param->wide) {
            launch_broadcast(rows, param->row, (uint32_t)value);
        }
        for (unsigned l = 0; l < LANES && param->wide; l++) {
            wide[l] = value;
        }
    }
}

/* What stays the same for all blocks of a launch. */
static int block_prepare(struct tow_ptx_runner *runner, struct tow_ptx_block *block)
{
    const struct tow_ptx_job *job = runner->job;
    block->warp_count = job->warps;
    block->shared_bytes = job->shared_bytes;
    int error = block_grow(block, job);
    if (error < 0) {
        return error;
    }
    PTX_ONLY_FIRST(block->shared, block->shared_bytes, block->shared_capacity);
    uint32_t at[3] = {0, 0, 0};
    for (uint32_t i = 0; i < job->warps; i++) {
        error = warp_prepare(runner, block, i, at);
        if (error < 0) {
            return error;
        }
    }
    block_registers(job, block);
    return 0;
}

/* Nobody has used its shared memory. The blocks of a cluster all begin before one of them runs:
 * each may use the memory of the others at once. */
static void block_look(struct tow_ptx_job *job, struct tow_ptx_block *block)
{
    const struct tow_ptx_launch *launch = job->launch;
    unsigned checks = launch->found ? launch->checks : 0;
    uint32_t words = (uint32_t)TOW_BITS_WORDS(block->shared_bytes);
    if (checks & TOW_PTX_CHECK_RACE && !tow_ptx_races_begin(block)) {
        tell_unseen(job, block, TOW_PTX_FAULT_UNSEEN,
                    "there was no memory to look for races in all blocks");
    }
    if (!(checks & TOW_PTX_CHECK_INIT)) {
        return;
    }
    if (block->written_words < words) {
        free(block->written);
        block->written = malloc(words * sizeof *block->written);
        block->written_words = block->written ? words : 0;
    }
    if (block->written) {
        memset(block->written, 0, words * sizeof *block->written);
    } else if (words) {
        tell_unseen(job, block, TOW_PTX_FAULT_UNSEEN_READS,
                    "there was no memory to look at reads of all blocks' shared memory");
    }
}

static void block_start(struct tow_ptx_runner *runner, struct tow_ptx_block *block,
                        const uint32_t id[3], struct tow_ptx_cluster *cluster,
                        const uint32_t in_cluster[3])
{
    struct tow_ptx_job *job = runner->job;
    const struct tow_ptx_launch *launch = job->launch;
    memcpy(block->id, id, sizeof block->id);
    uint64_t linear = ((uint64_t)id[2] * launch->grid[1] + id[1]) * launch->grid[0] + id[0];
    for (unsigned i = 0; i < 3; i++) {
        launch_change(block->sregs, BROW_CTAID_X + i, id[i]);
        launch_change(block->sregs, BROW_CLUSTERID_X + i, id[i] / launch->cluster[i]);
        launch_change(block->sregs, BROW_CLUSTER_CTAID_X + i, in_cluster[i]);
    }
    block->rank =
        (in_cluster[2] * launch->cluster[1] + in_cluster[1]) * launch->cluster[0] + in_cluster[0];
    launch_change(block->sregs, BROW_CLUSTER_CTARANK, block->rank);
    launch_change(block->sregs, BROW_SMID,
                  (uint32_t)(linear % (launch->sm_count ? launch->sm_count : 1)));
    block->threads = job->block_threads;
    block->exited = 0;
    block->done = false;
    block->cluster = cluster;
    block_look(job, block);
    if (block->barriers_used) { /* by threads that exited there, or of a launch that failed */
        memset(block->barriers, 0, sizeof block->barriers);
        block->barriers_used = 0;
    }
    for (uint32_t i = 0; i < block->warp_count; i++) {
        uint32_t left = job->block_threads - i * LANES;
        struct tow_ptx_warp *w = &block->warps[i];
        w->cluster_arrived = 0;
        tow_ptx_warp_start(w, launch->kernel->func, left >= LANES ? FULL : (1u << left) - 1u);
    }
}

/* Takes the next cluster (or block) of the grid into a slot; false when there is none left. */
/* Threads of one block may be in order by what another one of the cluster does: all of its blocks
 * are looked at, or none. */
static void races_of_all(struct tow_ptx_slot *slot, uint32_t count)
{
    uint32_t with = 0;
    for (uint32_t i = 0; i < count; i++) {
        with += slot->blocks[i].races != NULL;
    }
    for (uint32_t i = 0; with < count && i < count; i++) {
        tow_ptx_races_free(slot->blocks[i].races);
        slot->blocks[i].races = NULL;
    }
}

static bool slot_start(struct tow_ptx_runner *runner, struct tow_ptx_slot *slot)
{
    struct tow_ptx_job *job = runner->job;
    const struct tow_ptx_launch *launch = job->launch;
    uint64_t number = atomic_fetch_add(&job->next, 1);
    if (number >= job->total) {
        return false;
    }
    uint32_t at[3] = {(uint32_t)(number % job->cluster_grid[0]),
                      (uint32_t)(number / job->cluster_grid[0] % job->cluster_grid[1]),
                      (uint32_t)(number / job->cluster_grid[0] / job->cluster_grid[1])};
    slot->cluster.arrived = slot->cluster.waiting = slot->cluster.phase = 0;
    slot->cluster.count = job->cluster_blocks;
    slot->cluster.threads = job->cluster_blocks * job->block_threads;
    for (uint32_t i = 0; i < job->cluster_blocks; i++) {
        uint32_t in[3] = {i % launch->cluster[0], i / launch->cluster[0] % launch->cluster[1],
                          i / launch->cluster[0] / launch->cluster[1]};
        uint32_t id[3];
        for (unsigned k = 0; k < 3; k++) {
            id[k] = at[k] * launch->cluster[k] + in[k];
        }
        slot->cluster.blocks[i] = &slot->blocks[i];
        block_start(runner, &slot->blocks[i], id, &slot->cluster, in);
    }
    if (launch->found && launch->checks & TOW_PTX_CHECK_RACE) {
        races_of_all(slot, job->cluster_blocks);
    }
    slot->busy = true;
    return true;
}

static struct tow_ptx_slot *slot_make(struct tow_ptx_runner *runner, uint32_t index)
{
    struct tow_ptx_job *job = runner->job;
    if (index >= runner->slot_capacity) {
        uint32_t capacity = runner->slot_capacity * 2 + 8;
        struct tow_ptx_slot **more = realloc(runner->slots, capacity * sizeof *more);
        if (!more) {
            return NULL;
        }
        memset(more + runner->slot_capacity, 0, (capacity - runner->slot_capacity) * sizeof *more);
        runner->slots = more;
        runner->slot_capacity = capacity;
    }
    struct tow_ptx_slot *slot = runner->slots[index];
    if (slot && slot->count < job->cluster_blocks) {
        slot_free(slot);
        runner->slots[index] = slot = NULL;
    }
    if (!slot) {
        slot = calloc(1, sizeof *slot);
        struct tow_ptx_block *blocks =
            slot ? aligned_alloc(128, job->cluster_blocks * ((sizeof *blocks + 127) & ~(size_t)127))
                 : NULL;
        if (!blocks) {
            free(slot);
            return NULL;
        }
        memset(blocks, 0, job->cluster_blocks * sizeof *blocks);
        slot->blocks = blocks;
        slot->count = job->cluster_blocks;
        runner->slots[index] = slot;
    }
    slot->busy = false;
    for (uint32_t i = 0; i < job->cluster_blocks; i++) {
        if (block_prepare(runner, &slot->blocks[i])) {
            return NULL;
        }
    }
    if (index >= runner->slot_count) {
        runner->slot_count = index + 1;
    }
    return slot;
}

/* ---- running ---- */

static bool launch_stopped(struct tow_ptx_job *job)
{
    const atomic_bool *stop = job->launch->stop;
    if (atomic_load_explicit(&job->failed, memory_order_relaxed)) {
        return true;
    }
    if (!stop || !atomic_load_explicit(stop, memory_order_relaxed)) {
        return false;
    }
    tow_mutex_lock(&job->lock);
    if (!atomic_load(&job->failed)) {
        memset(job->fault, 0, sizeof *job->fault);
        job->fault->kind = TOW_PTX_FAULT_STOPPED;
        job->fault->kernel = job->launch->kernel->info.name;
        snprintf(job->fault->message, sizeof job->fault->message, "the launch was stopped");
        atomic_store(&job->failed, true);
    }
    tow_mutex_unlock(&job->lock);
    return true;
}

enum step {
    STEP_DONE,
    STEP_BUSY,
    STEP_STUCK, /* no thread can go on by itself */
};

static enum step block_step(struct tow_ptx_block *block)
{
    bool alive = false, ran = false;
    for (uint32_t i = 0; i < block->warp_count; i++) {
        struct tow_ptx_warp *w = &block->warps[i];
        if (!w->groups_used) {
            continue;
        }
        alive = true;
        bool able = false;
        for (uint32_t g = 0; g < w->groups_used; g++) {
            /* The others wait for what only other warps can do. */
            able |= w->groups[g].state < GROUP_BARRIER;
        }
        if (!able) {
            continue;
        }
        uint32_t before = w->groups_used;
        w->ran = false;
        tow_ptx_warp_run(w);
        ran |= w->ran || w->groups_used != before;
        w->runner->failed |= launch_stopped(w->runner->job);
        if (w->runner->failed) {
            return STEP_DONE;
        }
    }
    return !alive ? STEP_DONE : ran ? STEP_BUSY : STEP_STUCK;
}

static bool release_parked(struct tow_ptx_block *block)
{
    /* Threads at a .sync instruction whose partners wait at a barrier: let them go on alone. */
    for (uint32_t i = 0; i < block->warp_count; i++) {
        struct tow_ptx_warp *w = &block->warps[i];
        for (uint32_t g = 0; g < w->groups_used; g++) {
            if (w->groups[g].state == GROUP_SYNC || w->groups[g].state == GROUP_WARPBAR) {
                w->release = true;
                return true;
            }
        }
    }
    return false;
}

static void report_deadlock(struct tow_ptx_slot *slot, uint32_t count)
{
    for (uint32_t b = 0; b < count; b++) {
        struct tow_ptx_block *block = &slot->blocks[b];
        for (uint32_t i = 0; i < block->warp_count; i++) {
            struct tow_ptx_warp *w = &block->warps[i];
            if (w->groups_used) {
                struct tow_ptx_group *group = &w->groups[0];
                w->current = 0; /* whom it is about */
                tow_ptx_fault(w, group->pc - (group->state >= GROUP_WARPBAR),
                              TOW_PTX_FAULT_DEADLOCK, (unsigned)__builtin_ctz(group->mask), 0,
                              "every thread of the block waits at a barrier that cannot complete");
                return;
            }
        }
    }
}

static enum step slot_step(struct tow_ptx_runner *runner, struct tow_ptx_slot *slot)
{
    uint32_t count = runner->job->cluster_blocks;
    bool busy = false, alive = false;
    for (uint32_t i = 0; i < count && !runner->failed; i++) {
        struct tow_ptx_block *block = &slot->blocks[i];
        if (block->done) {
            continue;
        }
        enum step step = block_step(block);
        block->done = step == STEP_DONE;
        alive |= !block->done;
        busy |= step == STEP_BUSY;
    }
    if (!alive || runner->failed) {
        slot->busy = false;
        return STEP_DONE;
    }
    if (!busy) {
        for (uint32_t i = 0; i < count; i++) {
            if (!slot->blocks[i].done && release_parked(&slot->blocks[i])) {
                return STEP_BUSY;
            }
        }
        /* In a cluster a block may have finished and released the others just now. */
        bool runnable = false;
        for (uint32_t i = 0; i < count; i++) {
            for (uint32_t j = 0; j < slot->blocks[i].warp_count; j++) {
                struct tow_ptx_warp *w = &slot->blocks[i].warps[j];
                for (uint32_t g = 0; g < w->groups_used; g++) {
                    runnable |= w->groups[g].state == GROUP_RUN;
                }
            }
        }
        if (!runnable) {
            report_deadlock(slot, count);
            slot->busy = false;
            return STEP_DONE;
        }
    }
    return STEP_BUSY;
}

static void out_of_memory(struct tow_ptx_job *job)
{
    tow_mutex_lock(&job->lock);
    if (!atomic_load(&job->failed)) {
        memset(job->fault, 0, sizeof *job->fault);
        job->fault->kind = TOW_PTX_FAULT_MEMORY;
        job->fault->kernel = job->launch->kernel->info.name;
        snprintf(job->fault->message, sizeof job->fault->message,
                 "out of host memory for the launch");
        atomic_store(&job->failed, true);
    }
    tow_mutex_unlock(&job->lock);
}

static void run_resident(struct tow_ptx_runner *runner)
{
    struct tow_ptx_job *job = runner->job;
    bool cooperative = job->launch->cooperative;
    uint64_t resident = 0, rounds = 0, share = 1, limit = RESIDENT_MAX;
    bool more = true;
    if (cooperative) {
        share = (job->total + job->threads - 1) / job->threads;
        limit = UINT64_MAX;
    }
    for (;;) {
        /* At least one block, or a cooperative grid's share; more when it takes long, because what
         * the resident ones wait for may be in a block that nobody has started. */
        if (rounds >= ROUNDS_BEFORE_NEXT && share < limit) {
            share = cooperative ? limit : share + 1;
            rounds = 0;
        }
        bool fill = resident < share;
        while (fill && more && !runner->failed) {
            uint32_t index = 0;
            while (index < runner->slot_count && runner->slots[index]->busy) {
                index++;
            }
            bool fresh = index >= runner->prepared;
            struct tow_ptx_slot *slot = fresh ? slot_make(runner, index) : runner->slots[index];
            if (!slot) {
                out_of_memory(job);
                runner->failed = true;
                break;
            }
            runner->prepared += fresh;
            more = slot_start(runner, slot);
            resident += more;
            fill = resident < share;
        }
        if (resident == 0 || runner->failed) {
            return;
        }
        for (uint32_t i = 0; i < runner->slot_count && !runner->failed; i++) {
            struct tow_ptx_slot *slot = runner->slots[i];
            if (slot->busy && slot_step(runner, slot) == STEP_DONE) {
                resident--;
                rounds = 0;
                share = cooperative ? share : 1;
            }
        }
        rounds++;
        if (launch_stopped(job)) {
            runner->failed = true;
        }
    }
}

static struct tow_ptx_runner *runner_take(struct tow_ptx_job *job)
{
    tow_mutex_lock(&idle.lock);
    struct tow_ptx_runner *runner = idle.runners;
    if (runner) {
        idle.runners = runner->next;
    }
    tow_mutex_unlock(&idle.lock);
    if (!runner) {
        runner = calloc(1, sizeof *runner);
        if (!runner) {
            return NULL;
        }
    }
    runner->job = job;
    runner->launch = job->launch;
    runner->params = job->params;
    runner->param_bytes = job->launch->kernel->info.param_bytes;
    runner->workspace = (uint8_t *)job->workspace;
    runner->failed = false;
    runner->prepared = 0;
    runner->slot_count = 0;
    memset(runner->sites, 0, sizeof runner->sites);
    return runner;
}

/* A failed launch leaves frames in warps; they go back before the runner is reused. */
static void runner_give(struct tow_ptx_runner *runner)
{
    for (uint32_t i = 0; i < runner->slot_count; i++) {
        struct tow_ptx_slot *slot = runner->slots[i];
        for (uint32_t b = 0; slot && b < slot->count; b++) {
            tow_ptx_races_free(slot->blocks[b].races); /* so large that it is not kept */
            slot->blocks[b].races = NULL;
            for (uint32_t j = 0; j < slot->blocks[b].warp_count; j++) {
                struct tow_ptx_warp *w = &slot->blocks[b].warps[j];
                for (uint32_t g = 0; g < w->groups_used; g++) {
                    for (struct tow_ptx_frame *f = w->groups[g].frame, *up; f; f = up) {
                        up = f->up;
                        f->lanes &= ~w->groups[g].mask;
                        if (!f->lanes) {
                            tow_ptx_frame_give(runner, f);
                        }
                    }
                }
                w->groups_used = 0;
            }
        }
        /* Memory that only a large launch needed is not kept. */
        if (i >= 2 && slot) {
            slot_free(slot);
            runner->slots[i] = NULL;
        }
    }
    if (runner->slot_count > 2) {
        runner->slot_count = 2;
    }
    for (unsigned i = 0; i < 16 && runner->frame_bytes > FRAMES_BYTES_KEPT; i++) {
        while (runner->free_frames[15 - i]) { /* the largest first */
            struct tow_ptx_frame *frame = runner->free_frames[15 - i];
            runner->free_frames[15 - i] = frame->up;
            runner->frame_bytes -= frame->capacity;
            free(frame);
        }
    }
    tow_mutex_lock(&idle.lock);
    runner->next = idle.runners;
    idle.runners = runner;
    tow_mutex_unlock(&idle.lock);
}

static void job_work(void *user)
{
    struct tow_ptx_job *job = user;
    struct tow_ptx_runner *runner = runner_take(job);
    if (!runner) {
        out_of_memory(job);
        return;
    }
    run_resident(runner);
    runner_give(runner);
}

int tow_ptx_run(const struct tow_ptx_launch *launch, unsigned threads,
                struct tow_ptx_fault *ret_fault)
{
    struct tow_ptx_fault fault; /* filled by whoever fails first */
    struct tow_ptx_job job = {.launch = launch, .fault = &fault};
    const struct tow_ptx_kernel *kernel = launch->kernel;
    uint64_t block_threads = (uint64_t)launch->block[0] * launch->block[1];
    block_threads = block_threads > 1024 ? UINT32_MAX : block_threads * launch->block[2];
    bool sound = block_threads >= 1 && block_threads <= 1024;
    job.total = 1;
    job.cluster_blocks = 1;
    for (unsigned i = 0; i < 3; i++) {
        uint32_t cluster = launch->cluster[i];
        sound = sound && cluster && cluster <= CLUSTER_MAX && launch->grid[i] &&
                launch->grid[i] <= INT32_MAX && launch->grid[i] % cluster == 0;
        if (!sound) {
            break;
        }
        job.cluster_grid[i] = launch->grid[i] / cluster;
        job.total *= job.cluster_grid[i];
        job.cluster_blocks *= cluster;
        sound = job.total <= UINT64_MAX / INT32_MAX && job.cluster_blocks <= CLUSTER_MAX;
    }
    uint64_t shared = ((uint64_t)kernel->info.static_shared + 15u) & ~15ull;
    shared += launch->dynamic_shared;
    if (!sound || shared > PTX_SHARED_MAX) {
        ret_fault->kind = TOW_PTX_FAULT_INSTRUCTION;
        ret_fault->kernel = kernel->info.name;
        snprintf(ret_fault->message, sizeof ret_fault->message,
                 "the grid, block or cluster size of the launch is not possible");
        return -EINVAL;
    }
    job.block_threads = (uint32_t)block_threads;
    job.warps = (job.block_threads + LANES - 1) / LANES;
    shared = launch->dynamic_shared ? shared : kernel->info.static_shared;
    uint32_t unit = launch->found && launch->checks & TOW_PTX_CHECK_MEMORY ? 1 : SHARED_UNIT;
    job.shared_bytes = (uint32_t)(shared + unit - 1) & ~(unit - 1);
    uint64_t stack = launch->stack_bytes ? launch->stack_bytes : STACK_DEFAULT;
    stack = !kernel->uses_stack ? 0 : stack > LOCAL_MAX ? LOCAL_MAX : (stack + 15) & ~15ull;
    job.local_stride = kernel->own_local + (uint32_t)stack;
    uint32_t param_bytes = kernel->info.param_bytes;
    uint8_t *params = calloc(1, (size_t)param_bytes + 64);
    job.workspace = launch->cooperative ? calloc(1, WORKSPACE_BYTES) : NULL;
    if (!params || (launch->cooperative && !job.workspace)) {
        free(params);
        free(job.workspace);
        ret_fault->kind = TOW_PTX_FAULT_MEMORY;
        snprintf(ret_fault->message, sizeof ret_fault->message,
                 "out of host memory for the launch");
        return -ENOMEM;
    }
    if (param_bytes) {
        memcpy(params, launch->params, param_bytes);
    }
    job.params = params;
    job.threads = threads < 1 ? 1 : threads;
    if (job.threads > job.total) {
        job.threads = (unsigned)job.total;
    }
    tow_mutex_init(&job.lock, PTX_JOB);
    tow_ptx_pool_run(job_work, &job, job.threads);
    tow_mutex_fini(&job.lock);
    free(params);
    free(job.workspace);
    if (atomic_load(&job.failed)) {
        *ret_fault = fault;
        return -EIO;
    }
    return 0;
}
