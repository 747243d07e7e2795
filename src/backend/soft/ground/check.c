/* SPDX-License-Identifier: Apache-2.0 */
/* For `towline check`: what is found is put into words that a program reads: lines of JSON on a
 * pipe, each written at once, so that several processes may share it. */
#include "backend/soft/ground/check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/index.h"
#include "backend/soft/ground/state.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/json_write.h"
#include "base/log.h"
#include "base/mutex.h"

#define FREED_MAX 4096               /* freed pieces that are remembered */
#define TOLD_MAX 4096                /* mistakes that end nothing, and are not told again */
#define NEAR_MAX (UINT64_C(1) << 30) /* what is farther away has nothing to do with it */
#define NAME_MAX_ 400                /* bytes of a kernel's or a file's name that are told, */
#define NAME_LEAST 60 /* and where the line would be longer than a pipe takes at once */

static const struct {
    const char *name;
    unsigned bit;
} tools[TOW_SOFT_CHECK_TOOLS] = {{"memcheck", TOW_PTX_CHECK_MEMORY},
                                 {"synccheck", TOW_PTX_CHECK_SYNC},
                                 {"initcheck", TOW_PTX_CHECK_INIT},
                                 {"racecheck", TOW_PTX_CHECK_RACE}};
enum { MEMCHECK, SYNCCHECK, INITCHECK, RACECHECK };

struct freed {
    uint64_t base, size, number;
    enum tow_soft_alloc_kind kind;
};

static struct {
    int fd;
    unsigned checks;
    struct freed freed[FREED_MAX]; /* the latest ones; guarded by tow_soft.lock */
    uint64_t freed_count;
    uint8_t told[TOLD_MAX][TOW_SHA256_SIZE]; /* of earlier launches, too; the same lock */
    unsigned told_count;
} check = {.fd = -1};

/* What an address is near to. */
struct near {
    bool known, freed;
    uint64_t base, size, number;
    enum tow_soft_alloc_kind kind;
    const char *where; /* of the address: "before", "inside", "behind" */
    uint64_t distance;
};

uint64_t tow_soft_check_group_memory(const char *list, const char *root)
{
    char line[1024], name[2048];
    uint64_t least = UINT64_MAX;
    bool found = false;
    FILE *file = fopen(list, "re");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        found = strncmp(line, "0::", 3) == 0; /* of control groups of the second version */
    }
    for (char *end = found ? strchr(line, '\n') : NULL; end != NULL; end = strrchr(line, '/')) {
        unsigned long long most;
        *end = '\0';
        snprintf(name, sizeof name, "%s%s/memory.max", root, line + 3);
        FILE *max = fopen(name, "re");
        if (max != NULL && fscanf(max, "%llu", &most) == 1 && most < least) {
            least = most;
        }
        if (max != NULL) {
            fclose(max);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return least;
}

/* Half of the machine's, or of what control groups leave of it. */
static uint64_t race_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t all = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_C(2) << 30;
    uint64_t group = tow_soft_check_group_memory("/proc/self/cgroup", "/sys/fs/cgroup");
    return (group < all ? group : all) / 2;
}

int tow_soft_check_open(const char *order, char *why, size_t why_size)
{
    unsigned checks = 0;
    const char *path = order;
    while (*path != '\0' && *path != ':') {
        size_t length = strcspn(path, ",:"), i = 0;
        while (i < TOW_SOFT_CHECK_TOOLS &&
               (strlen(tools[i].name) != length || memcmp(tools[i].name, path, length) != 0)) {
            i++;
        }
        if (i == TOW_SOFT_CHECK_TOOLS) {
            snprintf(why, why_size, "The software GPU has no such tool to check with: %s.", order);
            return -EINVAL;
        }
        checks |= tools[i].bit;
        path += length + (path[length] == ',');
    }
    path += *path == ':';
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fcntl(fd, F_SETFL, 0) < 0) {
        int error = errno;
        if (fd >= 0) {
            close(fd);
        }
        snprintf(why, why_size, "%s, where findings are to go, cannot be opened: %s.", path,
                 strerror(error));
        return -error;
    }
    check.fd = fd;
    check.checks = checks;
    tow_ptx_check_loads(checks);
    tow_ptx_race_limit(race_memory());
    check.freed_count = 0;
    check.told_count = 0;
    return 0;
}

