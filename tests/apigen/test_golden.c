/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of every message, compared with golden/wire.txt, and read again.
 *
 * Client and server may be built for different machines; this is what they must agree on. Three
 * parts: the generated marshalling (gen/FAMILY_golden.c: made-up arguments, the client's half, the
 * server's half, a made-up driver that looks at what arrived), the control frames
 * (golden_control.c), and the commands with an encoding by hand (golden_by_hand.c: a session in
 * this process).
 *
 * test_golden FILE           compares
 * test_golden FILE --bless   writes FILE anew; the difference belongs in the commit that made it.
 *                            Not if a function's bytes change and its hash does not.
 *
 * No cmocka: tests/system/test_cross.py builds and runs this for another machine.
 */
#include "base/mutex.h"
#include "golden.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "client/link/call.h"
#include "client/link/link.h"
#include "gen/cuda_types.h"
#include "gen/server_api.h"
#include "gen/context.h"
#include "server/session/session.h"
#include "wire/frame.h"

bool golden_bare;

/* ---- the lines ---- */

enum { LINES_MAX = 4096, FULL_MAX = 384 };
static char *lines[LINES_MAX]; /* owned */
static unsigned line_count, wrong, asked;
static const char *current = "";

void golden_wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%s%s: ", current, golden_bare ? " (bare)" : "");
    vprintf(format, args);
    printf("\n");
    va_end(args);
    wrong++;
}

void golden_line(const char *name, const char *way, const void *bytes, size_t size)
{
    char *line = malloc(strlen(name) + 2 * FULL_MAX + 160);
    if (line == NULL || line_count == LINES_MAX) {
        golden_wrong("no room for more lines");
        free(line);
        return;
    }
    const uint8_t *byte = bytes;
    char *at = line + sprintf(line, "%s%s %s ", name, golden_bare ? "/bare" : "", way);
    size_t shown = size <= FULL_MAX ? size : 64;
    for (size_t i = 0; i < shown; i++) {
        at += sprintf(at, "%02x", byte[i]);
    }
    if (shown < size) {
        uint8_t hash[TOW_SHA256_SIZE];
        tow_sha256_of(bytes, size, hash);
        at += sprintf(at, "... %zu bytes, sha256 ", size);
        for (size_t i = 0; i < sizeof hash; i++) {
            at += sprintf(at, "%02x", hash[i]);
        }
    }
    lines[line_count++] = line;
}

/* The words before the bytes: two lines are about the same message if they agree in these. */
static size_t key(const char *line)
{
    const char *way = strchr(line, ' ');
    const char *bytes = way == NULL ? NULL : strchr(way + 1, ' ');
    return bytes == NULL ? strlen(line) : (size_t)(bytes - line);
}

static bool has(char *const *all, unsigned count, const char *line)
{
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(all[i], line) == 0) {
            return true;
        }
    }
    return false;
}

static char *golden[LINES_MAX]; /* owned: what the file has */
static unsigned golden_count;

static void read_golden(const char *path)
{
    FILE *file = fopen(path, "r");
    static char text[4096];
    while (file != NULL && golden_count < LINES_MAX && fgets(text, sizeof text, file) != NULL) {
        text[strcspn(text, "\n")] = '\0';
        golden[golden_count++] = strdup(text);
    }
    if (file == NULL || fclose(file) != 0) {
        perror(path);
        wrong++;
    }
}

/* A peer with the same hash of a function takes its bytes for what they were: if they are no
 * longer, its hash must not stay either. */
static unsigned count_secret_changes(void)
{
    unsigned count = 0;
    const char *said = "";
    for (unsigned i = 0; i < golden_count; i++) {
        size_t name = strcspn(golden[i], " /");
        const char *way = strchr(golden[i], ' ');
        if (way == NULL || way[1] == '=' || has(lines, line_count, golden[i])) {
            continue;
        }
        for (unsigned k = 0; k < golden_count; k++) {
            if (strncmp(golden[k], golden[i], name) == 0 &&
                strncmp(golden[k] + name, " = ", 3) == 0 && has(lines, line_count, golden[k]) &&
                strcmp(said, golden[k]) != 0) {
                printf("%.*s travels otherwise under the same hash: raise its wire(N) in api/\n",
                       (int)name, golden[i]);
                said = golden[k];
                count++;
            }
        }
    }
    return count;
}

