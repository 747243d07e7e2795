/* SPDX-License-Identifier: Apache-2.0 */
/* Records calls and waits: a ring for each thread, which it fills and others empty. */
#include "client/timeline/inside.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "client/session/modes.h"
#include "client/session/thread.h"
#include "client/timeline/timeline.h"
#include "gen/functions.h"

enum {
    RING = 1024,      /* records; a power of 2 */
    RINGS_MAX = 1024, /* threads at a time: 32 MiB */
    WAIT = TOW_FN_LIMIT,
};

/* A call, or (WAIT) a wait in one. */
struct record {
    int64_t began_ns, ended_ns;
    uint64_t waited_ns, command;
    uint32_t fn;
    int32_t result;
};

struct towc_ring {
    struct towc_ring *next; /* guarded by the lock */
    uint32_t begun;         /* of which beginning it is */
    uint32_t thread;
    bool named;         /* guarded by the lock: the file has its name */
    char name[24];      /* fixed */
    atomic_bool ended;  /* its thread has; set once */
    uint64_t waited_ns; /* its thread's */
    atomic_uint head;   /* its thread puts records there */
    atomic_uint tail;   /* written with the lock held */
    struct record records[RING];
};

/* Process-wide: the program's threads. */
static struct {
    uint32_t begun; /* how often: a child of this process has its own */
    uint32_t process;
    struct towc_ring *rings; /* owned; guarded by the lock, as is `count` */
    unsigned count;
    uint64_t calls;        /* the same */
    _Atomic uint64_t lost; /* no ring was to be had */
    bool have_key;
    pthread_key_t key;
} recorded;

/* Process-wide: whoever has this one is none of the program's threads. */
static struct towc_ring nobody;

/* ---- rings ---- */

/* On the thread that ends. It may still call: it gets a new one then. */
static void thread_ends(void *value)
{
    struct towc_ring *ring = value;
    if (towc_thread_here != NULL && towc_thread_here->ring == ring) {
        towc_thread_here->ring = NULL;
    }
    atomic_store_explicit(&ring->ended, true, memory_order_release);
}

static void name_ring(struct towc_ring *ring)
{
    char name[16] = "";
    if (prctl(PR_GET_NAME, name) != 0 || name[0] == '\0') {
        snprintf(name, sizeof name, "thread");
    }
    snprintf(ring->name, sizeof ring->name, "%s%s", name,
             ring->thread == recorded.process ? " (main)" : "");
}

static struct towc_ring *ring_make(struct towc_thread *self)
{
    struct towc_ring *ring = recorded.have_key ? pthread_getspecific(recorded.key) : NULL;
    if (ring != NULL && ring->begun == recorded.begun && !atomic_load(&ring->ended)) {
        return self->ring = ring; /* the thread ends, and its state was made anew */
    }
    ring = calloc(1, sizeof *ring);
    if (ring == NULL) {
        return NULL;
    }
    ring->begun = recorded.begun;
    ring->thread = (uint32_t)tow_thread_id();
    name_ring(ring);
    bool room = towc_timeline_take() != NULL;
    if (room) {
        room = recorded.count < RINGS_MAX;
        if (room) {
            recorded.count++;
            ring->next = recorded.rings;
            recorded.rings = ring;
        }
        towc_timeline_give();
    }
    if (!room) {
        free(ring);
        return NULL;
    }
    if (recorded.have_key) {
        pthread_setspecific(recorded.key, ring);
    }
    return self->ring = ring;
}

/* The calling thread's; NULL: there is none to be had. */
static struct towc_ring *ring_here(void)
{
    struct towc_thread *self = towc_thread_self();
    if (self == NULL) {
        return NULL;
    }
    struct towc_ring *ring = self->ring;
    return ring != NULL && ring->begun == recorded.begun ? ring : ring_make(self);
}

/* ---- recording ---- */

static void record_keep(struct towc_ring *ring, const struct record *record)
{
    unsigned head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    unsigned held = head - atomic_load_explicit(&ring->tail, memory_order_acquire);
    if (held == RING) {
        /* Nobody has come round to it: who makes so many calls writes them down himself. */
        struct towc_out *out = towc_timeline_take();
        if (out == NULL) {
            return;
        }
        towc_record_drain(out);
        towc_timeline_give();
    }
    ring->records[head % RING] = *record;
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    if (held == RING / 2) {
        towc_timeline_hurry();
    }
}

uint64_t towc_timeline_waited(void)
{
    const struct towc_ring *ring = ring_here();
    return ring != NULL ? ring->waited_ns : 0;
}