void tow_soft_check_close(void)
{
    if (check.fd >= 0) {
        close(check.fd);
        check.fd = -1;
        tow_ptx_check_loads(0);
    }
}

bool tow_soft_checked(void)
{
    return check.fd >= 0;
}

unsigned tow_soft_checks(void)
{
    return check.fd >= 0 ? check.checks : 0;
}

bool tow_soft_checks_memory(void)
{
    return (tow_soft_checks() & TOW_PTX_CHECK_MEMORY) != 0;
}

/* ---- what is where ---- */

void tow_soft_check_freed(const struct tow_soft_alloc *alloc)
{
    if (tow_soft_checks_memory()) {
        check.freed[check.freed_count++ % FREED_MAX] =
            (struct freed){alloc->base, alloc->size, alloc->number, alloc->kind};
    }
}

/* The piece that was freed last of those that hold the address. */
static const struct freed *check_find_freed(uint64_t address)
{
    uint64_t kept = check.freed_count < FREED_MAX ? check.freed_count : FREED_MAX;
    for (uint64_t i = 0; i < kept; i++) {
        const struct freed *freed = &check.freed[(check.freed_count - 1 - i) % FREED_MAX];
        if (address - freed->base < freed->size) {
            return freed;
        }
    }
    return NULL;
}

static void near_entry(struct near *near, const struct tow_soft_entry *entry, const char *where,
                       uint64_t distance)
{
    if (distance > NEAR_MAX || (near->known && near->distance <= distance)) {
        return;
    }
    *near = (struct near){.known = true,
                          .base = entry->low,
                          .size = entry->high - entry->low,
                          .number = entry->alloc != NULL ? entry->alloc->number : 0,
                          .kind = tow_soft_meta_kind(entry->meta),
                          .where = where,
                          .distance = distance};
}

static struct near check_nearest(uint64_t address)
{
    struct near near = {.known = false};
    struct tow_soft_entry entry;
    const struct freed *freed;
    if (tow_soft_index_find(address, &entry)) {
        near_entry(&near, &entry, "inside", address - entry.low);
    } else if ((freed = check_find_freed(address)) != NULL) {
        near = (struct near){.known = true,
                             .freed = true,
                             .base = freed->base,
                             .size = freed->size,
                             .number = freed->number,
                             .kind = freed->kind,
                             .where = "inside",
                             .distance = address - freed->base};
    } else {
        if (tow_soft_index_before(address, &entry)) {
            near_entry(&near, &entry, "behind", address - entry.high);
        }
        if (tow_soft_index_next(address, &entry)) {
            near_entry(&near, &entry, "before", entry.low - address);
        }
    }
    return near;
}

static const char *check_maker(enum tow_soft_alloc_kind kind)
{
    switch (kind) {
    case TOW_SOFT_MEM_DEVICE:
        return "cuMemAlloc";
    case TOW_SOFT_MEM_GLOBAL:
        return "cuModuleLoad";
    case TOW_SOFT_MEM_MANAGED:
        return "cuMemAllocManaged";
    case TOW_SOFT_MEM_HOST:
        return "cuMemHostAlloc";
    case TOW_SOFT_MEM_REGISTERED:
        return "cuMemHostRegister";
    case TOW_SOFT_MEM_POOL:
        return "cuMemAllocAsync";
    case TOW_SOFT_MEM_GRAPH:
        return "cuGraphAddMemAllocNode";
    case TOW_SOFT_MEM_VMM:
        return "cuMemMap";
    case TOW_SOFT_MEM_ARRAY:
        return "cuArrayCreate";
    case TOW_SOFT_MEM_HEAP:
        return "malloc";
    case TOW_SOFT_MEM_IPC:
        return "cuIpcOpenMemHandle";
    }
    return "";
}

/* ---- lines ---- */