static int bless(const char *path)
{
    if (count_secret_changes() > 0) {
        return 1;
    }
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    for (unsigned i = 0; i < line_count; i++) {
        fprintf(file, "%s\n", lines[i]);
    }
    return fclose(file) != 0;
}

static void compare(void)
{
    unsigned at = 0;
    current = "wire.txt";
    golden_bare = false;
    for (unsigned i = 0; i < golden_count; i++) {
        const char *text = golden[i];
        if (at == line_count) {
            golden_wrong("%.*s is no longer sent", (int)key(text), text);
            continue;
        }
        if (strcmp(text, lines[at]) != 0) {
            if (key(text) != key(lines[at]) || memcmp(text, lines[at], key(text)) != 0) {
                golden_wrong("has %.*s where %.*s is sent", (int)key(text), text,
                             (int)key(lines[at]), lines[at]);
                break; /* all that follow would differ */
            }
            golden_wrong("other bytes\n  was %s\n  is  %s", text, lines[at]);
        }
        at++;
    }
    if (at < line_count) {
        golden_wrong("lacks %.*s and what follows", (int)key(lines[at]), lines[at]);
    }
    wrong += count_secret_changes();
}

/* ---- made-up values ---- */

static struct tows_session session;
static struct tow_driver driver;
static uint64_t minted; /* the new id of the call under way */

static uint64_t id_of(enum tow_handle_kind kind, unsigned index)
{
    return TOW_ID_MAKE(kind, 0, 0x1234, (unsigned)kind * 256 + index);
}

uintptr_t golden_made(enum tow_handle_kind kind, unsigned index)
{
    return 0xd00000000000u + ((uintptr_t)kind << 16) + (uintptr_t)index * 16;
}

uintptr_t golden_id(enum tow_handle_kind kind, unsigned index)
{
    uint64_t id = id_of(kind, index);
    if (tows_handles_find(&session.handles, id) == NULL &&
        tows_handles_bind(&session.handles, id, (void *)golden_made(kind, index), CUDA_SUCCESS, 0) <
            0) {
        golden_wrong("id %llx cannot be bound", (unsigned long long)id);
    }
    return (uintptr_t)id;
}

uintptr_t golden_new(enum tow_handle_kind kind)
{
    minted = TOW_ID_MAKE(kind, 0, 0x77, (unsigned)kind * 256 + 200);
    return (uintptr_t)minted;
}

void golden_fill(void *into, size_t size, unsigned seed)
{
    uint8_t *byte = into;
    for (size_t i = 0; i < size; i++) {
        byte[i] = (uint8_t)(seed + i * 3);
    }
}

void golden_shape_CUmemLocation(CUmemLocation *record, enum golden_side side)
{
    bool program = side == GOLDEN_PROGRAM || side == GOLDEN_PROGRAM_ANSWER;
    record->type = CU_MEM_LOCATION_TYPE_DEVICE;
    record->id = program ? (int)GOLDEN_DEVICE : (int)GOLDEN_ORDINAL;
}

void golden_shape_CUmemAllocationProp(CUmemAllocationProp *record, enum golden_side side)
{
    record->win32HandleMetaData = NULL;
    golden_shape_CUmemLocation(&record->location, side);
}

void golden_shape_CUmemAccessDesc(CUmemAccessDesc *record, enum golden_side side)
{
    golden_shape_CUmemLocation(&record->location, side);
}

void golden_shape_CUmemPoolProps(CUmemPoolProps *record, enum golden_side side)
{
    record->win32SecurityAttributes = NULL;
    golden_shape_CUmemLocation(&record->location, side);
}

static void *array_seen_by(enum golden_side side)
{
    switch (side) {
    case GOLDEN_PROGRAM:
        return (void *)golden_id(TOW_H_ARRAY, 100);
    case GOLDEN_PROGRAM_ANSWER:
        return (void *)(uintptr_t)tows_handles_known(&session.handles, TOW_H_ARRAY,
                                                     (void *)golden_made(TOW_H_ARRAY, 100));
    default:
        return (void *)golden_made(TOW_H_ARRAY, 100);
    }
}