void towc_timeline_called(const struct towc_timeline_call *call, uint64_t waited)
{
    struct towc_ring *ring = ring_here();
    if (ring == NULL) {
        atomic_fetch_add_explicit(&recorded.lost, 1, memory_order_relaxed);
        return;
    }
    struct record record = {.began_ns = call->began_ns,
                            .ended_ns = call->ended_ns,
                            .command = call->command,
                            .fn = call->fn};
    record.waited_ns = ring->waited_ns >= waited ? ring->waited_ns - waited : 0;
    record.result = (int32_t)call->result;
    record_keep(ring, &record);
}

/* The hook of client/session/modes.h. */
static void waited_since(int64_t began_ns)
{
    struct towc_ring *ring =
        atomic_load_explicit(&towc_timeline_on, memory_order_acquire) ? ring_here() : NULL;
    if (ring == NULL || ring == &nobody) {
        return;
    }
    struct record record = {.began_ns = began_ns, .ended_ns = tow_time_now_ns(), .fn = WAIT};
    ring->waited_ns += (uint64_t)(record.ended_ns - began_ns);
    record_keep(ring, &record);
}

void towc_record_not_me(void)
{
    struct towc_thread *self = towc_thread_self();
    nobody.begun = recorded.begun;
    if (self != NULL) {
        self->ring = &nobody;
    }
}

/* ---- writing down ---- */

/* Whether what it does shows on the GPU. */
static bool gives_work(const char *name)
{
    static const char *const first[] = {"cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset"};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        if (strncmp(name, first[i], strlen(first[i])) == 0) {
            return true;
        }
    }
    return false;
}

static void write_record(struct towc_out *out, const struct towc_ring *ring,
                         const struct record *record)
{
    const struct tow_fn_info *info = record->fn != WAIT ? tow_fn_info(record->fn) : NULL;
    char name[96];
    struct towc_out_arg args[2];
    struct towc_out_event event = {
        .process = recorded.process,
        .thread = ring->thread,
        .began_ns = record->began_ns,
        .ended_ns = record->ended_ns,
        .kind = "wait",
        .name = "\"waits for the server\"",
        .args = args,
    };
    if (record->fn != WAIT) {
        size_t length = info != NULL ? strnlen(info->name, sizeof name - 3) : 0;
        name[0] = '"';
        memcpy(name + 1, info != NULL ? info->name : "", length);
        memcpy(name + 1 + length, "\"", 2);
        event.kind = "call";
        event.name = name;
        event.flow = info != NULL && gives_work(info->name) ? record->command : 0;
        recorded.calls++;
        if (record->waited_ns > 0) {
            args[event.arg_count++] = (struct towc_out_arg){"waited_us", record->waited_ns, true};
        }
        if (record->result != 0) {
            args[event.arg_count++] =
                (struct towc_out_arg){"result", (uint64_t)record->result, false};
        }
    }
    towc_out_span(out, &event);
}

static void drain_ring(struct towc_out *out, struct towc_ring *ring)
{
    unsigned head = atomic_load_explicit(&ring->head, memory_order_acquire);
    unsigned tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (head != tail && !ring->named) {
        towc_out_name(out, recorded.process, ring->thread, ring->name);
        ring->named = true;
    }
    for (; tail != head; tail++) {
        write_record(out, ring, &ring->records[tail % RING]);
    }
    atomic_store_explicit(&ring->tail, tail, memory_order_release);
}

void towc_record_drain(struct towc_out *out)
{
    for (struct towc_ring **at = &recorded.rings; *at != NULL;) {
        struct towc_ring *ring = *at;
        bool ended = atomic_load_explicit(&ring->ended, memory_order_acquire);
        drain_ring(out, ring);
        if (ended) {
            *at = ring->next;
            recorded.count--;
            free(ring);
        } else {
            at = &ring->next;
        }
    }
}

uint64_t towc_record_calls(void)
{
    return recorded.calls;
}

uint64_t towc_record_lost(void)
{
    return atomic_load(&recorded.lost);
}

bool towc_record_begin(uint32_t process)
{
    if (!recorded.have_key) {
        recorded.have_key = pthread_key_create(&recorded.key, thread_ends) == 0;
    }
    recorded.begun++;
    recorded.process = process;
    recorded.rings = NULL; /* a parent's rings are left as they are: its threads may be in them */
    recorded.count = 0;
    recorded.calls = 0;
    atomic_store(&recorded.lost, 0);
    atomic_store(&towc_wait_hook, waited_since);
    return recorded.have_key;
}