static void put_hex(struct tow_json *json, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "0x%llx", (unsigned long long)value);
    tow_json_str(json, key, text);
}

static void put_name(struct tow_json *json, const char *key, const char *name, int most)
{
    char text[NAME_MAX_ + 1];
    if (name != NULL) {
        snprintf(text, sizeof text, "%.*s", most, name);
        tow_json_str(json, key, text);
    }
}

static void put_three(struct tow_json *json, const char *key, const uint32_t values[3])
{
    tow_json_array(json, key);
    for (unsigned i = 0; i < 3; i++) {
        tow_json_u64(json, NULL, values[i]);
    }
    tow_json_end(json);
}

static void put_near(struct tow_json *json, const struct near *near)
{
    if (!near->known) {
        return;
    }
    tow_json_object(json, "allocation");
    put_hex(json, "address", near->base);
    tow_json_u64(json, "bytes", near->size);
    tow_json_str(json, "call", check_maker(near->kind));
    tow_json_u64(json, "number", near->number);
    tow_json_bool(json, "freed", near->freed);
    tow_json_str(json, "where", near->where);
    tow_json_u64(json, "distance", near->distance);
    tow_json_end(json);
}

static void line_begin(struct tow_json *json, struct tow_buf *out, const char *tool,
                       const char *kind)
{
    tow_buf_init(out, 65536);
    tow_json_init(json, out);
    tow_json_object(json, NULL);
    tow_json_str(json, "tool", tool);
    tow_json_str(json, "kind", kind);
    tow_json_u64(json, "process", (uint64_t)getpid());
}

/* Writes the line and frees it; false, and nothing is written, if a pipe does not take it whole. */
static bool line_end(struct tow_json *json, struct tow_buf *out)
{
    tow_json_end(json);
    bool fits = tow_json_finish(json) == 0 && out->size < PIPE_BUF;
    if (fits) {
        char line[PIPE_BUF];
        memcpy(line, out->data, out->size);
        line[out->size] = '\n';
        ssize_t wrote;
        do {
            wrote = write(check.fd, line, out->size + 1);
        } while (wrote < 0 && errno == EINTR);
        if (wrote < 0) {
            tow_log(TOW_AREA_SOFT, TOW_LOG_WARN, "a finding cannot be told: %s", strerror(errno));
        }
    }
    tow_buf_fini(out);
    return fits;
}

/* ---- kernels ---- */

/* No mistake. */
static bool is_unseen(enum tow_ptx_fault_kind kind)
{
    return kind == TOW_PTX_FAULT_UNSEEN || kind == TOW_PTX_FAULT_UNSEEN_READS;
}

/* It ends nothing, so that it may come again in another launch. */
static bool only_told(enum tow_ptx_fault_kind kind)
{
    return kind == TOW_PTX_FAULT_DIVERGED || kind == TOW_PTX_FAULT_MASK_CALLER ||
           kind == TOW_PTX_FAULT_MASK_OTHER || kind == TOW_PTX_FAULT_UNWRITTEN ||
           kind == TOW_PTX_FAULT_RACE || is_unseen(kind);
}

/* Its number in tools[]. */
static unsigned tool_of(enum tow_ptx_fault_kind kind)
{
    bool sync = only_told(kind) || kind == TOW_PTX_FAULT_DEADLOCK;
    bool race = kind == TOW_PTX_FAULT_RACE || kind == TOW_PTX_FAULT_UNSEEN;
    bool init = kind == TOW_PTX_FAULT_UNWRITTEN || kind == TOW_PTX_FAULT_UNSEEN_READS;
    return init ? INITCHECK : race ? RACECHECK : sync ? SYNCCHECK : MEMCHECK;
}

/* It may be one of many, and is left out of a full list for what is more. */
static bool gives_way(enum tow_ptx_fault_kind kind)
{
    return only_told(kind) && !is_unseen(kind);
}

static uint64_t fault_order(const uint32_t at[3])
{
    return ((uint64_t)at[2] << 42) + ((uint64_t)at[1] << 21) + at[0];
}