void golden_shape_CUDA_RESOURCE_DESC(CUDA_RESOURCE_DESC *record, enum golden_side side)
{
    record->resType = CU_RESOURCE_TYPE_ARRAY;
    record->res.array.hArray = array_seen_by(side);
}

void golden_shape_CUarrayMapInfo(CUarrayMapInfo *record, enum golden_side side)
{
    record->resourceType = CU_RESOURCE_TYPE_ARRAY;
    record->resource.array = array_seen_by(side);
}

/* ---- looks ---- */

static unsigned current_fn, driven; /* the function under way; how often its driver was called */
static bool looking;                /* false while a handler asks the driver for something else */

void golden_driven(unsigned fn)
{
    looking = fn == current_fn;
    driven += looking;
}

void golden_see(const char *what, const void *got, const void *want, size_t size)
{
    asked++;
    if (looking && memcmp(got, want, size) != 0) {
        golden_wrong("%s did not arrive at the driver as it was sent", what);
    }
}

void golden_see_u64(const char *what, uint64_t got, uint64_t want)
{
    asked++;
    if (looking && got != want) {
        golden_wrong("%s arrived at the driver as %llx, not as %llx", what, (unsigned long long)got,
                     (unsigned long long)want);
    }
}

void golden_see_text(const char *what, const char *got, const char *want)
{
    asked++;
    if (looking && (got == NULL || strcmp(got, want) != 0)) {
        golden_wrong("%s arrived at the driver as '%s'", what, got == NULL ? "(null)" : got);
    }
}

void golden_see_handle(const char *what, enum tow_handle_kind kind, unsigned index, void *handle)
{
    golden_see_u64(what, (uintptr_t)handle, golden_made(kind, index));
}

void golden_took(const char *what, const void *got, const void *want, size_t size)
{
    asked++;
    if (memcmp(got, want, size) != 0) {
        golden_wrong("%s did not come back as the driver gave it", what);
    }
}

void golden_took_handle(const char *what, enum tow_handle_kind kind, unsigned index, void *handle)
{
    asked++;
    const struct tows_handle_entry *entry =
        tows_handles_find(&session.handles, (uint64_t)(uintptr_t)handle);
    if (entry == NULL || entry->handle != (void *)golden_made(kind, index)) {
        golden_wrong("%s came back as %p, which is not the id of the driver's handle", what,
                     handle);
    }
}

void golden_bound(const char *what, enum tow_handle_kind kind, unsigned index)
{
    asked++;
    const struct tows_handle_entry *entry = tows_handles_find(&session.handles, minted);
    if (entry == NULL || entry->handle != (void *)golden_made(kind, index)) {
        golden_wrong("%s is not tied to the driver's new handle", what);
    }
}

void golden_sent(CUresult status)
{
    if (status != CUDA_SUCCESS) {
        golden_wrong("answered %d", status);
    }
}

/* ---- the line between the two halves of the generated code ---- */

static bool scripted; /* true: the functions below stand for the real ones */
static uint64_t frame_room[(TOW_FRAME_MAX + 8) / 8];

CUresult __real_towc_call_begin(struct towc_call *, unsigned, size_t, unsigned);
CUresult __real_towc_call_begin_for(struct towc_call *, struct towc_link *, unsigned, size_t,
                                    unsigned);
CUresult __real_towc_call_send(struct towc_call *);
CUresult __real_towc_call_wait(struct towc_call *);
CUresult __real_towc_device_route(CUdevice, struct towc_link **);
int __real_towc_device_to_server(CUdevice);
CUdevice __real_towc_device_on(const struct towc_link *, int);
CUresult __wrap_towc_call_begin(struct towc_call *, unsigned, size_t, unsigned);
CUresult __wrap_towc_call_begin_for(struct towc_call *, struct towc_link *, unsigned, size_t,
                                    unsigned);
CUresult __wrap_towc_call_send(struct towc_call *);
CUresult __wrap_towc_call_wait(struct towc_call *);
CUresult __wrap_towc_device_route(CUdevice, struct towc_link **);
int __wrap_towc_device_to_server(CUdevice);
CUdevice __wrap_towc_device_on(const struct towc_link *, int);

CUresult __wrap_towc_device_route(CUdevice device, struct towc_link **link)
{
    return scripted ? CUDA_SUCCESS : __real_towc_device_route(device, link);
}

int __wrap_towc_device_to_server(CUdevice device)
{
    if (!scripted) {
        return __real_towc_device_to_server(device);
    }
    return device == GOLDEN_DEVICE ? (int)GOLDEN_ORDINAL : -1;
}

CUdevice __wrap_towc_device_on(const struct towc_link *link, int ordinal)
{
    if (!scripted) {
        return __real_towc_device_on(link, ordinal);
    }
    return ordinal == GOLDEN_ORDINAL ? (CUdevice)GOLDEN_DEVICE : CU_DEVICE_INVALID;
}

CUresult __wrap_towc_call_begin(struct towc_call *call, unsigned fn, size_t bytes, unsigned flags)
{
    if (!scripted) {
        return __real_towc_call_begin(call, fn, bytes, flags);
    }
    memset(call, 0, sizeof *call);
    size_t room = tow_frame_length(bytes);
    memset(frame_room, 0xee, room);
    call->frame = (uint8_t *)frame_room;
    call->fn = (uint16_t)fn;
    call->context = flags & TOW_CALL_CONTEXT ? 7 : 0;
    call->waits = (flags & TOW_CALL_REPLY) != 0;
    call->enc = tow_frame_begin(call->frame, room);
    return CUDA_SUCCESS;
}

CUresult __wrap_towc_call_begin_for(struct towc_call *call, struct towc_link *link, unsigned fn,
                                    size_t bytes, unsigned flags)
{
    return scripted ? __wrap_towc_call_begin(call, fn, bytes, flags)
                    : __real_towc_call_begin_for(call, link, fn, bytes, flags);
}

/* The server's half, on the first `length` bytes of a frame. What it answered is freed by the
 * caller. */
static CUresult serve(const uint8_t *frame, uint32_t length, bool *ret_malformed,
                      uint8_t **ret_reply, uint32_t *ret_size)
{
    /* At its exact size, so that a sanitizer sees a look beyond its end. */
    uint8_t *copy = malloc(length);
    uint8_t *reply = NULL;
    struct tows_serve *call = calloc(1, sizeof *call);
    if (copy == NULL || call == NULL) {
        abort();
    }
    memcpy(copy, frame, length);
    call->session = &session;
    call->driver = &driver;
    memcpy(&call->frame, copy, sizeof call->frame);
    call->frame.length = length;
    call->in = tow_frame_body(copy, &call->frame);
    call->out_start = (uint8_t *)call->small;
    call->out = tow_enc_init(call->small, sizeof call->small);
    session.table[call->frame.kind](call);
    CUresult status = call->status;
    size_t size = status == CUDA_SUCCESS ? (size_t)(call->out.at - call->out_start) : 0;
    if (call->out.overflow) {
        golden_wrong("the server asked for too little room for its reply");
    }
    uint32_t whole = tow_frame_length(size);
    reply = calloc(1, whole);
    if (reply == NULL) {
        abort();
    }
    struct tow_frame head = {.length = whole,
                             .kind = TOW_CONTROL_REPLY,
                             .thread = call->frame.thread,
                             .context = (uint32_t)status,
                             .seq = call->frame.seq};
    tow_frame_write(reply, &head);
    memcpy(reply + TOW_FRAME_HEADER, call->out_start, size);
    *ret_malformed = call->malformed;
    *ret_reply = reply;
    *ret_size = whole;
    /* Each block begins with the link to the next, as the session that frees them has it. */
    for (void *block = call->blocks, *next; block != NULL; block = next) {
        memcpy(&next, block, sizeof next);
        free(block);
    }
    free(call);
    free(copy);
    return status;
}

/* A frame cut short never reaches the driver with other arguments than were sent: either nothing is
 * missed (padding), or the peer broke the protocol. */