static bool fault_before(const struct tow_ptx_fault *a, const struct tow_ptx_fault *b)
{
    uint64_t in_grid = fault_order(a->block), other = fault_order(b->block);
    return in_grid != other ? in_grid < other : fault_order(a->thread) < fault_order(b->thread);
}

/* Where another one goes, in place of what gives way where the list is full; NULL: nowhere. */
static struct tow_soft_finding *find_room(struct tow_soft_findings *all,
                                          enum tow_ptx_fault_kind kind)
{
    if (all->count < TOW_SOFT_FINDINGS_MAX) {
        return &all->list[all->count++];
    }
    for (unsigned i = gives_way(kind) ? 0 : all->count; i > 0; i--) {
        struct tow_soft_finding *one = &all->list[i - 1];
        if (gives_way(one->fault.kind)) {
            all->missed[tool_of(one->fault.kind)] += one->threads;
            return one;
        }
    }
    return NULL;
}

void tow_soft_check_found(void *findings, const struct tow_ptx_fault *fault)
{
    struct tow_soft_findings *all = findings;
    all->wrong |= !only_told(fault->kind);
    for (unsigned i = 0; i < all->count; i++) {
        struct tow_soft_finding *one = &all->list[i];
        if (one->fault.kind == fault->kind && one->fault.line == fault->line &&
            one->fault.function == fault->function && one->fault.place == fault->place &&
            one->fault.other.line == fault->other.line) {
            one->threads += 1 + fault->more;
            if (fault_before(fault, &one->fault)) {
                one->fault = *fault;
            }
            return;
        }
    }
    struct tow_soft_finding *room = find_room(all, fault->kind);
    if (room != NULL) {
        *room = (struct tow_soft_finding){*fault, UINT64_C(1) + fault->more};
    } else {
        all->missed[tool_of(fault->kind)] += UINT64_C(1) + fault->more;
    }
}

/* No memory of the host or of an allocation is there: addresses of shared and local memory, and of
 * functions, as generic ones. */
static bool is_window(uint64_t address)
{
    return address >> 48 != 0;
}

static const char *kind_of_address(const struct tow_ptx_fault *fault, const struct near *near)
{
    bool elsewhere = fault->place == TOW_PTX_PLACE_GLOBAL ? is_window(fault->address)
                                                          : fault->address >> 32 != 0;
    if (fault->place == TOW_PTX_PLACE_OTHER) {
        return "bad-address";
    }
    if (elsewhere) {
        return "wrong-space";
    }
    if (fault->place != TOW_PTX_PLACE_GLOBAL || !near->known) {
        return "out-of-bounds";
    }
    if (near->freed) {
        return "use-after-free";
    }
    uint64_t left = near->size - near->distance;
    bool whole = strcmp(near->where, "inside") == 0 && left >= fault->bytes;
    return whole ? "no-access" : "out-of-bounds";
}

static const char *kind_of(const struct tow_ptx_fault *fault, const struct near *near)
{
    switch (fault->kind) {
    case TOW_PTX_FAULT_ADDRESS:
        return kind_of_address(fault, near);
    case TOW_PTX_FAULT_MISALIGNED:
        return "misaligned";
    case TOW_PTX_FAULT_SPACE:
        return "wrong-space";
    case TOW_PTX_FAULT_ASSERT:
        return "assert";
    case TOW_PTX_FAULT_TRAP:
        return "trap";
    case TOW_PTX_FAULT_INSTRUCTION:
        return "illegal-instruction";
    case TOW_PTX_FAULT_STACK:
        return "stack-overflow";
    case TOW_PTX_FAULT_DEADLOCK:
        return "barrier-stuck";
    case TOW_PTX_FAULT_UNDEFINED:
        return "undefined-function";
    case TOW_PTX_FAULT_OVERDUE:
        return "overdue";
    case TOW_PTX_FAULT_DIVERGED:
        return "divergent-warp";
    case TOW_PTX_FAULT_MASK_CALLER:
        return "mask-without-caller";
    case TOW_PTX_FAULT_MASK_OTHER:
        return "mask-mismatch";
    case TOW_PTX_FAULT_UNWRITTEN:
        return "uninitialized";
    case TOW_PTX_FAULT_RACE:
        return "race";
    case TOW_PTX_FAULT_UNSEEN:
    case TOW_PTX_FAULT_UNSEEN_READS:
        return "not-looked-at";
    case TOW_PTX_FAULT_NONE:
    case TOW_PTX_FAULT_STOPPED:
    case TOW_PTX_FAULT_MEMORY:
        break;
    }
    return "other";
}

/* Whether it was told of an earlier launch; from now on it was. The same code may be loaded several
 * times; other code may have the same names. */
static bool told_before(const struct tow_ptx_fault *fault, const uint8_t *code)
{
    struct tow_sha256 sha;
    char text[2 * NAME_MAX_ + 64];
    uint8_t digest[TOW_SHA256_SIZE];
    int n = snprintf(text, sizeof text, "%d %d %u %u %.*s %.*s", (int)fault->kind,
                     (int)fault->place, fault->line, fault->other.line, NAME_MAX_, fault->kernel,
                     NAME_MAX_, fault->function != NULL ? fault->function : "");
    tow_sha256_init(&sha);
    tow_sha256_update(&sha, code, TOW_SHA256_SIZE);
    tow_sha256_update(&sha, text, (size_t)n);
    tow_sha256_final(&sha, digest);
    for (unsigned i = 0; i < check.told_count; i++) {
        if (memcmp(check.told[i], digest, sizeof digest) == 0) {
            return true;
        }
    }
    if (check.told_count < TOLD_MAX) {
        memcpy(check.told[check.told_count++], digest, sizeof digest);
    }
    return false;
}

static const char *const deeds[] = {"", "read", "write"};

static void put_other(struct tow_json *json, const struct tow_ptx_fault *fault, int names)
{
    const struct tow_ptx_other *other = &fault->other;
    if (fault->kind != TOW_PTX_FAULT_RACE) {
        return;
    }
    unsigned low = fault->file_line < other->file_line ? fault->file_line : other->file_line;
    unsigned high = fault->file_line < other->file_line ? other->file_line : fault->file_line;
    tow_json_array(json, "lines");
    tow_json_u64(json, NULL, low);
    tow_json_u64(json, NULL, high);
    tow_json_end(json);
    tow_json_object(json, "other");
    tow_json_str(json, "access", deeds[other->deed]);
    put_name(json, "function", other->function, names);
    put_name(json, "file", other->file, names);
    tow_json_u64(json, "line", other->file_line);
    tow_json_u64(json, "ptx_line", other->line);
    put_three(json, "thread", other->thread);
    tow_json_end(json);
}

static bool tell_finding(const struct tow_soft_finding *finding, int names)
{
    static const char *const places[] = {"", "global", "shared", "local"};
    const struct tow_ptx_fault *fault = &finding->fault;
    bool global = fault->place == TOW_PTX_PLACE_GLOBAL;
    struct near near = {.known = false};
    if (global && !is_window(fault->address)) {
        near = check_nearest(fault->address);
    }
    struct tow_buf out;
    struct tow_json json;
    line_begin(&json, &out, tools[tool_of(fault->kind)].name, kind_of(fault, &near));
    tow_json_str(&json, "access", deeds[fault->deed]);
    tow_json_str(&json, "space", places[fault->place]);
    tow_json_u64(&json, "bytes", fault->bytes);
    put_hex(&json, "address", fault->address);
    tow_json_u64(&json, "room", fault->room);
    put_name(&json, "kernel", fault->kernel, names);
    put_name(&json, "function", fault->function, names);
    put_name(&json, "file", fault->file, names);
    tow_json_u64(&json, "line", fault->file_line);
    tow_json_u64(&json, "ptx_line", fault->line);
    put_three(&json, "block", fault->block);
    put_three(&json, "thread", fault->thread);
    tow_json_u64(&json, "threads", finding->threads);
    put_other(&json, fault, names);
    tow_json_str(&json, "message", fault->message);
    put_near(&json, &near);
    return line_end(&json, &out);
}