static void serve_cut(const uint8_t *frame, uint32_t length)
{
    for (uint32_t cut = TOW_FRAME_HEADER; cut < length; cut += 4) {
        bool malformed = false;
        uint8_t *reply = NULL;
        uint32_t size = 0;
        unsigned before = driven;
        CUresult status = serve(frame, cut, &malformed, &reply, &size);
        if (driven == before && status == CUDA_SUCCESS && !malformed) {
            golden_wrong("cut to %u bytes it is neither carried out nor refused", cut);
        }
        free(reply);
        if (minted != 0) {
            tows_handles_unbind(&session.handles, minted);
        }
    }
}

static uint32_t finish(struct towc_call *call)
{
    struct tow_frame frame = {
        .kind = call->fn, .thread = 9, .context = call->context, .seq = call->waits ? 0x51 : 0};
    uint32_t length = 0;
    if (tow_frame_end(&call->enc, call->frame, frame, &length) < 0) {
        golden_wrong("the client asked for too little room for its command");
        return 0;
    }
    golden_line(current, ">", call->frame, length);
    return length;
}

static CUresult pass(struct towc_call *call, uint8_t **ret_reply, uint32_t *ret_size)
{
    uint32_t length = finish(call);
    bool malformed = false;
    if (length == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    serve_cut(call->frame, length);
    unsigned before = driven;
    CUresult status = serve(call->frame, length, &malformed, ret_reply, ret_size);
    if (malformed || driven != before + 1) {
        golden_wrong("the server did not understand it");
    }
    return status;
}

/* ---- the same of a real session ---- */

static pthread_t program; /* only its calls are kept: others come in no certain order */

static bool is_by_hand(unsigned fn)
{
    for (unsigned i = 0; golden_families[i] != NULL; i++) {
        for (const uint16_t *at = golden_families[i]->by_hand; *at != 0; at++) {
            if (*at == fn) {
                return true;
            }
        }
    }
    return false;
}

static bool sent[TOW_FN_LIMIT];

/* Before it is sent: afterwards the place belongs to the line. */
static bool keep_command(const struct towc_call *call)
{
    if (call->fn >= TOW_FN_LIMIT || !is_by_hand(call->fn) ||
        !pthread_equal(pthread_self(), program)) {
        return false;
    }
    size_t size = (size_t)(call->enc.at - call->frame);
    uint32_t length = tow_frame_length(size - TOW_FRAME_HEADER);
    uint8_t *copy = calloc(1, length);
    if (copy == NULL) {
        abort();
    }
    memcpy(copy, call->frame, size);
    struct tow_frame head = {
        .length = length, .kind = call->fn, .context = call->context, .seq = call->waits};
    tow_frame_write(copy, &head);
    golden_line(tow_fn_info(call->fn)->name, ">", copy, length);
    free(copy);
    sent[call->fn] = true;
    return true;
}

static void keep_reply(const struct towc_call *call, CUresult status)
{
    size_t size = call->waiter.size;
    uint32_t length = tow_frame_length(size);
    uint8_t *copy = calloc(1, length);
    if (copy == NULL) {
        abort();
    }
    struct tow_frame head = {
        .length = length, .kind = TOW_CONTROL_REPLY, .context = (uint32_t)status, .seq = 1};
    tow_frame_write(copy, &head);
    if (size > 0) {
        memcpy(copy + TOW_FRAME_HEADER, call->waiter.body, size);
    }
    golden_line(tow_fn_info(call->fn)->name, "<", copy, length);
    free(copy);
}

static void run_by_hand(void)
{
    program = pthread_self();
    golden_run_by_hand();
    for (unsigned fn = 0; fn < TOW_FN_LIMIT; fn++) {
        if (is_by_hand(fn) && !sent[fn]) {
            golden_wrong("%s is never sent: golden_by_hand.c lacks a call of it",
                         tow_fn_info(fn)->name);
        }
    }
}

CUresult __wrap_towc_call_send(struct towc_call *call)
{
    if (!scripted) {
        keep_command(call);
        return __real_towc_call_send(call);
    }
    uint8_t *reply = NULL;
    uint32_t size = 0;
    CUresult status = pass(call, &reply, &size);
    if (size > TOW_FRAME_HEADER) {
        golden_wrong("an answer that nobody waits for");
    }
    free(reply);
    return status;
}

CUresult __wrap_towc_call_wait(struct towc_call *call)
{
    if (!scripted) {
        bool kept = keep_command(call);
        CUresult status = __real_towc_call_wait(call);
        if (kept) {
            keep_reply(call, status);
        }
        return status;
    }
    uint8_t *reply = NULL;
    uint32_t size = 0;
    CUresult status = pass(call, &reply, &size);
    if (reply == NULL) {
        return status;
    }
    golden_line(current, "<", reply, size);
    /* towc_call_end frees it; at its exact size, as above. */
    call->waiter.size = size - TOW_FRAME_HEADER;
    call->waiter.body = malloc(call->waiter.size > 0 ? call->waiter.size : 1);
    memcpy(call->waiter.body, reply + TOW_FRAME_HEADER, call->waiter.size);
    call->dec = tow_dec_init(call->waiter.body, call->waiter.size);
    free(reply);
    return status;
}

/* Managed variables are asked for without a context: the session takes the first device's. */
static CUresult retain(CUcontext *context, CUdevice device)
{
    (void)device;
    *context = (CUcontext)golden_made(TOW_H_CONTEXT, 0);
    return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static void run_vector(const struct golden_vector *vector)
{
    current = vector->name;
    current_fn = vector->fn;
    for (int bare = 0; bare <= vector->optional; bare++) {
        golden_bare = bare != 0;
        minted = 0;
        /* Anew for each: what one hands out does not change the next one's bytes. */
        tows_handles_fini(&session.handles);
        memset(&session.handles, 0, sizeof session.handles);
        if (tows_handles_init(&session.handles) < 0) {
            abort();
        }
        unsigned before = driven;
        vector->send();
        if (driven == before) {
            golden_wrong("never reached the driver");
        }
    }
}

static void run_generated(void)
{
    tow_driver_fill_stubs(&driver);
    for (unsigned i = 0; golden_families[i] != NULL; i++) {
        golden_families[i]->fill(&driver);
    }
    tow_driver_set(&driver, cuDevicePrimaryCtxRetain, retain);
    tow_driver_set(&driver, cuCtxSetCurrent, set_current);
    tows_serve_add_all(session.table);
    static const struct tows_session_options options = {.id = 1, .in_process = true};
    session.driver = &driver;
    session.options = &options;
    if (tows_session_init(&session) < 0) {
        abort();
    }
    scripted = true;
    for (unsigned i = 0; golden_families[i] != NULL; i++) {
        for (const struct golden_vector *v = golden_families[i]->vectors; v->send != NULL; v++) {
            run_vector(v);
        }
    }
    golden_bare = false;
    scripted = false;
}

/* By these a client and a server of different tables know what they have in common. */
static void run_hashes(void)
{
    for (unsigned number = 0; number < TOW_FN_LIMIT; number++) {
        const struct tow_fn_info *info = tow_fn_info(number);
        char *line = malloc(256);
        if (info == NULL || info->travels == 0 || line == NULL || line_count == LINES_MAX) {
            free(line);
            continue;
        }
        snprintf(line, 256, "%s = %u %08x", info->name, number, info->travels);
        lines[line_count++] = line;
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: test_golden FILE [--bless]\n");
        return 2;
    }
    if (!golden_has_addresses()) {
        printf("this kernel has no memory at the addresses that the golden file names\n");
        return 77;
    }
    run_generated();
    current = "control frames";
    golden_run_control();
    current = "by hand";
    run_by_hand();
    run_hashes();
    read_golden(argv[1]);
    if (argc > 2 && strcmp(argv[2], "--bless") == 0) {
        return bless(argv[1]) | (wrong != 0);
    }
    compare();
    printf("%u lines, %u looks at arguments and outputs, %u wrong\n", line_count, asked, wrong);
    if (wrong > 0) {
        printf(
            "If the wire was meant to change: test_golden %s --bless. A function whose hash\n"
            "(its line with '=') changes is lacking to peers of another version; if a control\n"
            "frame changes so that an older peer would misread it, raise the protocol's version\n"
            "(src/wire/limits.h).\n",
            argv[1]);
    }
    for (unsigned i = 0; i < golden_count; i++) {
        free(golden[i]);
    }
    for (unsigned i = 0; i < line_count; i++) {
        free(lines[i]);
    }
    return wrong != 0;
}