/* Mistakes of a tool for which there was no room: once of a kernel, as what is only told. */
static void tell_missed(const struct tow_soft_findings *findings, unsigned tool)
{
    const char *kernel = findings->list[0].fault.kernel;
    struct tow_ptx_fault fault = {.kind = TOW_PTX_FAULT_NONE, .line = tool, .kernel = kernel};
    struct tow_buf out;
    struct tow_json json;
    if (findings->missed[tool] == 0 || told_before(&fault, findings->code)) {
        return;
    }
    line_begin(&json, &out, tools[tool].name, "more");
    put_name(&json, "kernel", kernel, NAME_MAX_);
    tow_json_u64(&json, "threads", findings->missed[tool]);
    line_end(&json, &out);
}

void tow_soft_check_tell(const struct tow_soft_findings *findings)
{
    tow_mutex_lock(&tow_soft.lock); /* allocations are looked at */
    for (unsigned i = 0; i < findings->count; i++) {
        const struct tow_ptx_fault *fault = &findings->list[i].fault;
        if (only_told(fault->kind) && told_before(fault, findings->code)) {
            continue;
        }
        if (!tell_finding(&findings->list[i], NAME_MAX_)) {
            tell_finding(&findings->list[i], NAME_LEAST);
        }
    }
    for (unsigned i = 0; i < TOW_SOFT_CHECK_TOOLS; i++) {
        tell_missed(findings, i);
    }
    tow_mutex_unlock(&tow_soft.lock);
}

/* ---- calls ---- */

void tow_soft_check_bad_free(uint64_t address, const char *call, bool twice)
{
    if (!tow_soft_checks_memory()) {
        return;
    }
    struct near near = check_nearest(address);
    struct tow_buf out;
    struct tow_json json;
    twice |= near.known && near.freed && near.base == address;
    line_begin(&json, &out, "memcheck", twice ? "double-free" : "bad-free");
    put_hex(&json, "address", address);
    tow_json_str(&json, "call", call);
    put_near(&json, &near);
    line_end(&json, &out);
}

void tow_soft_check_leaks(const struct tow_soft_ctx *ctx)
{
    if (!tow_soft_checks_memory() || ctx->error != CUDA_SUCCESS) {
        return; /* nobody can free anything behind an error */
    }
    for (const struct tow_soft_alloc *alloc = ctx->allocs; alloc != NULL; alloc = alloc->next) {
        bool freed_by_call = alloc->kind == TOW_SOFT_MEM_DEVICE ||
                             alloc->kind == TOW_SOFT_MEM_MANAGED ||
                             alloc->kind == TOW_SOFT_MEM_HOST || alloc->kind == TOW_SOFT_MEM_POOL;
        if (!freed_by_call || alloc->variable) {
            continue;
        }
        struct near near = {.known = true,
                            .base = alloc->base,
                            .size = alloc->size,
                            .number = alloc->number,
                            .kind = alloc->kind,
                            .where = "inside"};
        struct tow_buf out;
        struct tow_json json;
        line_begin(&json, &out, "memcheck", "leak");
        tow_json_u64(&json, "bytes", alloc->size);
        put_near(&json, &near);
        line_end(&json, &out);
    }
}

void tow_soft_check_session(enum tow_backend_session what)
{
    tow_mutex_lock(&tow_soft.lock);
    for (unsigned i = 0; what == TOW_BACKEND_LEFT && i < tow_soft.device_count; i++) {
        if (tow_soft.devices[i].primary != NULL) {
            tow_soft_check_leaks(tow_soft.devices[i].primary);
        }
    }
    const struct tow_soft_ctx *ctx = what == TOW_BACKEND_LEFT ? tow_soft.contexts : NULL;
    for (; ctx != NULL; ctx = ctx->next) {
        tow_soft_check_leaks(ctx);
    }
    struct tow_buf out;
    struct tow_json json;
    tow_buf_init(&out, 256);
    tow_json_init(&json, &out);
    tow_json_object(&json, NULL);
    tow_json_str(&json, "session", what == TOW_BACKEND_BEGINS ? "begins" : "ends");
    line_end(&json, &out);
    tow_mutex_unlock(&tow_soft.lock);
}
